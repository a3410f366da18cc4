//! Punches a hole into a file: zeroes partly punched blocks. The caller releases the whole blocks afterwards.

use super::{PlanError, Step, ZeroPlan};
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Mapper};

/// The steps before the whole blocks of a range can be released. When all have succeeded, call [`Mapper::unmap`] with
/// [`PunchPlan::blocks`]. If a step failed, do not call it; the bytes at the ends are then old or zero.
#[derive(Debug, Clone)]
pub struct PunchPlan {
    head: ZeroPlan,
    tail: ZeroPlan,
    footprint: FileRange,
    blocks: FileRange,
}

impl PunchPlan {
    /// Punches `file`. If the rest of a block lies past the file's end, the whole block is punched.
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

    /// The blocks that no other task may write meanwhile.
    pub const fn footprint(&self) -> FileRange {
        self.footprint
    }

    /// The whole blocks to unmap when all steps have succeeded; may be empty.
    pub const fn blocks(&self) -> FileRange {
        self.blocks
    }

    /// The next step; `None` after the last.
    pub fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        self.head.poll_step(mapper, limits).or_else(|| self.tail.poll_step(mapper, limits))
    }
}
