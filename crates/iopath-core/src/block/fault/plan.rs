//! Selects the requests that fail, by rules and by random numbers from a seed. `fault.rs` executes the failures.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use crate::block::bio::Op;
use crate::error::IoError;
use crate::sector::Extent;

/// A rule: a fault, and the requests that get it.
///
/// ```
/// use iopath_core::{Extent, Fault, IoError, Op};
///
/// let bad_sector = Fault::error(IoError::Media).on(Op::Read).within(Extent::from_bytes(8192, 512).unwrap());
/// let short_transfers = Fault::short().one_in(20);
/// let first_flush = Fault::error(IoError::Media).on(Op::Flush).times(1);
/// # let _ = (bad_sector, short_transfers, first_flush);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    kind: Kind,
    op: Option<Op>,
    extent: Option<Extent>,
    one_in: u64,
    times: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Error(IoError),
    Short,
}

impl Fault {
    /// The device executes a random number of blocks of the request, from none to all, then fails the request with
    /// `error`. With [`Fault::within`], it executes at most the blocks before the extent of the rule.
    pub const fn error(error: IoError) -> Self {
        Self { kind: Kind::Error(error), op: None, extent: None, one_in: 1, times: u64::MAX }
    }

    /// A transfer moves fewer bytes than the request has; the device continues with the rest.
    pub const fn short() -> Self {
        Self { kind: Kind::Short, op: None, extent: None, one_in: 1, times: u64::MAX }
    }

    /// Limits the rule to requests of this operation.
    #[must_use]
    pub const fn on(mut self, op: Op) -> Self {
        self.op = Some(op);
        self
    }

    /// Limits the rule to requests that overlap `extent`.
    #[must_use]
    pub const fn within(mut self, extent: Extent) -> Self {
        self.extent = Some(extent);
        self
    }

    /// Limits the rule to one in `requests` requests, chosen at random.
    #[must_use]
    pub const fn one_in(mut self, requests: u64) -> Self {
        self.one_in = requests;
        self
    }

    /// Limits the rule to its first `times` faults.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    fn applies_to(&self, op: Op, extent: Extent) -> bool {
        let moves_bytes = self.kind != Kind::Short || op.has_memory();
        let is_within = self.extent.is_none_or(|within| within.overlaps(extent));
        self.times > 0 && moves_bytes && self.op.is_none_or(|only| only == op) && is_within
    }
}

/// Decides the faults of a [`FaultyDevice`](crate::FaultyDevice). [`FaultPlan`] implements it. A host can implement it
/// for a plan that several devices share.
pub trait FaultSource {
    /// The outcome of the next transfer of a request: `extent` is the rest of the request, `block_bytes` the device's
    /// logical block. A short transfer moves at least `moved_min` bytes.
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome;

    /// Whether requests are executed in random order, each after a random delay.
    fn is_shuffled(&self) -> bool;

    /// A random number below `bound`.
    fn below(&mut self, bound: u64) -> u64;

    /// A flush has failed: a host with a volatile cache can lose data here.
    fn on_failed_flush(&mut self) {}
}

/// The outcome of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The transfer is complete.
    Whole,
    /// The transfer moves this many bytes.
    Short(u64),
    /// The transfer moves this many bytes, then the request fails.
    Error(u64, IoError),
}

/// Rules and a seed. The same requests in the same order get the same faults.
#[derive(Debug, Clone)]
pub struct FaultPlan {
    random: Xoshiro256PlusPlus,
    rules: Vec<Fault>,
    is_shuffled: bool,
    injected: u64,
}

impl FaultPlan {
    /// A plan without rules.
    pub fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { random, rules: Vec::new(), is_shuffled: false, injected: 0 }
    }

    /// Adds a rule. The first rule that applies to a request decides.
    pub fn add(&mut self, fault: Fault) {
        self.rules.push(fault);
    }

    /// Removes all rules.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Sets whether requests are executed in random order, each after a random delay.
    pub const fn shuffle(&mut self, is_shuffled: bool) {
        self.is_shuffled = is_shuffled;
    }

    /// Faults injected so far.
    pub const fn injected(&self) -> u64 {
        self.injected
    }
}

impl FaultSource for FaultPlan {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        let bytes = extent.bytes();
        let Self { rules, random, injected, .. } = self;
        for rule in rules.iter_mut().filter(|rule| rule.applies_to(op, extent)) {
            if rule.one_in > 1 && below(random, rule.one_in) > 0 {
                continue;
            }
            let outcome = match rule.kind {
                Kind::Short if bytes <= moved_min => continue,
                Kind::Short => Outcome::Short(moved_min + below(random, bytes - moved_min)),
                Kind::Error(error) => {
                    let within = rule.extent.unwrap_or(Extent::EMPTY);
                    let before = within.offset().saturating_sub(extent.offset());
                    let most = if within.is_empty() { bytes } else { before.min(bytes) };
                    Outcome::Error(below(random, most / block_bytes + 1) * block_bytes, error)
                }
            };
            rule.times -= 1;
            *injected += 1;
            return outcome;
        }
        Outcome::Whole
    }

    fn is_shuffled(&self) -> bool {
        self.is_shuffled
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }
}

/// A number below `bound`, by multiply and shift.
fn below(random: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}
