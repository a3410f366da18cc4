//! The steps of direct I/O on a mapped file. A plan executes no step, and a `Mapper` does the mapping.

mod gather;
mod punch;
mod read;
mod write;
mod zero;

pub use punch::PunchPlan;
pub use read::ReadPlan;
pub use write::{WritePlan, Wrote};
pub use zero::ZeroPlan;

use super::{FileRange, Mapper};
use crate::block::limits::Limits;
use crate::sector::Extent;
use std::fmt;
use std::str::FromStr;

/// The next action of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A bio: read `extent` into the memory of `file`, or write it from there. At most one request of the device.
    Transfer {
        /// The bytes of the file.
        file: FileRange,
        /// Their extent on the device.
        extent: Extent,
    },
    /// In a read: fill the memory of `file` with zeroes. No I/O.
    Zeroes {
        /// The bytes of the file.
        file: FileRange,
    },
    /// In a change: zero `extent`, by a write-zeroes if the device supports it, otherwise by a write.
    ZeroBlocks {
        /// The bytes of the file.
        file: FileRange,
        /// Their extent on the device.
        extent: Extent,
    },
    /// In a change: zero a part of one block of the device. Read `extent`, clear the bytes of `file`, which begin
    /// `from` bytes after its start, and write it.
    ZeroPart {
        /// The bytes of the file.
        file: FileRange,
        /// The block of the device.
        extent: Extent,
        /// Bytes from the start of `extent` to the first byte of `file`.
        from: u64,
    },
    /// Read this metadata block, pass it to [`Mapper::handle_metadata`], then continue to poll. Earlier steps need not
    /// have completed.
    Metadata {
        /// Its extent on the device.
        extent: Extent,
    },
    /// Call [`Mapper::allocate`] for this range, then continue to poll.
    Allocate {
        /// Whole blocks of the file.
        file: FileRange,
    },
    /// Submit the earlier bios to the device (unplug), since a metadata read follows.
    Submit,
}

/// The effect of a mapping's boundary flag on a plan.
///
/// ext2 places an indirect block between the data before it and the data that it points to. When a sequential read
/// finds the indirect block missing, the bio of the data before it is still pending, since it might grow. Without the
/// flag, the device gets the read of the indirect block first: the head moves to it, back to the data, and forward
/// again. With the flag, the plan submits the pending bio before it requests the indirect block, and the disk gets both
/// in order.
///
/// The flag of a mapping of many blocks concerns its *last* block. Linux in 2006 (2.6.19-rc3, `fs/direct-io.c`) applied
/// it to every block of the mapping, and so submitted each block separately. In a large sequential transfer, nearly
/// every mapping ends at a boundary, and all of these became bios of a single block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The bug: every block of a mapping with the flag is submitted separately.
    EveryBlock,
    /// Correct: the pending bio is submitted once, at the end of a mapping with the flag.
    #[default]
    Once,
    /// The flag is ignored: missing metadata is read before the pending data that precedes it on the disk.
    Ignore,
}

impl Boundary {
    /// All settings.
    pub const ALL: [Self; 3] = [Self::EveryBlock, Self::Once, Self::Ignore];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EveryBlock => "every-block",
            Self::Once => "once",
            Self::Ignore => "ignore",
        }
    }
}

impl fmt::Display for Boundary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Boundary {
    type Err = PlanError;

    fn from_str(name: &str) -> Result<Self, PlanError> {
        let found = Self::ALL.into_iter().find(|boundary| boundary.name() == name);
        found.ok_or_else(|| PlanError::UnknownBoundary(name.to_owned()))
    }
}

/// The reason why an I/O cannot be planned.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The offset or length is not whole blocks of the device.
    #[error(
        "bytes {file} of the file are not whole blocks of {block_bytes} bytes; align them, or copy through an aligned buffer"
    )]
    Unaligned {
        /// The range.
        file: FileRange,
        /// The device's logical block size.
        block_bytes: u32,
    },
    /// A block of the filesystem is not whole blocks of the device.
    #[error(
        "the filesystem has blocks of {file_block_bytes} bytes on a device of {block_bytes}; it cannot lie there"
    )]
    BlockSize {
        /// The block size of the filesystem.
        file_block_bytes: u32,
        /// The block size of the device.
        block_bytes: u32,
    },
    /// The write ends in a block of the filesystem that extends past the largest offset.
    #[error("bytes {file} of the file extend past byte {max}, the end of the last possible block of a file")]
    TooFar {
        /// The range of the write.
        file: FileRange,
        /// The maximum length of a file with such blocks.
        max: u64,
    },
    /// The name is not in [`Boundary::ALL`].
    #[error("there is no boundary handling `{0}`; known are every-block, once, ignore")]
    UnknownBoundary(String),
}

impl fmt::Debug for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::debug::error("PlanError", self, f)
    }
}

/// Whether the filesystem's blocks are whole blocks of the device.
fn check_blocks(mapper: &dyn Mapper, limits: &Limits) -> Result<(), PlanError> {
    let file_block_bytes = mapper.block_bytes();
    let block_bytes = limits.logical_block_bytes;
    if file_block_bytes.is_multiple_of(block_bytes.max(1)) {
        return Ok(());
    }
    Err(PlanError::BlockSize { file_block_bytes, block_bytes })
}

/// Whether direct I/O of `file` fits mapper and device.
fn check_direct(file: FileRange, mapper: &dyn Mapper, limits: &Limits) -> Result<(), PlanError> {
    check_blocks(mapper, limits)?;
    if file.is_whole(limits.logical_block_bytes.into()) {
        return Ok(());
    }
    Err(PlanError::Unaligned { file, block_bytes: limits.logical_block_bytes })
}
