//! Free space of mapped files that is used again at once: the space released last is allocated first. So the bytes of a
//! stale access to released space belong to another range of the file.

use iopath_core::mapper::{FreeSpace, Space};
use iopath_core::{Extent, Sector};

/// Space of which the released parts are allocated first, the last of them before all others.
#[derive(Debug)]
pub(crate) struct ReusedSpace {
    fresh: FreeSpace,
    released: Vec<Extent>,
}

impl ReusedSpace {
    pub(crate) fn new(all: Extent) -> Self {
        Self { fresh: FreeSpace::new(all), released: Vec::new() }
    }
}

impl Space for ReusedSpace {
    fn take(&mut self, sectors: u64, unit: u64, near: Sector) -> Option<Extent> {
        // Every released part is whole units: it was allocated here.
        let Some(last) = self.released.pop() else { return self.fresh.take(sectors, unit, near) };
        let (taken, rest) = last.split_at(sectors.min(last.sectors()) / unit * unit);
        if !rest.is_empty() {
            self.released.push(rest);
        }
        Some(taken)
    }

    fn release(&mut self, extent: Extent) {
        self.released.push(extent);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_space_released_last_is_allocated_first() {
        let extent = |start, sectors| Extent::new(Sector(start), sectors).unwrap();
        let mut space = ReusedSpace::new(extent(8, 80));
        let first = space.take(16, 8, Sector(0)).unwrap();
        assert_eq!(first, extent(8, 16));
        space.release(first);
        assert_eq!(space.take(8, 8, Sector(64)), Some(extent(8, 8)));
        assert_eq!(space.take(32, 8, Sector(64)), Some(extent(16, 8)), "a part of what was asked for");
        assert_eq!(space.take(8, 8, Sector(0)), Some(extent(24, 8)), "nothing released is left");
    }
}
