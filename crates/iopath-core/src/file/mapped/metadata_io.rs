//! The metadata I/O of a mapped request: reads and saves metadata, changes parts of blocks, and flushes the device at
//! the end. Uses buffers of the task.

use super::executor::Executor;
use super::file::{FlushId, io_error_of_map};
use super::host::MappedHost;
use super::task::{Next, Saving, Stage, Tasks};
use crate::block::bio::Op;
use crate::block::device::BlockDevice;
use crate::error::IoError;
use crate::file::mapper::{FileRange, Step};
use crate::memory::Memory;
use crate::sector::Extent;
use crate::time::Instant;

/// The maximum number of metadata blocks in flight.
const SAVED_TOGETHER: usize = 64;

/// Linux's ENOMEM.
const NO_MEMORY: IoError = IoError::Os(12);

impl<D: BlockDevice, H: MappedHost<Memory = D::Memory>> Executor<D, H> {
    /// Reads a metadata block for the mapper.
    pub(super) fn read_metadata(
        &mut self,
        slot: u32,
        extent: Extent,
        taken: u64,
        next: Next,
        now: Instant,
    ) -> bool {
        if !self.has_read(slot, extent, now) {
            return false;
        }
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let read = match (task.metadata_error.take(), task.buffer.take()) {
            (None, Some(mut buffer)) => host.with_bytes(&mut buffer, |bytes| {
                host.with_file(*id, |file| {
                    // The block may have changed since the read began. It is in memory, or the mapper requests it
                    // again.
                    if file.metadata_taken() != taken {
                        return Ok(());
                    }
                    file.mapper.handle_metadata(extent, bytes).map_err(|error| io_error_of_map(&error))
                })
            }),
            (error, _) => Err(error.unwrap_or(NO_MEMORY)),
        };
        task.stage = match (next, read) {
            (Next::Planning, Ok(())) => Stage::Planning,
            (Next::ChangingMapping(range), Ok(())) => Stage::ChangingMapping(range),
            (Next::Planning, Err(error)) => {
                task.fail(error);
                Stage::Planning
            }
            (Next::ChangingMapping(_), Err(error)) => {
                task.abandon_mapping(error);
                Stage::ChangingMapping(FileRange::default())
            }
        };
        true
    }

    /// Zeroes part of a block that has been read, and writes the block.
    pub(super) fn change_part(&mut self, slot: u32, step: Step, now: Instant) -> bool {
        let Step::ZeroPart { file, extent, from } = step else { unreachable!("{step:?} changes no part") };
        if !self.has_read(slot, extent, now) {
            return false;
        }
        let task = &mut self.tasks.list[slot as usize];
        if let Some(error) = task.metadata_error.take() {
            (task.buffer, task.stage) = (None, Stage::Planning);
            task.fail(error);
            return true;
        }
        if !self.finds_room(slot) {
            return false;
        }
        let Tasks { host, list, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let block = task.buffer.as_mut().expect("the block was read into it");
        host.with_bytes(block, |bytes| bytes[from as usize..(from + file.bytes()) as usize].fill(0));
        task.stage = Stage::WritingPart;
        let memory = host.memory_of(block);
        self.submit(slot, Op::Write, extent, Some(memory), None, now);
        false
    }

    pub(super) fn end_part(&mut self, slot: u32) -> bool {
        let task = &mut self.tasks.list[slot as usize];
        if task.metadata_bios > 0 {
            return false;
        }
        (task.buffer, task.stage) = (None, Stage::Planning);
        if let Some(error) = task.metadata_error.take() {
            task.fail(error);
        }
        true
    }

    /// Begins to save metadata, if there is any, before the flush.
    pub(super) fn begin_saving(&mut self, slot: u32) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let stage = host.with_file(*id, |file| {
            // No metadata block is reused before its write has completed.
            task.ticket = task.ticket.take().or_else(|| Some(file.begin_io()));
            if !file.collect_dirty() {
                return Some(Stage::BeginFlush(None));
            }
            let Some(all) = file.begin_saving() else {
                file.wait(*id);
                return None;
            };
            Some(Stage::Saving(Saving { done: 0, in_flight: 0, all }))
        });
        match stage {
            Some(stage) => task.stage = stage,
            None => self.blocked.push(slot),
        }
        stage.is_some()
    }

    /// Submits the next metadata blocks when the earlier blocks have been written.
    pub(super) fn save_next(&mut self, slot: u32, saving: Saving, now: Instant) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.metadata_bios > 0 {
            return false;
        }
        let Saving { done, in_flight, all } = saving;
        let done = done + in_flight;
        task.buffer = None;
        if let Some(error) = task.metadata_error.take() {
            host.with_file(*id, |file| file.end_saving(0));
            task.fail_flush(error);
            task.stage = Stage::Completed;
            return true;
        }
        if done == all {
            task.stage = Stage::BeginFlush(Some(all));
            return true;
        }
        let end = all.min(done + SAVED_TOGETHER.min(self.room()));
        let in_flight = end - done;
        self.tasks.list[slot as usize].stage = Stage::Saving(Saving { done, in_flight, all });
        if in_flight == 0 {
            self.without_room.push_back(slot);
            return false;
        }
        self.save(slot, done..end, now)
    }

    /// Writes some unsaved metadata blocks. Returns whether there was none to write.
    fn save(&mut self, slot: u32, blocks: std::ops::Range<usize>, now: Instant) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let copied = host.with_file(*id, |file| {
            let unsaved =
                || blocks.clone().map(|index| file.unsaved(index)).filter(|dirty| !dirty.extent.is_empty());
            let mut buffer = host.buffer(unsaved().map(|dirty| dirty.bytes.len()).sum())?;
            let mut extents = Vec::with_capacity(blocks.len());
            host.with_bytes(&mut buffer, |mut rest| {
                for dirty in unsaved() {
                    let copy = rest.split_off_mut(..dirty.bytes.len()).expect("the buffer holds all of them");
                    copy.copy_from_slice(&dirty.bytes);
                    extents.push(dirty.extent);
                }
            });
            Some((buffer, extents))
        });
        let Some((buffer, extents)) = copied else {
            task.metadata_error = Some(NO_MEMORY);
            return true;
        };
        let whole = host.memory_of(task.buffer.insert(buffer));
        let mut start = 0;
        for extent in &extents {
            let memory = whole.slice(start, extent.bytes());
            self.submit(slot, Op::Write, *extent, Some(memory), None, now);
            start += extent.bytes();
        }
        extents.is_empty()
    }

    pub(super) fn begin_flush(&mut self, slot: u32, saved: Option<usize>, now: Instant) -> bool {
        if !self.finds_room(slot) {
            return false;
        }
        self.tasks.list[slot as usize].stage = Stage::Flushing(saved);
        self.submit(slot, Op::Flush, Extent::EMPTY, None, None, now);
        false
    }

    pub(super) fn end_flush(&mut self, slot: u32, saved: Option<usize>) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        if task.metadata_bios > 0 {
            return false;
        }
        if let Some(error) = task.metadata_error.take() {
            task.fail_flush(error);
        }
        task.stage = match saved {
            None => Stage::Completed,
            Some(saved) => {
                // If the device may have lost the metadata, it is saved again.
                let saved = if task.error.is_none() { saved } else { 0 };
                Stage::WaitForFlushes(saved, host.with_file(*id, |file| file.last_flush()))
            }
        };
        true
    }

    /// Continues a save after its flush has succeeded. An earlier flush of another engine may have failed meanwhile and
    /// lost the metadata, so the save waits for the outcomes of all earlier flushes.
    pub(super) fn end_saving(&mut self, slot: u32, saved: usize, last: FlushId) -> bool {
        let Tasks { host, list, id, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let is_saved = host.with_file(*id, |file| {
            if saved > 0 && file.is_flushing(last) {
                file.wait(*id);
                return None;
            }
            Some(file.end_saving(saved))
        });
        match is_saved {
            Some(true) => {}
            Some(false) => task.fail_flush(IoError::Media),
            None => {
                self.blocked.push(slot);
                return false;
            }
        }
        task.stage = Stage::Completed;
        true
    }

    /// Whether the read of `extent` into the task's buffer has ended, with success or an error. The first call submits
    /// the read.
    fn has_read(&mut self, slot: u32, extent: Extent, now: Instant) -> bool {
        let task = &mut self.tasks.list[slot as usize];
        if task.buffer.is_some() {
            return task.metadata_bios == 0;
        }
        if !self.finds_room(slot) {
            return false;
        }
        let Tasks { host, list, .. } = &mut self.tasks;
        let task = &mut list[slot as usize];
        let Some(buffer) = host.buffer(extent.bytes() as usize) else {
            task.metadata_error = Some(NO_MEMORY);
            return true;
        };
        let memory = host.memory_of(task.buffer.insert(buffer));
        self.submit(slot, Op::Read, extent, Some(memory), None, now);
        false
    }
}
