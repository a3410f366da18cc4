//! Zeroes written space, so that no stale byte becomes visible: the rest of the last block before the file grows, and
//! the ends of a hole to be punched. Skips holes and unwritten space, since they read as zeroes.

use super::{PlanError, Step, check_blocks};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Location, Mapper, Metadata};
use crate::sector::{Extent, SECTOR_BYTES};

/// The steps that make a range of a file read as zeroes, byte by byte.
#[derive(Debug, Clone)]
pub struct ZeroPlan {
    rest: FileRange,
}

impl ZeroPlan {
    /// A plan without steps.
    pub(super) const EMPTY: Self = Self { rest: FileRange::between(0, 0) };

    /// Zeroes `file`, up to the last whole block of the filesystem with an offset.
    ///
    /// # Errors
    /// [`PlanError::BlockSize`].
    pub fn new(file: FileRange, mapper: &dyn Mapper, limits: &Limits) -> Result<Self, PlanError> {
        check_blocks(mapper, limits)?;
        // A rest without a whole block could never be zeroed, and the plan would never end.
        let block = u64::from(mapper.block_bytes());
        Ok(Self { rest: file.up_to(u64::MAX / block * block) })
    }

    /// Zeroes the written space that becomes visible when the file grows to `size_bytes`: mostly the rest of the last
    /// block. Call [`Mapper::set_size`] when all steps have succeeded.
    ///
    /// # Errors
    /// [`PlanError::BlockSize`].
    pub fn before_growth(size_bytes: u64, mapper: &dyn Mapper, limits: &Limits) -> Result<Self, PlanError> {
        Self::new(FileRange::between(mapper.size_bytes(), size_bytes), mapper, limits)
    }

    /// The next step; `None` after the last.
    pub fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        let block = block_bytes(limits);
        while !self.rest.is_empty() {
            let mapping = match mapper.map(self.rest.outward(block)) {
                Ok(mapping) => mapping,
                Err(Metadata(extent)) => return Some(Step::Metadata { extent }),
            };
            let Location::Written(extent) = mapping.location else {
                self.rest = self.rest.from_offset(mapping.file.end());
                continue;
            };
            let (file, step) = first_step(self.rest.and(mapping.file), mapping.file, extent, block, limits);
            self.rest = self.rest.from_offset(file.end());
            return Some(step);
        }
        None
    }
}

/// The device's block, in bytes: a sector at least.
fn block_bytes(limits: &Limits) -> u64 {
    limits.logical_block_bytes.max(SECTOR_BYTES as u32).into()
}

/// The first part of `file` that one step can zero, and the step. `extent` is that of `mapped`, which begins in the
/// same block.
fn first_step(
    file: FileRange,
    mapped: FileRange,
    extent: Extent,
    block: u64,
    limits: &Limits,
) -> (FileRange, Step) {
    let at = |range: FileRange| {
        let (_, rest) = extent.split_at((range.start() - mapped.start()) / SECTOR_BYTES);
        rest.split_at(range.bytes() / SECTOR_BYTES).0
    };
    let whole = file.inward(block);
    if !whole.is_empty() && whole.start() == file.start() {
        let extent = at(whole);
        let op = if limits.write_zeroes_bytes_max > 0 { Op::WriteZeroes } else { Op::Write };
        // Use a write if the device's largest write-zeroes is smaller than a block.
        let sectors = match limits.first_piece(op, extent) {
            0 => limits.first_piece(Op::Write, extent),
            sectors => sectors,
        };
        let extent = extent.split_at(sectors).0;
        let file = whole.up_to(whole.start() + extent.bytes());
        return (file, Step::ZeroBlocks { file, extent });
    }
    let first = FileRange::new(file.start(), 1).outward(block);
    let part = file.and(first);
    (part, Step::ZeroPart { file: part, extent: at(first), from: part.start() - first.start() })
}
