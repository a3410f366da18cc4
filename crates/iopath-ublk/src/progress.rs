//! The progress of an end, and the time at which it is given up without any. Reads no clock.

use std::time::{Duration, Instant};

/// Interval of the checks for progress.
const TICK: Duration = Duration::from_secs(1);

/// Work that changes as long as there is progress, such as the number of completed requests.
#[derive(Debug)]
pub(crate) struct Progress<T> {
    work: T,
    looked: Instant,
    deadline: Instant,
    limit: Duration,
}

impl<T: PartialEq> Progress<T> {
    /// `limit` is the longest time without progress.
    pub(crate) fn new(work: T, limit: Duration, now: Instant) -> Self {
        Self { work, looked: now, deadline: now + limit, limit }
    }

    /// Whether it is time for another look at the work.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now - self.looked >= TICK.min(self.limit / 10)
    }

    /// Moves the deadline if the work has changed since the last call. Returns whether it has.
    pub(crate) fn advance(&mut self, work: T, now: Instant) -> bool {
        self.looked = now;
        let has_progress = work != self.work;
        if has_progress {
            self.work = work;
            self.deadline = now + self.limit;
        }
        has_progress
    }

    /// Whether there was no progress for the limit.
    pub(crate) fn is_late(&self, now: Instant) -> bool {
        now >= self.deadline
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_given_up_only_without_progress() {
        let (began, limit, second) = (Instant::now(), Duration::from_secs(40), Duration::from_secs(1));
        let mut progress = Progress::new((7, 7), limit, began);
        assert!(!progress.is_due(began + second / 2));
        assert!(progress.is_due(began + second));
        assert!(!progress.advance((7, 7), began + second * 39));
        assert!(!progress.is_late(began + second * 39) && progress.is_late(began + limit), "no progress");
        // A page or a request each 39 s: the end takes minutes.
        for number in 1..10 {
            let now = began + second * 39 * number;
            assert!(!progress.is_late(now), "{number}");
            let work = (7 + number / 2, 7 + number.div_ceil(2));
            assert!(progress.advance(work, now), "{number}");
            assert!(progress.is_late(now + limit), "{number}");
        }
    }
}
