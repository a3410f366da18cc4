//! A device that injects faults into another: errors after part of a request, short transfers, requests out of order.
//! `fault/plan.rs` decides which requests fail.

mod plan;

use std::collections::VecDeque;

use crate::block::bio::Op;
use crate::block::device::{BlockDevice, Busy, Completion, Io, OwnedIo};
use crate::block::limits::Limits;
use crate::error::IoError;
use crate::memory::Memory;
use crate::sector::SECTOR_BYTES;
use crate::time::{Duration, Instant};

pub use plan::{Fault, FaultPlan, FaultSource, Outcome};

/// The delay before a retry at the inner device, when it is busy while it has no request of this device.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// A device with faults. Each transfer of a request is one request of the inner device. After a short transfer, the
/// device submits the rest.
///
/// Deterministic: the same requests, calls and seed give the same faults and the same order.
#[derive(Debug)]
pub struct FaultyDevice<D: BlockDevice, F = FaultPlan> {
    // Dropped first: a real device waits for its requests in flight.
    inner: D,
    faults: F,
    requests: Vec<Request<D::Memory>>,
    /// Requests with a transfer at the inner device.
    at_inner: u32,
    completed: VecDeque<Completion>,
    /// Unused segment lists.
    spare: Vec<Vec<D::Memory>>,
    /// The time of the last call.
    now: Instant,
}

/// A request from submission to completion.
#[derive(Debug)]
struct Request<M> {
    io: OwnedIo<M>,
    /// Bytes done, in whole blocks.
    done: u64,
    stage: Stage,
    /// The last transfer moved less than a block. A second such transfer would look like the end of the device.
    is_stalled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Waiting,
    /// A transfer with this outcome is at the inner device.
    AtInner(Outcome),
}

impl<D: BlockDevice, F: FaultSource> FaultyDevice<D, F> {
    /// Injects the faults of `faults` into `inner`, which must have no request in flight.
    pub fn new(inner: D, faults: F) -> Self {
        let (requests, completed, spare) = (Vec::new(), VecDeque::new(), Vec::new());
        Self { inner, faults, requests, at_inner: 0, completed, spare, now: Instant::ZERO }
    }

    /// The inner device.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// The inner device, to wait in it. Its completions belong to this device.
    pub const fn inner_mut(&mut self) -> &mut D {
        &mut self.inner
    }

    /// The source of the faults.
    pub const fn faults_mut(&mut self) -> &mut F {
        &mut self.faults
    }

    /// Requests submitted and not yet returned by [`BlockDevice::poll_completion`].
    pub fn in_flight(&self) -> u32 {
        (self.requests.len() + self.completed.len()) as u32
    }

    /// Requests ready for [`BlockDevice::poll_completion`].
    pub fn ready(&self) -> u32 {
        self.completed.len() as u32
    }

    /// Collects the inner device's completions and submits further transfers to it. While any request waits, at least
    /// one transfer is at the inner device. Commit the inner device afterwards.
    pub fn advance(&mut self, now: Instant) {
        self.collect(now);
        self.begin_waiting(now);
        self.begin_one(now);
        self.collect(now);
    }

    /// Begins the waiting requests: all, or a random choice of them when shuffled.
    fn begin_waiting(&mut self, now: Instant) {
        let is_shuffled = self.faults.is_shuffled();
        let mut index = 0;
        while index < self.requests.len() {
            let waits = self.requests[index].stage == Stage::Waiting;
            // If a request completes at once, another request moves to its index.
            if !waits || is_shuffled && self.faults.below(2) == 0 || !self.begin(index, now) {
                index += 1;
            }
        }
    }

    /// Begins a request if none is at the inner device, so that the shuffle cannot hold all requests back.
    fn begin_one(&mut self, now: Instant) {
        if !self.requests.is_empty() && self.at_inner == 0 && self.completed.is_empty() {
            let any =
                if self.faults.is_shuffled() { self.faults.below(self.requests.len() as u64) } else { 0 };
            self.begin(any as usize, now);
        }
    }

    /// Submits the next transfer of a request. Returns whether the request has completed instead.
    fn begin(&mut self, index: usize, now: Instant) -> bool {
        let Self { inner, faults, requests, spare, .. } = self;
        let block = u64::from(inner.limits().logical_block_bytes);
        let request = &mut requests[index];
        let Request { ref io, done, is_stalled, .. } = *request;
        let rest = io.extent.split_at(done / SECTOR_BYTES).1;
        let outcome = faults.draw(io.op, rest, block, if is_stalled { block } else { 1 });
        let bytes = match outcome {
            Outcome::Whole => rest.bytes(),
            Outcome::Short(bytes) | Outcome::Error(bytes, _) => bytes / block * block,
        };
        if bytes == 0 && outcome != Outcome::Whole {
            return self.end_transfer(index, outcome, Ok(()));
        }
        let mut segments = spare.pop().unwrap_or_default();
        segments.clear();
        part_of(&io.segments, done, bytes, &mut segments);
        let part = rest.split_at(bytes / SECTOR_BYTES).0;
        if inner.submit(&io.part(part, &segments), now).is_ok() {
            request.stage = Stage::AtInner(outcome);
            self.at_inner += 1;
        }
        spare.push(segments);
        false
    }

    /// Processes the end of a transfer. Returns whether its request has completed.
    fn end_transfer(&mut self, index: usize, outcome: Outcome, result: Result<(), IoError>) -> bool {
        let block = u64::from(self.inner.limits().logical_block_bytes);
        let request = &mut self.requests[index];
        let result = match (result, outcome) {
            (Err(error), _) | (Ok(()), Outcome::Error(_, error)) => Err(error),
            (Ok(()), Outcome::Whole) => Ok(()),
            (Ok(()), Outcome::Short(bytes)) => {
                // A transfer continues at a whole block.
                request.done += bytes / block * block;
                request.is_stalled = bytes < block;
                request.stage = Stage::Waiting;
                return false;
            }
        };
        let OwnedIo { tag, op, segments, .. } = self.requests.swap_remove(index).io;
        if op == Op::Flush && matches!(outcome, Outcome::Error(..)) {
            self.faults.on_failed_flush();
        }
        self.spare.push(segments);
        self.completed.push_back(Completion { tag, result });
        true
    }

    fn collect(&mut self, now: Instant) {
        self.now = now;
        while let Some(Completion { tag, result }) = self.inner.poll_completion(now) {
            let index = self.requests.iter().position(|request| request.io.tag == tag);
            let index = index.expect("the inner device completes only requests of this one");
            let Stage::AtInner(outcome) = self.requests[index].stage else {
                unreachable!("completed before it was submitted")
            };
            self.at_inner -= 1;
            self.end_transfer(index, outcome, result);
        }
    }
}

/// The `bytes` bytes of `segments` after the first `done`.
fn part_of<M: Memory>(segments: &[M], mut done: u64, mut bytes: u64, part: &mut Vec<M>) {
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

impl<D: BlockDevice, F: FaultSource> BlockDevice for FaultyDevice<D, F> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.now = now;
        if self.in_flight() >= self.limits().depth_max {
            return Err(Busy { tag: io.tag });
        }
        let io = OwnedIo::new(io, self.spare.pop().unwrap_or_default());
        self.requests.push(Request { io, done: 0, stage: Stage::Waiting, is_stalled: false });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.now = now;
        self.begin_waiting(now);
        self.begin_one(now);
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        if self.completed.is_empty() {
            self.collect(now);
        }
        if self.completed.is_empty() && !self.requests.is_empty() {
            self.advance(now);
            self.inner.commit(now);
            self.collect(now);
        }
        self.completed.pop_front()
    }

    /// The earliest of three times: now, if completions are ready; after a short delay, if the inner device refuses
    /// every request; the inner device's own time.
    fn poll_timeout(&self) -> Option<Instant> {
        let ready = (!self.completed.is_empty()).then_some(self.now);
        let is_refused = !self.requests.is_empty() && self.at_inner == 0;
        let retry = is_refused.then(|| self.now + RETRY_AFTER);
        [ready, retry, self.inner.poll_timeout()].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::request::Tag;
    use crate::block::timed_disk::{SERVICE, TimedDisk};
    use crate::memory::LengthOnly;
    use crate::sector::{Extent, Sector};

    /// Reads `count` extents of 16 blocks and follows the timeout. Returns the completions in order, and the time at
    /// the end.
    fn run(device: &mut FaultyDevice<TimedDisk>, count: u32) -> (Vec<(u64, Completion)>, Instant) {
        let (mut now, mut completions) = (Instant::ZERO, Vec::new());
        for index in 0..count {
            let extent = Extent::new(Sector(u64::from(index) * 128), 128).unwrap();
            let memory = [LengthOnly::new(20_480), LengthOnly::new(45_056)];
            device.submit(&Io::new(Tag::from_bits(index), Op::Read, extent, &memory), now).unwrap();
        }
        device.commit(now);
        while device.in_flight() > 0 {
            now = now.max(device.poll_timeout().expect("requests in flight have a time"));
            while let Some(done) = device.poll_completion(now) {
                completions.push((now.saturating_since(Instant::ZERO).as_micros() as u64, done));
            }
            device.commit(now);
        }
        (completions, now)
    }

    fn faulty(seed: u64, is_shuffled: bool) -> FaultyDevice<TimedDisk> {
        let mut plan = FaultPlan::new(seed);
        plan.add(Fault::error(IoError::Media).one_in(7));
        plan.add(Fault::short().one_in(2));
        plan.shuffle(is_shuffled);
        FaultyDevice::new(TimedDisk::new(64, 4096), plan)
    }

    #[test]
    fn a_seed_decides_faults_and_order_in_virtual_time() {
        let lives: Vec<_> = [1, 1, 2].map(|seed| run(&mut faulty(seed, true), 64)).into();
        assert_eq!(lives[0], lives[1]);
        assert_ne!(lives[0], lives[2]);
        for (completions, _) in &lives {
            assert_eq!(completions.len(), 64, "each request completes once");
            let failed = completions.iter().filter(|(_, done)| done.result.is_err()).count();
            assert!((1..63).contains(&failed), "{failed} of 64 failed");
            assert!(!completions.is_sorted_by_key(|(_, done)| done.tag.to_bits()), "the order is shuffled");
        }
    }

    #[test]
    fn a_short_transfer_is_continued_at_a_whole_block_until_all_is_done() {
        for seed in 0..50 {
            let mut plan = FaultPlan::new(seed);
            plan.add(Fault::short());
            let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
            let (completions, end) = run(&mut device, 4);
            assert!(completions.iter().all(|(_, done)| done.result.is_ok()));
            assert_eq!(device.inner().sectors_moved, 4 * 128, "each sector moves once");
            assert!(end > Instant::ZERO + SERVICE, "more than one transfer each");
        }
    }

    #[test]
    fn an_error_in_an_extent_moves_no_sector_of_it() {
        let bad = Extent::new(Sector(128 + 64), 8).unwrap();
        let mut plan = FaultPlan::new(3);
        plan.add(Fault::error(IoError::Media).within(bad).times(1));
        let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
        let (completions, _) = run(&mut device, 2);
        let failed: Vec<_> = completions.iter().filter(|(_, done)| done.result.is_err()).collect();
        assert!(matches!(failed[..], [(_, Completion { result: Err(IoError::Media), .. })]));
        assert!(device.inner().sectors_moved <= 128 + 64);
        assert_eq!(device.faults_mut().injected(), 1);
    }

    #[test]
    fn a_completion_without_a_request_at_the_inner_device_is_due_at_once() {
        let mut plan = FaultPlan::new(0);
        plan.add(Fault::error(IoError::Media).on(Op::Flush));
        let mut device = FaultyDevice::new(TimedDisk::new(64, 4096), plan);
        let now = Instant::ZERO + SERVICE;
        let io = Io::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]);
        device.submit(&io, now).unwrap();
        device.commit(now);
        assert_eq!(device.poll_timeout(), Some(now));
        assert!(device.poll_completion(now).is_some_and(|done| done.result == Err(IoError::Media)));
        assert_eq!(device.poll_timeout(), None);
    }
}
