//! The locks, condition variables, threads and atomics of code that blocks. A normal build re-exports those of the
//! standard library, without a cost.
//!
//! A build with `--cfg iopath_explore` replaces them by models under a scheduler (crate `shuttle`) with a virtual
//! clock. `cargo xtask explore` searches interleavings for lost wake-ups and hangs: docs/internals/tests.md. Not
//! part of the public interface: only `iopath` uses it.

#[cfg(not(iopath_explore))]
mod eventfd;

#[cfg(not(iopath_explore))]
mod standard {
    pub(crate) use super::eventfd::EventFd;
    pub use std::sync::{Condvar, Mutex, MutexGuard, atomic};
    pub use std::thread;
    pub(crate) use std::time::Instant;

    /// The assumed cost of an I/O of the threads engine until one has been measured, in nanoseconds.
    pub(crate) const FIRST_COST_NANOS: u64 = 1_000_000;
}

#[cfg(not(iopath_explore))]
pub use standard::*;

#[cfg(iopath_explore)]
mod explore;
#[cfg(iopath_explore)]
mod explored_eventfd;
#[cfg(iopath_explore)]
mod lock;
#[cfg(iopath_explore)]
mod schedule;
#[cfg(iopath_explore)]
pub mod thread;
#[cfg(iopath_explore)]
mod time;
#[cfg(iopath_explore)]
mod waiter;

#[cfg(iopath_explore)]
mod explored {
    pub use super::explore::{Exploration, elapsed, is_timed, pick};
    pub use super::lock::{Condvar, Mutex, MutexGuard};
    pub use shuttle::sync::atomic;

    pub(crate) use super::explored_eventfd::EventFd;
    pub(crate) use super::thread::task_number;
    pub(crate) use super::time::{Instant, virtual_now};

    /// A few samples are enough for the engine to treat all I/O as quick, since runs are short.
    pub(crate) const FIRST_COST_NANOS: u64 = 10_000;
}

#[cfg(iopath_explore)]
pub use explored::*;
