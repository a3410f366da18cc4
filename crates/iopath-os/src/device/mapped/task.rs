//! One request on a mapped file: its plan, how far that has come, and what it waits for. Begins no I/O: see `carry.rs`.

use std::collections::VecDeque;

use iopath_core::mapper::{
    Boundary, FileRange, MapError, PlanError, PunchPlan, ReadPlan, Step, Ticket, WritePlan, ZeroPlan,
};
use iopath_core::{Extent, IoError, Limits, Op, Priority, SECTOR_BYTES, Stream, Tag};

use super::file::{ClaimId, FlushId, State};
use crate::aligned::AlignedBuf;
use crate::memory::Segment;

/// A place for a request. Its lists keep their memory from one to the next.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) tag: Tag,
    pub(super) op: Op,
    pub(super) extent: Extent,
    pub(super) fua: bool,
    pub(super) stream: Stream,
    pub(super) priority: Priority,
    pub(super) segments: Vec<Segment>,
    pub(super) goal: Goal,
    /// Where the file ended when it began: what lies behind that may not be shown.
    pub(super) size_bytes: u64,
    pub(super) plan: Plan,
    pub(super) stage: Stage,
    /// Given out by the plan, and not yet begun.
    pub(super) steps: VecDeque<Step>,
    /// Bios of the plan at the queue.
    pub(super) bios: u32,
    /// Bios beside it: metadata, blocks that are changed in part, the flush at the end.
    pub(super) aside: u32,
    pub(super) aside_error: Option<IoError>,
    pub(super) scratch: Option<AlignedBuf>,
    /// The claim to its blocks, and whether it is exclusive.
    pub(super) claim: Option<(ClaimId, bool)>,
    pub(super) ticket: Option<Ticket>,
    /// The first error of all.
    pub(super) error: Option<IoError>,
}

/// What a task is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Goal {
    Read,
    Write,
    /// Makes the range zeroes, where it has space.
    Zero,
    /// Gives the range's space back.
    Punch,
    /// Passes a discard on to where the range lies.
    Pass,
    Flush,
    /// Moves the file's end.
    Resize(u64),
    /// The same to where it ends earlier.
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

/// Where a task stands. What it waits for is in the name of the stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Its blocks are claimed by others.
    Claimed,
    /// Steps are to be carried out, and more of them to be given out.
    Planning,
    /// Space is held back.
    Space,
    /// Metadata is being read: from where, what had left the mapper when that began, and where to go on.
    Metadata(Extent, u64, After),
    /// A block is being read, to be changed in part and written.
    PartRead(Step),
    PartWritten,
    /// All steps are begun.
    Draining,
    /// All steps have completed; the mapping is to follow.
    Mapping(FileRange),
    /// Metadata is to be saved.
    Unsaved,
    /// Metadata goes to the device.
    Saving(Saving),
    /// The device is to be flushed; so many metadata blocks were saved before, if any.
    Unflushed(Option<usize>),
    Flushing(Option<usize>),
    /// So many metadata blocks are on the medium, unless one of the flushes up to this one has lost them whose outcome is
    /// not known yet.
    Unsettled(usize, FlushId),
    /// Over, and yet to be told.
    Over,
    /// Nobody's.
    Idle,
}

/// How far saving has come, in metadata blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Saving {
    pub(super) done: usize,
    /// At the device.
    pub(super) begun: usize,
    pub(super) all: usize,
}

/// Where a task goes on that had to read metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    Planning,
    Mapping(FileRange),
}

impl Task {
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
            aside: 0,
            aside_error: None,
            scratch: None,
            claim: None,
            ticket: None,
            error: None,
        }
    }

    /// The request's bytes of the file.
    pub(super) const fn file(&self) -> FileRange {
        FileRange::new(self.extent.offset(), self.extent.bytes())
    }

    /// The blocks that others must leave alone meanwhile; `None` of what changes nothing.
    pub(super) fn footprint(&self, state: &State) -> Option<FileRange> {
        let block = u64::from(state.mapper.block_bytes());
        match self.goal {
            Goal::Read | Goal::Flush => None,
            Goal::Resize(bytes) | Goal::Truncate(bytes) => {
                let first = bytes.min(state.mapper.size_bytes());
                Some(FileRange::between(first / block * block, u64::MAX))
            }
            Goal::Write | Goal::Zero | Goal::Punch | Goal::Pass => Some(self.file().outward(block)),
        }
    }

    /// Whether nobody else may do anything there meanwhile: where space comes, goes, or is written for the first time.
    pub(super) fn is_exclusive(&self, state: &State) -> bool {
        match self.goal {
            Goal::Write => !state.is_written(self.file()),
            Goal::Punch | Goal::Resize(_) | Goal::Truncate(_) => true,
            Goal::Read | Goal::Flush | Goal::Zero | Goal::Pass => false,
        }
    }

    /// Makes the plan of what is allowed to begin.
    pub(super) fn make_plan(
        &mut self,
        state: &State,
        limits: &Limits,
        boundary: Boundary,
    ) -> Result<(), PlanError> {
        let (file, mapper) = (self.file(), &*state.mapper);
        if let Goal::Resize(bytes) = self.goal
            && bytes < mapper.size_bytes()
        {
            self.goal = Goal::Truncate(bytes);
        }
        self.plan = match self.goal {
            Goal::Read | Goal::Pass => Plan::Read(ReadPlan::new(file, mapper, limits, boundary)?),
            Goal::Write => Plan::Write(WritePlan::new(file, mapper, limits, boundary)?),
            Goal::Punch => Plan::Punch(PunchPlan::new(file, mapper, limits)?),
            Goal::Zero => Plan::Zero(ZeroPlan::new(file, mapper, limits)?),
            Goal::Resize(bytes) => Plan::Zero(ZeroPlan::before_growth(bytes, mapper, limits)?),
            Goal::Flush | Goal::Truncate(_) => Plan::None,
        };
        Ok(())
    }

    pub(super) fn poll_step(&mut self, state: &State, limits: &Limits) -> Option<Step> {
        let mapper = &*state.mapper;
        match &mut self.plan {
            Plan::None => None,
            Plan::Read(plan) => plan.poll_step(mapper, limits),
            Plan::Write(plan) => plan.poll_step(mapper, limits),
            Plan::Punch(plan) => plan.poll_step(mapper, limits),
            Plan::Zero(plan) => plan.poll_step(mapper, limits),
        }
    }

    /// A part of the plan has failed.
    pub(super) fn fail_part(&mut self, file: FileRange, error: IoError) {
        self.fail(error);
        if let Plan::Write(plan) = &mut self.plan {
            plan.handle_error(file);
        }
    }

    pub(super) fn fail(&mut self, error: IoError) {
        self.error = self.error.or(Some(error));
    }

    /// What was to reach the medium by a flush may not have. Of a forced write that has to be an error that says so:
    /// others are taken for the write's own.
    pub(super) fn fail_flush(&mut self, error: IoError) {
        let says_so = self.goal == Goal::Flush || error.may_be_of_a_flush();
        self.fail(if says_so { error } else { IoError::Media });
    }

    /// Begins no further step.
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

    /// The range that changes its mapping now that all steps have completed; perhaps none.
    pub(super) fn mapped(&mut self) -> FileRange {
        match std::mem::replace(&mut self.plan, Plan::None) {
            // What was written before an error is the file's.
            Plan::Write(plan) => plan.finish().commit,
            Plan::Punch(plan) if self.error.is_none() => plan.blocks(),
            _ => FileRange::default(),
        }
    }

    /// Carries out what follows in the mapping. May be asked again after an error that can be mended.
    pub(super) fn change_mapping(&self, state: &mut State, range: FileRange) -> Result<(), MapError> {
        match self.goal {
            Goal::Write if !range.is_empty() => state.mapper.commit(range),
            Goal::Punch if !range.is_empty() => state.unmap(range),
            Goal::Resize(bytes) if self.error.is_none() => state.mapper.set_size(bytes),
            Goal::Truncate(bytes) if self.error.is_none() => {
                state.mapper.set_size(bytes)?;
                state.unmap(state.mapper.blocks_behind_end())
            }
            _ => Ok(()),
        }
    }

    /// The mapping cannot be changed any further. A file that became shorter is that: what is left behind its end is
    /// zeroed before the end moves over it again.
    pub(super) fn leave_mapping(&mut self, error: IoError) {
        match self.goal {
            Goal::Truncate(_) => self.goal = Goal::Read,
            _ => self.fail(error),
        }
    }

    /// Others may do something at its blocks, and have its space.
    pub(super) fn let_go(&mut self, state: &mut State) {
        if let Some((claim, _)) = self.claim.take() {
            state.give_up(claim);
        }
        if let Some(ticket) = self.ticket.take() {
            state.end(ticket);
        }
    }

    /// Fills part of a reader's memory with zeroes.
    pub(super) fn fill(&self, file: FileRange) {
        let mut rest = file.and(self.file());
        while !rest.is_empty() {
            // The file may end inside a sector.
            let inside = rest.start() % SECTOR_BYTES;
            let segment = self.memory(rest.start() - inside, rest.bytes() + inside);
            // SAFETY: the request has been taken and is not over, nothing else is in flight there, and it reads into
            // this memory.
            unsafe { segment.zero_from(inside as usize) };
            rest = rest.from_offset(rest.start() - inside + segment.len() as u64);
        }
    }

    /// The memory of the bytes from `offset` of the file on: as many as lie in one piece, `bytes` at the most.
    pub(super) fn memory(&self, offset: u64, bytes: u64) -> Segment {
        let mut skipped = offset - self.extent.offset();
        for segment in &self.segments {
            let len = segment.len() as u64;
            if skipped < len {
                return iopath_core::Memory::slice(*segment, skipped, bytes.min(len - skipped));
            }
            skipped -= len;
        }
        panic!("{} of {} has no memory for byte {offset} of the file", self.op, self.extent)
    }
}
