//! A counter that many threads increment, each on a cache line of its own.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::thread_number;

/// The number of threads with a cache line of their own. Further threads share a line: the count stays exact, but costs
/// more.
const LANES: usize = 64;

/// A sum to which threads add without sharing cache lines.
#[derive(Debug)]
pub(super) struct Counter {
    lanes: Box<[Lane]>,
    shared: Lane,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Lane {
    count: AtomicU64,
}

impl Default for Counter {
    fn default() -> Self {
        Self { lanes: (0..LANES).map(|_| Lane::default()).collect(), shared: Lane::default() }
    }
}

impl Counter {
    #[inline]
    pub(super) fn add(&self, count: u64) {
        self.add_as(thread_number(), count);
    }

    /// Thread numbers are unique: only one thread changes a lane, so no atomic addition is needed.
    #[inline]
    fn add_as(&self, thread: usize, count: u64) {
        match self.lanes.get(thread) {
            Some(Lane { count: own }) => own.store(own.load(Relaxed) + count, Relaxed),
            None => {
                self.shared.count.fetch_add(count, Relaxed);
            }
        }
    }

    pub(super) fn sum(&self) -> u64 {
        let lanes = self.lanes.iter().chain([&self.shared]);
        lanes.map(|lane| lane.count.load(Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_many_threads_are_exact() {
        let counter = Counter::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..1000).for_each(|_| counter.add(2)));
            }
        });
        assert_eq!(counter.sum(), 8000);
    }

    #[test]
    fn counts_of_threads_that_share_a_line_are_exact() {
        let counter = Counter::default();
        counter.add_as(LANES - 1, 1);
        std::thread::scope(|scope| {
            for thread in LANES..LANES + 4 {
                let counter = &counter;
                scope.spawn(move || (0..1000).for_each(|_| counter.add_as(thread, 2)));
            }
        });
        assert_eq!(counter.sum(), 8001);
    }
}
