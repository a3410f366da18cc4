//! The tables of [`super::hot::Hot`], which are small until many frames are in use: a cache that uses a small part of
//! its budget needs little memory, and its first use takes little time. One thread adds frames while any number of
//! threads look up.
//!
//! When the frames exceed [`SMALL`], tables of the final size are added. The entries of the first frames stay where
//! they are. The look-up table is filled from the small one, then replaces it. A thread that still uses the small one
//! finds entries that are no longer true, and none of newer pages. Both are permitted: the caller checks the page of
//! each frame that it finds, and takes the slow path if it finds none.

use std::sync::OnceLock;

use super::Frame;
use super::table::Table;
use crate::collections::zeroed::Zeroed;
use crate::file::page::Page;

/// Frames of the small tables: 4 MiB of cache with pages of 4 KiB. Explored caches have few frames.
pub(super) const SMALL: u32 = if cfg!(iopath_explore) { 2 } else { 1024 };

/// An entry for each frame.
#[derive(Debug)]
pub(super) struct Entries<T> {
    small: Box<[T]>,
    /// Entries of all frames. Those of the first frames are not used, so they take no memory.
    all: OnceLock<Box<[T]>>,
}

impl<T: Zeroed> Entries<T> {
    /// Entries of zeroes, for the small tables.
    pub(super) fn new(frames_max: u32) -> Self {
        Self { small: T::zeroed(frames_max.min(SMALL) as usize), all: OnceLock::new() }
    }

    /// Adds the entries of all other frames.
    pub(super) fn grow(&self, frames_max: u32) {
        self.all.get_or_init(|| T::zeroed(frames_max as usize));
    }

    /// The entry of a frame.
    ///
    /// # Panics
    /// If it was not added.
    #[inline]
    pub(super) fn get(&self, frame: u32) -> &T {
        let frame = frame as usize;
        match self.small.get(frame) {
            Some(entry) => entry,
            None => &self.all.get().expect("entries of all frames")[frame],
        }
    }
}

/// The look-up table for the frames in use.
#[derive(Debug)]
pub(super) struct GrowingTable {
    small: Table,
    all: OnceLock<Table>,
}

impl GrowingTable {
    /// The small table.
    pub(super) fn new(frames_max: u32) -> Self {
        Self { small: Table::new(frames_max.min(SMALL)), all: OnceLock::new() }
    }

    /// Replaces the small table by one for all frames.
    pub(super) fn grow(&self, frames_max: u32, page_in: impl Fn(Frame) -> Page) {
        self.all.get_or_init(|| {
            let table = Table::new(frames_max);
            table.insert_all(&self.small, page_in);
            table
        });
    }

    /// The table in use.
    #[inline]
    pub(super) fn current(&self) -> &Table {
        self.all.get().unwrap_or(&self.small)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[test]
    fn the_tables_grow_under_a_reader_that_uses_the_small_one() {
        let frames_max = 3 * SMALL;
        let (table, entries) = (GrowingTable::new(frames_max), Entries::<AtomicU64>::new(frames_max));
        let page = |frame: u32| Page(u64::from(frame) * 7 + 1);
        let page_in = |frame: Frame| Page(entries.get(frame.0).load(Ordering::Relaxed));
        let insert = |frame: u32| {
            entries.get(frame).store(page(frame).0, Ordering::Relaxed);
            table.current().insert(page(frame), Frame(frame));
        };
        (0..SMALL).for_each(insert);
        let small = table.current();
        let first = std::ptr::from_ref(entries.get(0));
        entries.grow(frames_max);
        table.grow(frames_max, page_in);
        (SMALL..frames_max).for_each(insert);
        assert!(std::ptr::eq(first, entries.get(0)), "an entry never moves");
        for frame in 0..frames_max {
            assert_eq!(table.current().find(page(frame), page_in), Some(Frame(frame)));
            assert_eq!(small.find(page(frame), page_in), (frame < SMALL).then_some(Frame(frame)));
        }
        table.current().remove(Frame(5), page_in);
        assert_eq!(table.current().find(page(5), page_in), None);
        // The small table has the entry still, but its frame has another page.
        entries.get(5).store(page(frames_max).0, Ordering::Relaxed);
        assert_eq!(small.find(page(5), page_in), None);
    }
}
