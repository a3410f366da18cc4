//! The mapping of a file to its device: mappers, and the plans of direct I/O over them.
//!
//! A [`Mapper`] maps a range of a file to an extent of the device, a hole or unwritten space. A plan ([`ReadPlan`],
//! [`WritePlan`], [`PunchPlan`], [`ZeroPlan`]) walks a range over a mapper and emits one [`Step`] after another: bios,
//! zeroes, space to allocate, metadata to read. The caller executes them: see [`mapped`](crate::mapped). This module
//! does no I/O; a [`Space`] allocates.
//!
//! A mapper is one file in `mapper/` and one row in [`MAPPERS`].
//!
//! # No stale byte is ever visible
//! New space still holds the bytes of its last owner. So a mapper marks new space as unwritten, which reads as zeroes.
//! The space becomes written in three steps, in this order:
//!
//! 1. [`Mapper::allocate`]: the space belongs to the file, unwritten;
//! 2. the data and zeroes for the rest of a partly written block reach the device ([`WritePlan::poll_step`]);
//! 3. [`Mapper::commit`]: the blocks that reached the device become written. After an error, the others stay unwritten.
//!
//! The bytes between the end of a file and the end of its last block are arbitrary. They are zeroed before the end
//! moves past them (by [`ZeroPlan::before_growth`], or by a [`WritePlan`]). I/O in flight may still access space that a
//! file has released: a [`Quarantine`] holds it until that I/O has completed.
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

use crate::debug;
use crate::sector::{Extent, SECTOR_BYTES};
use std::fmt;

/// The location of a run of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// No space: reads as zeroes.
    Hole,
    /// Space that was never written: reads as zeroes, regardless of the contents of the device.
    Unwritten(Extent),
    /// Data on the device.
    Written(Extent),
}

/// A run of a file, all of one kind. Unless it is a hole, it lies in one extent of the device. Exhaustive: a mapper of
/// a program returns such values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The run.
    pub file: FileRange,
    /// Its location.
    pub location: Location,
    /// A different metadata block points to the next block of the file (`BH_Boundary` in Linux). Concerns the *end* of
    /// the run, not each block in it: see [`Boundary`].
    pub boundary: bool,
}

/// The mapper needs the metadata block at this extent: read it, call [`Mapper::handle_metadata`], and repeat the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata(pub Extent);

/// A changed metadata block to be written.
#[derive(Clone, PartialEq, Eq)]
pub struct DirtyMetadata {
    /// Its extent on the device.
    pub extent: Extent,
    /// Its bytes, as many as the extent has.
    pub bytes: Box<[u8]>,
}

impl fmt::Debug for DirtyMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirtyMetadata")
            .field("extent", &self.extent)
            .field("bytes", &debug::List(&self.bytes))
            .finish()
    }
}

/// The reason why a mapping cannot be read or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Metadata is missing: see [`Metadata`].
    #[error("the metadata block at sectors {0} has to be read first")]
    Metadata(Extent),
    /// The [`Space`] is exhausted.
    #[error("no space left for the file; free some space, or wait until I/O in flight frees released space")]
    NoSpace,
    /// Files of this mapper have no holes and a fixed size.
    #[error("a {0} mapping is fixed: it has no holes and cannot change its size")]
    Fixed(&'static str),
    /// The pointers of the map cannot address the block.
    #[error(
        "byte {offset} lies beyond the {max} bytes that the map can point to; use larger blocks or extents"
    )]
    TooFar {
        /// The offset in the file.
        offset: u64,
        /// The largest file, in bytes.
        max: u64,
    },
    /// A pointer points beyond the device.
    #[error(
        "the metadata block at sectors {extent} points to block {pointer} of a device of {blocks}; check the filesystem"
    )]
    Corrupt {
        /// The metadata block.
        extent: Extent,
        /// The pointer.
        pointer: u32,
        /// Blocks of the device.
        blocks: u64,
    },
    /// The map does not support this block size.
    #[error("mapper {mapper} has no blocks of {block_bytes} bytes; {range}")]
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
    fn from(Metadata(extent): Metadata) -> Self {
        Self::Metadata(extent)
    }
}

/// Maps a file to its device. Does no I/O: it requests the metadata that it needs ([`Metadata`]).
///
/// Look-ups are in whole sectors, changes in whole blocks of the filesystem. A file may have blocks past its end.
pub trait Mapper: fmt::Debug + Send {
    /// Its name in [`MAPPERS`].
    fn name(&self) -> &'static str;

    /// The filesystem's block, bytes: a power of two, 512 at least.
    fn block_bytes(&self) -> u32;

    /// The file's length in bytes.
    fn size_bytes(&self) -> u64;

    /// The run at the start of `range`, limited to `range`, which must be at least one sector and in whole sectors.
    ///
    /// # Errors
    /// The [`Metadata`] that must be read first.
    fn map(&self, range: FileRange) -> Result<Mapping, Metadata>;

    /// Receives a metadata block that it has requested.
    ///
    /// # Errors
    /// [`MapError::Corrupt`]; then the mapper ignores the block.
    fn handle_metadata(&mut self, extent: Extent, bytes: &[u8]) -> Result<(), MapError>;

    /// Allocates unwritten space for every hole in `range`, which is whole blocks. After an error, the file keeps the
    /// space allocated before.
    ///
    /// # Errors
    /// [`MapError::Metadata`] if metadata must be read first, or another error.
    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Marks the unwritten blocks of `range`, which is whole blocks, as written. Their data, and the zeroes around it,
    /// must be on the device.
    ///
    /// # Errors
    /// [`MapError::Metadata`] if metadata must be read first. A part may be done; the repeated call does the rest.
    fn commit(&mut self, range: FileRange) -> Result<(), MapError>;

    /// Makes `range`, which is whole blocks, a hole, and releases its space.
    ///
    /// # Errors
    /// Returns the errors of [`Mapper::allocate`]. A part may be done; the repeated call does the rest.
    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Moves the file's end. Before growth, execute [`ZeroPlan::before_growth`]. After shrinking, call
    /// [`Mapper::unmap`] with [`Mapper::blocks_past_end`] to release the space past the end.
    ///
    /// # Errors
    /// [`MapError::Fixed`], [`MapError::TooFar`].
    fn set_size(&mut self, bytes: u64) -> Result<(), MapError>;

    /// All blocks past the file's end.
    fn blocks_past_end(&self) -> FileRange {
        FileRange::between(self.size_bytes(), u64::MAX).inward(self.block_bytes().into())
    }

    /// Whether the mapping is fixed: [`Mapper::allocate`], [`Mapper::unmap`] and [`Mapper::set_size`] then fail with
    /// [`MapError::Fixed`].
    fn is_fixed(&self) -> bool {
        false
    }

    /// Drops clean metadata. The mapper requests it again when needed.
    fn forget_metadata(&mut self) {}

    /// The next metadata block that changed since it was last written; children come before their parents. A queue
    /// keeps the order of bios to one extent, so the caller need not wait between writes.
    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        None
    }
}

/// The layout of a new file.
#[derive(Debug, Clone, Copy)]
pub struct FileLayout {
    /// The filesystem's block, bytes.
    pub block_bytes: u32,
    /// The file's length, bytes. All of it is a hole, unless the mapping is fixed.
    pub size_bytes: u64,
    /// The size of the device, bytes. A partial sector at the end is not used.
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
#[non_exhaustive]
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
        about: "sorted extents, written or unwritten, with holes, as in ext4 and xfs",
        make: |layout| Ok(Box::new(ExtentMap::new(layout)?)),
    },
    MapperKind {
        name: indirect::NAME,
        about: "pointers to blocks as in ext2 and ext3: 12 direct, the others through up to three indirect blocks",
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
