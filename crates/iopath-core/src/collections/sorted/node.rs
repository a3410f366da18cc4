//! The two kinds of node of a [`SortedSet`](super::SortedSet): leaves hold entries, inner nodes hold children.
//! Each keeps its columns in order. The tree of nodes is in `sorted.rs`.

use super::Entry;
use super::columns::{close, level, open, rank};
use prefetch_index::prefetch_index;

/// A link to no node.
pub(super) const NONE: u32 = u32::MAX;

/// Maximum entries of a leaf. With 30, keys and header fill four cache lines, and values fill two.
pub(super) const LEAF_MAX: usize = 30;
/// Minimum entries of a leaf that is not the root. A quarter, not a half, so that a leaf that is emptied in order is
/// merged less often, and with fewer entries.
pub(super) const LEAF_MIN: usize = LEAF_MAX / 4;
const LEAF_BLOCK: usize = 6;

/// Maximum children of an inner node. With 64, three levels hold more than a million entries.
pub(super) const INNER_MAX: usize = 64;
/// Minimum children of an inner node that is not the root, which has at least two.
pub(super) const INNER_MIN: usize = INNER_MAX / 4;
/// Keys in a cache line.
const INNER_BLOCK: usize = 8;
const INNER_BLOCKS: usize = INNER_MAX / INNER_BLOCK;

/// Entries `start..end` of the columns, in order, with links to both neighbours.
///
/// Removing the first entry only moves `start`. Keys before `start` are 0 and keys from `end` are `u64::MAX`, so that a
/// search can count over whole columns, independent of the window.
#[derive(Debug, Clone)]
#[repr(C, align(128))]
pub(super) struct Leaf {
    keys: [u64; LEAF_MAX],
    pub(super) prev: u32,
    pub(super) next: u32,
    start: u16,
    end: u16,
    values: [u32; LEAF_MAX],
}

const _: () = assert!(size_of::<Leaf>() == 6 * 64);

impl Leaf {
    pub(super) const EMPTY: Self =
        Self { keys: [u64::MAX; LEAF_MAX], prev: NONE, next: NONE, start: 0, end: 0, values: [0; LEAF_MAX] };

    /// An empty leaf with its links.
    pub(super) fn between(prev: u32, next: u32) -> Self {
        Self { prev, next, ..Self::EMPTY }
    }

    #[inline]
    pub(super) fn start(&self) -> usize {
        usize::from(self.start)
    }

    #[inline]
    pub(super) fn end(&self) -> usize {
        usize::from(self.end)
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.end() - self.start()
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() == LEAF_MAX
    }

    /// The entry in `slot`, if `slot` is in the window.
    #[inline]
    pub(super) fn get(&self, slot: usize) -> Option<Entry> {
        (self.start()..self.end()).contains(&slot).then(|| (self.keys[slot], self.values[slot]))
    }

    #[inline]
    pub(super) fn first(&self) -> Option<Entry> {
        self.get(self.start())
    }

    #[inline]
    pub(super) fn last(&self) -> Option<Entry> {
        self.get(self.end().wrapping_sub(1))
    }

    /// The slot of the first entry not less than `(key, value)`; `end` if there is none.
    #[inline]
    pub(super) fn lower(&self, (key, value): Entry) -> usize {
        let mut slot = rank::<LEAF_MAX, LEAF_BLOCK>(&self.keys, |k| k < key).max(self.start());
        while slot < self.end() && self.keys[slot] == key && self.values[slot] < value {
            slot += 1;
        }
        slot
    }

    /// Whether `slot` is the result of [`lower`](Self::lower). Cheaper than the search, if it is likely.
    #[inline]
    pub(super) fn is_lower(&self, slot: usize, entry: Entry) -> bool {
        let (start, end) = (self.start(), self.end());
        (start..=end).contains(&slot)
            && (slot == start || (self.keys[slot - 1], self.values[slot - 1]) < entry)
            && (slot == end || entry <= (self.keys[slot], self.values[slot]))
    }

    /// Inserts before `slot`, a result of [`lower`](Self::lower). The leaf must not be full.
    #[inline]
    pub(super) fn insert(&mut self, mut slot: usize, (key, value): Entry) {
        if slot == self.start() && self.start > 0 {
            self.start -= 1;
            slot -= 1;
            self.keys[slot] = key;
            self.values[slot] = value;
            return;
        }
        if self.end() == LEAF_MAX {
            slot -= self.start();
            self.pack();
        }
        if slot == self.end() {
            self.keys[slot] = key;
            self.values[slot] = value;
        } else {
            open(&mut self.keys, slot, key);
            open(&mut self.values, slot, value);
        }
        self.end += 1;
    }

    /// Removes the entry in `slot`, which must be in the window.
    #[inline]
    pub(super) fn remove(&mut self, slot: usize) -> Entry {
        let entry = (self.keys[slot], self.values[slot]);
        if slot == self.start() {
            self.keys[slot] = 0;
            self.start += 1;
        } else {
            close(&mut self.keys, slot, u64::MAX);
            close(&mut self.values, slot, 0);
            self.end -= 1;
        }
        entry
    }

    /// Prefetches the six cache lines of the leaf.
    #[inline]
    pub(super) fn prefetch(&self) {
        for key in [0, 8, 16, 24] {
            prefetch_index(self.keys.as_slice(), key);
        }
        for value in [LEAF_MAX / 2, LEAF_MAX - 1] {
            prefetch_index(self.values.as_slice(), value);
        }
    }

    /// Whether `entry` may replace the entry in `slot`.
    #[inline]
    pub(super) fn keeps_order(&self, slot: usize, entry: Entry) -> bool {
        self.get(slot.wrapping_sub(1)).is_none_or(|before| before < entry)
            && self.get(slot + 1).is_none_or(|after| entry < after)
    }

    /// Sets the key of the entry in `slot`; it must keep the order.
    #[inline]
    pub(super) fn set_key(&mut self, slot: usize, key: u64) {
        self.keys[slot] = key;
    }

    /// Moves the window to the front of the columns.
    pub(super) fn pack(&mut self) {
        let (window, len) = (self.start()..self.end(), self.len());
        self.keys.copy_within(window.clone(), 0);
        self.values.copy_within(window, 0);
        self.set_packed(len);
    }

    /// Moves entries between neighbours until `left` has `target` of them; links stay.
    pub(super) fn level(left: &mut Self, right: &mut Self, target: usize) {
        left.pack();
        right.pack();
        let lens = (left.len(), right.len());
        level(&mut left.keys, &mut right.keys, lens, target);
        level(&mut left.values, &mut right.values, lens, target);
        left.set_packed(target);
        right.set_packed(lens.0 + lens.1 - target);
    }

    fn set_packed(&mut self, len: usize) {
        self.start = 0;
        self.end = len as u16;
        self.keys[len..].fill(u64::MAX);
    }

    /// Panics unless the keys outside the window have the padding values that the search requires.
    #[cfg(test)]
    pub(super) fn check_padding(&self) {
        assert!(self.keys[..self.start()].iter().all(|&key| key == 0));
        assert!(self.keys[self.end()..].iter().all(|&key| key == u64::MAX));
    }
}

/// Children in order, each with its lower bound: entries in child `i` are at least `low(i)` and less than
/// `low(i + 1)`.
///
/// The bound of the first child is that of the node, as in its parent. Bounds from `len` are `u64::MAX`. A search reads
/// three of the 17 cache lines: the pivots, one of keys and one of children.
#[derive(Debug, Clone)]
#[repr(C, align(64))]
pub(super) struct Inner {
    /// The first key of each line of `keys`, except the first line.
    pivots: [u64; INNER_BLOCKS - 1],
    len: u32,
    keys: [u64; INNER_MAX],
    children: [u32; INNER_MAX],
    values: [u32; INNER_MAX],
}

const _: () = assert!(size_of::<Inner>() == 17 * 64);

impl Inner {
    pub(super) const EMPTY: Self = Self {
        pivots: [u64::MAX; INNER_BLOCKS - 1],
        len: 0,
        keys: [u64::MAX; INNER_MAX],
        children: [NONE; INNER_MAX],
        values: [0; INNER_MAX],
    };

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.len() == INNER_MAX
    }

    #[inline]
    pub(super) fn child(&self, slot: usize) -> u32 {
        self.children[slot]
    }

    #[inline]
    pub(super) fn low(&self, slot: usize) -> Entry {
        (self.keys[slot], self.values[slot])
    }

    /// The key bounds of child `slot`; `high` is the upper bound of the last child.
    #[inline]
    pub(super) fn bounds(&self, slot: usize, high: u64) -> (u64, u64) {
        let next = slot + 1;
        let above = if next.is_multiple_of(INNER_BLOCK) {
            self.pivots.get(slot / INNER_BLOCK).copied()
        } else {
            Some(self.keys[next])
        };
        (self.keys[slot], above.filter(|_| next < self.len()).unwrap_or(high))
    }

    /// The slot of the child to which `(key, value)` belongs, if it is within the bounds of the node.
    #[inline]
    pub(super) fn find(&self, entry: Entry) -> usize {
        self.find_in(self.block(entry.0), entry)
    }

    /// The line of keys that [`find`](Self::find) searches.
    #[inline]
    pub(super) fn block(&self, key: u64) -> usize {
        self.pivots.iter().map(|&pivot| usize::from(pivot <= key)).sum()
    }

    /// The search of [`find`](Self::find) in that line.
    #[inline]
    pub(super) fn find_in(&self, block: usize, (key, value): Entry) -> usize {
        let keys = &self.keys.as_chunks::<INNER_BLOCK>().0[block];
        let rest: usize = keys.iter().map(|&k| usize::from(k <= key)).sum();
        let mut above = (block * INNER_BLOCK + rest).min(self.len());
        while above > 1 && self.keys[above - 1] == key && self.values[above - 1] > value {
            above -= 1;
        }
        above - 1
    }

    /// Prefetches the memory that [`block`](Self::block) reads.
    #[inline]
    pub(super) fn prefetch(&self) {
        prefetch_index(self.pivots.as_slice(), 0);
    }

    /// Prefetches the memory that [`find_in`](Self::find_in) reads for that line.
    #[inline]
    pub(super) fn prefetch_block(&self, block: usize) {
        prefetch_index(self.keys.as_slice(), block * INNER_BLOCK);
        prefetch_index(self.children.as_slice(), block * INNER_BLOCK);
    }

    /// Inserts a child before `slot`. The node must not be full.
    pub(super) fn insert(&mut self, slot: usize, low: Entry, child: u32) {
        open(&mut self.keys, slot, low.0);
        open(&mut self.values, slot, low.1);
        open(&mut self.children, slot, child);
        self.len += 1;
        self.set_pivots();
    }

    pub(super) fn remove(&mut self, slot: usize) {
        close(&mut self.keys, slot, u64::MAX);
        close(&mut self.values, slot, 0);
        close(&mut self.children, slot, NONE);
        self.len -= 1;
        self.set_pivots();
    }

    /// Sets the bound between child `slot - 1` and child `slot`.
    pub(super) fn set_low(&mut self, slot: usize, low: Entry) {
        (self.keys[slot], self.values[slot]) = low;
        self.set_pivots();
    }

    /// Moves children between neighbours until `left` has `target` of them.
    pub(super) fn level(left: &mut Self, right: &mut Self, target: usize) {
        let lens = (left.len(), right.len());
        level(&mut left.keys, &mut right.keys, lens, target);
        level(&mut left.values, &mut right.values, lens, target);
        level(&mut left.children, &mut right.children, lens, target);
        left.set_len(target);
        right.set_len(lens.0 + lens.1 - target);
    }

    fn set_len(&mut self, len: usize) {
        self.len = len as u32;
        self.keys[len..].fill(u64::MAX);
        self.set_pivots();
    }

    fn set_pivots(&mut self) {
        for (pivot, block) in self.pivots.iter_mut().zip(&self.keys.as_chunks::<INNER_BLOCK>().0[1..]) {
            *pivot = block[0];
        }
    }

    /// Panics unless the pivots and the keys past the end have the values that the search requires.
    #[cfg(test)]
    pub(super) fn check_keys(&self) {
        assert!(self.keys[self.len()..].iter().all(|&key| key == u64::MAX));
        let mut same = self.clone();
        same.set_pivots();
        assert_eq!(same.pivots, self.pivots);
    }
}
