//! Selects the requests that fail, by rules and by random numbers from a seed. `fault.rs` executes the failures.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

use super::kind::{Damage, Fault, Kind, Outcome};
use crate::block::bio::Op;
use crate::debug;
use crate::sector::Extent;
use crate::time::Duration;

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

    /// The number of releases so far. A release ends the wait of delayed and stuck requests.
    fn releases(&self) -> u64 {
        0
    }

    /// A flush has failed: a host with a volatile cache can lose data here.
    fn on_failed_flush(&mut self) {}

    /// A silent fault damages the medium. The host flips the bit of a [`Damage::BitFlipped`] at once: the read that
    /// finds it follows. The device has done all other damage itself.
    fn on_damage(&mut self, _damage: Damage) {}
}

/// A source that devices of one thread share, so that the owner of the plan can change it.
impl<F: FaultSource> FaultSource for Rc<RefCell<F>> {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        self.borrow_mut().draw(op, extent, block_bytes, moved_min)
    }

    fn is_shuffled(&self) -> bool {
        self.borrow().is_shuffled()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.borrow_mut().below(bound)
    }

    fn releases(&self) -> u64 {
        self.borrow().releases()
    }

    fn on_failed_flush(&mut self) {
        self.borrow_mut().on_failed_flush();
    }

    fn on_damage(&mut self, damage: Damage) {
        self.borrow_mut().on_damage(damage);
    }
}

/// Rules and a seed. The same requests in the same order get the same faults.
#[derive(Clone)]
pub struct FaultPlan {
    random: Xoshiro256PlusPlus,
    rules: Vec<Fault>,
    is_shuffled: bool,
    injected: u64,
    releases: u64,
    /// The damage since the last [`FaultPlan::take_damage`], if kept.
    damage: Option<Vec<Damage>>,
}

impl fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultPlan")
            .field("rules", &debug::List(&self.rules))
            .field("injected", &self.injected)
            .finish_non_exhaustive()
    }
}

impl FaultPlan {
    /// A plan without rules.
    pub fn new(seed: u64) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Self { random, rules: Vec::new(), is_shuffled: false, injected: 0, releases: 0, damage: None }
    }

    /// Adds a rule. The first rule that applies to a request decides.
    pub fn add(&mut self, fault: Fault) {
        self.rules.push(fault);
    }

    /// Removes all rules. Delayed and stuck requests still wait.
    pub fn clear(&mut self) {
        self.rules.clear();
    }

    /// Sets whether requests are executed in random order, each after a random delay.
    pub const fn shuffle(&mut self, is_shuffled: bool) {
        self.is_shuffled = is_shuffled;
    }

    /// Ends the wait of delayed and stuck requests. Poll the devices afterwards: they have a timeout that is due.
    pub const fn release(&mut self) {
        self.releases += 1;
    }

    /// Ends all faults: removes the rules, ends the shuffle and releases delayed and stuck requests.
    pub fn stop(&mut self) {
        self.clear();
        self.shuffle(false);
        self.release();
    }

    /// Keeps the damage of silent faults from now on, for [`FaultPlan::take_damage`]. The list has no limit: take the
    /// damage often.
    pub fn keep_damage(&mut self) {
        self.damage.get_or_insert_default();
    }

    /// The damage of silent faults since the last call, in the order of the faults.
    pub fn take_damage(&mut self) -> Vec<Damage> {
        self.damage.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Faults injected so far.
    pub const fn injected(&self) -> u64 {
        self.injected
    }
}

impl FaultSource for FaultPlan {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        let Self { rules, random, injected, .. } = self;
        for rule in rules.iter_mut().filter(|rule| rule.applies_to(op, extent)) {
            if rule.one_in > 1 && below(random, rule.one_in) > 0 {
                continue;
            }
            if let Some(outcome) = outcome_of(rule, extent, block_bytes, moved_min, random) {
                rule.times -= 1;
                *injected += 1;
                return outcome;
            }
        }
        Outcome::Whole
    }

    fn is_shuffled(&self) -> bool {
        self.is_shuffled
    }

    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.random, bound)
    }

    fn releases(&self) -> u64 {
        self.releases
    }

    fn on_damage(&mut self, damage: Damage) {
        if let Some(kept) = &mut self.damage {
            kept.push(damage);
        }
    }
}

/// The outcome of a transfer of `extent` by a rule that applies to it, or `None` if the extent is too small for the
/// fault.
fn outcome_of(
    rule: &Fault,
    extent: Extent,
    block_bytes: u64,
    moved_min: u64,
    random: &mut Xoshiro256PlusPlus,
) -> Option<Outcome> {
    let bytes = extent.bytes();
    let blocks = extent.bytes() / block_bytes;
    Some(match rule.kind {
        Kind::Error(error) => {
            let within = rule.extent.unwrap_or(Extent::EMPTY);
            let before = within.offset().saturating_sub(extent.offset());
            let most = if within.is_empty() { bytes } else { before.min(bytes) };
            Outcome::Error { moved: below(random, most / block_bytes + 1) * block_bytes, error }
        }
        Kind::Short if bytes <= moved_min => return None,
        Kind::Short => Outcome::Short { moved: moved_min + below(random, bytes - moved_min) },
        Kind::Delay(longest) => {
            let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
            Outcome::Delayed(Duration::from_nanos(1 + below(random, nanos)))
        }
        Kind::Stuck => Outcome::Stuck,
        Kind::TornWrite if blocks < 2 => return None,
        Kind::TornWrite => {
            let omitted = 1 + below(random, blocks - 1);
            let moved = below(random, blocks - omitted + 1);
            Outcome::Omitted { moved: moved * block_bytes, omitted: omitted * block_bytes }
        }
        Kind::LostWrite => Outcome::Omitted { moved: 0, omitted: bytes },
        Kind::MisdirectedWrite => Outcome::Misdirected,
        Kind::BitRot => {
            let within = rule.extent.unwrap_or(extent);
            let start = within.offset().max(extent.offset());
            let end = within.end().offset().min(extent.end().offset());
            let bit = (start - extent.offset()) * 8 + below(random, (end - start) * 8);
            Outcome::BitFlipped { bit }
        }
    })
}

/// A number below `bound`, by multiply and shift.
fn below(random: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}
