//! Hands the bios of mapped requests to the queue, and takes them back. Plans nothing: see carry.rs.

use iopath_core::mapper::{FileRange, Step};
use iopath_core::{Bio, Extent, Instant, IoError, Memory, Op, SECTOR_BYTES};

use super::super::RealDevice;
use super::carry::Carrier;
use super::file::{FlushId, State};
use super::task::{Goal, Stage};
use crate::memory::Segment;

/// A bio at the queue.
#[derive(Debug, Clone, Copy)]
pub(super) struct BioInFlight {
    task: u32,
    /// The bytes of the plan; nothing for what is beside it.
    file: Option<FileRange>,
    op: Op,
    /// Of a flush or forced write: under which name others know that its outcome is open.
    pub(super) flush: Option<FlushId>,
}

impl<D: RealDevice> Carrier<D> {
    pub(super) fn has_room(&self) -> bool {
        self.room() > 0
    }

    /// Whether there is room for a bio of this task. If not, it is asked again when there is.
    pub(super) fn finds_room(&mut self, slot: u32) -> bool {
        let has_room = self.has_room();
        if !has_room {
            self.crowded.push_back(slot);
        }
        has_room
    }

    /// How many bios the queue takes now.
    pub(super) fn room(&self) -> usize {
        (self.bios_max - self.pump.queue().bios_in()) as usize
    }

    pub(super) fn transfer(
        &mut self,
        slot: u32,
        mut file: FileRange,
        mut place: Extent,
        now: Instant,
    ) -> Option<Step> {
        let task = &self.tasks.list[slot as usize];
        let (op, goal) = (task.op, task.goal);
        while !place.is_empty() {
            if !self.has_room() {
                return Some(Step::Transfer { file, place });
            }
            let task = &self.tasks.list[slot as usize];
            let memory = (goal != Goal::Pass).then(|| task.memory(file.start(), place.bytes()));
            let bytes = memory.map_or(place.bytes(), |memory| memory.bytes());
            (file, place) = self.put_first(slot, op, bytes, (file, place), memory, now);
        }
        None
    }

    /// Zeroes of a change: by the device's own means where these were asked for, else from memory.
    pub(super) fn zero(
        &mut self,
        slot: u32,
        mut file: FileRange,
        mut place: Extent,
        now: Instant,
    ) -> Option<Step> {
        let by_device = self.tasks.list[slot as usize].goal == Goal::Zero
            && self.pump.queue().limits().write_zeroes_bytes_max > 0;
        while !place.is_empty() {
            if !self.has_room() {
                return Some(Step::ZeroBlocks { file, place });
            }
            let zeroes = self.tasks.file.zeroes();
            let bytes = if by_device { place.bytes() } else { place.bytes().min(zeroes.len() as u64) };
            // SAFETY: nobody writes to the file's zeroes, and they go with the file, of which this is a clone that goes
            // after the device.
            let memory = (!by_device).then(|| unsafe { Segment::new(zeroes.start(), bytes as usize) });
            let op = if by_device { Op::WriteZeroes } else { Op::Write };
            (file, place) = self.put_first(slot, op, bytes, (file, place), memory, now);
        }
        None
    }

    /// Hands over the first `bytes` bytes of what is to be carried out; the rest.
    fn put_first(
        &mut self,
        slot: u32,
        op: Op,
        bytes: u64,
        (file, place): (FileRange, Extent),
        memory: Option<Segment>,
        now: Instant,
    ) -> (FileRange, Extent) {
        let (first, rest) = place.split_at(bytes / SECTOR_BYTES);
        let end = file.start() + bytes;
        self.put(slot, op, first, memory, Some(file.up_to(end)), now);
        (file.from_offset(end), rest)
    }

    /// Hands a bio to the queue, which has room. One that it refuses has failed.
    pub(super) fn put(
        &mut self,
        slot: u32,
        op: Op,
        extent: Extent,
        memory: Option<Segment>,
        file: Option<FileRange>,
        now: Instant,
    ) {
        let task = &mut self.tasks.list[slot as usize];
        let (stream, priority) = (task.stream, task.priority);
        let fua = task.fua && op == Op::Write && file.is_some();
        *(if file.is_some() { &mut task.bios } else { &mut task.aside }) += 1;
        // Before it is at the device: its failure may cost others what they take for saved.
        let flushes = fua || op == Op::Flush;
        let flush = flushes.then(|| self.tasks.file.with(Some(self.tasks.id), State::begin_flush));
        let token = self.tasks.bios.insert(BioInFlight { task: slot, file, op, flush });
        let bio = Bio { op, extent, memory, fua, stream, priority, token: token as u64 };
        if let Err(refused) = self.pump.submit_bio(bio, now) {
            let error = match refused {
                iopath_core::SubmitError::Unsupported(_) => IoError::Unsupported,
                iopath_core::SubmitError::Unaligned { .. } => IoError::Alignment,
                iopath_core::SubmitError::QueueFull(_) => unreachable!("the queue had room"),
                _ => IoError::EndOfDevice,
            };
            self.bio_over(token, Err(error));
        }
    }

    pub(super) fn bio_over(&mut self, token: usize, result: Result<(), IoError>) {
        let BioInFlight { task: slot, file, op, flush } = self.tasks.bios.remove(token);
        if let Some(flush) = flush {
            let has_failed = result.err().is_some_and(|error| op == Op::Flush || error.may_be_of_a_flush());
            self.tasks.file.with(Some(self.tasks.id), |state| state.end_flush(flush, has_failed));
        }
        let task = &mut self.tasks.list[slot as usize];
        let is_awaited = if let Some(file) = file {
            task.bios -= 1;
            if let Err(error) = result {
                task.fail_part(file, error);
            }
            task.bios == 0 && task.stage == Stage::Draining
        } else {
            task.aside -= 1;
            task.aside_error = task.aside_error.or(result.err());
            task.aside == 0
        };
        if is_awaited {
            self.ready.push_back(slot);
        }
    }
}
