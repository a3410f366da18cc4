//! Random numbers by xoshiro256++: a seed gives the same sequence on every machine and in every version. Not for
//! secrets.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};

/// A generator for one purpose of one run. The same seed with other `parts` gives an unrelated sequence.
#[inline]
pub fn generator(seed: u64, parts: [u64; 2]) -> Xoshiro256PlusPlus {
    let mut first = Xoshiro256PlusPlus::seed_from_u64(seed ^ parts[0].wrapping_mul(0x9E37_79B9_7F4A_7C15));
    Xoshiro256PlusPlus::seed_from_u64(first.next_u64() ^ parts[1])
}

/// Separates the seeds of further targets from the seed of the first target.
const FURTHER: u64 = 0xF7A12;

/// The seed for one of several targets, from 0: each has random numbers of its own.
#[inline]
pub fn of_target(seed: u64, target: usize) -> u64 {
    match target as u64 {
        0 => seed,
        further => generator(seed, [FURTHER, further]).next_u64(),
    }
}

/// Fills a buffer with incompressible bytes.
#[inline]
pub fn fill(seed: u64, bytes: &mut [u8]) {
    generator(seed, [u64::MAX, 0]).fill_bytes(bytes);
}

/// A number below `bound`, by multiply and shift (Lemire, 2019, without the rejection: the bias is below
/// `bound / 2^64`).
#[inline]
pub fn below(generator: &mut Xoshiro256PlusPlus, bound: u64) -> u64 {
    ((u128::from(generator.next_u64()) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequences_are_pinned() {
        let mut generator = generator(1, [2, 3]);
        let drawn: Vec<u64> = (0..4).map(|_| below(&mut generator, 1000)).collect();
        assert_eq!(
            drawn,
            [289, 341, 313, 880],
            "a different sequence changes the transfers of existing seeds"
        );
    }

    #[test]
    fn seed_and_parts_all_matter() {
        let draw = |seed, parts| generator(seed, parts).next_u64();
        let drawn = [draw(1, [0, 0]), draw(2, [0, 0]), draw(1, [1, 0]), draw(1, [0, 1]), draw(1, [1, 1])];
        for (index, value) in drawn.iter().enumerate() {
            assert!(!drawn[..index].contains(value), "{index}");
        }
    }

    #[test]
    fn draws_are_uniform() {
        let mut generator = generator(7, [0, 0]);
        let mut counts = [0u32; 10];
        for _ in 0..10_000 {
            counts[below(&mut generator, 10) as usize] += 1;
        }
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
    }
}
