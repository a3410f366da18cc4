//! A map whose keys are numbers: of sectors, devices, tasks.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map whose keys are numbers. Its hash is one multiplication, several times faster than the default one. Keys that
/// someone chose to collide make it slow, so the number of keys must be bounded.
pub type NumberMap<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// A hash of numbers. Sectors are often multiples of powers of two, so all bits of the product count.
#[derive(Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.write_u64(u64::from_le_bytes(*word));
        }
        for byte in rest {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9E37_79B9_7F4A_7C15_u128;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::BuildHasher;

    #[test]
    fn multiples_of_powers_of_two_differ_in_the_upper_and_the_lower_bits() {
        let map = NumberMap::<u64, u64>::default();
        for shift in [0, 3, 11, 20, 40] {
            let hashes: Vec<u64> =
                (0..128_u64).map(|number| map.hasher().hash_one(number << shift)).collect();
            for bits in [0, 57] {
                let different: HashSet<u64> = hashes.iter().map(|hash| hash >> bits & 127).collect();
                // A random hash has 81.
                assert!(different.len() > 40, "shift {shift}, bits from {bits}: {}", different.len());
            }
        }
    }
}
