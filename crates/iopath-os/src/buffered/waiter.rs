//! The record of a thread that waits. Does not wait: see `wait.rs`.

use iopath_core::Instant;
use iopath_core::cache::Outcome;

use crate::sync::thread::Thread;

/// A thread that waits.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) thread: Thread,
    pub(super) outcome: Option<Outcome>,
    /// It sleeps, and no thread has woken it yet.
    pub(super) is_asleep: bool,
    /// When it wakes by itself.
    pub(super) wakes_at: Option<Instant>,
}
