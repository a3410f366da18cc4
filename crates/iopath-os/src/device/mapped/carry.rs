//! Carries requests on a mapped file out: asks their plans for steps, has those become bios (`bios.rs`), and lets the
//! mapping follow what has been done. Waits for nothing: what must wait stays where it is until it is asked again. Who
//! waits, and for what, is `mapped.rs`.

use std::collections::VecDeque;

use iopath_core::mapper::{Boundary, FileRange, MapError, Step};
use iopath_core::{Completion, Extent, Instant, Io, IoError, QueuedDevice};
use slab::Slab;

use super::super::{Bell, RealDevice};
use super::bios::BioInFlight;
use super::file::{DeviceId, FileMap, State, io_error_of_map};
use super::task::{After, Goal, Stage, Task};
use crate::memory::Segment;

/// How many steps are taken from a plan while the mapping is locked.
const STEPS_MAX: usize = 16;

/// The requests on a mapped file that one engine carries out.
#[derive(Debug)]
pub(super) struct Carrier<D: RealDevice> {
    // Dropped in this order: the device waits for its I/O, then the tasks release memory and blocks.
    pub(super) pump: QueuedDevice<D>,
    pub(super) tasks: Tasks,
    pub(super) bios_max: u32,
    boundary: Boundary,
    /// Tasks that may go on.
    pub(super) ready: VecDeque<u32>,
    /// Tasks for which the queue has no room.
    pub(super) crowded: VecDeque<u32>,
    /// Tasks that wait for what others do with the mapping.
    pub(super) blocked: Vec<u32>,
    /// The file's epoch when they were last asked.
    seen: u64,
    pub(super) over: VecDeque<Completion>,
    pub(super) bell: Bell,
}

/// The requests themselves, their bios in flight and their part in the shared mapping.
#[derive(Debug)]
pub(super) struct Tasks {
    pub(super) file: FileMap,
    pub(super) id: DeviceId,
    pub(super) list: Vec<Task>,
    /// Unused entries of `list`.
    free: Vec<u32>,
    /// Bios in the queue, by their tokens.
    pub(super) bios: Slab<BioInFlight>,
}

/// What came of asking a plan.
enum Asked {
    Steps,
    Over,
    Metadata(Extent, u64),
    Space,
    Failed(IoError),
}

impl<D: RealDevice> Carrier<D> {
    pub(super) fn new(
        file: &FileMap,
        pump: QueuedDevice<D>,
        bios_max: u32,
        boundary: Boundary,
        bell: Bell,
    ) -> Self {
        Self {
            pump,
            tasks: Tasks {
                id: file.new_device(),
                file: file.clone(),
                list: Vec::new(),
                free: Vec::new(),
                bios: Slab::new(),
            },
            bios_max,
            boundary,
            ready: VecDeque::new(),
            crowded: VecDeque::new(),
            blocked: Vec::new(),
            seen: 0,
            over: VecDeque::new(),
            bell,
        }
    }

    /// Requests taken and not over.
    pub(super) fn in_flight(&self) -> u32 {
        (self.tasks.list.len() - self.tasks.free.len()) as u32
    }

    /// Whether some wait for what others do with the mapping.
    pub(super) fn is_blocked(&self) -> bool {
        !self.blocked.is_empty()
    }

    /// Takes a request and begins it.
    pub(super) fn take(&mut self, io: &Io<'_, Segment>, goal: Goal, now: Instant) {
        let Tasks { list, free, .. } = &mut self.tasks;
        let slot = free.pop().unwrap_or_else(|| {
            list.push(Task::idle());
            list.len() as u32 - 1
        });
        let task = &mut self.tasks.list[slot as usize];
        (task.tag, task.op, task.extent, task.fua) = (io.tag, io.op, io.extent, io.fua);
        (task.stream, task.priority, task.goal) = (io.stream, io.priority, goal);
        task.segments.extend(io.segments());
        (task.error, task.stage) = (None, Stage::Claimed);
        self.advance(slot, now);
    }

    /// Goes on with what may go on; whether anything did.
    pub(super) fn turn(&mut self, now: Instant) -> bool {
        let mut has_moved = false;
        while let Some(done) = self.pump.poll_completion() {
            self.bio_over(done.token as usize, done.result);
            has_moved = true;
        }
        if self.has_room() {
            // Those that still find none come back.
            self.ready.append(&mut self.crowded);
        }
        let epoch = if self.blocked.is_empty() { self.seen } else { self.tasks.file.epoch() };
        if epoch != self.seen {
            self.seen = epoch;
            self.ready.extend(self.blocked.drain(..));
        }
        while let Some(slot) = self.ready.pop_front() {
            self.advance(slot, now);
            has_moved = true;
        }
        has_moved
    }

    /// Goes on with a task until it waits for something or has completed.
    fn advance(&mut self, slot: u32, now: Instant) {
        loop {
            let goes_on = match self.tasks.list[slot as usize].stage {
                Stage::Claimed => self.begin(slot),
                Stage::Planning | Stage::Space => self.plan_on(slot, now),
                Stage::Metadata(place, taken, after) => self.read_metadata(slot, place, taken, after, now),
                Stage::PartRead(step) => self.change_part(slot, step, now),
                Stage::PartWritten => self.end_part(slot),
                Stage::Draining => self.drained(slot),
                Stage::Mapping(range) => self.change_mapping(slot, range),
                Stage::Unsaved => self.begin_saving(slot),
                Stage::Saving(saved) => self.save_on(slot, saved, now),
                Stage::Unflushed(saved) => self.flush(slot, saved, now),
                Stage::Flushing(saved) => self.flushed(slot, saved),
                Stage::Unsettled(saved, last) => self.end_saving(slot, saved, last),
                Stage::Over => self.end(slot),
                Stage::Idle => false,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Plans what nobody is in the way of.
    fn begin(&mut self, slot: u32) -> bool {
        let Self { tasks: Tasks { file, list, id, .. }, pump, boundary, bell, .. } = self;
        let task = &mut list[slot as usize];
        let limits = pump.queue().limits();
        let may_begin = file.with(Some(*id), |state| {
            if !may_begin(task, state) {
                state.wait(*id, bell);
                return false;
            }
            // Not before: who is in the way may wait for space that a ticket keeps back.
            task.ticket = task.ticket.take().or_else(|| Some(state.begin()));
            task.stage = if task.goal == Goal::Flush { Stage::Unsaved } else { Stage::Planning };
            task.size_bytes = state.mapper.size_bytes();
            let end = task.size_bytes.next_multiple_of(limits.logical_block_bytes.into());
            if task.file().end() > end {
                // It has become shorter.
                task.fail(IoError::EndOfDevice);
            } else if task.make_plan(state, limits, *boundary).is_err() {
                task.fail(IoError::Alignment);
            }
            true
        });
        if !may_begin {
            self.blocked.push(slot);
        }
        may_begin
    }

    /// Carries steps out and asks for more; whether the task can go on at once.
    fn plan_on(&mut self, slot: u32, now: Instant) -> bool {
        loop {
            let task = &mut self.tasks.list[slot as usize];
            task.stage = Stage::Planning;
            if task.error.is_some() {
                task.stop();
                return true;
            }
            while let Some(step) = self.tasks.list[slot as usize].steps.pop_front() {
                if let Step::ZeroPart { .. } = step {
                    self.tasks.list[slot as usize].stage = Stage::PartRead(step);
                    return true;
                }
                if step == Step::Submit {
                    self.pump.empty_plug(now);
                    self.pump.dispatch(now);
                }
                if let Some(rest) = self.carry_out(slot, step, now) {
                    self.tasks.list[slot as usize].steps.push_front(rest);
                    self.crowded.push_back(slot);
                    return false;
                }
            }
            match self.ask(slot) {
                Asked::Steps => {}
                Asked::Failed(error) => self.tasks.list[slot as usize].fail(error),
                Asked::Over => {
                    self.tasks.list[slot as usize].stage = Stage::Draining;
                    return true;
                }
                Asked::Metadata(place, taken) => {
                    let stage = Stage::Metadata(place, taken, After::Planning);
                    self.tasks.list[slot as usize].stage = stage;
                    return true;
                }
                Asked::Space => {
                    self.tasks.list[slot as usize].stage = Stage::Space;
                    self.blocked.push(slot);
                    return false;
                }
            }
        }
    }

    /// Takes some steps from a task's plan.
    fn ask(&mut self, slot: u32) -> Asked {
        let Self { tasks: Tasks { file, list, id, .. }, pump, bell, .. } = self;
        let (task, limits) = (&mut list[slot as usize], pump.queue().limits());
        file.with(Some(*id), |state| {
            task.ticket = task.ticket.take().or_else(|| Some(state.begin()));
            while task.steps.len() < STEPS_MAX {
                let done = match task.poll_step(state, limits) {
                    None if task.steps.is_empty() => return Asked::Over,
                    None => return Asked::Steps,
                    Some(Step::Metadata { place }) => Err(MapError::Metadata(place)),
                    Some(Step::Allocate { file }) => state.allocate(file),
                    Some(step) => {
                        task.steps.push_back(step);
                        Ok(())
                    }
                };
                match done {
                    Ok(()) => {}
                    // What was given out before goes before; the plan asks again.
                    Err(MapError::Metadata(_) | MapError::NoSpace) if !task.steps.is_empty() => {
                        return Asked::Steps;
                    }
                    Err(MapError::Metadata(place)) => match state.remember_metadata(place) {
                        Ok(true) => {}
                        Ok(false) => {
                            // What is read is not to become somebody else's meanwhile.
                            task.ticket = task.ticket.take().or_else(|| Some(state.begin()));
                            return Asked::Metadata(place, state.metadata_taken());
                        }
                        Err(error) => return Asked::Failed(io_error_of_map(&error)),
                    },
                    Err(MapError::NoSpace) if gets_space(task, state) => {}
                    Err(MapError::NoSpace) if state.held_sectors() > 0 => {
                        state.wait(*id, bell);
                        return Asked::Space;
                    }
                    Err(error) => return Asked::Failed(io_error_of_map(&error)),
                }
            }
            Asked::Steps
        })
    }

    /// All steps have completed, or some are not.
    fn drained(&mut self, slot: u32) -> bool {
        let task = &mut self.tasks.list[slot as usize];
        if task.bios > 0 {
            return false;
        }
        if task.goal == Goal::Read {
            task.fill(task.file().from_offset(task.size_bytes));
        }
        task.stage = Stage::Mapping(task.mapped());
        true
    }

    /// Lets the mapping follow what was done, and others at the blocks.
    fn change_mapping(&mut self, slot: u32, range: FileRange) -> bool {
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        task.stage = file.with(Some(*id), |state| {
            let changed = loop {
                break match task.change_mapping(state, range) {
                    Err(MapError::Metadata(place)) => match state.remember_metadata(place) {
                        Ok(true) => continue,
                        Ok(false) => {
                            let after = After::Mapping(range);
                            return Stage::Metadata(place, state.metadata_taken(), after);
                        }
                        Err(error) => Err(error),
                    },
                    changed => changed,
                };
            };
            if let Err(error) = changed {
                task.leave_mapping(io_error_of_map(&error));
            }
            task.let_go(state);
            // What is to be on the medium has to be found there, too.
            let saves = task.fua && task.error.is_none() && state.take_dirty();
            if saves { Stage::Unsaved } else { Stage::Over }
        });
        true
    }

    fn end(&mut self, slot: u32) -> bool {
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.claim.is_some() || task.ticket.is_some() {
            file.with(Some(*id), |state| task.let_go(state));
        }
        task.segments.clear();
        (task.scratch, task.stage) = (None, Stage::Idle);
        let result = task.error.map_or(Ok(()), Err);
        self.over.push_back(Completion { tag: task.tag, result });
        self.tasks.free.push(slot);
        false
    }

    /// Carries out a step, or what there is room for of it; what is left.
    fn carry_out(&mut self, slot: u32, step: Step, now: Instant) -> Option<Step> {
        match step {
            Step::Transfer { file, place } => self.transfer(slot, file, place, now),
            Step::ZeroBlocks { file, place } => self.zero(slot, file, place, now),
            Step::Zeroes { file } => {
                let task = &self.tasks.list[slot as usize];
                if task.goal == Goal::Read {
                    task.fill(file);
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

impl Drop for Tasks {
    /// The device was dropped before, with all I/O in flight: releases blocks and space for other engines. The outcome
    /// of flushes in flight is unknown, and counts as a failure.
    fn drop(&mut self) {
        let Self { file, list, id, bios, .. } = self;
        file.with(Some(*id), |state| {
            bios.iter().filter_map(|(_, bio)| bio.flush).for_each(|flush| state.end_flush(flush, true));
            for task in list {
                if matches!(
                    task.stage,
                    Stage::Saving(_)
                        | Stage::Unflushed(Some(_))
                        | Stage::Flushing(Some(_))
                        | Stage::Unsettled(..)
                ) {
                    state.end_saving(0);
                }
                task.let_go(state);
            }
        });
    }
}

/// Whether no other is in the way of what a task does. A claim that has become too weak meanwhile is made again.
fn may_begin(task: &mut Task, state: &mut State) -> bool {
    let Some(blocks) = task.footprint(state) else { return true };
    loop {
        let is_exclusive = task.is_exclusive(state);
        let (claim, was_exclusive) =
            *task.claim.get_or_insert_with(|| (state.claim(blocks, is_exclusive), is_exclusive));
        if !state.may_go(claim) {
            return false;
        }
        if was_exclusive || !is_exclusive {
            return true;
        }
        state.give_up(claim);
        task.claim = None;
    }
}

/// Whether a task without space keeps some back itself, by being older than what was given up: no longer then. It need
/// not, since it has claimed what it writes.
fn gets_space(task: &mut Task, state: &mut State) -> bool {
    let held = state.held_sectors();
    if let Some(ticket) = task.ticket.take() {
        state.end(ticket);
    }
    state.held_sectors() < held
}
