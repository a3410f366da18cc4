//! All blocks of a range in a random order, again and again: each block once in a pass. Needs no memory for the blocks.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::RngCore;

/// Rounds of the mixing function.
const ROUNDS: usize = 4;

/// A permutation of the numbers below a limit, with a new one for each pass.
///
/// The mixing function permutes the numbers of as many bits as the limit needs: each of its steps is invertible. It is
/// repeated until the number is below the limit, which is so after two times on average at most (cycle walking).
#[derive(Debug, Clone)]
pub(super) struct Permutation {
    blocks: u64,
    mask: u64,
    shift: u32,
    /// An odd factor and a summand for each round.
    keys: [[u64; 2]; ROUNDS],
    /// The numbers drawn in this pass.
    drawn: u64,
}

impl Permutation {
    /// Of the numbers below `blocks`. The first draw begins a pass.
    pub(super) fn new(blocks: u64) -> Self {
        let bits = (64 - blocks.saturating_sub(1).leading_zeros()).max(1);
        let mask = u64::MAX >> (64 - bits);
        Self { blocks, mask, shift: bits.div_ceil(2), keys: [[1, 0]; ROUNDS], drawn: blocks }
    }

    /// The next number.
    #[inline]
    pub(super) fn draw(&mut self, generator: &mut Xoshiro256PlusPlus) -> u64 {
        if self.drawn >= self.blocks {
            self.begin_pass(generator);
        }
        let mut number = self.drawn;
        self.drawn += 1;
        loop {
            for [factor, summand] in self.keys {
                number = number.wrapping_mul(factor).wrapping_add(summand) & self.mask;
                number ^= number >> self.shift;
            }
            if number < self.blocks {
                return number;
            }
        }
    }

    #[cold]
    fn begin_pass(&mut self, generator: &mut Xoshiro256PlusPlus) {
        self.drawn = 0;
        self.keys = self.keys.map(|_| [generator.next_u64() | 1, generator.next_u64()]);
    }
}

#[cfg(test)]
mod tests {
    use iopath_report::random::generator;

    use super::*;

    #[test]
    fn each_pass_has_each_block_once_in_another_order() {
        for blocks in [1, 2, 3, 5, 64, 100, 1000, 4097] {
            let (mut permutation, mut generator) = (Permutation::new(blocks), generator(7, [0, 0]));
            let mut pass = || -> Vec<u64> { (0..blocks).map(|_| permutation.draw(&mut generator)).collect() };
            let (first, second) = (pass(), pass());
            if blocks > 60 {
                assert_ne!(first, second, "{blocks}");
            }
            for mut pass in [first, second] {
                pass.sort_unstable();
                assert!(pass.into_iter().eq(0..blocks), "{blocks}");
            }
        }
    }

    #[test]
    fn the_order_has_no_visible_pattern() {
        const BLOCKS: u64 = 1 << 16;
        for seed in 0..8 {
            let (mut permutation, mut generator) = (Permutation::new(BLOCKS), generator(seed, [0, 0]));
            let drawn: Vec<u64> = (0..BLOCKS).map(|_| permutation.draw(&mut generator)).collect();
            // Two uniform numbers are adjacent with a probability of 2 in BLOCKS, and ascend in half of the cases.
            let adjacent = drawn.windows(2).filter(|pair| pair[0].abs_diff(pair[1]) == 1).count();
            let ascending = drawn.windows(2).filter(|pair| pair[0] < pair[1]).count();
            assert!(adjacent < 40, "seed {seed}: {adjacent}");
            assert!((31_000..34_500).contains(&ascending), "seed {seed}: {ascending}");
            // The first quarter of the draws is spread over the range.
            for part in 0..16 {
                let range = part * BLOCKS / 16..(part + 1) * BLOCKS / 16;
                let hits = drawn[..drawn.len() / 4].iter().filter(|block| range.contains(block)).count();
                assert!((800..1250).contains(&hits), "seed {seed}: {hits} in part {part}");
            }
        }
    }
}
