//! A model as a block device: applies the limits of the model, and passes requests to the mechanism of its kind. It
//! contains no mechanism.

use std::collections::VecDeque;

use iopath_core::{BlockDevice, Busy, Completion, Instant, Io, IoError, Limits, ModelMemory, Op};

use crate::cloud::Cloud;
use crate::disk::Disk;
use crate::flash::Flash;
use crate::layered::{self, Layered};
use crate::mechanism::{Mechanism, Nanos, Request};
use crate::model::{Model, Spec};

/// Requests after this time, 146 years after the start, fail. The ranges of the parameters keep every service time far
/// below the remaining 438 years of the clock.
const LAST_START: Nanos = 1 << 62;

/// EOVERFLOW: the clock cannot represent the time of the completion.
const OVERFLOW: IoError = IoError::Os(75);

/// A modelled device. It moves no data: a read leaves the memory unchanged.
///
/// A request outside of the device fails with [`IoError::EndOfDevice`]. An operation that the device does not support
/// fails with [`IoError::Unsupported`]. A request later than 146 years after the start fails with `EOVERFLOW`. A model
/// that contains another model also refuses requests that violate its limits, with [`IoError::Alignment`].
#[derive(Debug)]
pub struct ModelDevice<M: ModelMemory> {
    limits: Limits,
    mechanism: Any<M>,
    /// Completions of requests that the device fails itself, without its mechanism.
    failed: VecDeque<Completion>,
    in_flight: u32,
    /// The time of the last call.
    now: Nanos,
}

/// The mechanisms, dispatched without an indirect call.
#[derive(Debug)]
enum Any<M: ModelMemory> {
    Disk(Box<Disk>),
    Flash(Box<Flash>),
    Cloud(Box<Cloud>),
    /// A layer over complete devices. It refuses, fails and completes requests itself.
    Layered(Box<Layered<ModelDevice<M>>>),
}

impl<M: ModelMemory> ModelDevice<M> {
    /// The device of `model`. Every random choice derives from `seed`.
    pub fn new(model: &Model, seed: u64) -> Self {
        Self::of(model.spec(), model.limits(), seed)
    }

    fn of(spec: &Spec, limits: &Limits, seed: u64) -> Self {
        let depth = limits.depth_max;
        let mechanism = match spec {
            Spec::Disk(spec) => Any::Disk(Box::new(Disk::new(spec))),
            Spec::Flash(spec) => Any::Flash(Box::new(Flash::new(spec, depth))),
            Spec::Cloud(spec) => Any::Cloud(Box::new(Cloud::new(spec, depth, seed))),
            Spec::Layered(spec) => {
                let below = |seed| Self::of(&spec.device, &spec.device_limits, seed);
                Any::Layered(Box::new(Layered::new(&spec.layer, seed, below)))
            }
        };
        let failed = VecDeque::with_capacity(depth as usize);
        Self { limits: limits.clone(), mechanism, failed, in_flight: 0, now: 0 }
    }

    /// Requests submitted and not yet polled.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The error of a request that the device cannot execute.
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
        if self.limits.sectors_max(io.op) == 0 {
            return Some(IoError::Unsupported);
        }
        let is_layered = matches!(self.mechanism, Any::Layered(_));
        (is_layered && !layered::keeps(&self.limits, io.op, io.extent)).then_some(IoError::Alignment)
    }
}

/// Calls a method of the mechanism, or evaluates the second expression for a layer.
macro_rules! mechanism {
    ($of:expr, $mechanism:ident => $call:expr, $layered:ident => $at_layered:expr) => {
        match $of {
            Any::Disk($mechanism) => $call,
            Any::Flash($mechanism) => $call,
            Any::Cloud($mechanism) => $call,
            Any::Layered($layered) => $at_layered,
        }
    };
}

impl<M: ModelMemory> BlockDevice for ModelDevice<M> {
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
        mechanism!(
            &mut self.mechanism,
            mechanism => mechanism.submit(request, now),
            layered => {
                let sent = layered.submit(io, Instant::from_nanos(now));
                return sent.inspect_err(|_| self.in_flight -= 1);
            }
        );
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.now = now.as_nanos().max(self.now);
        mechanism!(&mut self.mechanism, mechanism => mechanism.commit(self.now), layered => layered.commit(now));
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.now = now.as_nanos().max(self.now);
        let done = if let Some(failed) = self.failed.pop_front() {
            failed
        } else {
            mechanism!(
                &mut self.mechanism,
                mechanism => Completion { tag: mechanism.poll(self.now)?, result: Ok(()) },
                layered => layered.poll_completion(now)?
            )
        };
        debug_assert!(self.in_flight > 0, "{:?} completes twice", done.tag);
        self.in_flight -= 1;
        Some(done)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        if !self.failed.is_empty() {
            return Some(Instant::from_nanos(self.now));
        }
        mechanism!(
            &self.mechanism,
            mechanism => mechanism.next_event().map(Instant::from_nanos),
            layered => layered.poll_timeout()
        )
    }
}
