//! The atomics of the frames' state words: the standard library's. In a build with `--cfg iopath_explore` they are
//! `shuttle`'s, so that its scheduler may switch threads before each access (`iopath-os/src/sync.rs`). Its model is
//! sequentially consistent: what a weaker ordering allows beyond that is not explored.

#[cfg(iopath_explore)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(iopath_explore))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
