//! Submits the bios of mapped requests to the queue and handles their completions. The plans are in `executor.rs`.

use super::executor::Executor;
use super::file::MappedFile;
use super::host::MappedHost;
use super::task::{BioInFlight, Goal, Stage};
use crate::block::bio::{Bio, Op};
use crate::block::device::BlockDevice;
use crate::block::queue::SubmitError;
use crate::error::IoError;
use crate::file::mapper::{FileRange, Step};
use crate::memory::Memory;
use crate::sector::{Extent, SECTOR_BYTES};
use crate::time::Instant;

impl<D: BlockDevice, H: MappedHost<Memory = D::Memory>> Executor<D, H> {
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Whether the queue has room for a bio of this task. If not, the task continues when the queue has room.
    pub(super) fn finds_room(&mut self, slot: u32) -> bool {
        let has_room = self.has_room();
        if !has_room {
            self.without_room.push_back(slot);
        }
        has_room
    }

    /// The number of bios that the queue has room for.
    pub(super) fn room(&self) -> usize {
        (self.bios_max - self.pump.queue().bios_in()) as usize
    }

    /// Submits the bios of a transfer while the queue has room. Returns the rest.
    pub(super) fn transfer(
        &mut self,
        slot: u32,
        mut file: FileRange,
        mut extent: Extent,
        now: Instant,
    ) -> Option<Step> {
        let task = &self.tasks.list[slot as usize];
        let (op, goal) = (task.op, task.goal);
        while !extent.is_empty() {
            if !self.has_room() {
                return Some(Step::Transfer { file, extent });
            }
            let task = &self.tasks.list[slot as usize];
            let memory = (goal != Goal::Pass).then(|| task.memory(file.start(), extent.bytes()));
            let bytes = memory.map_or(extent.bytes(), |memory| memory.bytes());
            (file, extent) = self.submit_first(slot, op, bytes, (file, extent), memory, now);
        }
        None
    }

    /// Zeroes blocks: by a write-zeroes of the device if the caller requested zeroes, otherwise by writes of the host's
    /// zeroes. Returns the rest if the queue has no room.
    pub(super) fn zero_blocks(
        &mut self,
        slot: u32,
        mut file: FileRange,
        mut extent: Extent,
        now: Instant,
    ) -> Option<Step> {
        let by_device = self.tasks.list[slot as usize].goal == Goal::Zero
            && self.pump.queue().limits().write_zeroes_bytes_max > 0;
        while !extent.is_empty() {
            if !self.has_room() {
                return Some(Step::ZeroBlocks { file, extent });
            }
            let zeroes = self.tasks.host.zeroes();
            let bytes = if by_device { extent.bytes() } else { extent.bytes().min(zeroes.bytes()) };
            let memory = (!by_device).then(|| zeroes.slice(0, bytes));
            let op = if by_device { Op::WriteZeroes } else { Op::Write };
            (file, extent) = self.submit_first(slot, op, bytes, (file, extent), memory, now);
        }
        None
    }

    /// Submits the first `bytes` bytes of a step. Returns the rest.
    fn submit_first(
        &mut self,
        slot: u32,
        op: Op,
        bytes: u64,
        (file, extent): (FileRange, Extent),
        memory: Option<D::Memory>,
        now: Instant,
    ) -> (FileRange, Extent) {
        let (first, rest) = extent.split_at(bytes / SECTOR_BYTES);
        let end = file.start() + bytes;
        self.submit(slot, op, first, memory, Some(file.up_to(end)), now);
        (file.from_offset(end), rest)
    }

    /// Submits a bio to the queue, which must have room. A refused bio counts as failed. `file` is `None` for metadata
    /// I/O.
    pub(super) fn submit(
        &mut self,
        slot: u32,
        op: Op,
        extent: Extent,
        memory: Option<D::Memory>,
        file: Option<FileRange>,
        now: Instant,
    ) {
        let task = &mut self.tasks.list[slot as usize];
        let (stream, priority) = (task.stream, task.priority);
        let fua = task.fua && op == Op::Write && file.is_some();
        *(if file.is_some() { &mut task.bios } else { &mut task.metadata_bios }) += 1;
        // Registered before it reaches the device, since its failure may lose metadata that other engines count as
        // saved.
        let flushes = fua || op == Op::Flush;
        let flush = flushes.then(|| self.tasks.host.with_file(self.tasks.id, MappedFile::begin_flush));
        let token = self.tasks.bios.insert(BioInFlight { task: slot, file, op, flush });
        let bio = Bio { op, extent, memory, fua, stream, priority, token: token as u64 };
        if let Err(refused) = self.pump.submit_bio(bio, now) {
            let error = match refused {
                SubmitError::Unsupported(_) => IoError::Unsupported,
                SubmitError::Unaligned { .. } => IoError::Alignment,
                SubmitError::QueueFull(_) => unreachable!("the queue had room"),
                _ => IoError::EndOfDevice,
            };
            self.end_bio(token, Err(error));
        }
    }

    pub(super) fn end_bio(&mut self, token: usize, result: Result<(), IoError>) {
        let BioInFlight { task: slot, file, op, flush } = self.tasks.bios.remove(token);
        if let Some(flush) = flush {
            let has_failed = result.err().is_some_and(|error| op == Op::Flush || error.may_come_from_flush());
            self.tasks.host.with_file(self.tasks.id, |file| file.end_flush(flush, has_failed));
        }
        let task = &mut self.tasks.list[slot as usize];
        let is_awaited = if let Some(file) = file {
            task.bios -= 1;
            if let Err(error) = result {
                task.fail_part(file, error);
            }
            task.bios == 0 && task.stage == Stage::Draining
        } else {
            task.metadata_bios -= 1;
            task.metadata_error = task.metadata_error.or(result.err());
            task.metadata_bios == 0
        };
        if is_awaited {
            self.ready.push_back(slot);
        }
    }
}
