//! The patience of a caller that lacks a frame: when it checks again, and when it fails.

use super::{BufferedPath, Frames};
use crate::error::IoError;
use crate::time::{Duration, Instant};

/// A caller that lacks a frame fails after so much time without I/O in flight: all frames are borrowed for good.
const PATIENCE: Duration = Duration::from_secs(10);

/// The same where write-back fails. A failed page is retried earlier than that, and more than once.
const UNWRITABLE_PATIENCE: Duration = Duration::from_secs(1);

/// The first interval between checks. A reader that only copies a page does not report its end, but has left the frame
/// by then unless the scheduler suspended it. So each further interval is twice as long.
const CHECK_MIN: Duration = Duration::from_micros(100);

/// The longest interval.
const CHECK_MAX: Duration = Duration::from_millis(10);

/// How long one caller has lacked a frame.
#[derive(Debug)]
pub struct Starvation {
    idle: Duration,
    interval: Duration,
}

/// No frame is free, and none will be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoFrame {
    /// All frames are borrowed.
    AllBorrowed {
        /// How many there are.
        pages: u32,
    },
    /// Dirty pages cannot be written back.
    Unwritable {
        /// How many of them failed.
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
    /// When the caller checks for a frame next ([`BufferedPath::handle_unpinned`]), unless its outcome comes earlier.
    pub fn next_check(&mut self, now: Instant) -> Instant {
        let check = now + self.interval;
        self.interval = (self.interval * 2).min(CHECK_MAX);
        check
    }

    /// The caller has waited for so long with no I/O in flight.
    pub fn handle_idle(&mut self, duration: Duration) {
        self.idle += duration;
    }
}

impl<F: Frames> BufferedPath<F> {
    /// Whether `waiter` waits for any frame: then it waits by a [`Starvation`].
    pub fn is_starved(&self, waiter: u64) -> bool {
        self.cache.is_starved(waiter)
    }

    /// Whether the patience of `waiter` has ended: it does not wait any more, and its call fails.
    pub fn give_up(&mut self, waiter: u64, starvation: &Starvation) -> Option<NoFrame> {
        let has_failed = starvation.idle >= UNWRITABLE_PATIENCE;
        let unwritable = if has_failed { self.cache.unwritable() } else { None };
        let error = match unwritable {
            Some((pages, source)) => NoFrame::Unwritable { pages, source },
            None if starvation.idle >= PATIENCE => NoFrame::AllBorrowed { pages: self.cache.config().frames },
            None => return None,
        };
        self.cache.stop_starving(waiter).then_some(error)
    }
}
