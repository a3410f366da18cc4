//! The measured cost of a read or write: a moving average.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::sync::FIRST_COST_NANOS;

/// An I/O that takes less than this is quick: about the cost of waking a thread, switching to it and being woken by it.
const QUICK: Duration = Duration::from_micros(8);

/// The time of a read or write: a moving average in which each new sample weighs an eighth.
#[derive(Debug)]
pub(super) struct Cost {
    nanos: AtomicU64,
}

impl Cost {
    /// A high cost, for use before the first sample.
    pub(super) const fn unknown() -> Self {
        Self { nanos: AtomicU64::new(FIRST_COST_NANOS) }
    }

    /// Whether a read or write takes less time than waking a thread for it.
    pub(super) fn is_quick(&self) -> bool {
        self.get() < QUICK
    }

    fn get(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    /// Adds a sample. A concurrent sample may be lost: this is an estimate.
    pub(super) fn add(&self, sample: Duration) {
        let before = self.nanos.load(Relaxed);
        let sample = u64::try_from(sample.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.store(before - before / 8 + sample / 8, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_follows_its_samples() {
        let cost = Cost::unknown();
        (0..60).for_each(|_| cost.add(Duration::from_micros(2)));
        assert!(cost.get() < Duration::from_micros(4), "{:?}", cost.get());
        cost.add(Duration::from_millis(1));
        assert!(cost.get() > Duration::from_micros(100), "one slow I/O: {:?}", cost.get());
    }
}
