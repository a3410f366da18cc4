//! One request on a mapped file: its plan, its progress, and the event that it waits for. `executor.rs` submits its
//! I/O.

use std::collections::VecDeque;

use slab::Slab;

use super::file::{ClaimId, EngineId, FlushId, MappedFile};
use super::host::MappedHost;
use crate::block::bio::{Op, Priority, Stream};
use crate::block::limits::Limits;
use crate::block::request::Tag;
use crate::error::IoError;
use crate::file::mapper::{
    Boundary, FileRange, MapError, PlanError, PunchPlan, ReadPlan, Step, Ticket, WritePlan, ZeroPlan,
};
use crate::memory::Memory;
use crate::sector::{Extent, SECTOR_BYTES};

/// The tasks of one engine, and its bios in flight.
#[derive(Debug)]
pub(super) struct Tasks<H: MappedHost> {
    pub(super) host: H,
    pub(super) id: EngineId,
    pub(super) list: Vec<Task<H::Memory, H::Buffer>>,
    /// Unused entries of `list`.
    pub(super) free: Vec<u32>,
    /// Bios in the queue, by their tokens.
    pub(super) bios: Slab<BioInFlight>,
}

/// A bio of a task, in the queue or at the device.
#[derive(Debug, Clone, Copy)]
pub(super) struct BioInFlight {
    pub(super) task: u32,
    /// The bytes of the plan; `None` for metadata I/O.
    pub(super) file: Option<FileRange>,
    pub(super) op: Op,
    /// For a flush or forced write: its identifier in the shared file.
    pub(super) flush: Option<FlushId>,
}

/// A slot for a request. Its lists keep their memory from one request to the next.
#[derive(Debug)]
pub(super) struct Task<M, B> {
    pub(super) tag: Tag,
    pub(super) op: Op,
    pub(super) extent: Extent,
    pub(super) fua: bool,
    pub(super) stream: Stream,
    pub(super) priority: Priority,
    pub(super) segments: Vec<M>,
    pub(super) goal: Goal,
    /// The file's size when the task began. A read returns zeroes past it.
    pub(super) size_bytes: u64,
    pub(super) plan: Plan,
    pub(super) stage: Stage,
    /// Steps of the plan that were not executed yet.
    pub(super) steps: VecDeque<Step>,
    /// Bios of the plan in flight.
    pub(super) bios: u32,
    /// Metadata bios in flight: metadata blocks, partly changed blocks, the flush at the end.
    pub(super) metadata_bios: u32,
    pub(super) metadata_error: Option<IoError>,
    pub(super) buffer: Option<B>,
    /// The claim to its blocks, and whether it is exclusive.
    pub(super) claim: Option<(ClaimId, bool)>,
    pub(super) ticket: Option<Ticket>,
    /// The first error.
    pub(super) error: Option<IoError>,
}

/// The operation of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    Read,
    Write,
    /// Zeroes the mapped parts of the range.
    Zero,
    /// Releases the space of the range.
    Punch,
    /// Passes the discard to the device.
    Pass,
    Flush,
    /// Moves the file's end.
    Resize(u64),
    /// Moves the file's end to a lower offset.
    Truncate(u64),
}

#[derive(Debug)]
pub(super) enum Plan {
    None,
    Read(ReadPlan),
    Write(WritePlan),
    Punch(PunchPlan),
    Zero(ZeroPlan),
}

/// The progress of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Waits for blocks that other tasks have claimed.
    WaitForBlocks,
    /// Executes steps, or polls the plan for more.
    Planning,
    /// Waits for space in quarantine.
    WaitForSpace,
    /// Reads a metadata block: its extent, [`MappedFile::metadata_taken`] when the read began, and the next action.
    ReadingMetadata(Extent, u64, Next),
    /// Reads a block, to change a part of it.
    ReadingPart(Step),
    WritingPart,
    /// Waits for the bios of all steps.
    Draining,
    /// Changes the mapping of this range, after all steps have completed.
    ChangingMapping(FileRange),
    /// Begins to save metadata.
    BeginSaving,
    /// Writes metadata to the device.
    Saving(Saving),
    /// Begins a flush of the device, after saving this many metadata blocks, if any.
    BeginFlush(Option<usize>),
    Flushing(Option<usize>),
    /// Waits for the outcome of all flushes up to this one. If none has failed, this many metadata blocks are on the
    /// medium.
    WaitForFlushes(usize, FlushId),
    Completed,
    Idle,
}

/// Progress of a save, in metadata blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Saving {
    pub(super) done: usize,
    pub(super) in_flight: usize,
    pub(super) all: usize,
}

/// The next action after a metadata read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    Planning,
    ChangingMapping(FileRange),
}

impl<M: Memory, B> Task<M, B> {
    pub(super) fn idle() -> Self {
        Self {
            tag: Tag::from_bits(0),
            op: Op::Flush,
            extent: Extent::EMPTY,
            fua: false,
            stream: Stream(0),
            priority: Priority::BestEffort,
            segments: Vec::new(),
            goal: Goal::Flush,
            size_bytes: 0,
            plan: Plan::None,
            stage: Stage::Idle,
            steps: VecDeque::new(),
            bios: 0,
            metadata_bios: 0,
            metadata_error: None,
            buffer: None,
            claim: None,
            ticket: None,
            error: None,
        }
    }

    /// The request's bytes of the file.
    pub(super) const fn file(&self) -> FileRange {
        FileRange::new(self.extent.offset(), self.extent.bytes())
    }

    /// Whether no earlier task conflicts. If the task now needs an exclusive claim, replaces its shared claim.
    pub(super) fn may_begin(&mut self, file: &mut MappedFile) -> bool {
        let Some(blocks) = self.footprint(file) else { return true };
        loop {
            let is_exclusive = self.is_exclusive(file);
            let (claim, was_exclusive) =
                *self.claim.get_or_insert_with(|| (file.claim(blocks, is_exclusive), is_exclusive));
            if !file.is_granted(claim) {
                return false;
            }
            if was_exclusive || !is_exclusive {
                return true;
            }
            file.release_claim(claim);
            self.claim = None;
        }
    }

    /// The blocks that other tasks must not change meanwhile; `None` for a task without changes.
    fn footprint(&self, file: &MappedFile) -> Option<FileRange> {
        let block = u64::from(file.mapper.block_bytes());
        match self.goal {
            Goal::Read | Goal::Flush => None,
            Goal::Resize(bytes) | Goal::Truncate(bytes) => {
                let first = bytes.min(file.mapper.size_bytes());
                Some(FileRange::between(first / block * block, u64::MAX))
            }
            Goal::Write | Goal::Zero | Goal::Punch | Goal::Pass => Some(self.file().outward(block)),
        }
    }

    /// Whether no other task may change these blocks meanwhile: the task allocates or releases space, or writes blocks
    /// for the first time.
    fn is_exclusive(&self, file: &MappedFile) -> bool {
        match self.goal {
            Goal::Write => !file.is_written(self.file()),
            Goal::Punch | Goal::Resize(_) | Goal::Truncate(_) => true,
            Goal::Read | Goal::Flush | Goal::Zero | Goal::Pass => false,
        }
    }

    /// Makes the plan of a task that may begin.
    pub(super) fn make_plan(
        &mut self,
        shared: &MappedFile,
        limits: &Limits,
        boundary: Boundary,
        page_bytes: u32,
    ) -> Result<(), PlanError> {
        let file = self.file();
        let mapper = &*shared.mapper;
        if let Goal::Resize(bytes) = self.goal
            && bytes < mapper.size_bytes()
        {
            self.goal = Goal::Truncate(bytes);
        }
        self.plan = match self.goal {
            Goal::Read | Goal::Pass => Plan::Read(ReadPlan::new(file, mapper, limits, boundary)?),
            Goal::Write => Plan::Write(WritePlan::new(file, mapper, limits, boundary)?.by_pages(page_bytes)),
            Goal::Punch => Plan::Punch(PunchPlan::new(file, mapper, limits)?),
            Goal::Zero => Plan::Zero(ZeroPlan::new(file, mapper, limits)?),
            Goal::Resize(bytes) => Plan::Zero(ZeroPlan::before_growth(bytes, mapper, limits)?),
            Goal::Flush | Goal::Truncate(_) => Plan::None,
        };
        Ok(())
    }

    pub(super) fn poll_step(&mut self, shared: &MappedFile, limits: &Limits) -> Option<Step> {
        let mapper = &*shared.mapper;
        match &mut self.plan {
            Plan::None => None,
            Plan::Read(plan) => plan.poll_step(mapper, limits),
            Plan::Write(plan) => plan.poll_step(mapper, limits),
            Plan::Punch(plan) => plan.poll_step(mapper, limits),
            Plan::Zero(plan) => plan.poll_step(mapper, limits),
        }
    }

    /// Part of the plan has failed.
    pub(super) fn fail_part(&mut self, file: FileRange, error: IoError) {
        self.fail(error);
        if let Plan::Write(plan) = &mut self.plan {
            plan.handle_error(file);
        }
    }

    pub(super) fn fail(&mut self, error: IoError) {
        self.error = self.error.or(Some(error));
    }

    /// Records a failed flush. For a forced write, the error must be one that may come from a flush. Any other error
    /// would count as an error of the write alone.
    pub(super) fn fail_flush(&mut self, error: IoError) {
        let reports_flush = self.goal == Goal::Flush || error.may_come_from_flush();
        self.fail(if reports_flush { error } else { IoError::Media });
    }

    /// Drops the steps that were not executed yet.
    pub(super) fn stop(&mut self) {
        while let Some(step) = self.steps.pop_front() {
            if let (Step::Transfer { file, .. } | Step::ZeroBlocks { file, .. }, Plan::Write(plan)) =
                (step, &mut self.plan)
            {
                plan.handle_error(file);
            }
        }
        self.stage = Stage::Draining;
    }

    /// Ends the plan when all steps have completed. Returns the range whose mapping changes; may be empty.
    pub(super) fn finish_plan(&mut self) -> FileRange {
        match std::mem::replace(&mut self.plan, Plan::None) {
            // The file keeps the bytes written before an error.
            Plan::Write(plan) => plan.finish().commit,
            Plan::Punch(plan) if self.error.is_none() => plan.blocks(),
            _ => FileRange::default(),
        }
    }

    /// Changes the mapping. May be called again after it has requested metadata.
    pub(super) fn change_mapping(&self, file: &mut MappedFile, range: FileRange) -> Result<(), MapError> {
        match self.goal {
            Goal::Write if !range.is_empty() => file.mapper.commit(range),
            Goal::Punch if !range.is_empty() => file.unmap(range),
            Goal::Resize(bytes) if self.error.is_none() => file.mapper.set_size(bytes),
            Goal::Truncate(bytes) if self.error.is_none() => {
                file.mapper.set_size(bytes)?;
                file.unmap(file.mapper.blocks_past_end())
            }
            _ => Ok(()),
        }
    }

    /// Ends a task whose mapping cannot be changed. A truncation is complete nevertheless: blocks left past the end are
    /// zeroed before the end moves past them again.
    pub(super) fn abandon_mapping(&mut self, error: IoError) {
        match self.goal {
            Goal::Truncate(_) => self.goal = Goal::Read,
            _ => self.fail(error),
        }
    }

    /// Releases the claim and the ticket.
    pub(super) fn release(&mut self, file: &mut MappedFile) {
        if let Some((claim, _)) = self.claim.take() {
            file.release_claim(claim);
        }
        if let Some(ticket) = self.ticket.take() {
            file.end_io(ticket);
        }
    }

    /// Ends the ticket of a task that waits for space, if the ticket keeps an older release in quarantine. Returns
    /// whether that freed space. The task needs no ticket, since it has claimed the blocks that it writes.
    pub(super) fn frees_space(&mut self, file: &mut MappedFile) -> bool {
        let held = file.held_sectors();
        if let Some(ticket) = self.ticket.take() {
            file.end_io(ticket);
        }
        file.held_sectors() < held
    }

    /// Fills a part of the reader's memory with zeroes.
    pub(super) fn fill<H: MappedHost<Memory = M>>(&self, host: &H, file: FileRange) {
        let mut rest = file.and(self.file());
        while !rest.is_empty() {
            // The file may end inside a sector.
            let inside = rest.start() % SECTOR_BYTES;
            let segment = self.memory(rest.start() - inside, rest.bytes() + inside);
            host.zero(segment, inside);
            rest = rest.from_offset(rest.start() - inside + segment.bytes());
        }
    }

    /// The memory of the file's bytes from `offset` on: up to `bytes` bytes in one piece.
    pub(super) fn memory(&self, offset: u64, bytes: u64) -> M {
        let mut skipped = offset - self.extent.offset();
        for segment in &self.segments {
            let len = segment.bytes();
            if skipped < len {
                return segment.slice(skipped, bytes.min(len - skipped));
            }
            skipped -= len;
        }
        panic!("{} of {} has no memory for byte {offset} of the file", self.op, self.extent)
    }
}

impl<H: MappedHost> Drop for Tasks<H> {
    /// Releases blocks and space to other engines. The device was dropped before, and so was all I/O in flight. The
    /// outcome of flushes in flight is unknown, and counts as a failure.
    fn drop(&mut self) {
        let Self { host, list, id, bios, .. } = self;
        host.with_file(*id, |file| {
            bios.iter().filter_map(|(_, bio)| bio.flush).for_each(|flush| file.end_flush(flush, true));
            for task in list {
                if matches!(
                    task.stage,
                    Stage::Saving(_)
                        | Stage::BeginFlush(Some(_))
                        | Stage::Flushing(Some(_))
                        | Stage::WaitForFlushes(..)
                ) {
                    file.end_saving(0);
                }
                task.release(file);
            }
        });
    }
}
