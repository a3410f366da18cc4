//! Free space as a list of extents, allocated first fit from a goal on. In memory only: not a filesystem's allocator.

use super::Space;
use crate::sector::{Extent, Sector};
use std::collections::BTreeMap;
use std::fmt;

/// The free extents of a device, in memory. Adjacent ones are joined.
///
/// Allocation searches the extents from the goal on, then the extents before it: O(log n) if the goal is free, O(n) in
/// the number of free extents if none fits.
#[derive(Clone, Default)]
pub struct FreeSpace {
    /// The number of sectors, by the first.
    extents: BTreeMap<u64, u64>,
}

impl fmt::Debug for FreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeSpace").field("extents", &self.extents.len()).finish_non_exhaustive()
    }
}

impl FreeSpace {
    /// All of `extent` is free.
    pub fn new(extent: Extent) -> Self {
        let mut space = Self::default();
        if !extent.is_empty() {
            space.insert(extent);
        }
        space
    }

    /// Free sectors.
    #[cfg(test)]
    fn sectors(&self) -> u64 {
        self.extents.values().sum()
    }

    /// Removes part of the free extent that begins at `start`.
    fn remove(&mut self, start: u64, taken: Extent) {
        let sectors = self.extents.remove(&start).expect("allocated space was free");
        let end = start + sectors;
        let rest = taken.end().0;
        if taken.start().0 > start {
            self.extents.insert(start, taken.start().0 - start);
        }
        if end > rest {
            self.extents.insert(rest, end - rest);
        }
    }

    /// # Panics
    /// If a part of it is free already: space is released once.
    fn insert(&mut self, extent: Extent) {
        let (mut start, mut end) = (extent.start().0, extent.end().0);
        if let Some((before, sectors)) = self.extents.range(..end).next_back() {
            assert!(before + sectors <= start, "{extent} is released although some of it is free");
            if before + sectors == start {
                start = *before;
            }
        }
        if let Some(sectors) = self.extents.remove(&end) {
            end += sectors;
        }
        self.extents.insert(start, end - start);
    }
}

impl Space for FreeSpace {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        let around = self.extents.range(..=near.0).next_back().into_iter();
        let fit_from = |near| {
            move |(start, free): (&u64, &u64)| Some((*start, fit((*start, *free), near, sectors, unit)?))
        };
        let found = around
            .chain(self.extents.range(near.0.saturating_add(1)..))
            .find_map(fit_from(near.0))
            .or_else(|| self.extents.range(..near.0).find_map(fit_from(0)));
        let (start, taken) = found?;
        self.remove(start, taken);
        Some(taken)
    }

    fn release(&mut self, extent: Extent) {
        if !extent.is_empty() {
            self.insert(extent);
        }
    }
}

/// The part of the `free` sectors from `start` on that an allocation gets. It begins at `near` or after it.
fn fit((start, free): (u64, u64), near: u64, sectors: u64, unit: u64) -> Option<Extent> {
    let first = start.max(near).checked_next_multiple_of(unit)?;
    let units = (start + free).checked_sub(first)? / unit;
    let taken = (units * unit).min(sectors);
    Extent::new(Sector(first), taken).filter(|extent| !extent.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, sectors: u64) -> Extent {
        Extent::new(Sector(start), sectors).unwrap()
    }

    #[test]
    fn allocates_at_the_goal_then_after_it_then_before_it() {
        let mut space = FreeSpace::new(extent(8, 92));
        assert_eq!(space.take(16, 8, Sector(20)), Some(extent(24, 16)), "aligned, at the goal");
        assert_eq!(space.take(8, 8, Sector(24)), Some(extent(40, 8)), "after the allocated space");
        assert_eq!(space.take(800, 8, Sector(48)), Some(extent(48, 48)), "no more than one free extent has");
        assert_eq!(space.take(800, 8, Sector(48)), Some(extent(8, 16)), "before the goal");
        assert_eq!(space.take(8, 8, Sector(0)), None, "four sectors are left, which are no unit");
        assert_eq!(space.sectors(), 4);
    }

    #[test]
    fn released_space_joins_its_neighbours() {
        let mut space = FreeSpace::new(extent(8, 64));
        let parts: Vec<Extent> = (0..8).map(|_| space.take(8, 8, Sector(0)).unwrap()).collect();
        for index in [1, 3, 2, 0, 7, 5, 6, 4] {
            space.release(parts[index]);
        }
        assert_eq!(space.take(64, 8, Sector(0)), Some(extent(8, 64)), "one piece again");
    }

    #[test]
    #[should_panic(expected = "although some of it is free")]
    fn space_is_released_once() {
        let mut space = FreeSpace::new(extent(8, 64));
        space.release(extent(64, 16));
    }
}
