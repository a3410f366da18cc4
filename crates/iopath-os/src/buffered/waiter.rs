//! The record of a thread that waits. The wait itself is in `wait.rs`.

use iopath_core::Instant;
use iopath_core::cache::Outcome;

use crate::sync::thread::Thread;

/// A thread that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) thread: Thread,
    pub(super) outcome: Option<Outcome>,
    /// Whether it sleeps and no thread has woken it yet.
    pub(super) is_asleep: bool,
    /// The time at which it wakes without another thread.
    pub(super) wakes_at: Option<Instant>,
}
