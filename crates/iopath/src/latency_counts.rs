//! Latencies of requests: one thread counts them, and any thread reads the counts. Reads no clock.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The lowest bound is this power of two of a nanosecond.
const FIRST_POWER: u32 = 10;

/// The classes: below each of the bounds, 1.024 µs to 34 s in factors of two, and the rest.
pub const LATENCY_CLASSES: usize = 27;

/// Counts latencies in classes of a factor of two, without locks and without allocation. One thread records; a second
/// one that records at the same time would lose counts.
#[derive(Debug, Default)]
// Its thread writes it for each request: not on a cache line of other threads.
#[repr(align(128))]
pub struct LatencyCounts {
    classes: [AtomicU64; LATENCY_CLASSES],
    sum_ns: AtomicU64,
}

impl LatencyCounts {
    /// Counts a latency.
    #[inline]
    pub fn record(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        // The first power of two above the latency.
        let power = (u64::BITS - ns.leading_zeros()).saturating_sub(FIRST_POWER);
        let class = &self.classes[(power as usize).min(LATENCY_CLASSES - 1)];
        // One thread writes, so it needs no atomic addition.
        class.store(class.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        self.sum_ns.store(self.sum_ns.load(Ordering::Relaxed).wrapping_add(ns), Ordering::Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn get(&self) -> LatencyTotals {
        LatencyTotals {
            classes: self.classes.each_ref().map(|class| class.load(Ordering::Relaxed)),
            sum_ns: self.sum_ns.load(Ordering::Relaxed),
        }
    }
}

/// The counts of one [`LatencyCounts`], or of several.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LatencyTotals {
    /// The latencies of each class.
    pub classes: [u64; LATENCY_CLASSES],
    /// The sum of all latencies in nanoseconds.
    pub sum_ns: u64,
}

impl LatencyTotals {
    /// The bound of each class but the last: its latencies are shorter.
    pub fn bounds() -> impl Iterator<Item = Duration> {
        (FIRST_POWER..).take(LATENCY_CLASSES - 1).map(|power| Duration::from_nanos(1 << power))
    }

    /// The number of latencies.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.classes.iter().sum()
    }
}

impl std::ops::AddAssign for LatencyTotals {
    fn add_assign(&mut self, other: Self) {
        self.classes.iter_mut().zip(other.classes).for_each(|(sum, count)| *sum += count);
        self.sum_ns = self.sum_ns.wrapping_add(other.sum_ns);
    }
}

impl std::iter::Sum for LatencyTotals {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |mut sum, one| {
            sum += one;
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_latency_is_in_the_class_below_the_next_bound() {
        let bounds: Vec<Duration> = LatencyTotals::bounds().collect();
        assert_eq!((bounds[0], bounds.len()), (Duration::from_nanos(1024), LATENCY_CLASSES - 1));
        let counts = LatencyCounts::default();
        for (class, bound) in bounds.iter().enumerate() {
            counts.record(bound.saturating_sub(Duration::from_nanos(1)));
            assert_eq!(counts.get().classes[class], if class == 0 { 1 } else { 2 }, "below {bound:?}");
            counts.record(*bound);
            assert_eq!(counts.get().classes[class + 1], 1, "{bound:?}");
        }
        counts.record(Duration::MAX);
        counts.record(Duration::ZERO);
        let totals = counts.get();
        assert_eq!((totals.classes[0], totals.classes[LATENCY_CLASSES - 1]), (2, 2));
        let both: LatencyTotals = [totals, totals].into_iter().sum();
        assert_eq!(both.count(), 2 * totals.count());
    }
}
