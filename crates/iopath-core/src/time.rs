//! A point in time. The core has no clock: the runner passes the time as an argument.

use std::ops::{Add, Sub};

pub use core::time::Duration;

/// Nanoseconds since an epoch that the runner chooses. It never decreases within one run.
///
/// In real time it comes from `CLOCK_MONOTONIC`; in virtual time the runner advances it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant(u64);

impl Instant {
    /// The epoch.
    pub const ZERO: Self = Self(0);

    /// The point `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time since `earlier`, or zero if `earlier` is later.
    pub fn saturating_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of time, 584 years after the epoch.
    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_minus_earlier_is_the_time_between() {
        let start = Instant::from_nanos(5);
        let end = start + Duration::from_nanos(7);
        assert_eq!(end - start, Duration::from_nanos(7));
        assert_eq!(start - end, Duration::ZERO);
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        assert_eq!(Instant::from_nanos(u64::MAX) + Duration::from_secs(1), Instant::from_nanos(u64::MAX));
    }
}
