//! A hole punched into a file: zeroes in the blocks that only a part is punched of, then the others are given back.

use super::{PlanError, Step, ZeroPlan};
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Mapper};

/// The steps before whole blocks of a range can be given back. When all are done, [`Mapper::unmap`] of
/// [`PunchPlan::blocks`]; if one failed, not: bytes at the ends may then be old or zero.
#[derive(Debug, Clone)]
pub struct PunchPlan {
    head: ZeroPlan,
    tail: ZeroPlan,
    footprint: FileRange,
    blocks: FileRange,
}

impl PunchPlan {
    /// Punches `file`. A block of which only bytes behind the file's end are left is punched whole.
    ///
    /// # Errors
    /// [`PlanError::BlockSize`].
    pub fn new(file: FileRange, mapper: &dyn Mapper, limits: &Limits) -> Result<Self, PlanError> {
        let block = mapper.block_bytes().into();
        let reaches_end = file.end() >= mapper.size_bytes() && !file.is_empty();
        let punched =
            if reaches_end { FileRange::between(file.start(), file.outward(block).end()) } else { file };
        let blocks = punched.inward(block);
        let (head, tail) = if blocks.is_empty() {
            (file, FileRange::default())
        } else {
            (file.up_to(blocks.start()), file.from_offset(blocks.end()))
        };
        Ok(Self {
            head: ZeroPlan::new(head, mapper, limits)?,
            tail: ZeroPlan::new(tail, mapper, limits)?,
            footprint: file.outward(block),
            blocks,
        })
    }

    /// The blocks that must not be written by another meanwhile.
    pub const fn footprint(&self) -> FileRange {
        self.footprint
    }

    /// What is to be unmapped when all steps are done: whole blocks, perhaps none.
    pub const fn blocks(&self) -> FileRange {
        self.blocks
    }

    /// The next step; `None` when there is no more.
    pub fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        self.head.poll_step(mapper, limits).or_else(|| self.tail.poll_step(mapper, limits))
    }
}
