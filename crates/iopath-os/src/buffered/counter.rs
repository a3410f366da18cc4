//! Counts what many threads do, each on a cache line of its own.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

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
        self.lanes[lane()].count.fetch_add(count, Relaxed);
    }

    pub(super) fn sum(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.count.load(Relaxed)).sum()
    }
}

/// The calling thread's.
fn lane() -> usize {
    static THREADS: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static LANE: Cell<usize> = Cell::new(THREADS.fetch_add(1, Relaxed) % LANES);
    }
    LANE.get()
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
