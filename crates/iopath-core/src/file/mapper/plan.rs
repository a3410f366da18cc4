//! What direct I/O on a mapped file is made of, step by step. Carries out no step, and finds no place: see `Mapper`.

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

/// What is to be done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A bio: read `place` into the memory of `file`, or write it from there. One request of the device at most.
    Transfer {
        /// Which bytes of the file.
        file: FileRange,
        /// Where they lie.
        place: Extent,
    },
    /// Of a read: the memory of `file` is filled with zeroes. No I/O.
    Zeroes {
        /// Which bytes of the file.
        file: FileRange,
    },
    /// Of a change: `place` is made to hold zeroes, by a write-zeroes where the device has one, else by a write.
    ZeroBlocks {
        /// Which bytes of the file.
        file: FileRange,
        /// Where they lie.
        place: Extent,
    },
    /// Of a change: a part of one block of the device is made to hold zeroes: read `place`, clear the bytes of `file`
    /// in it, which lie `from` bytes behind its start, write it.
    ZeroPart {
        /// Which bytes of the file.
        file: FileRange,
        /// The block of the device.
        place: Extent,
        /// Bytes from the start of `place` to the first of `file`.
        from: u64,
    },
    /// An I/O of its own: read this, give it to [`Mapper::handle_metadata`], go on polling. What was given out before
    /// need not be over.
    Metadata {
        /// Where it lies.
        place: Extent,
    },
    /// Space is needed: [`Mapper::allocate`] this range, go on polling.
    Allocate {
        /// Whole blocks of the file.
        file: FileRange,
    },
    /// The bios so far go to the device now: unplug. A metadata read is about to follow.
    Submit,
}

/// What a mapping's boundary flag does to a plan.
///
/// A block-mapped file is read on through indirect blocks, which ext2 places between the data: data, indirect block, data
/// it leads to. The bio of the data before an indirect block is still pending, since it might grow, when the block is
/// found missing and read: so the device is asked for the indirect block first, moves there, back, and on past it. The
/// flag tells that in time: what is pending is submitted, and both reach the disk in order.
///
/// The flag of a mapping of many blocks is about its *last* block. Linux in 2006 (2.6.19-rc3, `fs/direct-io.c`) kept it for
/// all blocks of the mapping, and so submitted each by itself: a mapping that reaches a boundary, in a large sequential
/// transfer nearly every one, fell apart into bios of a single block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Boundary {
    /// The bug: every block of a mapping that has the flag is submitted by itself.
    EveryBlock,
    /// Right: what is pending is submitted at the end of a mapping that has the flag, once.
    #[default]
    Once,
    /// The flag means nothing: metadata is read when it is missed, before the data that lies in front of it.
    Ignore,
}

impl Boundary {
    /// All of them.
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

/// Why there is no plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// Offset or length are not whole blocks of the device.
    #[error(
        "bytes {file} of the file are not whole blocks of {block_bytes} bytes; align them, or go through a buffer"
    )]
    Unaligned {
        /// What was asked for.
        file: FileRange,
        /// The device's logical block size.
        block_bytes: u32,
    },
    /// A block of the filesystem is no whole blocks of the device: nothing of it could be read.
    #[error(
        "the filesystem has blocks of {file_block_bytes} bytes on a device of {block_bytes}; it cannot lie there"
    )]
    BlockSize {
        /// The filesystem's.
        file_block_bytes: u32,
        /// The device's.
        block_bytes: u32,
    },
    /// A write that ends in a block of the filesystem that is not whole, since offsets end before it does.
    #[error("bytes {file} of the file reach past byte {max}, where the last whole block of any file ends")]
    TooFar {
        /// What was to be written.
        file: FileRange,
        /// The most bytes of a file with such blocks.
        max: u64,
    },
    /// A name that is none of [`Boundary::ALL`].
    #[error("there is no boundary handling `{0}`; known are every-block, once, ignore")]
    UnknownBoundary(String),
}

/// Whether the filesystem's blocks are whole blocks of the device.
fn check_blocks(mapper: &dyn Mapper, limits: &Limits) -> Result<(), PlanError> {
    let (file_block_bytes, block_bytes) = (mapper.block_bytes(), limits.logical_block_bytes);
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
