//! A model as a block device: the limits of its parameters around one of the mechanisms. No mechanism itself.

use std::collections::VecDeque;
use std::marker::PhantomData;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, Memory, Op, Tag};

use crate::cloud::Cloud;
use crate::disk::Disk;
use crate::flash::Flash;
use crate::mechanism::{Mechanism, Nanos, Request};
use crate::model::{Model, Spec};

/// Requests after this time fail: 146 years after the start. Parameters keep every service time far below the other 438
/// years that the clock has.
const LAST_START: Nanos = 1 << 62;

/// EOVERFLOW: the time of the completion does not fit.
const OVERFLOW: IoError = IoError::Os(75);

/// A modelled device. It moves no data: memory of any kind keeps its contents.
///
/// A request outside of the device fails with [`IoError::EndOfDevice`], an operation that the device does not support with
/// [`IoError::Unsupported`], and a request later than 146 years after the start with `EOVERFLOW`.
#[derive(Debug)]
pub struct ModelDevice<M> {
    limits: Limits,
    mechanism: Any,
    /// Requests that no mechanism has seen.
    failed: VecDeque<Completion>,
    in_flight: u32,
    memory: PhantomData<fn() -> M>,
    /// The time of the last call.
    now: Nanos,
}

/// The mechanisms, dispatched without an indirect call.
#[derive(Debug)]
enum Any {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
    Cloud(Box<Cloud>),
}

impl<M: Memory> ModelDevice<M> {
    /// The device of `model`. All that is random in it comes from `seed`.
    pub fn new(model: &Model, seed: u64) -> Self {
        let limits = model.limits().clone();
        let mechanism = match model.spec() {
            Spec::Disk(spec) => Any::Disk(Box::new(Disk::new(spec))),
            Spec::Flash(spec) => Any::Flash(Box::new(Flash::new(spec, limits.depth_max))),
            Spec::Cloud(spec) => Any::Cloud(Box::new(Cloud::new(spec, limits.depth_max, seed))),
        };
        let failed = VecDeque::with_capacity(limits.depth_max as usize);
        Self { limits, mechanism, failed, in_flight: 0, memory: PhantomData, now: 0 }
    }

    /// Requests submitted and not yet polled.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Why the request cannot be carried out.
    fn refusal(&self, io: &Io<'_, M>, now: Nanos) -> Option<IoError> {
        if now > LAST_START {
            return Some(OVERFLOW);
        }
        if io.op == Op::Flush {
            return None;
        }
        if io.extent.end().0 > self.limits.capacity {
            return Some(IoError::EndOfDevice);
        }
        (self.limits.sectors_max(io.op) == 0).then_some(IoError::Unsupported)
    }
}

/// Calls a method of the mechanism.
macro_rules! mechanism {
    ($of:expr, $mechanism:ident => $call:expr) => {
        match $of {
            Any::Disk($mechanism) => $call,
            Any::Flash($mechanism) => $call,
            Any::Cloud($mechanism) => $call,
        }
    };
}

impl<M: Memory> BlockDevice for ModelDevice<M> {
    type Memory = M;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, M>, now: Instant) -> Result<(), Busy> {
        let now = now.as_nanos().max(self.now);
        self.now = now;
        if self.in_flight >= self.limits.depth_max {
            return Err(Busy { tag: io.tag });
        }
        self.in_flight += 1;
        if let Some(error) = self.refusal(io, now) {
            self.failed.push_back(Completion { tag: io.tag, result: Err(error) });
            return Ok(());
        }
        let request = Request { tag: io.tag, op: io.op, extent: io.extent, fua: io.fua };
        mechanism!(&mut self.mechanism, mechanism => mechanism.submit(request, now));
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.now = now.as_nanos().max(self.now);
        mechanism!(&mut self.mechanism, mechanism => mechanism.commit(self.now));
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.now = now.as_nanos().max(self.now);
        let done = if let Some(failed) = self.failed.pop_front() {
            failed
        } else {
            let tag: Tag = mechanism!(&mut self.mechanism, mechanism => mechanism.poll(self.now))?;
            Completion { tag, result: Ok(()) }
        };
        self.in_flight -= 1;
        Some(done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.failed.is_empty() {
            return Some(Instant::from_nanos(self.now));
        }
        mechanism!(&self.mechanism, mechanism => mechanism.next_event()).map(Instant::from_nanos)
    }
}
