//! Random numbers of a run. The algorithm is pinned by name, so a seed keeps its meaning.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A source of random numbers with a seed.
#[derive(Debug, Clone)]
pub(super) struct Random(Xoshiro256PlusPlus);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// A number below `bound`, which is at least 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.0.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `from..=to`.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// A number in `from..=to`; small ones are as likely as large ones.
    pub(super) fn magnitude(&mut self, from: u64, to: u64) -> u64 {
        let bits = u64::BITS - (to / from.max(1)).leading_zeros();
        let top = (from.max(1) << self.below(u64::from(bits))).min(to);
        self.between(from, top)
    }

    /// True once in `many` times; never if `many` is zero.
    pub(super) fn one_in(&mut self, many: u64) -> bool {
        many > 0 && self.below(many) == 0
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Another source.
    pub(super) fn fork(&mut self) -> Self {
        Self::new(self.0.next_u64())
    }
}
