//! A hash table from pages to frame numbers. One thread changes it while any number of threads look up. It stores no
//! page numbers: the caller supplies the page of a frame.
//!
//! ```text
//!            line 0        line 1        line 2             pages 16n to 16n+15 start in one line of the processor's
//!        ┌─────────────┬─────────────┬─────────────┐        cache, each in a place of its own
//!        │ 0 1 2 … 15  │ 0 1 2 … 15  │ 0 1 2 … 15  │
//!        └───────│─────┴───▲─│───────┴───▲─────────┘        a place that is taken: the same one in the next line, and
//!                └─────────┘ └───────────┘                  after the last line the next place from the first line on
//! ```
//!
//! Adjacent pages share a line, since streams look them up one after another. Each place within the lines is a separate
//! table with linear probing. So a run of adjacent pages forms no cluster that other look-ups must probe.
//!
//! A table has a fixed size. `growing.rs` replaces a small one by a large one when many frames are used.

use super::{Frame, GOLDEN};
use crate::collections::zeroed::Zeroed;
use crate::file::page::Page;
use prefetch_index::prefetch_index;
use std::sync::atomic::{AtomicU32, Ordering};

/// Open addressing with linear probing, half full at most.
#[derive(Debug)]
pub(super) struct Table {
    /// The frame numbers of all places, with all bits inverted, or [`EMPTY`].
    places: Box<[AtomicU32]>,
    /// The first place: it starts a line of the processor's cache.
    first: usize,
    lines: usize,
    shift: u32,
}

/// A place without a frame: zero, so that an unused part of the table takes no memory. No frame has the inverted
/// number.
const EMPTY: u32 = 0;

/// The places of a line.
const PLACES: usize = 16;

const LINE_BYTES: usize = PLACES * size_of::<AtomicU32>();

impl Table {
    pub(super) fn new(frames: u32) -> Self {
        let slots = (frames as usize * 2).next_power_of_two().max(PLACES * 2);
        // An aligned allocation of zeroes would be written by the allocator.
        let places = AtomicU32::zeroed(slots + PLACES - 1);
        let beyond = places.as_ptr().addr() % LINE_BYTES;
        let first = (LINE_BYTES - beyond) % LINE_BYTES / size_of::<AtomicU32>();
        Self { places, first, lines: slots / PLACES, shift: 64 - slots.trailing_zeros() }
    }

    /// The frame of `page`. May miss an entry that is being moved.
    #[inline]
    pub(super) fn find(&self, page: Page, page_in: impl Fn(Frame) -> Page) -> Option<Frame> {
        let mut slot = self.home(page);
        loop {
            let bits = self.slot(slot).load(Ordering::Acquire);
            if bits == EMPTY {
                return None;
            }
            if page_in(Frame(!bits)) == page {
                return Some(Frame(!bits));
            }
            slot = self.after(slot);
        }
    }

    /// Prefetches the line of `page`.
    pub(super) fn prefetch(&self, page: Page) {
        prefetch_index(&self.places, self.first + self.home(page));
    }

    /// Inserts `page`, which is not in the table, with `frame`.
    pub(super) fn insert(&self, page: Page, frame: Frame) {
        let mut slot = self.home(page);
        while self.slot(slot).load(Ordering::Relaxed) != EMPTY {
            slot = self.after(slot);
        }
        self.slot(slot).store(!frame.0, Ordering::Release);
    }

    /// Inserts the entries of `other`, which no thread changes.
    pub(super) fn insert_all(&self, other: &Self, page_in: impl Fn(Frame) -> Page) {
        for place in &other.places {
            let bits = place.load(Ordering::Relaxed);
            if bits != EMPTY {
                self.insert(page_in(Frame(!bits)), Frame(!bits));
            }
        }
    }

    /// Removes the page in `frame`. Entries after it move up, so that probing still reaches them.
    pub(super) fn remove(&self, frame: Frame, page_in: impl Fn(Frame) -> Page) {
        let mut hole = self.home(page_in(frame));
        while self.slot(hole).load(Ordering::Relaxed) != !frame.0 {
            hole = self.after(hole);
        }
        let mut slot = hole;
        loop {
            slot = self.after(slot);
            let moving = self.slot(slot).load(Ordering::Relaxed);
            if moving == EMPTY {
                break;
            }
            let wanted = self.home(page_in(Frame(!moving)));
            // The entry may move to the hole, unless its home lies between the hole and its slot.
            if self.steps(wanted, slot) >= self.steps(hole, slot) {
                self.slot(hole).store(moving, Ordering::Release);
                hole = slot;
            }
        }
        self.slot(hole).store(EMPTY, Ordering::Release);
    }

    #[inline]
    fn slot(&self, slot: usize) -> &AtomicU32 {
        &self.places[self.first + slot]
    }

    #[inline]
    const fn home(&self, page: Page) -> usize {
        let places = PLACES as u64;
        let line_and_turn = (page.0 / places).wrapping_mul(GOLDEN) >> self.shift;
        (line_and_turn ^ (page.0 % places)) as usize
    }

    #[inline]
    const fn after(&self, slot: usize) -> usize {
        let next = slot + PLACES;
        let end = self.lines * PLACES;
        if next < end { next } else { (next - end + 1) % PLACES }
    }

    /// The number of probing steps from one slot to another.
    const fn steps(&self, from: usize, to: usize) -> usize {
        let lines = self.lines;
        let (from, to) = (from % PLACES * lines + from / PLACES, to % PLACES * lines + to / PLACES);
        to.wrapping_sub(from) & (lines * PLACES - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A table, and the page in each frame.
    struct Pages {
        table: Table,
        pages: Vec<Option<Page>>,
    }

    impl Pages {
        fn new(frames: u32) -> Self {
            Self { table: Table::new(frames), pages: vec![None; frames as usize] }
        }

        fn page_in(&self, frame: Frame) -> Page {
            self.pages[frame.0 as usize].unwrap_or(Page::MAX)
        }

        fn find(&self, page: Page) -> Option<Frame> {
            self.table.find(page, |frame| self.page_in(frame))
        }

        fn insert(&mut self, page: Page, frame: u32) {
            self.pages[frame as usize] = Some(page);
            self.table.insert(page, Frame(frame));
        }

        fn remove(&mut self, frame: u32) {
            self.table.remove(Frame(frame), |frame| self.page_in(frame));
            self.pages[frame as usize] = None;
        }

        /// The mean number of frames checked to find a page.
        fn mean_checks(&self) -> f64 {
            let looks = std::cell::Cell::new(0_u32);
            let pages: Vec<_> = self.pages.iter().flatten().collect();
            for page in &pages {
                self.table.find(**page, |frame| {
                    looks.set(looks.get() + 1);
                    self.page_in(frame)
                });
            }
            f64::from(looks.get()) / pages.len() as f64
        }
    }

    #[test]
    fn finds_its_entries_and_no_others() {
        let seed = 3;
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        for frames in [1, 2, 15, 64] {
            let mut table = Pages::new(frames);
            for _ in 0..if cfg!(miri) { 500 } else { 50_000 } {
                // Sets of pages: few pages with collisions, adjacent pages, or pages that differ only in their lines.
                let page = Page(rng.random_range(0..200_u64) * [1, 16, 4096][rng.random_range(0..3)]);
                let there = table.pages.iter().position(|other| *other == Some(page));
                assert_eq!(table.find(page), there.map(|frame| Frame(frame as u32)), "seed {seed}");
                if let Some(frame) = there {
                    table.remove(frame as u32);
                } else if let Some(free) = table.pages.iter().position(Option::is_none) {
                    table.insert(page, free as u32);
                }
            }
        }
    }

    #[test]
    fn a_full_table_finds_runs_and_strides_as_fast_as_scattered_pages() {
        const FRAMES: u32 = if cfg!(miri) { 256 } else { 8192 };
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let scattered: Vec<u64> = (0..FRAMES).map(|_| rng.random_range(0..1 << 40)).collect();
        let patterns: [(&str, &dyn Fn(u64) -> u64); 5] = [
            ("scattered", &|number| scattered[number as usize]),
            ("one run", &|number| 1_000_000 + number),
            ("runs of 16", &|number| number / 16 * 1600 + number % 16),
            ("strided", &|number| number * 16),
            ("strided far", &|number| number << 20),
        ];
        for (what, page) in patterns {
            let mut table = Pages::new(FRAMES);
            (0..FRAMES).for_each(|number| table.insert(Page(page(u64::from(number))), number));
            assert!(table.mean_checks() < 1.8, "{what}: {} looks", table.mean_checks());
        }
    }
}
