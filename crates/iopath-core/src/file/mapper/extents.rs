//! The mapping by sorted extents, as in ext4, xfs and most filesystems; a hole has no extent. All of it is in memory:
//! it reads no extent trees from a device.

use super::shape::IndirectShape;
use super::{FileLayout, FileRange, Location, MapError, Mapper, Mapping, Metadata, Space, check_block};
use crate::sector::{Extent, SECTOR_BYTES, SECTOR_SHIFT, Sector};
use std::collections::BTreeMap;
use std::fmt;

pub(super) const NAME: &str = "extent";

/// A file of extents. Look-up is O(log n) in their number. Extents that are adjacent in the file and on the device are
/// joined.
#[derive(Clone)]
pub struct ExtentMap {
    block_bytes: u32,
    size_bytes: u64,
    /// By the first byte in the file.
    runs: BTreeMap<u64, Run>,
    shares: Option<IndirectShape>,
}

impl fmt::Debug for ExtentMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExtentMap")
            .field("size_bytes", &self.size_bytes)
            .field("block_bytes", &self.block_bytes)
            .field("extents", &self.runs.len())
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Clone, Copy)]
struct Run {
    extent: Extent,
    is_written: bool,
}

impl Run {
    /// The part of this run, which begins at `start`, that maps `file`.
    fn part(self, start: u64, file: FileRange) -> Self {
        let (_, rest) = self.extent.split_at((file.start() - start) >> SECTOR_SHIFT);
        Self { extent: rest.split_at(file.bytes() >> SECTOR_SHIFT).0, ..self }
    }

    fn location(self) -> Location {
        if self.is_written { Location::Written(self.extent) } else { Location::Unwritten(self.extent) }
    }
}

impl ExtentMap {
    /// A file that is one hole.
    ///
    /// # Errors
    /// [`MapError::BlockSize`]; [`MapError::TooFar`] if it ends past the last whole block with an offset.
    pub fn new(layout: &FileLayout) -> Result<Self, MapError> {
        check_block(NAME, layout.block_bytes)?;
        let mut map =
            Self { block_bytes: layout.block_bytes, size_bytes: 0, runs: BTreeMap::new(), shares: None };
        map.set_size(layout.size_bytes)?;
        Ok(map)
    }

    /// Adds the boundaries of an indirect map, for a file with indirect blocks of which only the extents are known. The
    /// indirect blocks are never read.
    #[must_use]
    pub fn with_boundaries(mut self, shares: IndirectShape) -> Self {
        self.shares = Some(shares);
        self
    }

    /// Adds an extent of the file from byte `start` on. Returns false if the file has an extent there already, or if
    /// `start` or `extent` is not whole blocks.
    pub fn add(&mut self, start: u64, extent: Extent, is_written: bool) -> bool {
        let file = FileRange::new(start, extent.bytes());
        let is_free = self.run_at(start).is_none() && self.runs.range(start..file.end()).next().is_none();
        if !is_free || !file.is_whole(self.block_bytes.into()) || file.is_empty() {
            return false;
        }
        self.insert(file, Run { extent, is_written });
        true
    }

    /// The number of extents.
    pub fn extents(&self) -> usize {
        self.runs.len()
    }

    /// The run that contains `offset`, and its range.
    fn run_at(&self, offset: u64) -> Option<(FileRange, Run)> {
        let (start, run) = self.runs.range(..=offset).next_back()?;
        let file = FileRange::new(*start, run.extent.bytes());
        (offset < file.end()).then_some((file, *run))
    }

    /// The end of the hole that begins at `offset`, in `range`.
    fn hole_end(&self, offset: u64, range: FileRange) -> u64 {
        self.runs.range(offset..range.end()).next().map_or(range.end(), |(start, _)| *start)
    }

    /// Inserts a run into a hole, and joins it with its neighbours.
    fn insert(&mut self, file: FileRange, run: Run) {
        let mut start = file.start();
        let mut joined = run;
        if let Some((before, earlier)) = start.checked_sub(1).and_then(|last| self.run_at(last))
            && let Some(extent) = earlier.extent.join(run.extent)
            && earlier.is_written == run.is_written
        {
            (start, joined.extent) = (before.start(), extent);
        }
        if let Some(later) = self.runs.get(&file.end())
            && let Some(extent) = joined.extent.join(later.extent)
            && later.is_written == run.is_written
        {
            joined.extent = extent;
            self.runs.remove(&file.end());
        }
        self.runs.insert(start, joined);
    }

    /// Removes the part in `range` of the first run that overlaps it; the rest of the run stays.
    fn take_first(&mut self, range: FileRange) -> Option<(FileRange, Run)> {
        let (whole, run) = self.run_at(range.start()).or_else(|| {
            let (start, run) = self.runs.range(range.start()..range.end()).next()?;
            Some((FileRange::new(*start, run.extent.bytes()), *run))
        })?;
        let part = whole.and(range);
        self.runs.remove(&whole.start());
        for rest in [whole.up_to(part.start()), whole.from_offset(part.end())] {
            if !rest.is_empty() {
                self.runs.insert(rest.start(), run.part(whole.start(), rest));
            }
        }
        Some((part, run.part(whole.start(), part)))
    }

    /// The preferred sector for new space at `offset`: after the last extent before it.
    fn goal(&self, offset: u64) -> Sector {
        self.runs.range(..offset).next_back().map_or(Sector(0), |(_, run)| run.extent.end())
    }
}

impl Mapper for ExtentMap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        let Some((whole, run)) = self.run_at(range.start()) else {
            let file = range.up_to(self.hole_end(range.start(), range));
            return Ok(Mapping { file, location: Location::Hole, boundary: false });
        };
        let mut file = whole.and(range);
        let mut boundary = false;
        if let Some(shares) = self.shares {
            let block = u64::from(shares.block_bytes());
            let end = shares.share_end(range.start() / block).saturating_mul(block);
            boundary = file.end() >= end;
            file = file.up_to(end);
        }
        Ok(Mapping { file, location: run.part(whole.start(), file).location(), boundary })
    }

    fn handle_metadata(&mut self, _place: Extent, _bytes: &[u8]) -> Result<(), MapError> {
        Ok(())
    }

    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        let unit = u64::from(self.block_bytes) / SECTOR_BYTES;
        let mut at = range.start();
        while at < range.end() {
            if let Some((run, _)) = self.run_at(at) {
                at = run.end();
                continue;
            }
            let hole = FileRange::between(at, self.hole_end(at, range));
            let extent = space.take(hole.bytes() >> SECTOR_SHIFT, unit, self.goal(at));
            let extent = extent.ok_or(MapError::NoSpace)?;
            self.insert(FileRange::new(at, extent.bytes()), Run { extent, is_written: false });
            at += extent.bytes();
        }
        Ok(())
    }

    fn commit(&mut self, range: FileRange) -> Result<(), MapError> {
        let mut rest = range;
        while !rest.is_empty() {
            let Some((part, run)) = self.take_first(rest) else { break };
            self.insert(part, Run { is_written: true, ..run });
            rest = rest.from_offset(part.end());
        }
        Ok(())
    }

    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        if range.is_empty() {
            return Ok(());
        }
        while let Some((_, run)) = self.take_first(range) {
            space.release(run.extent);
        }
        Ok(())
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        let block = u64::from(self.block_bytes);
        let max = u64::MAX / block * block;
        if bytes > max {
            return Err(MapError::TooFar { offset: bytes, max });
        }
        self.size_bytes = bytes;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK: u64 = 4096;

    #[derive(Debug)]
    struct TestSpace(u64);
    impl Space for TestSpace {
        fn take(&mut self, _: u64, _: u64, _: Sector) -> Option<Extent> {
            None
        }
        fn release(&mut self, extent: Extent) {
            self.0 += extent.sectors();
        }
    }

    fn map() -> ExtentMap {
        ExtentMap::new(&FileLayout { block_bytes: 4096, size_bytes: 100 * BLOCK, capacity_bytes: 512 << 20 })
            .unwrap()
    }

    fn blocks(first: u64, count: u64) -> FileRange {
        FileRange::new(first * BLOCK, count * BLOCK)
    }

    fn at(block: u64, count: u64) -> Extent {
        Extent::from_bytes(block * BLOCK, count * BLOCK).unwrap()
    }

    #[test]
    fn neighbours_that_touch_on_both_sides_are_one_extent() {
        let mut map = map();
        assert!(map.add(0, at(50, 2), true) && map.add(4 * BLOCK, at(54, 2), true));
        assert!(map.add(2 * BLOCK, at(52, 2), true));
        assert_eq!(map.extents(), 1);
        assert!(map.add(6 * BLOCK, at(70, 1), true) && map.add(7 * BLOCK, at(71, 1), false));
        assert_eq!(map.extents(), 3, "one lies elsewhere, one is unwritten");
        assert!(!map.add(BLOCK, at(90, 1), true) && !map.add(100, at(90, 1), true));
        assert_eq!(map.map(blocks(1, 99)).unwrap().location, Location::Written(at(51, 5)));
    }

    #[test]
    fn commit_and_unmap_in_the_middle_leave_both_ends() {
        let mut map = map();
        map.add(0, at(50, 10), false);
        map.commit(blocks(4, 2)).unwrap();
        let seen = |map: &ExtentMap, first| map.map(blocks(first, 100 - first)).unwrap();
        assert_eq!(
            seen(&map, 0),
            Mapping { file: blocks(0, 4), location: Location::Unwritten(at(50, 4)), boundary: false }
        );
        assert_eq!(seen(&map, 4).location, Location::Written(at(54, 2)));
        assert_eq!(seen(&map, 6).location, Location::Unwritten(at(56, 4)));
        let mut given = TestSpace(0);
        map.unmap(blocks(3, 5), &mut given).unwrap();
        assert_eq!(given.0, 5 * BLOCK / SECTOR_BYTES);
        assert_eq!(seen(&map, 3), Mapping { file: blocks(3, 5), location: Location::Hole, boundary: false });
        assert_eq!(map.allocate(blocks(0, 10), &mut given), Err(MapError::NoSpace));
    }

    #[test]
    fn the_boundaries_of_an_indirect_map_cut_it() {
        let mut map = map().with_boundaries(IndirectShape::new(4096));
        map.add(0, at(50, 2000), true);
        let first = map.map(blocks(0, 2000)).unwrap();
        assert_eq!((first.file, first.boundary), (blocks(0, 12), true));
        let next = map.map(blocks(12, 1000)).unwrap();
        assert_eq!(
            (next.file, next.boundary),
            (blocks(12, 1000), false),
            "one indirect block points to 1024 blocks"
        );
        assert!(map.map(blocks(12, 1024)).unwrap().boundary);
    }
}
