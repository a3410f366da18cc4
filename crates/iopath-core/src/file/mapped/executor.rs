//! Executes requests on a mapped file: polls their plans for steps, submits the steps as bios (`bios.rs`), reads and
//! saves metadata (`metadata_io.rs`), and then changes the mapping. The executor never waits: a task that cannot
//! advance stays in its stage until the next poll.

use std::collections::VecDeque;

use slab::Slab;

use super::file::{EngineId, MappedFile, io_error_of_map};
use super::host::MappedHost;
use super::task::{Goal, Next, Stage, Task, Tasks};
use crate::block::device::{BlockDevice, Completion, Io};
use crate::block::queued::QueuedDevice;
use crate::error::IoError;
use crate::file::mapper::{Boundary, FileRange, MapError, Step};
use crate::sector::Extent;
use crate::time::Instant;

/// The maximum number of steps polled from a plan while the file is locked.
const STEPS_MAX: usize = 16;

/// The requests that one engine executes on a mapped file.
#[derive(Debug)]
pub(super) struct Executor<D: BlockDevice, H: MappedHost<Memory = D::Memory>> {
    // Dropped in this order: the device waits for its I/O, then the tasks release memory and blocks.
    pub(super) pump: QueuedDevice<D>,
    pub(super) tasks: Tasks<H>,
    pub(super) bios_max: u32,
    boundary: Boundary,
    /// See [`WritePlan::by_pages`](crate::mapper::WritePlan::by_pages); 0 for blocks.
    pub(super) page_bytes: u32,
    /// Tasks that may advance.
    pub(super) ready: VecDeque<u32>,
    /// Tasks that wait for room in the queue.
    pub(super) without_room: VecDeque<u32>,
    /// Tasks that wait for other tasks, on this engine or another.
    pub(super) blocked: Vec<u32>,
    /// The epoch of the file when the blocked tasks were last polled.
    seen_epoch: u64,
    pub(super) completed: VecDeque<Completion>,
}

/// The result of polling a plan.
enum Polled {
    Steps,
    Done,
    Metadata(Extent, u64),
    NoSpace,
    Failed(IoError),
}

impl<D: BlockDevice, H: MappedHost<Memory = D::Memory>> Executor<D, H> {
    pub(super) fn new(
        host: H,
        id: EngineId,
        pump: QueuedDevice<D>,
        bios_max: u32,
        boundary: Boundary,
    ) -> Self {
        Self {
            pump,
            tasks: Tasks { host, id, list: Vec::new(), free: Vec::new(), bios: Slab::new() },
            bios_max,
            boundary,
            page_bytes: 0,
            ready: VecDeque::new(),
            without_room: VecDeque::new(),
            blocked: Vec::new(),
            seen_epoch: 0,
            completed: VecDeque::new(),
        }
    }

    /// The number of requests started and not completed.
    pub(super) fn in_flight(&self) -> u32 {
        (self.tasks.list.len() - self.tasks.free.len()) as u32
    }

    /// Whether tasks wait for other tasks.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Whether an event has occurred that blocked tasks wait for.
    pub(super) fn is_notified(&self) -> bool {
        self.is_blocked() && self.tasks.host.epoch() != self.seen_epoch
    }

    /// Starts a request.
    pub(super) fn start(&mut self, io: &Io<'_, D::Memory>, goal: Goal, now: Instant) {
        let Tasks { list, free, .. } = &mut self.tasks;
        let slot = free.pop().unwrap_or_else(|| {
            list.push(Task::idle());
            list.len() as u32 - 1
        });
        let task = &mut list[slot as usize];
        (task.tag, task.op, task.extent, task.fua) = (io.tag, io.op, io.extent, io.fua);
        (task.stream, task.priority, task.goal) = (io.stream, io.priority, goal);
        task.segments.extend(io.segments());
        (task.error, task.stage) = (None, Stage::WaitForBlocks);
        self.advance(slot, now);
    }

    /// Advances every task that can advance. Returns whether any did.
    pub(super) fn advance_ready(&mut self, now: Instant) -> bool {
        let mut has_advanced = false;
        while let Some(done) = self.pump.poll_completion() {
            self.end_bio(done.token as usize, done.result);
            has_advanced = true;
        }
        if self.has_room() {
            // Tasks that find no room again return to `without_room`.
            self.ready.append(&mut self.without_room);
        }
        if self.is_notified() {
            self.seen_epoch = self.tasks.host.epoch();
            self.ready.extend(self.blocked.drain(..));
        }
        while let Some(slot) = self.ready.pop_front() {
            self.advance(slot, now);
            has_advanced = true;
        }
        has_advanced
    }

    /// Advances a task until it waits for something or has completed.
    fn advance(&mut self, slot: u32, now: Instant) {
        loop {
            let advances = match self.tasks.list[slot as usize].stage {
                Stage::WaitForBlocks => self.begin(slot),
                Stage::Planning | Stage::WaitForSpace => self.run_plan(slot, now),
                Stage::ReadingMetadata(extent, taken, next) => {
                    self.read_metadata(slot, extent, taken, next, now)
                }
                Stage::ReadingPart(step) => self.change_part(slot, step, now),
                Stage::WritingPart => self.end_part(slot),
                Stage::Draining => self.drain(slot),
                Stage::ChangingMapping(range) => self.change_mapping(slot, range),
                Stage::BeginSaving => self.begin_saving(slot),
                Stage::Saving(saving) => self.save_next(slot, saving, now),
                Stage::BeginFlush(saved) => self.begin_flush(slot, saved, now),
                Stage::Flushing(saved) => self.end_flush(slot, saved),
                Stage::WaitForFlushes(saved, last) => self.end_saving(slot, saved, last),
                Stage::Completed => self.end(slot),
                Stage::Idle => false,
            };
            if !advances {
                return;
            }
        }
    }

    /// Makes the task's plan, unless another task has claimed its blocks.
    fn begin(&mut self, slot: u32) -> bool {
        let Self { tasks: Tasks { host, list, id, .. }, pump, boundary, page_bytes, .. } = self;
        let task = &mut list[slot as usize];
        let limits = pump.queue().limits();
        let may_begin = host.with_file(*id, |file| {
            if !task.may_begin(file) {
                file.wait(*id);
                return false;
            }
            // Not earlier: the other task may need space that this ticket would keep in quarantine.
            task.ticket = task.ticket.take().or_else(|| Some(file.begin_io()));
            task.stage = if task.goal == Goal::Flush { Stage::BeginSaving } else { Stage::Planning };
            task.size_bytes = file.mapper.size_bytes();
            let end = task.size_bytes.next_multiple_of(limits.logical_block_bytes.into());
            if task.file().end() > end {
                // The file has become shorter.
                task.fail(IoError::EndOfDevice);
            } else if task.make_plan(file, limits, *boundary, *page_bytes).is_err() {
                task.fail(IoError::Alignment);
            }
            true
        });
        if !may_begin {
            self.blocked.push(slot);
        }
        may_begin
    }

    /// Executes steps and polls the plan for more. Returns whether the task can advance at once.
    fn run_plan(&mut self, slot: u32, now: Instant) -> bool {
        loop {
            let task = &mut self.tasks.list[slot as usize];
            task.stage = Stage::Planning;
            if task.error.is_some() {
                task.stop();
                return true;
            }
            while let Some(step) = self.tasks.list[slot as usize].steps.pop_front() {
                if let Step::ZeroPart { .. } = step {
                    self.tasks.list[slot as usize].stage = Stage::ReadingPart(step);
                    return true;
                }
                if step == Step::Submit {
                    self.pump.empty_plug(now);
                    self.pump.dispatch(now);
                }
                if let Some(rest) = self.execute(slot, step, now) {
                    self.tasks.list[slot as usize].steps.push_front(rest);
                    self.without_room.push_back(slot);
                    return false;
                }
            }
            match self.poll_plan(slot) {
                Polled::Steps => {}
                Polled::Failed(error) => self.tasks.list[slot as usize].fail(error),
                Polled::Done => {
                    self.tasks.list[slot as usize].stage = Stage::Draining;
                    return true;
                }
                Polled::Metadata(extent, taken) => {
                    let stage = Stage::ReadingMetadata(extent, taken, Next::Planning);
                    self.tasks.list[slot as usize].stage = stage;
                    return true;
                }
                Polled::NoSpace => {
                    self.tasks.list[slot as usize].stage = Stage::WaitForSpace;
                    self.blocked.push(slot);
                    return false;
                }
            }
        }
    }

    /// Polls some steps from a task's plan.
    fn poll_plan(&mut self, slot: u32) -> Polled {
        let Self { tasks: Tasks { host, list, id, .. }, pump, .. } = self;
        let task = &mut list[slot as usize];
        let limits = pump.queue().limits();
        host.with_file(*id, |file| {
            task.ticket = task.ticket.take().or_else(|| Some(file.begin_io()));
            while task.steps.len() < STEPS_MAX {
                let done = match task.poll_step(file, limits) {
                    None if task.steps.is_empty() => return Polled::Done,
                    None => return Polled::Steps,
                    Some(Step::Metadata { extent }) => Err(MapError::Metadata(extent)),
                    Some(Step::Allocate { file: range }) => file.allocate(range),
                    Some(step) => {
                        task.steps.push_back(step);
                        Ok(())
                    }
                };
                match done {
                    Ok(()) => {}
                    // Execute the earlier steps first; the plan then repeats this error.
                    Err(MapError::Metadata(_) | MapError::NoSpace) if !task.steps.is_empty() => {
                        return Polled::Steps;
                    }
                    Err(MapError::Metadata(extent)) => match file.supply_unsaved(extent) {
                        Ok(true) => {}
                        Ok(false) => {
                            // The block must not be reused while it is read.
                            task.ticket = task.ticket.take().or_else(|| Some(file.begin_io()));
                            return Polled::Metadata(extent, file.metadata_taken());
                        }
                        Err(error) => return Polled::Failed(io_error_of_map(&error)),
                    },
                    Err(MapError::NoSpace) if task.frees_space(file) => {}
                    Err(MapError::NoSpace) if file.held_sectors() > 0 => {
                        file.wait(*id);
                        return Polled::NoSpace;
                    }
                    Err(error) => return Polled::Failed(io_error_of_map(&error)),
                }
            }
            Polled::Steps
        })
    }

    /// Waits for the bios of all steps.
    fn drain(&mut self, slot: u32) -> bool {
        let Tasks { host, list, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.bios > 0 {
            return false;
        }
        if task.goal == Goal::Read {
            task.fill(host, task.file().from_offset(task.size_bytes));
        }
        task.stage = Stage::ChangingMapping(task.finish_plan());
        true
    }

    /// Changes the mapping after all steps have completed, and releases the claim to the blocks.
    fn change_mapping(&mut self, slot: u32, range: FileRange) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        task.stage = host.with_file(*id, |file: &mut MappedFile| {
            let changed = loop {
                break match task.change_mapping(file, range) {
                    Err(MapError::Metadata(extent)) => match file.supply_unsaved(extent) {
                        Ok(true) => continue,
                        Ok(false) => {
                            let next = Next::ChangingMapping(range);
                            return Stage::ReadingMetadata(extent, file.metadata_taken(), next);
                        }
                        Err(error) => Err(error),
                    },
                    changed => changed,
                };
            };
            if let Err(error) = changed {
                task.abandon_mapping(io_error_of_map(&error));
            }
            task.release(file);
            // A forced write saves its metadata, too: data on the medium is lost without its mapping.
            let saves = task.fua && task.error.is_none() && file.collect_dirty();
            if saves { Stage::BeginSaving } else { Stage::Completed }
        });
        true
    }

    fn end(&mut self, slot: u32) -> bool {
        let Tasks { host, list, id, free, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.claim.is_some() || task.ticket.is_some() {
            host.with_file(*id, |file| task.release(file));
        }
        task.segments.clear();
        (task.buffer, task.stage) = (None, Stage::Idle);
        let result = task.error.map_or(Ok(()), Err);
        self.completed.push_back(Completion { tag: task.tag, result });
        free.push(slot);
        false
    }

    /// Executes a step while the queue has room. Returns the rest.
    fn execute(&mut self, slot: u32, step: Step, now: Instant) -> Option<Step> {
        match step {
            Step::Transfer { file, extent } => self.transfer(slot, file, extent, now),
            Step::ZeroBlocks { file, extent } => self.zero_blocks(slot, file, extent, now),
            Step::Zeroes { file } => {
                let Tasks { host, list, .. } = &self.tasks;
                let task = &list[slot as usize];
                if task.goal == Goal::Read {
                    task.fill(host, file);
                }
                None
            }
            Step::Submit => None,
            Step::ZeroPart { .. } | Step::Metadata { .. } | Step::Allocate { .. } => {
                unreachable!("{step:?} is no bio")
            }
        }
    }
}
