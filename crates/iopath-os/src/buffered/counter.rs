//! Counts what many threads do, each on a cache line of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::thread_number;

/// More threads than this share lines: the count stays right, and costs more.
const LANES: usize = 64;

/// A sum to which threads add without disturbing each other.
#[derive(Debug)]
pub(super) struct Counter {
    lanes: Box<[Lane]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    count: AtomicU64,
}

impl Default for Counter {
    fn default() -> Self {
        Self { lanes: (0..LANES).map(|_| Lane::default()).collect() }
    }
}

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.lanes[thread_number() % LANES].count.fetch_add(count, Relaxed);
    }

    pub(super) fn sum(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.count.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_between_threads() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.sum(), 8000);
    }
}
