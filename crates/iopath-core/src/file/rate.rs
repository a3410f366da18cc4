//! Measures the throughput of a device while it is busy. Reads no clock and does not average over idle time: a reader
//! that pauses does not make the device look slow.

use crate::time::{Duration, Instant};

/// Bytes moved, and the time during which at least one byte was in flight.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meter {
    /// Wider than the lengths it sums up, so that it cannot overflow.
    in_flight: u128,
    /// The time since which I/O is in flight; meaningless while none is.
    busy_since: Instant,
    busy: Duration,
    moved: u64,
}

impl Meter {
    /// An I/O of `bytes` bytes was submitted.
    pub(crate) fn issued(&mut self, bytes: u64, now: Instant) {
        if self.in_flight == 0 {
            self.busy_since = now;
        }
        self.in_flight += u128::from(bytes);
    }

    /// An I/O of `bytes` bytes has completed, of which `moved` were transferred.
    ///
    /// # Panics
    /// If more bytes complete than were submitted: a bug of the caller.
    pub(crate) fn completed(&mut self, bytes: u64, moved: u64, now: Instant) {
        let back = u128::from(bytes);
        assert!(back <= self.in_flight, "{bytes} bytes completed and only {} are in flight", self.in_flight);
        self.busy = self.busy.saturating_add(now - self.busy_since);
        self.busy_since = now;
        self.in_flight -= back;
        self.moved = self.moved.saturating_add(moved);
    }

    /// Bytes moved since the last [`Meter::take_rate`].
    pub(crate) const fn moved(&self) -> u64 {
        self.moved
    }

    /// The time during which I/O was in flight since then.
    pub(crate) const fn busy(&self) -> Duration {
        self.busy
    }

    /// Bytes per second of busy time; 0 if no time passed. Resets the meter.
    pub(crate) fn take_rate(&mut self) -> u64 {
        let nanos = self.busy.as_nanos();
        let rate = (u128::from(self.moved) * 1_000_000_000).checked_div(nanos).unwrap_or(0);
        self.busy = Duration::ZERO;
        self.moved = 0;
        u64::try_from(rate).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_does_not_count() {
        let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
        let mut meter = Meter::default();
        meter.issued(1000, at(0));
        meter.issued(1000, at(1));
        meter.completed(1000, 1000, at(5));
        meter.completed(1000, 1000, at(10));
        meter.issued(1000, at(500));
        meter.completed(1000, 1000, at(510));
        assert_eq!(meter.take_rate(), 150_000);
        assert_eq!(meter.take_rate(), 0);
    }
}
