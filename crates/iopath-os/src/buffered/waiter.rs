//! The records of threads, requests and commands that wait. The code that waits is in `wait.rs` and `notify.rs`.

use iopath_core::cache::{DirectTag, IoTag, Outcome};
use iopath_core::{Extent, Op};

use crate::device::Notifier;
use crate::election::Sleep;
use crate::sync::thread::{JoinHandle, Thread};

/// A caller that waits for an outcome.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) role: Role,
    /// The outcome for a thread.
    pub(super) outcome: Option<Outcome>,
    /// Only a thread sleeps.
    pub(super) sleep: Sleep,
    /// A thread that may perform the flush of the device that it waits for.
    pub(super) is_flush: bool,
}

/// What happens when the outcome of a waiter is known.
#[derive(Debug)]
pub(super) enum Role {
    /// The thread is woken.
    Thread(Thread),
    /// The outcome goes to a queue of requests.
    Request(RequestId),
    /// The command with that key is submitted to the device.
    Command(usize),
    /// Nothing: the queue was dropped.
    Abandoned,
}

/// Names a request of a [`CacheQueue`](super::CacheQueue).
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestId {
    /// The key of the queue's [`Owner`].
    pub(super) owner: usize,
    /// The key of the request in its queue.
    pub(super) request: u32,
}

/// A queue of requests, as far as other threads access it.
#[derive(Debug, Default)]
pub(super) struct Owner {
    /// The thread that waits for the queue.
    pub(super) thread: Option<usize>,
    /// Requests that can continue.
    pub(super) ready: Vec<(u32, Outcome)>,
    /// Notified when a request can continue.
    pub(super) notifier: Option<Notifier>,
    /// Requests that wait for an outcome.
    pub(super) waiting: u32,
}

/// The thread that polls for event loops, as other threads see it.
#[derive(Debug, Default)]
pub(super) struct Poller {
    /// `None` before the first one. The last one has ended, or uses the cache no longer, unless it is running.
    pub(super) thread: Option<JoinHandle<()>>,
    pub(super) is_running: bool,
    /// It has nothing to poll for.
    pub(super) is_idle: bool,
    /// Its waiter.
    pub(super) waiter: Option<usize>,
}

/// A discard or write of zeroes on behalf of a request. Ends without its queue: other callers may wait for it.
#[derive(Debug)]
pub(super) struct Command {
    /// `None` once the queue was dropped.
    pub(super) request: Option<RequestId>,
    pub(super) op: Op,
    pub(super) extent: Extent,
    /// Set while it is at the device.
    pub(super) tag: Option<DirectTag>,
}

/// The failures that were reported, as [`PageCache::failures`](iopath_core::cache::PageCache::failures) counts them.
#[derive(Debug, Default)]
pub(super) struct Reported {
    pub(super) failures: (u64, u64),
    /// The thread that reports while no other does; `None` without a receiver.
    pub(super) flusher: Option<Thread>,
}

/// The flusher's thread.
#[derive(Debug)]
pub(super) enum Flusher {
    /// It runs, sleeps with a time limit, or was not started.
    Awake,
    /// It sleeps without a time limit.
    Parked(Thread),
    /// A shared thread no longer visits the cache, because it was idle.
    Ended,
}

/// The device flush of the page cache, which the calling thread performs if it may.
#[derive(Debug, Default)]
pub(super) enum OwnFlush {
    /// It goes to the queue.
    #[default]
    Queued,
    /// The calling thread takes the next one.
    Wanted,
    /// The calling thread has taken this one.
    Taken(IoTag),
}
