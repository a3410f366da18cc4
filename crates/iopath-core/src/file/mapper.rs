//! Where a file's bytes lie on its device: mappers, and the plans of direct reads and writes over them.
//!
//! A [`Mapper`] maps a range of a file to an extent of the device, a hole or unwritten space. A plan ([`ReadPlan`],
//! [`WritePlan`], [`PunchPlan`], [`ZeroPlan`]) walks a range over a mapper and emits one [`Step`] after another: bios,
//! zeroes, space to allocate, metadata to read. The caller executes them: see [`mapped`](crate::mapped). Nothing here does
//! I/O or finds space; a [`Space`] does the latter.
//!
//! A mapper is one file in `mapper/` and one row in [`MAPPERS`].
//!
//! # No stale byte is ever visible
//! New space still holds the bytes of its last owner. So a mapper marks it unwritten, which reads as zeroes, and it becomes
//! written in three steps, in this order:
//!
//! 1. [`Mapper::allocate`]: the space belongs to the file, unwritten;
//! 2. the data and zeroes for the rest of a partly written block reach the device ([`WritePlan::poll_step`]);
//! 3. [`Mapper::commit`] the blocks that did: an error before leaves a block unwritten, which reads as zeroes.
//!
//! The bytes between the end of a file and the end of its last block are arbitrary. They are zeroed before the end moves
//! over them ([`ZeroPlan::before_growth`], and [`WritePlan`] by itself). I/O in flight may still access space that a file
//! has released: a [`Quarantine`] holds it until that I/O has completed.
//!
//! Two writes to the same new block of the filesystem must not be in flight at once: each would zero the bytes of the
//! other. Lock [`WritePlan::footprint`] and [`PunchPlan::footprint`].

mod extents;
mod free;
mod identity;
mod indirect;
mod plan;
mod range;
mod shape;
mod space;

pub use extents::ExtentMap;
pub use free::FreeSpace;
pub use identity::Identity;
pub use indirect::IndirectMap;
pub use plan::{Boundary, PlanError, PunchPlan, ReadPlan, Step, WritePlan, Wrote, ZeroPlan};
pub use range::FileRange;
pub use shape::{IndirectShape, POINTERS};
pub use space::{Quarantine, Space, Ticket};

use crate::sector::{Extent, SECTOR_BYTES};
use std::fmt;

/// Where a run of a file lies, if anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// No space: reads as zeroes.
    Hole,
    /// Space that was never written: reads as zeroes whatever the device holds there.
    Unwritten(Extent),
    /// Data, as the device holds it.
    Written(Extent),
}

/// A run of a file of one kind, and in one extent of the device unless it is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The run.
    pub file: FileRange,
    /// Where it lies.
    pub location: Location,
    /// The next block of the file is behind another metadata block (`BH_Boundary` in Linux). Concerns the *end* of the run,
    /// not each block in it: see [`Boundary`].
    pub boundary: bool,
}

/// The mapper needs the metadata block at this extent: read it, call [`Mapper::handle_metadata`], and repeat the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata(pub Extent);

/// A changed metadata block to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyMetadata {
    /// Its extent on the device.
    pub place: Extent,
    /// Its bytes, as many as `place` has.
    pub bytes: Box<[u8]>,
}

/// The mapping cannot be changed, or metadata is invalid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Metadata is missing: see [`Metadata`].
    #[error("the metadata block at sectors {0} has to be read first")]
    Metadata(Extent),
    /// The [`Space`] is exhausted.
    #[error("no space left for the file; free some, or wait for the I/O in flight that keeps released space")]
    NoSpace,
    /// This mapper's files have no holes and a fixed size.
    #[error("a {0} mapping is fixed: it has no holes and cannot change its size")]
    Fixed(&'static str),
    /// The block lies beyond the reach of the map's pointers.
    #[error(
        "byte {offset} lies beyond the {max} bytes that the map can point to; use larger blocks or extents"
    )]
    TooFar {
        /// Where in the file.
        offset: u64,
        /// The largest file, in bytes.
        max: u64,
    },
    /// A pointer points beyond the device.
    #[error(
        "the metadata block at sectors {place} points to block {pointer} of a device of {blocks}; check the filesystem"
    )]
    Corrupt {
        /// The metadata block.
        place: Extent,
        /// The pointer.
        pointer: u32,
        /// Blocks of the device.
        blocks: u64,
    },
    /// The map does not support this block size.
    #[error("a {mapper} mapping has no blocks of {block_bytes} bytes; {range}")]
    BlockSize {
        /// The mapper's name.
        mapper: &'static str,
        /// The requested block size.
        block_bytes: u32,
        /// The supported sizes.
        range: &'static str,
    },
}

impl From<Metadata> for MapError {
    fn from(Metadata(place): Metadata) -> Self {
        Self::Metadata(place)
    }
}

/// Maps a file to its device. Does no I/O: it asks for metadata that it needs ([`Metadata`]).
///
/// Look-ups are in whole sectors, changes in whole blocks of the filesystem. Blocks may lie behind the file's end.
pub trait Mapper: fmt::Debug + Send {
    /// Its name in [`MAPPERS`].
    fn name(&self) -> &'static str;

    /// The filesystem's block, bytes: a power of two, 512 at least.
    fn block_bytes(&self) -> u32;

    /// The file's length in bytes.
    fn size_bytes(&self) -> u64;

    /// The run at the start of `range`, cut to it. `range` is at least one sector, in whole sectors.
    ///
    /// # Errors
    /// [`Metadata`] that must be read first.
    fn map(&self, range: FileRange) -> Result<Mapping, Metadata>;

    /// Takes a metadata block that it has asked for.
    ///
    /// # Errors
    /// [`MapError::Corrupt`]; the block is not used.
    fn handle_metadata(&mut self, place: Extent, bytes: &[u8]) -> Result<(), MapError>;

    /// Allocates unwritten space for every hole in `range`, whole blocks. After an error, the file keeps the space allocated
    /// before.
    ///
    /// # Errors
    /// [`MapError::Metadata`] to be read first, or another error.
    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Marks the unwritten blocks of `range`, whole blocks, as written: their data, and the zeroes around it, are on the
    /// device.
    ///
    /// # Errors
    /// [`MapError::Metadata`] to be read first. Part of it may be done; the repeated call does the rest.
    fn commit(&mut self, range: FileRange) -> Result<(), MapError>;

    /// Makes `range`, whole blocks, a hole, and releases its space.
    ///
    /// # Errors
    /// As [`Mapper::allocate`]. Part of it may be done; the repeated call does the rest.
    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Moves the file's end. Before growth, execute [`ZeroPlan::before_growth`]. After shrinking, [`Mapper::unmap`] of
    /// [`Mapper::blocks_behind_end`] releases the space behind the end.
    ///
    /// # Errors
    /// [`MapError::Fixed`], [`MapError::TooFar`].
    fn set_size(&mut self, bytes: u64) -> Result<(), MapError>;

    /// All blocks behind the file's end.
    fn blocks_behind_end(&self) -> FileRange {
        FileRange::between(self.size_bytes(), u64::MAX).inward(self.block_bytes().into())
    }

    /// Whether the mapping is fixed: [`Mapper::allocate`], [`Mapper::unmap`] and [`Mapper::set_size`] then fail with
    /// [`MapError::Fixed`].
    fn is_fixed(&self) -> bool {
        false
    }

    /// Drops clean metadata, so that the mapper asks for it again.
    fn forget_metadata(&mut self) {}

    /// The next metadata block that changed since it was last written; children before their parents. A queue keeps the
    /// order of bios to one extent, so the caller need not wait for one write before the next.
    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        None
    }
}

/// The layout of a new file.
#[derive(Debug, Clone, Copy)]
pub struct FileLayout {
    /// The filesystem's block, bytes.
    pub block_bytes: u32,
    /// The file's length, bytes: a hole, unless the mapping is fixed.
    pub size_bytes: u64,
    /// The size of the device, bytes. A part of a sector at the end is not used.
    pub capacity_bytes: u64,
}

impl FileLayout {
    /// The size of the device in sectors.
    pub const fn capacity_sectors(&self) -> u64 {
        self.capacity_bytes / SECTOR_BYTES
    }
}

/// A kind of mapper: a row of [`MAPPERS`].
#[derive(Debug, Clone, Copy)]
pub struct MapperKind {
    /// Its name on the command line.
    pub name: &'static str,
    /// A description in one line.
    pub about: &'static str,
    /// Makes a mapper for a new file.
    pub make: fn(&FileLayout) -> Result<Box<dyn Mapper>, MapError>,
}

/// All kinds of mappers.
pub const MAPPERS: &[MapperKind] = &[
    MapperKind {
        name: identity::NAME,
        about: "a byte of the file lies at the same offset on the device",
        make: |layout| Ok(Box::new(Identity::new(layout)?)),
    },
    MapperKind {
        name: extents::NAME,
        about: "sorted extents with holes and unwritten ones, as ext4 and xfs have them",
        make: |layout| Ok(Box::new(ExtentMap::new(layout)?)),
    },
    MapperKind {
        name: indirect::NAME,
        about: "pointers to blocks, 12 of them direct, the others behind up to three indirect blocks, as ext2 and ext3",
        make: |layout| Ok(Box::new(IndirectMap::new(layout)?)),
    },
];

/// Checks a block size against the rules of every map.
fn check_block(mapper: &'static str, block_bytes: u32) -> Result<(), MapError> {
    if block_bytes.is_power_of_two() && u64::from(block_bytes) >= SECTOR_BYTES {
        return Ok(());
    }
    Err(MapError::BlockSize { mapper, block_bytes, range: "a power of two, 512 or more" })
}
