//! A range of addresses that one thread at a time sets and that signal handlers read. A reader never sees the start of
//! one range with the end of another. Signals and mappings are in `sigbus.rs`.
//!
//! # Why a reader never sees half a change
//!
//! A sequence lock (Lamport, "Concurrent Reading and Writing", 1977; Boehm, "Can Seqlocks Get Along With Programming
//! Language Memory Models?", 2012). `version` is odd while no range is set, and rises with each change.
//!
//! ```text
//!   writer:  version odd ─▶ fence(Release) ─▶ start, end ─▶ version even (Release)
//!   reader:  version (Acquire) ─▶ start, end ─▶ fence(Acquire) ─▶ version again
//! ```
//!
//! A reader that finds the version even has acquired the stores of that range. If it then reads a later start or end,
//! the two fences synchronize: the reader's second load of the version sees the odd version before that store, and
//! differs from the first load. Versions do not repeat: 64 bits do not wrap.
//!
//! # Why a handler may read it
//!
//! It neither locks, waits nor retries, so it is safe in a handler, even one that interrupts the writer. No retry is
//! needed: the range of a fault was set before the faulting access and is cleared after it, so it does not change while
//! the handler runs. If a range changes meanwhile, it belongs to another access.

use std::ops::Range;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicU64, AtomicUsize, fence};

/// A range, or none.
#[derive(Debug)]
pub(super) struct SharedRange {
    version: AtomicU64,
    start: AtomicUsize,
    end: AtomicUsize,
}

impl SharedRange {
    /// No range.
    pub(super) const fn none() -> Self {
        Self { version: AtomicU64::new(1), start: AtomicUsize::new(0), end: AtomicUsize::new(0) }
    }

    /// Sets the range. One thread at a time sets and clears it, alternately.
    pub(super) fn set(&self, range: &Range<usize>) {
        self.set_by(range, || ());
    }

    /// The same; `step` is called before each store.
    fn set_by(&self, range: &Range<usize>, mut step: impl FnMut()) {
        let version = self.version.load(Relaxed);
        debug_assert!(!version.is_multiple_of(2), "the slot has a range already");
        fence(Release);
        step();
        self.start.store(range.start, Relaxed);
        step();
        self.end.store(range.end, Relaxed);
        step();
        self.version.store(version + 1, Release);
    }

    /// Clears the range.
    pub(super) fn clear(&self) {
        self.clear_by(|| ());
    }

    /// The same; `step` is called before each store.
    fn clear_by(&self, mut step: impl FnMut()) {
        let version = self.version.load(Relaxed);
        debug_assert!(version.is_multiple_of(2), "the slot has no range to clear");
        step();
        // The thread that sets the next range has seen this store, before its fence.
        self.version.store(version + 1, Release);
    }

    /// The range, if one is set and does not change during the read.
    pub(super) fn get(&self) -> Option<Range<usize>> {
        self.get_by(|| ())
    }

    /// The same; `step` is called before each load.
    #[inline]
    fn get_by(&self, mut step: impl FnMut()) -> Option<Range<usize>> {
        step();
        let version = self.version.load(Acquire);
        if !version.is_multiple_of(2) {
            return None;
        }
        step();
        let start = self.start.load(Relaxed);
        step();
        let end = self.end.load(Relaxed);
        fence(Acquire);
        step();
        (self.version.load(Relaxed) == version).then_some(start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::sync::atomic::AtomicBool;

    /// The contents of memory before each store of a writer and after its last: the three words, and the range that is
    /// set.
    struct Moment {
        words: (u64, usize, usize),
        set: Option<Range<usize>>,
    }

    /// The moments of one slot that holds these ranges one after another.
    fn moments(ranges: &[Range<usize>]) -> Vec<Moment> {
        let slot = SharedRange::none();
        let words = || (slot.version.load(Relaxed), slot.start.load(Relaxed), slot.end.load(Relaxed));
        let moments = RefCell::new(Vec::new());
        let note = |set: Option<Range<usize>>| moments.borrow_mut().push(Moment { words: words(), set });
        for range in ranges {
            slot.set_by(range, || note(None));
            slot.clear_by(|| note(Some(range.clone())));
        }
        note(None);
        moments.into_inner()
    }

    /// Every schedule of `loads` loads, in order, at `moments` moments.
    fn schedules(loads: usize, moments: usize) -> Vec<Vec<usize>> {
        let mut all = vec![Vec::new()];
        for _ in 0..loads {
            let next = |schedule: Vec<usize>| {
                let from = schedule.last().copied().unwrap_or(0);
                (from..moments).map(move |moment| [&schedule[..], &[moment]].concat())
            };
            all = all.into_iter().flat_map(next).collect();
        }
        all
    }

    #[test]
    fn no_interleaving_of_a_look_up_with_reuse_returns_a_range_that_was_never_set() {
        // Disjoint ranges in no order. A mixture of two ranges would include addresses of neither.
        let ranges = [10..20, 80..90, 40..50, 0..5];
        let moments = moments(&ranges);
        let slot = SharedRange::none();
        let (mut found, mut tried) = (0, 0);
        for schedule in schedules(4, moments.len()) {
            let mut times = schedule.iter();
            let seen = slot.get_by(|| {
                let (version, start, end) = moments[*times.next().unwrap()].words;
                slot.version.store(version, Relaxed);
                slot.start.store(start, Relaxed);
                slot.end.store(end, Relaxed);
            });
            tried += 1;
            let meanwhile = &moments[schedule[0]..=schedule[3]];
            let was_set = |range: &Range<usize>| meanwhile.iter().all(|m| m.set.as_ref() == Some(range));
            assert!(seen.iter().all(was_set), "{seen:?} is seen with loads at moments {schedule:?}");
            // A range that stays is found: a look-up may fail only during a change.
            if let Some(range) = meanwhile[0].set.clone().filter(was_set) {
                assert_eq!(seen, Some(range), "loads at moments {schedule:?}");
                found += 1;
            }
        }
        assert!(found >= ranges.len() && tried > 3000, "{found} of {tried} schedules found a range");
    }

    #[test]
    fn a_reader_beside_a_thread_that_reuses_the_slot_sees_whole_ranges() {
        let rounds = if cfg!(miri) { 500 } else { 400_000 };
        let slot = SharedRange::none();
        let is_stopped = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    let start = round % 1000 * 10;
                    slot.set(&(start..start + 10));
                    slot.clear();
                }
                is_stopped.store(true, Release);
            });
            while !is_stopped.load(Acquire) {
                if let Some(range) = slot.get() {
                    assert_eq!(range.len(), 10, "{range:?}");
                    assert_eq!(range.start % 10, 0, "{range:?}");
                }
            }
        });
    }
}
