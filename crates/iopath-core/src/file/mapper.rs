//! Where a file's bytes lie on its device: mappers, and the plan of a direct read or write over one.
//!
//! A [`Mapper`] answers for a range of a file which extent of the device it is, or that it is a hole or unwritten. A
//! plan ([`ReadPlan`], [`WritePlan`], [`PunchPlan`], [`ZeroPlan`]) walks a range over a mapper and gives out one
//! [`Step`] after another: bios, zeroes, space to be found, metadata to be read. Whoever polls carries them out;
//! nothing here does I/O, and nothing here finds space: that is a [`Space`].
//!
//! A mapper is one file in `mapper/` and one row in [`MAPPERS`].
//!
//! # No stale byte is ever visible
//! What space holds when a file gets it is another's. So a mapper gives it out as unwritten, which reads as zeroes, and
//! it becomes written in three steps that keep this order:
//!
//! 1. [`Mapper::allocate`]: the space belongs to the file, unwritten;
//! 2. the data and zeroes for the rest of a partly written block reach the device ([`WritePlan::poll_step`]);
//! 3. [`Mapper::commit`] what has: an error before leaves the block unwritten, and that reads as zeroes.
//!
//! The bytes between the end of a file and the end of its last block may be anything: they are zeroed before the end
//! moves over them ([`ZeroPlan::before_growth`], and [`WritePlan`] by itself). Space that a file gives up may still be
//! the goal of I/O in flight: a [`Quarantine`] keeps it back until that has completed.
//!
//! Two writes that touch the same block of the filesystem must not be in flight at once, or each zeroes what the other
//! has written: lock [`WritePlan::footprint`] and [`PunchPlan::footprint`].

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

/// What a run of a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// No space: reads as zeroes.
    Hole,
    /// Space that was never written: reads as zeroes whatever the device holds there.
    Unwritten(Extent),
    /// Data, as the device holds it.
    Written(Extent),
}

/// A run of a file that is all of one kind, and one extent of the device if it has a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mapping {
    /// The run.
    pub file: FileRange,
    /// Where it lies.
    pub place: Place,
    /// The block that follows in the file can only be found through another metadata block (`BH_Boundary` in Linux).
    /// True of the *end* of the run, not of each block in it: see [`Boundary`].
    pub boundary: bool,
}

/// The metadata block here must be read before a mapper knows: read it, give it to [`Mapper::handle_metadata`], ask
/// again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metadata(pub Extent);

/// A metadata block that has changed and is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyMetadata {
    /// Where to.
    pub place: Extent,
    /// What: as long as `place`.
    pub bytes: Box<[u8]>,
}

/// Why a mapping cannot be changed, or metadata not be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// Not yet: see [`Metadata`].
    #[error("the metadata block at sectors {0} has to be read first")]
    Metadata(Extent),
    /// The [`Space`] has none.
    #[error("no space left for the file; free some, or wait for what is held back by I/O in flight")]
    NoSpace,
    /// This mapper's files cannot have holes, nor grow.
    #[error("the file lies where it lies: a {0} mapping cannot change")]
    Fixed(&'static str),
    /// The block lies further out than the map has pointers for.
    #[error(
        "byte {offset} lies beyond the {max} bytes that the map can point to; use larger blocks or extents"
    )]
    TooFar {
        /// Where in the file.
        offset: u64,
        /// The largest file, in bytes.
        max: u64,
    },
    /// A pointer leads out of the device.
    #[error(
        "the metadata block at sectors {place} points to block {pointer} of a device of {blocks}; check the filesystem"
    )]
    Corrupt {
        /// The metadata block.
        place: Extent,
        /// What it says.
        pointer: u32,
        /// Blocks of the device.
        blocks: u64,
    },
    /// A block size that the map does not come in.
    #[error("a {mapper} mapping has no blocks of {block_bytes} bytes; {range}")]
    BlockSize {
        /// The mapper's name.
        mapper: &'static str,
        /// What was asked for.
        block_bytes: u32,
        /// What there is.
        range: &'static str,
    },
}

impl From<Metadata> for MapError {
    fn from(Metadata(place): Metadata) -> Self {
        Self::Metadata(place)
    }
}

/// Knows where a file lies. Asks no device: what it must read first it names ([`Metadata`]).
///
/// Mapping goes by whole sectors, changing by whole blocks of the filesystem. Blocks may lie behind the file's end.
pub trait Mapper: fmt::Debug + Send {
    /// Its name in [`MAPPERS`].
    fn name(&self) -> &'static str;

    /// The filesystem's block, bytes: a power of two, 512 at least.
    fn block_bytes(&self) -> u32;

    /// The file's length in bytes.
    fn size_bytes(&self) -> u64;

    /// The run that begins where `range` does, and ends where it does at the latest. `range` is whole sectors, one at
    /// least.
    ///
    /// # Errors
    /// [`Metadata`] that has to be read first.
    fn map(&self, range: FileRange) -> Result<Mapping, Metadata>;

    /// Takes a metadata block that it asked for.
    ///
    /// # Errors
    /// [`MapError::Corrupt`]; nothing is taken then.
    fn handle_metadata(&mut self, place: Extent, bytes: &[u8]) -> Result<(), MapError>;

    /// Gives every hole in `range`, whole blocks, space: unwritten. What has been given stays after an error.
    ///
    /// # Errors
    /// [`MapError`]: [`MapError::Metadata`] to be read first, or what makes it impossible.
    fn allocate(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Makes written what is unwritten in `range`, whole blocks: its data, and zeroes around it, are on the device.
    ///
    /// # Errors
    /// [`MapError::Metadata`] to be read first; part of it may be done then, and is done once.
    fn commit(&mut self, range: FileRange) -> Result<(), MapError>;

    /// Makes `range`, whole blocks, a hole, and gives its space back.
    ///
    /// # Errors
    /// As [`Mapper::allocate`]; part of it may be done then, and is done once.
    fn unmap(&mut self, range: FileRange, space: &mut dyn Space) -> Result<(), MapError>;

    /// Moves the file's end. Before it grows, [`ZeroPlan::before_growth`] must be done; after it shrank,
    /// [`Mapper::unmap`] of [`Mapper::blocks_behind_end`] gives back what lies there.
    ///
    /// # Errors
    /// [`MapError::Fixed`], [`MapError::TooFar`].
    fn set_size(&mut self, bytes: u64) -> Result<(), MapError>;

    /// The blocks behind the file's end, as far as offsets go.
    fn blocks_behind_end(&self) -> FileRange {
        FileRange::between(self.size_bytes(), u64::MAX).inward(self.block_bytes().into())
    }

    /// Whether the file lies where it lies: then [`Mapper::allocate`], [`Mapper::unmap`] and [`Mapper::set_size`] are
    /// refused ([`MapError::Fixed`]).
    fn is_fixed(&self) -> bool {
        false
    }

    /// Forgets metadata that is as on the medium, so that it is asked for again.
    fn forget_metadata(&mut self) {}

    /// A metadata block that has changed since it was last written; children before who points to them. Bios to one
    /// place keep their order, so whoever writes these through a queue may go on at once.
    fn poll_dirty(&mut self) -> Option<DirtyMetadata> {
        None
    }
}

/// What a new file is made of.
#[derive(Debug, Clone, Copy)]
pub struct FileLayout {
    /// The filesystem's block, bytes.
    pub block_bytes: u32,
    /// The file's length, bytes: a hole, but where the mapping cannot have any.
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

/// A way to map files: a row of [`MAPPERS`].
#[derive(Debug, Clone, Copy)]
pub struct MapperKind {
    /// Its name on the command line.
    pub name: &'static str,
    /// One line on what it is.
    pub about: &'static str,
    /// Makes a mapper for a new file.
    pub make: fn(&FileLayout) -> Result<Box<dyn Mapper>, MapError>,
}

/// All ways to map files.
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

/// Checks the block size that every map can have.
fn check_block(mapper: &'static str, block_bytes: u32) -> Result<(), MapError> {
    if block_bytes.is_power_of_two() && u64::from(block_bytes) >= SECTOR_BYTES {
        return Ok(());
    }
    Err(MapError::BlockSize { mapper, block_bytes, range: "a power of two, 512 or more" })
}
