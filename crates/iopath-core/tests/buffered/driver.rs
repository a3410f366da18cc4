//! Drives the buffered path in virtual time, in one loop: calls of one program, the state machine, a request queue and
//! a modelled disk. Time passes only by jumps to the earliest time limit.

use iopath_core::buffered::{
    BufferedPath, BufferedRead, BufferedWrite, Frames, Geometry, PageBio, ReadNext, ReadStep, Starvation,
    Step, TakeStep,
};
use iopath_core::cache::{CacheConfig, Frame, Outcome};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{
    Bio, BlockDevice, Busy, Completion, Duration, Instant, Io, IoError, Limits, Memory, Op, Priority,
    QueueConfig, QueuedDevice, Stream, Tag,
};
use std::collections::{BTreeMap, VecDeque};

pub(crate) const PAGE: u64 = 4096;

/// The number of events within which every wait ends.
const ROUNDS_MAX: u32 = 100_000;

/// Memory without bytes. Frames are adjacent, or each is far from all others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Space {
    bytes: u64,
    joins: bool,
}

impl Memory for Space {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn slice(self, _offset: u64, bytes: u64) -> Self {
        Self { bytes, ..self }
    }

    fn join(self, next: Self) -> Option<Self> {
        self.joins.then_some(Self { bytes: self.bytes + next.bytes, ..self })
    }
}

#[derive(Debug)]
pub(crate) struct Spaces {
    pub(crate) joins: bool,
}

impl Frames for Spaces {
    type Memory = Space;

    fn memory(&self, _frame: Frame, bytes: u64) -> Space {
        Space { bytes, joins: self.joins }
    }
}

/// A request in the disk.
#[derive(Debug, Clone, Copy)]
struct Flight {
    due: Instant,
    tag: Tag,
    result: Result<(), IoError>,
    /// For a read: its end, in bytes.
    read_end: u64,
}

/// Executes one request after another, each in `latency` plus the time of its bytes.
#[derive(Debug)]
pub(crate) struct Disk {
    limits: Limits,
    latency: Duration,
    bytes_per_second: u64,
    busy_until: Instant,
    in_flight: VecDeque<Flight>,
    /// The error of every write.
    pub(crate) write_error: Option<IoError>,
    /// The error of every flush.
    pub(crate) flush_error: Option<IoError>,
    /// A read that ends past this byte fails: the file was truncated.
    pub(crate) end_bytes: u64,
    /// The time at which each write began, and its first sector.
    pub(crate) writes: Vec<(Instant, u64)>,
    pub(crate) reads: u64,
}

impl Disk {
    pub(crate) fn new(bytes: u64, latency: Duration, bytes_per_second: u64) -> Self {
        Self {
            limits: Limits::with_capacity(bytes / 512),
            latency,
            bytes_per_second,
            busy_until: Instant::ZERO,
            in_flight: VecDeque::new(),
            write_error: None,
            flush_error: None,
            end_bytes: bytes,
            writes: Vec::new(),
            reads: 0,
        }
    }
}

impl Disk {
    /// Flushes reach the device.
    pub(crate) fn with_volatile_cache(mut self) -> Self {
        self.limits.volatile_cache = true;
        self
    }
}

impl BlockDevice for Disk {
    type Memory = Space;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, Space>, now: Instant) -> Result<(), Busy> {
        let transfer = Duration::from_nanos(io.extent.bytes() * 1_000_000_000 / self.bytes_per_second);
        self.busy_until = self.busy_until.max(now) + self.latency + transfer;
        let is_write = io.op == Op::Write;
        if is_write {
            self.writes.push((now, io.extent.start().0));
        }
        self.reads += u64::from(io.op == Op::Read);
        let write_error = self.write_error.filter(|_| is_write);
        let error = write_error.or(self.flush_error.filter(|_| io.op == Op::Flush));
        let result = error.map_or(Ok(()), Err);
        let read_end = if io.op == Op::Read { io.extent.end().0 * 512 } else { 0 };
        self.in_flight.push_back(Flight { due: self.busy_until, tag: io.tag, result, read_end });
        Ok(())
    }

    fn commit(&mut self, _now: Instant) {}

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let Flight { tag, result, read_end, .. } =
            *self.in_flight.front().filter(|flight| flight.due <= now)?;
        self.in_flight.pop_front();
        let result = if read_end > self.end_bytes { Err(IoError::EndOfDevice) } else { result };
        Some(Completion { tag, result })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|flight| flight.due)
    }
}

/// One program on one buffered volume.
pub(crate) struct Driver {
    pub(crate) path: BufferedPath<Spaces>,
    pub(crate) disk: QueuedDevice<Disk>,
    pub(crate) now: Instant,
    outcomes: BTreeMap<u64, Outcome>,
    /// All steps, in order.
    pub(crate) steps: Vec<Step<Space>>,
}

impl Driver {
    pub(crate) fn new(
        cache: CacheConfig,
        readahead: Option<ReadaheadConfig>,
        size_bytes: u64,
        spaces: Spaces,
        disk: Disk,
        queue: &QueueConfig,
    ) -> Self {
        let geometry = Geometry { page_bytes: 4096, block_bytes: 512, size_bytes, writes_last_block: false };
        Self {
            path: BufferedPath::new(cache, readahead, geometry, spaces),
            disk: QueuedDevice::new(disk, queue),
            now: Instant::ZERO,
            outcomes: BTreeMap::new(),
            steps: Vec::new(),
        }
    }

    /// Executes all steps that can be executed now.
    pub(crate) fn advance(&mut self) {
        loop {
            while let Some(step) = self.path.poll_step(self.now) {
                self.steps.push(step);
                match step {
                    Step::Submit(bio) => self.submit(bio),
                    Step::Zero { .. } => {}
                    Step::WriteTail { tag, .. } => self.path.handle_completion(tag, Ok(()), self.now),
                }
            }
            self.disk.unplug(self.now);
            self.disk.collect(self.now);
            self.disk.dispatch(self.now);
            self.disk.commit(self.now);
            let mut any = false;
            while let Some(done) = self.disk.poll_completion() {
                any = true;
                let tag = iopath_core::cache::IoTag(done.token as u32);
                self.path.handle_completion(tag, done.result, self.now);
            }
            if !any {
                break;
            }
        }
        while let Some(ready) = self.path.poll_ready() {
            assert!(self.outcomes.insert(ready.waiter, ready.outcome).is_none(), "{ready:?} comes twice");
        }
    }

    fn submit(&mut self, bio: PageBio<Space>) {
        let PageBio { tag, op, extent, memory } = bio;
        let (stream, priority, token) = (Stream(0), Priority::default(), u64::from(tag.0));
        let queued = Bio { op, extent, memory, fua: false, stream, priority, token };
        if let Err(why) = self.disk.submit_bio(queued, self.now) {
            self.path.handle_refused(bio, &why, self.now);
        }
    }

    /// The earliest time limit of state machine, queue and disk.
    pub(crate) fn due(&self) -> Option<Instant> {
        [self.path.poll_timeout(), self.disk.poll_timeout()].into_iter().flatten().min()
    }

    /// Jumps to the earliest time limit. Returns whether there is one.
    pub(crate) fn jump(&mut self) -> bool {
        let Some(due) = self.due() else { return false };
        self.now = self.now.max(due);
        self.advance();
        true
    }

    /// Jumps from time limit to time limit until `time`.
    pub(crate) fn sleep_until(&mut self, time: Instant) {
        while self.due().is_some_and(|due| due <= time) {
            self.jump();
        }
        self.now = self.now.max(time);
        self.advance();
    }

    pub(crate) fn wait(&mut self, waiter: u64) -> Outcome {
        for _ in 0..ROUNDS_MAX {
            self.advance();
            if let Some(outcome) = self.outcomes.remove(&waiter) {
                return outcome;
            }
            assert!(self.jump(), "waiter {waiter} waits forever");
        }
        panic!("waiter {waiter} has no outcome at {:?}", self.now);
    }

    /// Reads as a program does, and returns the number of bytes before the end of the volume.
    pub(crate) fn read(&mut self, offset: u64, bytes: u64) -> usize {
        let mut read = BufferedRead::new(offset, bytes as usize, &self.path);
        loop {
            let piece = match read.poll(&self.path) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => continue,
                ReadNext::Done(bytes) => return bytes,
            };
            let step = self.path.read(&mut read, 0, self.now);
            self.advance();
            let pinned = match step {
                ReadStep::Pinned(frame) => Some(frame),
                ReadStep::End => None,
                ReadStep::Wait { .. } => self.wait(0).pinned().expect("the page can be read"),
            };
            if let Some(frame) = pinned {
                self.unpin(frame);
                read.handle_copied(&piece);
            }
        }
    }

    /// Begins to read the page of byte `offset`.
    pub(crate) fn begin_read(&mut self, offset: u64, waiter: u64) -> ReadStep {
        let mut read = BufferedRead::new(offset, 1, &self.path);
        self.path.read(&mut read, waiter, self.now)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: usize) {
        self.try_write(offset, bytes).expect("its pages can be read and written back");
    }

    /// Writes, and pauses for the time that the state machine requests.
    pub(crate) fn try_write(&mut self, offset: u64, bytes: usize) -> Result<(), IoError> {
        let mut write = BufferedWrite::new(offset, bytes).expect("it has offsets");
        loop {
            match self.path.take_pages(&mut write, 0)? {
                TakeStep::Fill => {
                    for from in write.pieces().iter().filter_map(|piece| piece.copy_from) {
                        self.unpin(from);
                    }
                    self.path.release_pages(&mut write, self.now);
                    self.advance();
                }
                TakeStep::Wait => {
                    let outcome = self.wait(0);
                    write.handle_outcome(outcome);
                }
                TakeStep::Done { pause } => {
                    self.sleep_until(self.now + pause.unwrap_or_default());
                    return Ok(());
                }
            }
        }
    }

    pub(crate) fn unpin(&mut self, frame: Frame) {
        if self.path.cache().hot().unpin(frame) {
            self.path.handle_unpinned();
        }
    }

    pub(crate) fn flush(&mut self) -> Outcome {
        self.path.flush(0);
        self.wait(0)
    }

    /// Waits for a frame like a thread that lacks one. Returns the reason if it gets no frame.
    pub(crate) fn starve(&mut self, waiter: u64) -> Option<iopath_core::buffered::NoFrame> {
        let mut starvation = Starvation::default();
        while self.path.is_starved(waiter) {
            let (start, is_idle) = (self.now, self.disk.poll_timeout().is_none());
            let check = starvation.next_check(start);
            self.sleep_until(check);
            if is_idle {
                starvation.handle_idle(self.now - start);
            }
            if let Some(no_frame) = self.path.fail_starved(waiter, &starvation) {
                return Some(no_frame);
            }
        }
        None
    }
}
