//! The timeouts of a caller that lacks a frame: the time of its next check, and the time at which it fails.

use super::{BufferedPath, Frames};
use crate::error::IoError;
use crate::time::{Duration, Instant};

/// A caller that lacks a frame fails after this time without I/O in flight: all frames are borrowed.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same while write-back fails. Within this time, a failed page is retried several times.
const UNWRITABLE_PATIENCE: Duration = Duration::from_secs(1);

/// The first interval between checks. A reader that only copies a page does not report that it has left the frame, so
/// the caller must check. After this interval the reader has left, unless the scheduler suspended it. So each further
/// interval is twice as long.
const CHECK_MIN: Duration = Duration::from_micros(100);

/// The longest interval.
const CHECK_MAX: Duration = Duration::from_millis(10);

/// The time for which one caller has lacked a frame.
#[derive(Debug)]
pub struct Starvation {
    idle: Duration,
    interval: Duration,
}

/// The reason why no frame will become free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFrame {
    /// All frames are borrowed.
    AllBorrowed {
        /// The number of frames.
        pages: u32,
    },
    /// Dirty pages cannot be written back.
    Unwritable {
        /// The number of pages whose write-back failed.
        pages: u32,
        /// The last error.
        source: IoError,
    },
}

impl Default for Starvation {
    fn default() -> Self {
        Self { idle: Duration::ZERO, interval: CHECK_MIN }
    }
}

impl Starvation {
    /// The time of the caller's next check for a frame ([`BufferedPath::handle_unpinned`]), unless its outcome is known
    /// earlier.
    pub fn next_check(&mut self, now: Instant) -> Instant {
        let check = now + self.interval;
        self.interval = (self.interval * 2).min(CHECK_MAX);
        check
    }

    /// Adds a time for which the caller has waited with no I/O in flight.
    pub fn handle_idle(&mut self, duration: Duration) {
        self.idle += duration;
    }
}

impl<F: Frames> BufferedPath<F> {
    /// Whether `waiter` waits for any frame. If so, the caller uses a [`Starvation`] for its waits.
    pub fn is_starved(&self, waiter: u64) -> bool {
        self.cache.is_starved(waiter)
    }

    /// Ends the wait of `waiter` for any frame, since its caller no longer exists. Returns whether it waited; if so, it
    /// gets no outcome.
    pub fn stop_waiting_for_frame(&mut self, waiter: u64) -> bool {
        self.cache.stop_starving(waiter)
    }

    /// If `waiter` has timed out, removes it and returns the reason: its call fails.
    pub fn fail_starved(&mut self, waiter: u64, starvation: &Starvation) -> Option<NoFrame> {
        let has_failed = starvation.idle >= UNWRITABLE_PATIENCE;
        let unwritable = if has_failed { self.cache.unwritable() } else { None };
        let error = match unwritable {
            Some((pages, source)) => NoFrame::Unwritable { pages, source },
            None if starvation.idle >= PATIENCE => NoFrame::AllBorrowed { pages: self.cache.budget_max() },
            None => return None,
        };
        self.cache.stop_starving(waiter).then_some(error)
    }
}
