//! The devices of models that contain another model. Executes each event at its own time, independent of how often the
//! caller polls. `layer.rs` has the parameters.

use std::collections::VecDeque;

use iopath_core::mapped::{LengthOnlyHost, MappedDevice};
use iopath_core::{
    BlockDevice, Busy, Completion, Duration, Extent, Fault, FaultPlan, FaultyDevice, Instant, Io, IoError,
    Limits, ModelMemory, Op, Stripe,
};

use crate::delay::{Delay, Throttle};
use crate::host::Host;
use crate::layer::Layer;
use crate::link::Link;
use crate::stage::Staged;

/// After this number of rounds without progress, all events of a point in time count as executed.
const IDLE_ROUNDS_MAX: u32 = 2;

/// The shortest time of a request to a mapped file. A read of a hole needs no I/O, but a workload of such reads must
/// end.
const MAPPED_MIN: Duration = Duration::from_nanos(1);

/// A layer over devices `D`, with the completions that the caller has not polled.
#[derive(Debug)]
pub(crate) struct Layered<D: BlockDevice<Memory: ModelMemory>> {
    device: Any<D>,
    /// In the order of time.
    ready: VecDeque<(Instant, Completion)>,
    /// The time of the last submission.
    submitted: Instant,
    now: Instant,
}

#[derive(Debug)]
enum Any<D: BlockDevice<Memory: ModelMemory>> {
    Target(Box<Staged<Staged<D, Host>, Link>>),
    Stripe(Stripe<D>),
    Mapped(Box<MappedDevice<D, LengthOnlyHost<D::Memory>>>),
    Delay(Staged<D, Delay>),
    Throttle(Staged<D, Throttle>),
    Faulty(FaultyDevice<D>),
}

/// Calls a method of the device of any layer.
macro_rules! device {
    ($of:expr, $device:ident => $call:expr) => {
        match $of {
            Any::Target($device) => $call,
            Any::Stripe($device) => $call,
            Any::Mapped($device) => $call,
            Any::Delay($device) => $call,
            Any::Throttle($device) => $call,
            Any::Faulty($device) => $call,
        }
    };
}

impl<D: BlockDevice<Memory: ModelMemory>> Layered<D> {
    /// The layer over devices that `below` makes, each with a seed of its own.
    pub(crate) fn new(layer: &Layer, seed: u64, below: impl Fn(u64) -> D) -> Self {
        let device = match layer {
            Layer::Target(target) => {
                let served = Staged::new(below(seed), Host::new(&target.host));
                Any::Target(Box::new(Staged::new(served, Link::new(&target.link))))
            }
            Layer::Stripe { members, config } => {
                let members = (0..*members as u64).map(|member| below(seed_of(seed, member))).collect();
                Any::Stripe(Stripe::new(members, config).expect("the limits of the members were checked"))
            }
            Layer::Mapped(mapped) => {
                let device = MappedDevice::without_bytes(below(seed), mapped.file(), mapped.boundary);
                Any::Mapped(Box::new(device.expect("the limits of the device were checked")))
            }
            Layer::Delay(extra) => Any::Delay(Staged::new(below(seed), Delay::new(*extra))),
            Layer::Throttle { ios_per_s, bytes_per_s } => {
                Any::Throttle(Staged::new(below(seed), Throttle::new(*ios_per_s, *bytes_per_s)))
            }
            Layer::Faulty { error_one_in, short_one_in, is_shuffled } => {
                let mut plan = FaultPlan::new(seed);
                let faults = [(Fault::error(IoError::Media), error_one_in), (Fault::short(), short_one_in)];
                for (fault, &requests) in faults.into_iter().filter(|(_, requests)| **requests > 0) {
                    plan.add(fault.one_in(requests));
                }
                plan.shuffle(*is_shuffled);
                Any::Faulty(FaultyDevice::new(below(seed), plan))
            }
        };
        Self { device, ready: VecDeque::new(), submitted: Instant::ZERO, now: Instant::ZERO }
    }

    /// Executes every event that is due, each at its own time.
    fn advance(&mut self, now: Instant) {
        let mut idle_rounds = 0;
        while let Some(at) = device!(&self.device, device => device.poll_timeout()).filter(|&at| at <= now) {
            let at = at.max(self.now);
            let ready = self.ready.len();
            idle_rounds = if at > self.now { 0 } else { idle_rounds + 1 };
            self.now = at;
            let is_hole = matches!(self.device, Any::Mapped(_)) && at == self.submitted;
            let due = if is_hole { at + MAPPED_MIN } else { at };
            device!(&mut self.device, device => {
                while let Some(done) = device.poll_completion(at) {
                    self.ready.push_back((due, done));
                }
                device.commit(at);
            });
            if self.ready.len() > ready {
                idle_rounds = 0;
            } else if idle_rounds > IDLE_ROUNDS_MAX {
                break;
            }
        }
        self.now = now.max(self.now);
    }

    pub(crate) fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        self.advance(now);
        self.submitted = self.now;
        device!(&mut self.device, device => device.submit(io, now))
    }

    pub(crate) fn commit(&mut self, now: Instant) {
        self.advance(now);
        device!(&mut self.device, device => device.commit(now));
    }

    pub(crate) fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.advance(now);
        let is_due = self.ready.front().is_some_and(|(due, _)| *due <= now);
        if is_due { self.ready.pop_front().map(|(_, done)| done) } else { None }
    }

    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        let ready = self.ready.front().map(|(due, _)| *due);
        [ready, device!(&self.device, device => device.poll_timeout())].into_iter().flatten().min()
    }
}

/// Whether a request is within the limits that the devices of the core rely on.
pub(crate) fn keeps(limits: &Limits, op: Op, extent: Extent) -> bool {
    op == Op::Flush || !extent.is_empty() && limits.is_whole_blocks(extent) && limits.fits(op, extent)
}

/// The seed of a member: different for each, and never that of its stripe.
const fn seed_of(seed: u64, member: u64) -> u64 {
    seed.wrapping_add((member + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))
}
