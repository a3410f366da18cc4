//! What a request on a mapped file needs beside its own bytes: metadata read and saved, blocks changed in part, the
//! flush at the end. In memory of the task's own.

use iopath_core::mapper::{FileRange, Step};
use iopath_core::{Extent, Instant, IoError, Memory, Op};

use super::super::RealDevice;
use super::carry::{Carrier, Tasks};
use super::file::{FlushId, io_error_of_map};
use super::task::{After, Saving, Stage};
use crate::aligned::AlignedBuf;
use crate::memory::Segment;

/// How many metadata blocks go to the device together.
const SAVED_TOGETHER: usize = 64;

impl<D: RealDevice> Carrier<D> {
    /// Reads metadata that the mapper misses, and gives it to it.
    pub(super) fn read_metadata(
        &mut self,
        slot: u32,
        place: Extent,
        taken: u64,
        after: After,
        now: Instant,
    ) -> bool {
        if !self.has_read(slot, place, now) {
            return false;
        }
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let scratch = task.scratch.take();
        let read = match (task.aside_error.take(), scratch) {
            (None, Some(bytes)) => file.with(Some(*id), |state| {
                // It may have changed since the read began: then it is in memory, or is asked for again.
                if state.metadata_taken() != taken {
                    return Ok(());
                }
                state.mapper.handle_metadata(place, &bytes).map_err(|error| io_error_of_map(&error))
            }),
            (error, _) => Err(error.unwrap_or(IoError::Os(libc::ENOMEM))),
        };
        task.stage = match (after, read) {
            (After::Planning, Ok(())) => Stage::Planning,
            (After::Mapping(range), Ok(())) => Stage::Mapping(range),
            (After::Planning, Err(error)) => {
                task.fail(error);
                Stage::Planning
            }
            (After::Mapping(_), Err(error)) => {
                task.leave_mapping(error);
                Stage::Mapping(FileRange::default())
            }
        };
        true
    }

    /// Zeroes a part of a block that has been read, and writes it.
    pub(super) fn change_part(&mut self, slot: u32, step: Step, now: Instant) -> bool {
        let Step::ZeroPart { file, place, from } = step else { unreachable!("{step:?} changes no part") };
        if !self.has_read(slot, place, now) {
            return false;
        }
        let task = &mut self.tasks.list[slot as usize];
        if let Some(error) = task.aside_error.take() {
            (task.scratch, task.stage) = (None, Stage::Planning);
            task.fail(error);
            return true;
        }
        if !self.finds_room(slot) {
            return false;
        }
        let task = &mut self.tasks.list[slot as usize];
        let block = task.scratch.as_mut().expect("the block was read into it");
        block[from as usize..(from + file.bytes()) as usize].fill(0);
        task.stage = Stage::PartWritten;
        let memory = self.scratch(slot, 0, place.bytes());
        self.put(slot, Op::Write, place, Some(memory), None, now);
        false
    }

    pub(super) fn end_part(&mut self, slot: u32) -> bool {
        let task = &mut self.tasks.list[slot as usize];
        if task.aside > 0 {
            return false;
        }
        (task.scratch, task.stage) = (None, Stage::Planning);
        if let Some(error) = task.aside_error.take() {
            task.fail(error);
        }
        true
    }

    /// Metadata goes to the device before that is flushed, if there is any.
    pub(super) fn begin_saving(&mut self, slot: u32) -> bool {
        let Self { tasks: Tasks { file, list, id, .. }, bell, .. } = self;
        let task = &mut list[slot as usize];
        let stage = file.with(Some(*id), |state| {
            // No place of metadata becomes somebody else's before it is there.
            task.ticket = task.ticket.take().or_else(|| Some(state.begin()));
            if !state.take_dirty() {
                return Some(Stage::Unflushed(None));
            }
            let Some(all) = state.begin_saving() else {
                state.wait(*id, bell);
                return None;
            };
            Some(Stage::Saving(Saving { done: 0, begun: 0, all }))
        });
        match stage {
            Some(stage) => task.stage = stage,
            None => self.blocked.push(slot),
        }
        stage.is_some()
    }

    /// Hands the next metadata blocks to the device.
    pub(super) fn save_on(&mut self, slot: u32, saving: Saving, now: Instant) -> bool {
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.aside > 0 {
            return false;
        }
        let Saving { done, begun, all } = saving;
        let done = done + begun;
        task.scratch = None;
        if let Some(error) = task.aside_error.take() {
            file.with(Some(*id), |state| state.end_saving(0));
            task.fail_flush(error);
            task.stage = Stage::Over;
            return true;
        }
        if done == all {
            task.stage = Stage::Unflushed(Some(all));
            return true;
        }
        let end = all.min(done + SAVED_TOGETHER.min(self.room()));
        if end == done {
            self.tasks.list[slot as usize].stage = Stage::Saving(Saving { done, begun: 0, all });
            self.crowded.push_back(slot);
            return false;
        }
        self.tasks.list[slot as usize].stage = Stage::Saving(Saving { done, begun: end - done, all });
        self.save(slot, done..end, now)
    }

    /// Writes some of the metadata that is to be saved; whether there was nothing to write.
    fn save(&mut self, slot: u32, which: std::ops::Range<usize>, now: Instant) -> bool {
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let copied = file.with(Some(*id), |state| {
            let saved =
                || which.clone().map(|index| state.unsaved(index)).filter(|dirty| !dirty.place.is_empty());
            let mut scratch = AlignedBuf::new(saved().map(|dirty| dirty.bytes.len()).sum())?;
            let mut places = Vec::with_capacity(which.len());
            let mut rest = &mut scratch[..];
            for dirty in saved() {
                let copy = rest.split_off_mut(..dirty.bytes.len()).expect("there is room for all of them");
                copy.copy_from_slice(&dirty.bytes);
                places.push(dirty.place);
            }
            Ok::<_, crate::aligned::NoMemory>((scratch, places))
        });
        let Ok((scratch, places)) = copied else {
            task.aside_error = Some(IoError::Os(libc::ENOMEM));
            return true;
        };
        task.scratch = Some(scratch);
        let mut start = 0;
        for place in &places {
            let memory = self.scratch(slot, start, place.bytes());
            self.put(slot, Op::Write, *place, Some(memory), None, now);
            start += place.bytes() as usize;
        }
        places.is_empty()
    }

    pub(super) fn flush(&mut self, slot: u32, saved: Option<usize>, now: Instant) -> bool {
        if !self.finds_room(slot) {
            return false;
        }
        self.tasks.list[slot as usize].stage = Stage::Flushing(saved);
        self.put(slot, Op::Flush, Extent::EMPTY, None, None, now);
        false
    }

    pub(super) fn flushed(&mut self, slot: u32, saved: Option<usize>) -> bool {
        let Tasks { file, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.aside > 0 {
            return false;
        }
        if let Some(error) = task.aside_error.take() {
            task.fail_flush(error);
        }
        task.stage = match saved {
            None => Stage::Over,
            Some(saved) => {
                // What the device may have lost is saved again.
                let saved = if task.error.is_none() { saved } else { 0 };
                Stage::Unsettled(saved, file.with(Some(*id), |state| state.last_flush()))
            }
        };
        true
    }

    /// The device has been flushed after metadata went there. Flushes on other engines that began before may have failed
    /// since the metadata went, and lost it, though this one succeeded: their outcome is waited for.
    pub(super) fn end_saving(&mut self, slot: u32, saved: usize, last: FlushId) -> bool {
        let Self { tasks: Tasks { file, list, id, .. }, bell, .. } = self;
        let task = &mut list[slot as usize];
        let is_saved = file.with(Some(*id), |state| {
            if saved > 0 && state.is_flushing(last) {
                state.wait(*id, bell);
                return None;
            }
            Some(state.end_saving(saved))
        });
        match is_saved {
            Some(true) => {}
            Some(false) => task.fail_flush(IoError::Media),
            None => {
                self.blocked.push(slot);
                return false;
            }
        }
        task.stage = Stage::Over;
        true
    }

    /// Whether `place` has been read into the task's own memory, or could not be. Begins that when first asked.
    fn has_read(&mut self, slot: u32, place: Extent, now: Instant) -> bool {
        let task = &mut self.tasks.list[slot as usize];
        if task.scratch.is_some() {
            return task.aside == 0;
        }
        if !self.finds_room(slot) {
            return false;
        }
        let task = &mut self.tasks.list[slot as usize];
        let Ok(scratch) = AlignedBuf::new(place.bytes() as usize) else {
            task.aside_error = Some(IoError::Os(libc::ENOMEM));
            return true;
        };
        task.scratch = Some(scratch);
        let memory = self.scratch(slot, 0, place.bytes());
        self.put(slot, Op::Read, place, Some(memory), None, now);
        false
    }

    /// Part of a task's own memory.
    fn scratch(&self, slot: u32, offset: usize, bytes: u64) -> Segment {
        let scratch = self.tasks.list[slot as usize].scratch.as_ref().expect("memory was taken for it");
        // SAFETY: it is all of the buffer, which the task keeps, and nobody looks at until the bio has completed; if all this
        // is dropped before, the device goes first, and waits.
        let whole = unsafe { Segment::new(scratch.start(), scratch.len()) };
        whole.slice(offset as u64, bytes)
    }
}
