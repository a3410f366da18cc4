//! Unaligned I/O of a volume with bounced I/O: a call drives `BouncedRead` and `BouncedWrite` of the core as a thread
//! does, one step after another. `locks.rs` has the range locks, which aligned writes and moves of the end take, too.

use iopath_core::volume::{
    BouncedRead, BouncedWrite, CacheUse, LockKind, ReadStep, Route, VolumeShape, WriteStep,
};
use iopath_core::{Bio, Duration, Extent, Instant, IoError, Memory, Op, Priority, Stream, SubmitError};

use super::call::{Bounced, BouncedIo, Kind, Stage};
use super::request::{Direct, Exact};
use super::{PAGE, Volume};
use crate::arena::{Owner, Span};
use crate::contents::{NO_QUEUE, Reader, fill};
use crate::scenario::{Fine, Layout, VolumePlan};

/// The length of a bounce buffer: many calls have several pieces.
const BUFFER_BYTES: usize = 2048;

impl Volume {
    /// Begins a read or write of any bytes, on the path that the volume selects for it.
    pub(super) fn begin_any(&mut self, direct: Direct, at: u64, len: u64, fine: Fine, now: Instant) {
        let op = direct.op;
        let (offset, bytes) = self.range(at, len, fine);
        let address = self.address();
        // A volume that does not bounce gets aligned I/O only.
        let is_any = op.has_memory() && self.shape.bounces;
        if self.end.is_some() {
            let (start, end) = (offset / 512 * 512, (offset + bytes).next_multiple_of(512));
            let (offset, bytes) = if is_any { (offset, bytes) } else { (start, end - start) };
            let exact = Exact { direct: Some(direct), offset, bytes, hold: Duration::ZERO, address };
            return self.begin_exact(exact, None, now);
        }
        if !is_any || self.shape.route(offset, bytes, address) == Route::Direct {
            return self.begin_direct(direct, at, len, now);
        }
        self.add_bounced(direct, offset, bytes, None, now);
    }

    /// The address of the memory of a program: that of some programs is unaligned.
    pub(super) const fn address(&self) -> usize {
        if self.shape.bounces && self.writes.is_multiple_of(5) { 1 } else { 0 }
    }

    /// Adds unaligned I/O.
    pub(super) fn add_bounced(
        &mut self,
        direct: Direct,
        offset: u64,
        bytes: u64,
        parent: Option<usize>,
        now: Instant,
    ) {
        let Direct { op, forced, queue, .. } = direct;
        if op.is_write() && !self.may_write(offset, bytes) {
            return;
        }
        let forced = forced && op == Op::Write && !self.plan.extras.survives_power;
        let len = bytes as usize;
        let io = if op == Op::Read {
            BouncedIo::Read(
                BouncedRead::new(&self.shape, offset, len, BUFFER_BYTES, self.size_bytes).expect("within"),
            )
        } else {
            BouncedIo::Write(
                BouncedWrite::new(&self.shape, offset, len, BUFFER_BYTES, forced).expect("writable"),
            )
        };
        let [memory, buffer] = [(len, Owner::Program), (BUFFER_BYTES, Owner::Bounce)]
            .map(|(len, owner)| self.arena.take(len, owner));
        let bounced = Bounced { io, queue, forced, memory, buffer, reading: (0, 0) };
        self.add_for(parent, Kind::Bounced(bounced), offset, bytes, "bounced", now);
    }

    /// Executes the next step of a call. Returns whether it made progress.
    pub(super) fn step_bounced(&mut self, index: usize, now: Instant) -> bool {
        let call = self.calls[index].as_mut().expect("in progress");
        let (offset, token) = (call.offset, call.token);
        let Kind::Bounced(bounced) = &mut call.kind else { unreachable!("bounced") };
        let (memory, buffer) = (bounced.memory, bounced.buffer);
        match &mut bounced.io {
            BouncedIo::Read(read) => match read.poll() {
                ReadStep::Read { offset, bytes } => return self.read_blocks(index, offset, 0..bytes, now),
                ReadStep::Copy { from, to } => {
                    let bytes = self.arena.with(buffer, |buffer| buffer[from..from + to.len()].to_vec());
                    self.arena.with(memory, |memory| memory[to].copy_from_slice(&bytes));
                    read.handle_copied();
                }
                ReadStep::Done(bytes) => self.end_bounced_read(index, bytes, now),
            },
            BouncedIo::Write(write) => match write.poll() {
                WriteStep::Lock(range) => {
                    if !self.try_lock(index, LockKind::Write, range, now) {
                        return false;
                    }
                    let size_bytes = self.size_bytes;
                    let Kind::Bounced(Bounced { io: BouncedIo::Write(write), .. }) =
                        &mut self.call(index).kind
                    else {
                        unreachable!("a bounced write")
                    };
                    match write.handle_locked(size_bytes) {
                        Ok(()) => self.begin_model_write(index),
                        Err(_) => self.end(index, Err(IoError::EndOfDevice), now),
                    }
                }
                WriteStep::Read { offset, at } => return self.read_blocks(index, offset, at, now),
                WriteStep::Copy { from, to } => {
                    let bytes = self.arena.with(memory, |memory| {
                        fill(offset, memory, token);
                        memory[from].to_vec()
                    });
                    self.arena.with(buffer, |buffer| buffer[to..to + bytes.len()].copy_from_slice(&bytes));
                    write.handle_done();
                }
                WriteStep::Write { offset, bytes } => {
                    let extent = Extent::from_bytes(offset, bytes as u64).expect("whole blocks");
                    return self.submit_bounced(
                        index,
                        Op::Write,
                        extent,
                        Some(buffer.slice(0, bytes as u64)),
                        now,
                    );
                }
                WriteStep::WriteTail { offset, at } => {
                    write.handle_done();
                    let bytes = self.arena.with(buffer, |buffer| buffer[at].to_vec());
                    self.write_tail(offset, &bytes);
                }
                WriteStep::Flush => return self.submit_bounced(index, Op::Flush, Extent::EMPTY, None, now),
                WriteStep::Done => self.end(index, Ok(()), now),
            },
        }
        true
    }

    /// Reads blocks that begin in the volume to this place of the buffer.
    fn read_blocks(&mut self, index: usize, offset: u64, at: std::ops::Range<usize>, now: Instant) -> bool {
        let readable = self.shape.readable_to_end(offset, at.len() as u64, self.size_bytes);
        let (extent, available) = readable.expect("whole blocks");
        let Kind::Bounced(bounced) = &mut self.call(index).kind else { unreachable!("bounced") };
        bounced.reading = (offset, available);
        if extent.is_empty() {
            self.handle_read(index);
            return true;
        }
        let memory = bounced.buffer.slice(at.start as u64, extent.bytes());
        self.submit_bounced(index, Op::Read, extent, Some(memory), now)
    }

    /// The blocks are in the buffer. The end may have moved meanwhile.
    fn handle_read(&mut self, index: usize) {
        let size_bytes = self.size_bytes;
        let Kind::Bounced(bounced) = &mut self.call(index).kind else { unreachable!("bounced") };
        let (offset, available) = bounced.reading;
        match &mut bounced.io {
            BouncedIo::Read(read) => {
                read.handle_read(available.min(size_bytes.saturating_sub(offset)) as usize);
            }
            BouncedIo::Write(write) => write.handle_done(),
        }
    }

    /// Submits a bio of a call. Returns false if the queue is full.
    fn submit_bounced(
        &mut self,
        index: usize,
        op: Op,
        extent: Extent,
        memory: Option<Span>,
        now: Instant,
    ) -> bool {
        if self.must_wait_for_end() {
            return false;
        }
        let Kind::Bounced(bounced) = &self.call(index).kind else { unreachable!("bounced") };
        let queue = bounced.queue;
        let (stream, priority) = (Stream(0), Priority::BestEffort);
        let bio = Bio { op, extent, memory, fua: false, stream, priority, token: index as u64 };
        let target = &mut self.queues[queue];
        match target.device.submit_bio(bio, now) {
            Ok(()) => {
                target.submitted.push_back((index as u64, op, extent));
                self.call(index).stage = Stage::AtDevice;
                if op == Op::Flush {
                    self.begin_store(queue, index as u64);
                }
                true
            }
            Err(SubmitError::QueueFull(_)) => false,
            Err(why) => {
                // A read waits for the new end: it locks nothing.
                let is_cut = matches!(why, SubmitError::OutOfRange { .. }) && self.is_resizing();
                assert!(is_cut && op == Op::Read, "rule 8: the queue refuses a valid bio: {why}");
                false
            }
        }
    }

    /// The bio of a step has completed.
    pub(super) fn bounced_done(&mut self, index: usize, result: Result<(), IoError>, now: Instant) {
        self.call(index).stage = Stage::Ready;
        let start = self.call(index).start;
        let has_resized = self.has_resized_since(start);
        let Kind::Bounced(bounced) = &mut self.call(index).kind else { unreachable!("bounced") };
        match (&mut bounced.io, result) {
            (BouncedIo::Write(write), Ok(())) if !matches!(write.poll(), WriteStep::Read { .. }) => {
                write.handle_done();
            }
            (_, Ok(())) => self.handle_read(index),
            // A resize has moved the end: the read begins again.
            (BouncedIo::Read(_), Err(IoError::EndOfDevice)) if has_resized => {}
            (_, Err(error)) => self.end(index, Err(error), now),
        }
    }

    fn end_bounced_read(&mut self, index: usize, bytes: usize, now: Instant) {
        let call = self.call(index);
        let (offset, start, wanted) = (call.offset, call.start, call.bytes);
        let Kind::Bounced(bounced) = &call.kind else { unreachable!("bounced") };
        let memory = bounced.memory;
        let end = offset + bytes as u64;
        assert!(
            bytes as u64 == wanted || self.is_past_end(end + 1) || self.has_resized_since(start),
            "rule 6: a read of volume {} ends at byte {end}, and the volume does not",
            self.number
        );
        assert!(
            bytes == 0 || end <= self.size_bytes || self.has_resized_since(start),
            "rule 5: a read ends at byte {end}, past the end"
        );
        let copy = self.arena.with(memory, |memory| memory[..bytes].to_vec());
        self.check_read(offset, &copy, Reader { start, queue: NO_QUEUE });
        self.end(index, Ok(()), now);
    }

    /// Writes bytes after the last whole block, as a kernel does through its page cache.
    fn write_tail(&mut self, offset: u64, bytes: &[u8]) {
        let start = offset / PAGE * PAGE;
        let end = (offset + bytes.len() as u64).next_multiple_of(PAGE);
        self.check_no_write(start, end - start);
        self.platters[0].borrow_mut().write_tail(offset - self.plan.base_bytes(), bytes);
    }
}

impl Volume {
    /// A write in flight that overlaps with these whole blocks.
    pub(super) fn has_write_in(&self, offset: u64, bytes: u64) -> Option<(u64, Op, Extent)> {
        let range = Extent::from_bytes(offset, bytes).expect("whole blocks");
        let mut submitted = self.queues.iter().flat_map(|queue| &queue.submitted);
        let write = submitted.find(|(_, op, extent)| op.is_write() && extent.overlaps(range)).copied();
        write.or_else(|| self.own.as_ref()?.write_in(range))
    }

    /// The kernel writes or zeroes a part of these pages, through its page cache: it treats a direct write to them as
    /// corruption.
    pub(super) fn check_no_write(&self, offset: u64, bytes: u64) {
        let other = self.has_write_in(offset, bytes);
        assert!(other.is_none(), "rule 5: a write to the pages at byte {offset} is in flight: {other:?}");
    }
}

/// The properties of a volume that decide the paths and checks of its calls.
pub(super) const fn shape_of(plan: &VolumePlan) -> VolumeShape {
    VolumeShape {
        block_bytes: 512,
        memory_align_bytes: 4,
        page_bytes: PAGE as u32,
        cache: if plan.cache.is_some() { CacheUse::All } else { CacheUse::None },
        bounces: plan.extras.bounces,
        is_writable: true,
        cuts_off_at_end: true,
        writes_last_block: matches!(plan.layout, Layout::Mapped { .. }),
        // The scenario resizes and extends by calls of its own.
        is_resizable: true,
        extends: false,
    }
}
