//! A sorted column of fixed width, as leaves and inner nodes have them: search, insert, remove and move of slots. Nodes
//! are in `node.rs`.

use std::ops::{BitAnd, BitOr, Not};

/// The number of ascending `keys` that satisfy `below`, which must hold for a prefix of them.
///
/// Two short counts without a data-dependent branch: first the last key of each block of `BLOCK`, then the keys of the
/// remaining block. A mispredicted branch would cost more than all comparisons, and would delay the start of the next
/// search while this one waits for memory.
#[inline]
pub(super) fn rank<const N: usize, const BLOCK: usize>(
    keys: &[u64; N],
    below: impl Fn(u64) -> bool,
) -> usize {
    const { assert!(N.is_multiple_of(BLOCK), "the last block must be whole") };
    let (blocks, _) = keys.as_chunks::<BLOCK>();
    let whole: usize = blocks[..N / BLOCK - 1].iter().map(|block| usize::from(below(block[BLOCK - 1]))).sum();
    let rest: usize = blocks[whole].iter().map(|&key| usize::from(below(key))).sum();
    whole * BLOCK + rest
}

/// An item of a column: plain bits, so that a mask can combine two columns.
pub(super) trait Bits:
    Copy + 'static + BitAnd<Output = Self> + BitOr<Output = Self> + Not<Output = Self>
{
    /// A mask for each slot of a column: zeros in `..from`, ones from `from`, which is at most `N`.
    fn ones_from<const N: usize>(from: usize) -> &'static [Self; N];
}

macro_rules! impl_bits {
    ($($int:ty),+) => {$(
        impl Bits for $int {
            #[inline]
            fn ones_from<const N: usize>(from: usize) -> &'static [Self; N] {
                const { &[[0; N], [Self::MAX; N]] }.as_flattened()[N - from..].first_chunk().expect("2 N - from ≥ N")
            }
        }
    )+};
}
impl_bits!(u32, u64);

/// Inserts `item` in `slot` and moves the items from there up by one; the last item is lost.
///
/// Uses masks over the whole column, since a copy of variable length would end in a mispredicted branch.
#[inline]
pub(super) fn open<T: Bits, const N: usize>(column: &mut [T; N], slot: usize, item: T) {
    let old = *column;
    let moved = T::ones_from::<N>(slot);
    for i in 1..N {
        column[i] = (old[i - 1] & moved[i - 1]) | (old[i] & !moved[i - 1]);
    }
    column[slot] = item;
}

/// Removes the item in `slot`, moves the items above it down by one, and stores `last` in the last slot.
#[inline]
pub(super) fn close<T: Bits, const N: usize>(column: &mut [T; N], slot: usize, last: T) {
    let old = *column;
    let moved = T::ones_from::<N>(slot);
    for i in 0..N - 1 {
        column[i] = (old[i + 1] & moved[i]) | (old[i] & !moved[i]);
    }
    column[N - 1] = last;
}

/// Moves items between two neighbours of `lens` items, so that the left one has `target`. Used for a split (the right
/// one is empty), a merge (`target` is the sum) and a balance.
pub(super) fn level<T: Copy, const N: usize>(
    left: &mut [T; N],
    right: &mut [T; N],
    lens: (usize, usize),
    target: usize,
) {
    let (left_len, right_len) = lens;
    if target <= left_len {
        let moved = left_len - target;
        right.copy_within(..right_len, moved);
        right[..moved].copy_from_slice(&left[target..left_len]);
    } else {
        let moved = target - left_len;
        left[left_len..target].copy_from_slice(&right[..moved]);
        right.copy_within(moved..right_len, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_agrees_with_partition_point_for_every_key() {
        let keys: [u64; 12] = std::array::from_fn(|i| (i as u64 / 2) * 10);
        for needle in 0..=70 {
            assert_eq!(rank::<12, 4>(&keys, |k| k < needle), keys.partition_point(|&k| k < needle));
            assert_eq!(rank::<12, 3>(&keys, |k| k <= needle), keys.partition_point(|&k| k <= needle));
        }
    }

    #[test]
    fn level_keeps_the_order_for_every_target() {
        for target in 1..=7 {
            let (mut left, mut right) = ([0, 1, 2, 3, 99, 99, 99], [4, 5, 6, 99, 99, 99, 99]);
            level(&mut left, &mut right, (4, 3), target);
            let all: Vec<_> = left[..target].iter().chain(&right[..7 - target]).copied().collect();
            assert_eq!(all, [0, 1, 2, 3, 4, 5, 6]);
        }
    }
}
