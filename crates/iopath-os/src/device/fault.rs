//! A device around another that goes wrong as a plan says (`fault/plan.rs`): errors after a part is done, short transfers,
//! requests out of order. It decides nothing itself, and what a short transfer means it leaves to `transfer.rs`, as the
//! devices do that meet real ones.

mod plan;

use std::collections::VecDeque;

use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Instant, Io, IoError, Limits, Memory, Op, Priority,
    SECTOR_BYTES, Stream, Tag,
};

use super::transfer::{Step, Transfer};
use super::{Bell, RealDevice, WaitError};
use crate::memory::Segment;
use plan::Fate;

pub use plan::{Fault, Faults};

/// A device with faults. A request of the inner device is a system call of this one: when that moves less than it
/// should, the rest is submitted again.
#[derive(Debug)]
pub struct Faulty<D: ?Sized + RealDevice> {
    // Dropped first: it waits for what it has taken.
    inner: Box<D>,
    faults: Faults,
    taken: Vec<Taken>,
    over: VecDeque<Completion>,
    /// Lists of segments that nobody uses.
    spare: Vec<Vec<Segment>>,
}

/// A request, from when it is submitted until it has completed.
#[derive(Debug)]
struct Taken {
    tag: Tag,
    extent: Extent,
    stream: Stream,
    priority: Priority,
    segments: Vec<Segment>,
    transfer: Transfer,
    stage: Stage,
    /// The last part was less than a block: another such would be taken for the end of the device.
    is_stalled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// A part of it is at the inner device.
    AtWork(Fate),
}

impl<D: ?Sized + RealDevice> Faulty<D> {
    /// `inner`, with what `faults` says.
    ///
    /// # Panics
    /// If `inner` has requests already: they would be taken for this one's.
    pub fn new(inner: Box<D>, faults: &Faults) -> Self {
        assert!(inner.in_flight() == 0, "the device already has requests in flight");
        let (taken, over, spare) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { inner, faults: faults.clone(), taken, over, spare }
    }

    /// Begins what waits: all of it, or when shuffled some of it.
    fn begin_waiting(&mut self, now: Instant) {
        let is_shuffled = self.faults.is_shuffled();
        let mut index = 0;
        while index < self.taken.len() {
            let waits = self.taken[index].stage == Stage::Waiting;
            // One that has completed has its place taken by another.
            if !waits || is_shuffled && self.faults.below(2) == 0 || !self.begin(index, now) {
                index += 1;
            }
        }
    }

    /// Makes sure that something is in flight if anything waits.
    fn begin_one(&mut self, now: Instant) {
        if !self.taken.is_empty() && self.inner.in_flight() == 0 && self.over.is_empty() {
            let any = if self.faults.is_shuffled() { self.faults.below(self.taken.len() as u64) } else { 0 };
            self.begin(any as usize, now);
        }
    }

    /// Submits the next part of a request; whether it has completed instead.
    fn begin(&mut self, index: usize, now: Instant) -> bool {
        let Self { inner, faults, taken, spare, .. } = self;
        let block = u64::from(inner.limits().logical_block_bytes);
        let request = &mut taken[index];
        let (op, done) = (request.transfer.op, request.transfer.done());
        let rest = request.extent.split_at(done / SECTOR_BYTES).1;
        let fate = faults.draw(op, rest, block, if request.is_stalled { block } else { 1 });
        let bytes = match fate {
            Fate::Whole => rest.bytes(),
            Fate::Short(bytes) | Fate::Error(bytes, _) => bytes / block * block,
        };
        if bytes == 0 && fate != Fate::Whole {
            return self.end_part(index, fate, Ok(()));
        }
        let mut segments = spare.pop().unwrap_or_default();
        part_of(&request.segments, done, bytes, &mut segments);
        let part = rest.split_at(bytes / SECTOR_BYTES).0;
        let mut io = Io::new(request.tag, op, part, &segments);
        (io.fua, io.stream, io.priority) = (request.transfer.fua, request.stream, request.priority);
        if inner.submit(&io, now).is_ok() {
            request.stage = Stage::AtWork(fate);
        }
        segments.clear();
        spare.push(segments);
        false
    }

    /// A part of a request has completed; whether the request is.
    fn end_part(&mut self, index: usize, fate: Fate, result: Result<(), IoError>) -> bool {
        let block = u64::from(self.inner.limits().logical_block_bytes);
        let request = &mut self.taken[index];
        let result = match (result, fate) {
            (Err(error), _) | (Ok(()), Fate::Error(_, error)) => Err(error),
            (Ok(()), Fate::Whole) => Ok(()),
            (Ok(()), Fate::Short(bytes)) => match request.transfer.after(bytes.cast_signed(), block) {
                Step::Again => {
                    request.is_stalled = bytes < block;
                    request.stage = Stage::Waiting;
                    return false;
                }
                Step::Over(result) => result,
                Step::ZeroFrom(_) => unreachable!("no device ends here"),
            },
        };
        let Taken { tag, transfer, mut segments, .. } = self.taken.swap_remove(index);
        if transfer.op == Op::Flush && matches!(fate, Fate::Error(..)) {
            self.faults.lose();
        }
        segments.clear();
        self.spare.push(segments);
        self.over.push_back(Completion { tag, result });
        true
    }

    fn collect(&mut self, now: Instant) {
        while let Some(Completion { tag, result }) = self.inner.poll_completion(now) {
            let index = self.taken.iter().position(|taken| taken.tag == tag);
            let index = index.expect("the inner device completes what it was given");
            let Stage::AtWork(fate) = self.taken[index].stage else { unreachable!("completed before begun") };
            self.end_part(index, fate, result);
        }
    }
}

/// The `bytes` bytes of `segments` after the first `done`.
fn part_of(segments: &[Segment], mut done: u64, mut bytes: u64, part: &mut Vec<Segment>) {
    for segment in segments {
        let skipped = done.min(segment.bytes());
        let taken = bytes.min(segment.bytes() - skipped);
        if taken > 0 {
            part.push(segment.slice(skipped, taken));
        }
        done -= skipped;
        bytes -= taken;
    }
}

impl<D: ?Sized + RealDevice> BlockDevice for Faulty<D> {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, _now: Instant) -> Result<(), Busy> {
        if self.in_flight() >= self.limits().depth_max {
            return Err(Busy { tag: io.tag });
        }
        let mut segments = self.spare.pop().unwrap_or_default();
        segments.extend(io.segments());
        self.taken.push(Taken {
            tag: io.tag,
            extent: io.extent,
            stream: io.stream,
            priority: io.priority,
            segments,
            transfer: Transfer::new(io, self.inner.limits().capacity),
            stage: Stage::Waiting,
            is_stalled: false,
        });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.begin_waiting(now);
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.over.is_empty() {
            self.collect(now);
        }
        if self.over.is_empty() && !self.taken.is_empty() {
            self.begin_waiting(now);
            self.begin_one(now);
            self.inner.commit(now);
            self.collect(now);
        }
        self.over.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.inner.poll_timeout()
    }
}

// SAFETY: a request is reported as over only when no part of it is at the inner device, which touches its memory only
// while one is; memory is not touched here. The inner device is dropped first and waits.
unsafe impl<D: ?Sized + RealDevice> RealDevice for Faulty<D> {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        let now = crate::clock::now();
        self.collect(now);
        let wanted = completions.min(self.in_flight());
        loop {
            self.begin_waiting(now);
            self.begin_one(now);
            self.collect(now);
            if self.over.len() >= wanted as usize {
                self.inner.commit(now);
                return Ok(());
            }
            self.inner.commit_and_wait(1, timeout)?;
            self.collect(now);
            if self.over.len() >= wanted as usize || timeout.is_some() {
                return Ok(());
            }
        }
    }

    fn end_watch(&mut self) {
        self.inner.end_watch();
    }

    fn set_capacity(&mut self, sectors: u64) {
        self.inner.set_capacity(sectors);
    }

    fn in_flight(&self) -> u32 {
        (self.taken.len() + self.over.len()) as u32
    }

    fn syscalls(&self) -> u64 {
        self.inner.syscalls()
    }

    /// Refuses: what it holds back has completed when nothing rings. A stripe goes inside, its members stay whole.
    fn ring_when_over(&mut self, _bell: &Bell) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}
