//! The mapping by block pointers of ext2 and ext3: 12 in the inode, the others in indirect blocks, which are read when
//! needed. It has no journal, and does no I/O.

mod change;
mod nodes;

use super::shape::{IndirectShape, POINTERS, Path};
use super::{DirtyMetadata, FileLayout, FileRange, Location, MapError, Mapper, Mapping, Metadata, Space};
use crate::sector::{Extent, SECTOR_BYTES};
use nodes::Nodes;
use std::collections::BTreeMap;
use std::fmt;

pub(super) const NAME: &str = "indirect";

/// The default number of indirect blocks in memory: 4 MiB of 4 KiB blocks, for 4 GiB of a file.
const RESIDENT_MAX: usize = 1024;

/// No block: a hole.
const NOTHING: u32 = 0;

/// A file of pointers to blocks, in the form of ext2 (kernel `Documentation/filesystems/ext2.rst`): 32-bit numbers of
/// blocks, little-endian in indirect blocks, 0 for a hole.
///
/// Indirect blocks are read when needed and dropped when there are too many. Changed blocks stay until
/// [`Mapper::poll_dirty`] has returned them. The on-disk format cannot mark space as unwritten: space is *reserved*, in
/// memory only, and commit sets the pointers to it. An indirect block lies before the blocks that it points to, as ext2
/// places it.
#[derive(Clone)]
pub struct IndirectMap {
    shape: IndirectShape,
    size_bytes: u64,
    /// The number of blocks of the device: all pointers are below it.
    blocks: u64,
    inode: [u32; POINTERS],
    nodes: Nodes,
    /// Reserved blocks: from the block of the file to the block of the device.
    reserved: BTreeMap<u64, u32>,
}

impl fmt::Debug for IndirectMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndirectMap")
            .field("size_bytes", &self.size_bytes)
            .field("resident", &self.resident())
            .finish_non_exhaustive()
    }
}

/// The result of a walk to a block.
enum Found {
    Block(u32),
    /// A pointer is missing: all blocks before `end` are holes or reserved.
    Nothing {
        end: u64,
    },
}

impl IndirectMap {
    /// A file that is one hole.
    ///
    /// # Errors
    /// [`MapError::BlockSize`]: ext2 has blocks of 1, 2 and 4 KiB. [`MapError::TooFar`].
    pub fn new(layout: &FileLayout) -> Result<Self, MapError> {
        Self::open(layout, [NOTHING; POINTERS])
    }

    /// A file whose inode has these pointers. No indirect block is in memory.
    ///
    /// # Errors
    /// Returns the errors of [`IndirectMap::new`]; [`MapError::Corrupt`] if a pointer points beyond the device.
    pub fn open(layout: &FileLayout, inode: [u32; POINTERS]) -> Result<Self, MapError> {
        let block_bytes = layout.block_bytes;
        if ![1024, 2048, 4096].contains(&block_bytes) {
            return Err(MapError::BlockSize { mapper: NAME, block_bytes, range: "1024, 2048 or 4096" });
        }
        let blocks = layout.capacity_sectors() / (u64::from(block_bytes) / SECTOR_BYTES);
        if let Some(pointer) = inode.into_iter().find(|pointer| u64::from(*pointer) >= blocks.max(1)) {
            return Err(MapError::Corrupt { extent: Extent::EMPTY, pointer, blocks });
        }
        let mut map = Self {
            shape: IndirectShape::new(block_bytes),
            size_bytes: 0,
            blocks,
            inode,
            nodes: Nodes::new(RESIDENT_MAX),
            reserved: BTreeMap::new(),
        };
        map.set_size(layout.size_bytes)?;
        Ok(map)
    }

    /// The pointers of the inode, for the caller to store. They change with [`Mapper::allocate`], [`Mapper::commit`]
    /// and [`Mapper::unmap`]. Write the inode to the medium after the metadata of [`Mapper::poll_dirty`].
    pub const fn inode(&self) -> &[u32; POINTERS] {
        &self.inode
    }

    /// The bytes of an indirect block in memory.
    pub fn indirect_block(&self, extent: Extent) -> Option<Box<[u8]>> {
        self.nodes.bytes(self.pointer_to(extent)?)
    }

    /// Limits the clean indirect blocks in memory to `max`, at least 4.
    #[must_use]
    pub fn with_resident_max(mut self, max: usize) -> Self {
        self.nodes.set_max(max);
        self
    }

    /// The number of indirect blocks in memory.
    pub fn resident(&self) -> usize {
        self.nodes.len()
    }

    fn block_sectors(&self) -> u64 {
        u64::from(self.shape.block_bytes()) / SECTOR_BYTES
    }

    /// The extent of `count` blocks of the device from `pointer` on.
    fn extent(&self, pointer: u32, count: u64) -> Extent {
        let unit = u64::from(self.shape.block_bytes());
        let extent = Extent::from_bytes(u64::from(pointer) * unit, count * unit);
        extent.expect("a pointer points to a block of the device")
    }

    fn pointer_to(&self, extent: Extent) -> Option<u32> {
        let fits =
            extent.sectors() == self.block_sectors() && extent.start().0.is_multiple_of(self.block_sectors());
        fits.then(|| u32::try_from(extent.start().0 / self.block_sectors()).ok()).flatten()
    }

    /// Walks from the inode to `block`.
    fn find(&self, block: u64, path: &Path) -> Result<Found, Metadata> {
        let mut pointer = self.inode[path.slots[0]];
        for (level, slot) in path.slots.iter().enumerate().skip(1).take(path.depth) {
            if pointer == NOTHING {
                return Ok(Found::Nothing { end: self.shape.below_end(block, path, level - 1) });
            }
            let node = self.nodes.get(pointer).ok_or_else(|| Metadata(self.extent(pointer, 1)))?;
            pointer = node[*slot];
        }
        Ok(if pointer == NOTHING { Found::Nothing { end: block + 1 } } else { Found::Block(pointer) })
    }

    /// The location of `block`, and the end of the blocks that are known to be of the same kind.
    fn locate(&self, block: u64) -> Result<(Location, u64), Metadata> {
        if let Some(pointer) = self.reserved.get(&block) {
            return Ok((Location::Unwritten(self.extent(*pointer, 1)), block + 1));
        }
        let Some(path) = self.shape.path(block) else { return Ok((Location::Hole, u64::MAX)) };
        Ok(match self.find(block, &path)? {
            Found::Block(pointer) => (Location::Written(self.extent(pointer, 1)), block + 1),
            Found::Nothing { end } => {
                let reserved = self.reserved.range(block..end).next().map_or(end, |(next, _)| *next);
                (Location::Hole, reserved)
            }
        })
    }

    /// The contiguous blocks of one kind from `first` on, up to `end`. Unless they are holes, they also end with the
    /// share of one indirect block.
    fn run(&self, first: u64, end: u64) -> Result<(Location, u64), Metadata> {
        let (mut location, mut run_end) = self.locate(first)?;
        let share_end = self.shape.share_end(first).min(end);
        while run_end < share_end {
            // Missing metadata ends the run.
            let Ok((next, next_end)) = self.locate(run_end) else { break };
            location = match (location, next) {
                (Location::Hole, Location::Hole) => Location::Hole,
                (Location::Written(a), Location::Written(b)) if a.is_followed_by(b) => {
                    Location::Written(joined(a, b))
                }
                (Location::Unwritten(a), Location::Unwritten(b)) if a.is_followed_by(b) => {
                    Location::Unwritten(joined(a, b))
                }
                _ => break,
            };
            run_end = next_end;
        }
        Ok((location, run_end.min(end)))
    }
}

fn joined(a: Extent, b: Extent) -> Extent {
    a.join(b).expect("b follows a")
}

impl Mapper for IndirectMap {
    fn name(&self) -> &'static str {
        NAME
    }

    fn block_bytes(&self) -> u32 {
        self.shape.block_bytes()
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn map(&self, range: FileRange) -> Result<Mapping, Metadata> {
        let unit = u64::from(self.shape.block_bytes());
        let touched = range.outward(unit);
        let first = touched.start() / unit;
        let (location, end) = self.run(first, touched.end() / unit)?;
        let file = range.up_to(end.saturating_mul(unit));
        let cut = |whole: Extent| {
            let (_, rest) = whole.split_at((range.start() - touched.start()) / SECTOR_BYTES);
            rest.split_at(file.bytes() / SECTOR_BYTES).0
        };
        let (location, boundary) = match location {
            Location::Hole => (Location::Hole, false),
            Location::Unwritten(whole) => {
                (Location::Unwritten(cut(whole)), end == self.shape.share_end(first))
            }
            Location::Written(whole) => (Location::Written(cut(whole)), end == self.shape.share_end(first)),
        };
        Ok(Mapping { file, location, boundary })
    }

    fn handle_metadata(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), MapError> {
        let blocks = self.blocks;
        let pointers: Box<[u32]> = nodes::decode(bytes);
        if let Some(pointer) = pointers.iter().copied().find(|pointer| u64::from(*pointer) >= blocks) {
            return Err(MapError::Corrupt { extent, pointer, blocks });
        }
        let block = self.pointer_to(extent).filter(|_| bytes.len() as u64 == extent.bytes());
        self.nodes.insert(block.expect("the bytes of a requested block"), pointers);
        Ok(())
    }

    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.reserve(range, space)
    }

    fn commit(&mut self, range: FileRange) -> Result<(), MapError> {
        self.link(range)
    }

    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError> {
        self.unlink(range, space)
    }

    fn set_size(&mut self, bytes: u64) -> Result<(), MapError> {
        let max = self.shape.blocks_max().saturating_mul(self.shape.block_bytes().into());
        if bytes > max {
            return Err(MapError::TooFar { offset: bytes, max });
        }
        self.size_bytes = bytes;
        Ok(())
    }

    fn forget_metadata(&mut self) {
        self.nodes.forget();
    }

    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        let (pointer, bytes) = self.nodes.poll_dirty()?;
        Some(DirtyMetadata { extent: self.extent(pointer, 1), bytes })
    }
}
