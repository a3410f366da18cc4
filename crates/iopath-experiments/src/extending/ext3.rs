//! An indirect map in the block groups of ext3. Each group of 32768 blocks has a bitmap of its free blocks, which is
//! read before the first allocation in the group. Journal and reservations of ext3 are not modelled.

use std::collections::BTreeSet;

use iopath_core::mapper::{
    DirtyMetadata, FileLayout, FileRange, FreeSpace, IndirectMap, Location, MapError, Mapper, Mapping,
    Metadata, Space,
};
use iopath_core::{Extent, SECTOR_BYTES};

/// Blocks at the start of each group that hold no data: a copy of the superblock, bitmaps, and inodes (one for each 8
/// KiB).
const METADATA_BLOCKS: u64 = 3 + 512;

/// An indirect map in block groups.
#[derive(Debug)]
pub(super) struct BlockGroups {
    map: IndirectMap,
    block_bytes: u64,
    capacity_bytes: u64,
    /// The groups whose bitmaps are in memory.
    read: BTreeSet<u64>,
}

impl BlockGroups {
    pub(super) fn new(layout: &FileLayout) -> Result<Self, MapError> {
        let (block_bytes, capacity_bytes) = (u64::from(layout.block_bytes), layout.capacity_bytes);
        Ok(Self { map: IndirectMap::new(layout)?, block_bytes, capacity_bytes, read: BTreeSet::new() })
    }

    /// Bytes of a group: as many blocks as a block has bits.
    const fn group_bytes(&self) -> u64 {
        self.block_bytes * self.block_bytes * 8
    }

    /// The space for data and indirect blocks in all groups.
    pub(super) fn space(&self) -> FreeSpace {
        let mut space = FreeSpace::default();
        let metadata_bytes = METADATA_BLOCKS * self.block_bytes;
        for group in 0..self.capacity_bytes / self.group_bytes() {
            let start = group * self.group_bytes() + metadata_bytes;
            let extent = Extent::from_bytes(start, self.group_bytes() - metadata_bytes);
            space.release(extent.unwrap_or_default());
        }
        space
    }

    /// The bytes of data that a group holds for a file without holes. Indirect blocks do not count.
    const fn data_bytes(&self) -> u64 {
        let blocks = self.group_bytes() / self.block_bytes - METADATA_BLOCKS;
        (blocks - blocks / (self.block_bytes / 4)) * self.block_bytes
    }

    /// The bitmap of the group into which the file grows at this offset.
    fn bitmap(&self, offset: u64) -> (u64, Extent) {
        let group = offset / self.data_bytes();
        let start = group * self.group_bytes() + self.block_bytes;
        (group, Extent::from_bytes(start, self.block_bytes).unwrap_or_default())
    }
}

impl Mapper for BlockGroups {
    fn name(&self) -> &'static str {
        self.map.name()
    }

    fn block_bytes(&self) -> u32 {
        self.map.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.map.size_bytes()
    }

    /// A hole ends with its group: the blocks of the next group are allocated when the write reaches them.
    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        let mut mapping = self.map.map(range)?;
        if mapping.location == Location::Hole {
            let group = mapping.file.start() / self.data_bytes();
            mapping.file = mapping.file.up_to((group + 1).saturating_mul(self.data_bytes()));
        }
        Ok(mapping)
    }

    fn handle_metadata(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), MapError> {
        let group = extent.start().0 * SECTOR_BYTES / self.group_bytes();
        let is_bitmap = extent.start().0 * SECTOR_BYTES == group * self.group_bytes() + self.block_bytes;
        if is_bitmap {
            self.read.insert(group);
            return Ok(());
        }
        self.map.handle_metadata(extent, bytes)
    }

    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        let (group, bitmap) = self.bitmap(range.start());
        if !self.read.contains(&group) {
            return Err(MapError::Metadata(bitmap));
        }
        self.map.allocate(range, space)
    }

    fn commit(&mut self, range: FileRange) -> Result<(), MapError> {
        self.map.commit(range)
    }

    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.map.unmap(range, space)
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        self.map.set_size(bytes)
    }

    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        self.map.poll_dirty()
    }
}
