//! A set of numbers below a fixed maximum, as bits. Allocated once. An insert or removal touches one cache line of one
//! bit per number, where a linked list touches three members.

/// A set of numbers. Insert and removal are O(1); removal of any number is O(1), too.
///
/// A bit of each higher level tells whether a word of the level below has a bit.
#[derive(Debug)]
pub(crate) struct NumberSet {
    /// The bits of the numbers, then the levels above. The last level has one word.
    levels: [Box<[u64]>; LEVELS],
}

/// Enough for 2²⁴ numbers.
const LEVELS: usize = 4;
const WORD_BITS: u32 = u64::BITS.ilog2();

impl NumberSet {
    /// An empty set of numbers below `numbers_max`.
    ///
    /// # Panics
    /// If `numbers_max` exceeds 2²⁴: more than a queue has slots.
    pub(crate) fn new(numbers_max: usize) -> Self {
        assert!(numbers_max <= 1 << (WORD_BITS * LEVELS as u32), "{numbers_max} numbers are too many");
        let mut bits = numbers_max.max(1);
        let levels = [(); LEVELS].map(|()| {
            bits = bits.div_ceil(u64::BITS as usize);
            vec![0; bits].into()
        });
        Self { levels }
    }

    /// Adds a number.
    #[inline]
    pub(crate) fn insert(&mut self, number: u32) {
        let mut index = number;
        for level in &mut self.levels {
            let (word, bit) = place(index);
            let before = level[word];
            level[word] = before | bit;
            if before != 0 {
                return;
            }
            index = word as u32;
        }
    }

    /// Removes a number. Returns whether it was in the set.
    #[inline]
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let (word, bit) = place(number);
        let was_in = self.levels[0][word] & bit != 0;
        let mut index = number;
        for level in &mut self.levels {
            let (word, bit) = place(index);
            level[word] &= !bit;
            if level[word] != 0 {
                break;
            }
            index = word as u32;
        }
        was_in
    }

    /// Removes and returns the least number.
    pub(crate) fn pop_first(&mut self) -> Option<u32> {
        let mut index = 0;
        for level in self.levels.iter().rev() {
            let word = level[index as usize];
            if word == 0 {
                return None;
            }
            index = index << WORD_BITS | word.trailing_zeros();
        }
        self.remove(index);
        Some(index)
    }
}

/// The word of a bit, and its mask there.
const fn place(index: u32) -> (usize, u64) {
    ((index >> WORD_BITS) as usize, 1 << (index & (u64::BITS - 1)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Compares with the set of the standard library. Few numbers, far apart, so that words of each level empty.
        #[test]
        fn holds_what_was_inserted_and_not_removed(
            steps in prop::collection::vec((0..3_u8, 0..4_u32, 0..5_u32, 0..3_u32), 0..300),
        ) {
            let mut set = NumberSet::new(1 << 20);
            let mut model = BTreeSet::new();
            for (step, low, middle, high) in steps {
                let number = high << 18 | middle << 9 | low;
                match step {
                    0 => {
                        set.insert(number);
                        model.insert(number);
                    }
                    1 => prop_assert_eq!(set.remove(number), model.remove(&number)),
                    _ => prop_assert_eq!(set.pop_first(), model.pop_first()),
                }
            }
            prop_assert!(std::iter::from_fn(|| set.pop_first()).eq(model));
        }
    }

    #[test]
    fn the_last_number_of_each_size_fits() {
        for numbers_max in [1, 63, 64, 65, 4096, 4097, 1 << 24] {
            let mut set = NumberSet::new(numbers_max);
            set.insert(numbers_max as u32 - 1);
            assert_eq!(set.pop_first(), Some(numbers_max as u32 - 1));
            assert_eq!(set.pop_first(), None);
        }
    }

    #[test]
    fn a_removal_of_an_absent_number_changes_nothing() {
        let mut set = NumberSet::new(200);
        for number in [3, 130] {
            set.insert(number);
        }
        assert!(!set.remove(64) && !set.remove(2) && set.remove(3) && !set.remove(3));
        assert_eq!([set.pop_first(), set.pop_first()], [Some(130), None]);
    }
}
