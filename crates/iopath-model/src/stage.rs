//! Middleware that delays requests: each request passes a stage on its way to a device, and each completion passes it
//! on its way back. The stages are in `delay.rs`, `link.rs` and `host.rs`.

use std::collections::VecDeque;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Op, OwnedIo, Tag};

use crate::event_loop::earlier;
use crate::schedule::Schedule;

/// The properties of a request that a stage can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Passage {
    /// The operation.
    pub op: Op,
    /// Bytes of the extent.
    pub bytes: u64,
    /// Segments of memory.
    pub segments: u32,
}

/// A stage between queue and device. It calculates the time that a request takes to pass.
///
/// Calls are in the order of time. So a stage that serves one request at a time only stores the time at which it
/// becomes free.
pub trait Stage {
    /// The time at which a request that enters at `now` reaches the device.
    fn enter(&mut self, request: &Passage, now: Instant) -> Instant;

    /// The time at which a completion that leaves the device at `now` reaches the caller.
    fn leave(&mut self, request: &Passage, now: Instant) -> Instant;
}

/// A device behind a stage, with the limits of the device. Completion times do not depend on when the caller polls.
#[derive(Debug)]
pub struct Staged<D: BlockDevice, S> {
    inner: D,
    stage: S,
    held: Vec<Held<D::Memory>>,
    free: Vec<u32>,
    /// Requests on the way to the device.
    entering: Schedule<u32>,
    /// Requests that the device has refused because it had no room.
    refused: VecDeque<u32>,
    /// Completions on the way back.
    leaving: Schedule<u32>,
    now: Instant,
}

/// A request from submission to completion. Its index is its tag at the device.
#[derive(Debug)]
struct Held<M> {
    io: OwnedIo<M>,
    result: Result<(), IoError>,
}

impl<M> Held<M> {
    fn passage(&self) -> Passage {
        let OwnedIo { op, extent, segments, .. } = &self.io;
        Passage { op: *op, bytes: extent.bytes(), segments: segments.len() as u32 }
    }
}

impl<D: BlockDevice, S: Stage> Staged<D, S> {
    /// Puts `stage` in front of `inner`, which must have no request in flight.
    pub fn new(inner: D, stage: S) -> Self {
        let depth = inner.limits().depth_max;
        let held = |_| Held { io: OwnedIo::default(), result: Ok(()) };
        Self {
            held: (0..depth).map(held).collect(),
            free: (0..depth).rev().collect(),
            entering: Schedule::default(),
            refused: VecDeque::new(),
            leaving: Schedule::default(),
            now: Instant::ZERO,
            inner,
            stage,
        }
    }

    /// The device.
    pub const fn inner(&self) -> &D {
        &self.inner
    }

    /// The stage.
    pub const fn stage(&self) -> &S {
        &self.stage
    }

    /// Executes every event that is due, each at its own time.
    fn advance(&mut self, now: Instant) {
        while let Some(at) = self.next_step().filter(|&at| at <= now) {
            self.step(at.max(self.now));
        }
        self.now = now.max(self.now);
    }

    fn next_step(&self) -> Option<Instant> {
        earlier(self.entering.next().map(Instant::from_nanos), self.inner.poll_timeout())
    }

    fn step(&mut self, at: Instant) {
        self.now = at;
        while let Some(Completion { tag, result }) = self.inner.poll_completion(at) {
            let index = tag.to_bits();
            let held = &mut self.held[index as usize];
            held.result = result;
            let left = self.stage.leave(&held.passage(), at);
            self.leaving.push(index, left.max(at).as_nanos());
        }
        while let Some((_, index)) = self.entering.pop(at.as_nanos()) {
            self.refused.push_back(index);
        }
        while let Some(&index) = self.refused.front() {
            let io = self.held[index as usize].io.io(Tag::from_bits(index));
            if self.inner.submit(&io, at).is_err() {
                break;
            }
            self.refused.pop_front();
        }
        self.inner.commit(at);
    }
}

impl<D: BlockDevice, S: Stage> BlockDevice for Staged<D, S> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.advance(now);
        let Some(index) = self.free.pop() else { return Err(Busy { tag: io.tag }) };
        let held = &mut self.held[index as usize];
        held.io = OwnedIo::new(io, std::mem::take(&mut held.io.segments));
        let entered = self.stage.enter(&held.passage(), now);
        self.entering.push(index, entered.max(now).as_nanos());
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.advance(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.advance(now);
        let (_, index) = self.leaving.pop(now.as_nanos())?;
        self.free.push(index);
        let held = &self.held[index as usize];
        Some(Completion { tag: held.io.tag, result: held.result })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.leaving.next().map(Instant::from_nanos), self.next_step())
    }
}
