//! A direct write to a mapped file: allocation, bios, zeroes in the rest of new blocks, and the range to commit when
//! all of these have completed. The caller commits.

use super::gather::Gather;
use super::{Boundary, PlanError, Step, ZeroPlan, check_direct};
use crate::block::bio::Op;
use crate::block::limits::Limits;
use crate::file::mapper::{FileRange, Location, Mapper, Metadata};
use crate::sector::{Extent, SECTOR_BYTES, Sector};

/// The steps of a write.
///
/// All steps may be in flight at once, except [`Step::Metadata`] and [`Step::Allocate`]. Report each failed step to
/// [`WritePlan::handle_error`]. When the last has completed, [`WritePlan::finish`] returns the range to commit.
///
/// ```text
/// a new block, partly written:   ├─zeroes─┼──data──┼─zeroes─┤   then commit: unwritten → written
///                             block start              block end
/// ```
#[derive(Debug, Clone)]
pub struct WritePlan {
    file: FileRange,
    rest: FileRange,
    block_bytes: u32,
    size_bytes: u64,
    /// Zeroes between the file's end and the write.
    gap: ZeroPlan,
    gather: Gather,
    head_is_done: bool,
    tail: Option<Step>,
    has_new: bool,
    /// The first failed byte of the file.
    failed: Option<u64>,
}

/// The result of a write. Call [`Mapper::commit`], then [`Mapper::set_size`], and only then report completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrote {
    /// Bytes written, from the start on. After an error: the bytes before the error, in whole blocks of the filesystem.
    /// Later bytes are old or new in space written earlier, and unchanged elsewhere.
    pub bytes: u64,
    /// The whole blocks to commit; may be empty.
    pub commit: FileRange,
    /// The file's new length, if it grows.
    pub size_bytes: Option<u64>,
}

impl WritePlan {
    /// Writes `file`. The mapper's file grows if the write ends past its end.
    ///
    /// # Errors
    /// [`PlanError`]: the range does not fit the device.
    pub fn new(
        file: FileRange,
        mapper: &dyn Mapper,
        limits: &Limits,
        boundary: Boundary,
    ) -> Result<Self, PlanError> {
        check_direct(file, mapper, limits)?;
        let block = u64::from(mapper.block_bytes());
        let max = u64::MAX / block * block;
        if file.end() > max {
            return Err(PlanError::TooFar { file, max });
        }
        let grows = !file.is_empty() && file.end() > mapper.size_bytes();
        let gap =
            if grows { ZeroPlan::before_growth(file.start(), mapper, limits)? } else { ZeroPlan::EMPTY };
        Ok(Self {
            file,
            rest: file,
            block_bytes: mapper.block_bytes(),
            size_bytes: mapper.size_bytes(),
            gap,
            gather: Gather::new(Op::Write, boundary, mapper.block_bytes()),
            head_is_done: false,
            tail: None,
            has_new: false,
            failed: None,
        })
    }

    /// With [`Boundary::EveryBlock`], makes a bio of each page of a mapping with the flag instead of each block, as
    /// Linux does on machines with pages larger than blocks. `page_bytes` is a power of two.
    #[must_use]
    pub fn by_pages(mut self, page_bytes: u32) -> Self {
        self.gather.use_pages(page_bytes);
        self
    }

    /// The blocks that no other task may write, punch or grow over meanwhile.
    pub fn footprint(&self) -> FileRange {
        let start = if self.file.end() > self.size_bytes {
            self.file.start().min(self.size_bytes)
        } else {
            self.file.start()
        };
        FileRange::between(start, self.file.end()).outward(self.block_bytes.into())
    }

    /// The next step; `None` after the last.
    pub fn poll_step(&mut self, mapper: &dyn Mapper, limits: &Limits) -> Option<Step> {
        if let Some(step) = self.gap.poll_step(mapper, limits) {
            return Some(step);
        }
        loop {
            if let Some(step) = self.gather.poll(limits) {
                return Some(step);
            }
            if self.rest.is_empty() {
                if self.gather.close() {
                    continue;
                }
                return self.tail.take();
            }
            let mapping = match mapper.map(self.rest) {
                Ok(mapping) => mapping,
                Err(Metadata(extent)) => return Some(Step::Metadata { extent }),
            };
            let extent = match mapping.location {
                Location::Hole => {
                    return Some(Step::Allocate { file: mapping.file.outward(self.block_bytes.into()) });
                }
                Location::Written(extent) => extent,
                Location::Unwritten(extent) => {
                    self.has_new = true;
                    if let Some(head) = self.take_head(mapping.file, extent) {
                        return Some(head);
                    }
                    self.note_tail(mapping.file, extent);
                    extent
                }
            };
            if self.gather.push(&mapping, extent) {
                self.rest = self.rest.from_offset(mapping.file.end());
            }
        }
    }

    /// Records a failed step of this plan: a [`Step::Transfer`] or zeroes of `file`.
    pub fn handle_error(&mut self, file: FileRange) {
        let at = file.start();
        self.failed = Some(self.failed.map_or(at, |before| before.min(at)));
    }

    /// The result, when all steps polled so far have completed. The caller may stop polling early: steps not yet polled
    /// count as failed.
    pub fn finish(mut self) -> Wrote {
        if !self.rest.is_empty() {
            self.handle_error(self.rest);
        }
        if let Some(pending) = self.gather.pending() {
            self.handle_error(pending);
        }
        if let Some(Step::ZeroBlocks { file, .. }) = self.tail {
            self.handle_error(file);
        }
        let block = u64::from(self.block_bytes);
        let whole = self.file.outward(block);
        let good = self.failed.map_or(whole, |failed| whole.up_to(failed / block * block));
        let written = self.file.and(good);
        Wrote {
            bytes: written.bytes(),
            commit: if self.has_new { good } else { FileRange::default() },
            size_bytes: (!written.is_empty() && written.end() > self.size_bytes).then_some(written.end()),
        }
    }

    /// The step that zeroes the bytes before the data in the same new block.
    fn take_head(&mut self, file: FileRange, extent: Extent) -> Option<Step> {
        let block_start = self.file.start() / u64::from(self.block_bytes) * u64::from(self.block_bytes);
        let head = FileRange::between(block_start, self.file.start());
        if std::mem::replace(&mut self.head_is_done, true)
            || head.is_empty()
            || file.start() != self.file.start()
        {
            return None;
        }
        let sectors = head.bytes() / SECTOR_BYTES;
        let extent = Extent::new(Sector(extent.start().0 - sectors), sectors);
        extent.map(|extent| Step::ZeroBlocks { file: head, extent })
    }

    /// If `file` is the end of the data, records zeroes after it in the same new block.
    fn note_tail(&mut self, file: FileRange, extent: Extent) {
        let tail = FileRange::between(self.file.end(), self.file.outward(self.block_bytes.into()).end());
        if file.end() == self.file.end() && !tail.is_empty() {
            let extent = Extent::new(extent.end(), tail.bytes() / SECTOR_BYTES);
            self.tail = extent.map(|extent| Step::ZeroBlocks { file: tail, extent });
        }
    }
}
