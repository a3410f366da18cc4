//! A device that injects faults into another: it changes, delays, divides or omits the requests that it passes on.
//! `fault/kind.rs` lists the faults; `fault/plan.rs` decides which requests get one. This device sees no bytes: a fault
//! that needs them, bit rot, is executed by their owner in [`FaultSource::on_damage`]. A power failure is no fault of a
//! request: the owner of the bytes chooses the unflushed writes that survive.

mod kind;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;

use crate::block::bio::Op;
use crate::block::device::{BlockDevice, Busy, Completion, Io, OwnedIo};
use crate::block::limits::Limits;
use crate::block::request::Tag;
use crate::error::IoError;
use crate::memory::Memory;
use crate::sector::{Extent, SECTOR_BYTES, Sector};
use crate::time::{Duration, Instant};

pub use kind::{Damage, FAULTS, Fault, FaultKind, Outcome};
pub use plan::{FaultPlan, FaultSource};

/// The delay before a retry at the inner device, when it is busy while it has no request of this device.
const RETRY_AFTER: Duration = Duration::from_millis(1);

/// The number of random places tried for a misdirected write.
const PLACES_MAX: u32 = 8;

/// A device with faults. Each transfer of a request is one request of the inner device. After a short transfer, the
/// device submits the rest.
///
/// Deterministic: the same requests, calls and seed give the same faults and the same order.
pub struct FaultyDevice<D: BlockDevice, F = FaultPlan> {
    // Dropped first: a real device waits for its requests in flight.
    inner: D,
    faults: F,
    requests: Vec<Request<D::Memory>>,
    /// Requests with a transfer at the inner device.
    at_inner: u32,
    /// Delayed and stuck requests.
    held: u32,
    /// The extents of misdirected writes at the inner device, which get no other request meanwhile.
    misdirected: Vec<(Tag, Extent)>,
    completed: VecDeque<Completion>,
    /// Unused segment lists.
    spare: Vec<Vec<D::Memory>>,
    /// The time of the last call.
    now: Instant,
}

impl<D: BlockDevice + fmt::Debug, F: fmt::Debug> fmt::Debug for FaultyDevice<D, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyDevice")
            .field("inner", &self.inner)
            .field("faults", &self.faults)
            .field("at_inner", &self.at_inner)
            .field("held", &self.held)
            .field("completed", &self.completed.len())
            .finish_non_exhaustive()
    }
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
    /// Delayed or stuck: waits until this time, if any, or until the number of releases differs from this one.
    Held(Option<Instant>, u64),
    /// Its delay is over: the next transfer has no fault.
    Released,
    /// A transfer with this outcome is at the inner device.
    AtInner(Outcome),
}

impl<D: BlockDevice, F: FaultSource> FaultyDevice<D, F> {
    /// Injects the faults of `faults` into `inner`, which must have no request in flight.
    pub fn new(inner: D, faults: F) -> Self {
        Self {
            inner,
            faults,
            requests: Vec::new(),
            at_inner: 0,
            held: 0,
            misdirected: Vec::new(),
            completed: VecDeque::new(),
            spare: Vec::new(),
            now: Instant::ZERO,
        }
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

    /// Delayed and stuck requests. The inner device has no notification for the end of their wait.
    pub const fn held(&self) -> u32 {
        self.held
    }

    /// Collects the inner device's completions and submits further transfers to it. While any request waits that is
    /// neither delayed nor stuck, at least one transfer is at the inner device. Commit the inner device afterwards.
    pub fn advance(&mut self, now: Instant) {
        self.collect(now);
        self.begin_waiting(now);
        self.begin_one(now);
        self.collect(now);
    }

    /// Begins the waiting requests: all, or a random choice of them when shuffled.
    fn begin_waiting(&mut self, now: Instant) {
        self.release_due(now);
        let is_shuffled = self.faults.is_shuffled();
        let mut index = 0;
        while index < self.requests.len() {
            let waits = self.can_begin(&self.requests[index]);
            // If a request completes at once, another request moves to its index.
            if !waits || is_shuffled && self.faults.below(2) == 0 || !self.begin(index, now) {
                index += 1;
            }
        }
    }

    /// Begins a request if none is at the inner device, so that the shuffle cannot hold all requests back.
    fn begin_one(&mut self, now: Instant) {
        if self.requests.is_empty() || self.at_inner > 0 || !self.completed.is_empty() {
            return;
        }
        let waiting = |device: &Self, index: &usize| device.can_begin(&device.requests[*index]);
        let count = (0..self.requests.len()).filter(|index| waiting(self, index)).count();
        let any = if count > 1 && self.faults.is_shuffled() { self.faults.below(count as u64) } else { 0 };
        let nth = (0..self.requests.len()).filter(|index| waiting(self, index)).nth(any as usize);
        if let Some(index) = nth {
            self.begin(index, now);
        }
    }

    fn can_begin(&self, request: &Request<D::Memory>) -> bool {
        let waits = matches!(request.stage, Stage::Waiting | Stage::Released);
        waits && !self.misdirected.iter().any(|(_, place)| place.overlaps(request.io.extent))
    }

    /// Submits the next transfer of a request. Returns whether the request has completed instead.
    fn begin(&mut self, index: usize, now: Instant) -> bool {
        let block = u64::from(self.inner.limits().logical_block_bytes);
        let Request { ref io, done, is_stalled, stage } = self.requests[index];
        let (tag, op) = (io.tag, io.op);
        let rest = io.extent.split_at(done / SECTOR_BYTES).1;
        let outcome = match stage {
            Stage::Waiting => self.faults.draw(op, rest, block, if is_stalled { block } else { 1 }),
            Stage::Held(..) | Stage::Released | Stage::AtInner(_) => Outcome::Whole,
        };
        let (bytes, place) = match outcome {
            Outcome::Delayed(_) | Outcome::Stuck => {
                self.hold(index, outcome, now);
                return false;
            }
            Outcome::Short { moved } | Outcome::Error { moved, .. } => (moved / block * block, rest.start()),
            Outcome::Omitted { moved, .. } => (moved, rest.start()),
            Outcome::Misdirected => (rest.bytes(), self.other_place(op, rest).unwrap_or(rest).start()),
            Outcome::BitFlipped { bit } => {
                let offset = rest.offset() + bit / 8;
                let bit = (bit % 8) as u8;
                self.faults.on_damage(Damage::BitFlipped { offset, bit });
                (rest.bytes(), rest.start())
            }
            Outcome::Whole => (rest.bytes(), rest.start()),
        };
        if bytes == 0 && op != Op::Flush || matches!(outcome, Outcome::Error { moved: 0, .. }) {
            self.report(outcome, rest, rest);
            return self.end_transfer(index, outcome, Ok(()));
        }
        let Self { inner, requests, spare, .. } = self;
        let request = &mut requests[index];
        let mut segments = spare.pop().unwrap_or_default();
        segments.clear();
        part_of(&request.io.segments, done, bytes, &mut segments);
        let part = Extent::new(place, bytes / SECTOR_BYTES).expect("a place is on the device");
        let is_accepted = inner.submit(&request.io.part(part, &segments), now).is_ok();
        spare.push(segments);
        if is_accepted {
            request.stage = Stage::AtInner(outcome);
            self.at_inner += 1;
            if outcome == Outcome::Misdirected && part.start() != rest.start() {
                self.misdirected.push((tag, part));
            }
            self.report(outcome, rest, part);
        }
        false
    }

    fn hold(&mut self, index: usize, outcome: Outcome, now: Instant) {
        let until = match outcome {
            Outcome::Delayed(delay) => Some(now + delay),
            _ => None,
        };
        self.requests[index].stage = Stage::Held(until, self.faults.releases());
        self.held += 1;
    }

    /// A random place for a misdirected write, outside all requests.
    fn other_place(&mut self, op: Op, extent: Extent) -> Option<Extent> {
        let Self { inner, faults, requests, .. } = self;
        let limits = inner.limits();
        let block = limits.block_sectors();
        let places = limits.capacity.checked_sub(extent.sectors())? / block + 1;
        (0..PLACES_MAX).find_map(|_| {
            let place = Extent::new(Sector(faults.below(places) * block), extent.sectors())?;
            let is_free = !requests.iter().any(|request| request.io.extent.overlaps(place));
            (is_free && limits.fits(op, place)).then_some(place)
        })
    }

    /// Reports the damage of a silent fault of a transfer: `rest` is the rest of its request, `place` the extent
    /// written.
    fn report(&mut self, outcome: Outcome, rest: Extent, place: Extent) {
        match outcome {
            Outcome::Omitted { moved, omitted } => {
                let after = rest.split_at(moved / SECTOR_BYTES).1;
                self.faults.on_damage(Damage::NotWritten(after.split_at(omitted / SECTOR_BYTES).0));
            }
            Outcome::Misdirected if place != rest => {
                self.faults.on_damage(Damage::NotWritten(rest));
                self.faults.on_damage(Damage::Overwritten(place));
            }
            _ => {}
        }
    }

    /// Processes the end of a transfer. Returns whether its request has completed.
    fn end_transfer(&mut self, index: usize, outcome: Outcome, result: Result<(), IoError>) -> bool {
        let block = u64::from(self.inner.limits().logical_block_bytes);
        let request = &mut self.requests[index];
        let result = match (result, outcome) {
            (Err(error), _) | (Ok(()), Outcome::Error { error, .. }) => Err(error),
            (Ok(()), Outcome::Short { moved }) => {
                // A transfer continues at a whole block.
                request.done += moved / block * block;
                request.is_stalled = moved < block;
                request.stage = Stage::Waiting;
                return false;
            }
            (Ok(()), Outcome::Omitted { moved, omitted }) => {
                request.done += moved + omitted;
                if request.done < request.io.extent.bytes() {
                    request.stage = Stage::Waiting;
                    return false;
                }
                Ok(())
            }
            (Ok(()), _) => Ok(()),
        };
        let OwnedIo { tag, op, segments, .. } = self.requests.swap_remove(index).io;
        if op == Op::Flush && matches!(outcome, Outcome::Error { .. }) {
            self.faults.on_failed_flush();
        }
        self.spare.push(segments);
        self.completed.push_back(Completion { tag, result });
        true
    }

    /// Ends the waits of held requests that are over.
    fn release_due(&mut self, now: Instant) {
        if self.held == 0 {
            return;
        }
        let releases = self.faults.releases();
        for request in &mut self.requests {
            if let Stage::Held(until, held_at) = request.stage
                && (held_at != releases || until.is_some_and(|until| until <= now))
            {
                request.stage = Stage::Released;
                self.held -= 1;
            }
        }
    }

    /// The time at which the first wait of a held request ends.
    fn held_until(&self) -> Option<Instant> {
        let releases = self.faults.releases();
        let ends = self.requests.iter().filter_map(|request| match request.stage {
            Stage::Held(until, held_at) if held_at == releases => until,
            Stage::Held(..) => Some(self.now),
            Stage::Waiting | Stage::Released | Stage::AtInner(_) => None,
        });
        ends.min()
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
            self.misdirected.retain(|(misdirected, _)| *misdirected != tag);
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

    /// The earliest of four times: now, if completions are ready; the end of a delay; after a short time, if the inner
    /// device refuses every request; the inner device's own time.
    fn poll_timeout(&self) -> Option<Instant> {
        let ready = (!self.completed.is_empty()).then_some(self.now);
        let is_refused = self.requests.len() > self.held as usize && self.at_inner == 0;
        let retry = is_refused.then(|| self.now + RETRY_AFTER);
        let held = if self.held > 0 { self.held_until() } else { None };
        [ready, retry, held, self.inner.poll_timeout()].into_iter().flatten().min()
    }
}
