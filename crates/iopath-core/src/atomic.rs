//! The atomics of the frames' state words. They come from the standard library. In a build with `--cfg iopath_explore`
//! they come from `shuttle`, whose scheduler may switch threads before each access (`iopath-os/src/sync.rs`). The model
//! of `shuttle` is sequentially consistent, so it does not explore the effects of weaker orderings.

#[cfg(iopath_explore)]
pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
#[cfg(not(iopath_explore))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
