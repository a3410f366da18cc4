//! An ordered set of `(key, value)` pairs that never allocates after construction. The sorted elevators use it with
//! sector and request slot. It is independent of requests and devices.
//!
//! A B+tree over two arenas of fixed-size nodes, linked by index:
//!
//! ```text
//!   inner    [ low₀ low₁ low₂ … ]            wide (64): three levels reach a million entries
//!              │    │    └───────────┐
//!   leaves   [e e e]⇄[e e e e]⇄[e e e e e]   30 entries in six cache lines, linked in order
//!                      ▲ fingers: the leaves of the last inserts, the leaf of the last removal
//! ```
//!
//! An ascending stream of inserts and an ascending sweep of removals each stay in one leaf for tens of operations. A
//! *finger* stores that leaf and its key bounds, so both skip the descent.
//!
//! When the leaves exceed the caches of the processor, an operation at a random key costs a cache miss. The miss takes
//! longer than all other work. [`SortedSet::prefetch_inserts`] and [`SortedSet::prefetch_removals`] overlap the misses
//! of a batch, and the operations reuse the descent:
//!
//! ```text
//!   announced   k₀ k₁ k₂ … k₃₁    descend level by level together: prefetch each line, then read it
//!   leaves      L₀ … L₅           prefetched at once; each later one when the leaf six before it is used
//! ```
//!
//! `sorted/columns.rs` has one column of a node, `sorted/node.rs` a node, `sorted/rebalance.rs` splits and merges of
//! nodes, `sorted/prefetch.rs` the prefetching, `sorted/iter.rs` the iteration.

mod arena;
mod columns;
mod iter;
mod node;
mod prefetch;
mod rebalance;
#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::RangeBounds;

use arena::Arena;
pub use iter::Range;
use node::{INNER_MIN, Inner, LEAF_MIN, Leaf, NONE};
use prefetch::Prefetched;

/// A key and a value. The set orders entries by key, then by value.
pub type Entry = (u64, u32);

/// The maximum levels of inner nodes, for `u32::MAX` entries: 2³² / 7 leaves, then 16 children per node.
const HEIGHT_MAX: usize = 9;

/// A fixed-capacity set of [entries](Entry) in ascending order.
///
/// Keys may repeat, pairs may not. All memory is reserved at construction: 66 bytes of address space per entry of
/// capacity, enough for leaves that are all at their minimum. A set that is filled once uses about 20 bytes per entry.
/// Every operation is O(log n) in the worst case; inserts and removals next to the previous one are O(1) on average.
pub struct SortedSet {
    leaves: Arena<Leaf>,
    inners: Arena<Inner>,
    /// A leaf if `height` is 0, otherwise an inner node.
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    /// The leaf with the greatest entries. The leaf with the least is always [`FIRST_LEAF`].
    last_leaf: u32,
    len: usize,
    capacity: usize,
    /// The leaves of the last inserts and look-ups of neighbours: one finger for each of a few streams.
    near: [Finger; STREAMS],
    /// The index in `near` of the finger to move next.
    near_next: usize,
    /// The slot that the last look-up of neighbours found. Only a hint.
    near_slot: usize,
    /// The leaves of announced inserts and look-ups.
    inserts_ahead: Prefetched,
    /// The leaves of announced removals.
    removals_ahead: Prefetched,
    /// The leaf of the last removal.
    head: Finger,
    /// The slot of the last removal in that leaf.
    head_slot: usize,
}

impl fmt::Debug for SortedSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedSet")
            .field("len", &self.len)
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}

/// The number of interleaved ascending streams that are inserted without a descent.
const STREAMS: usize = 2;

/// Splits move entries into a new right neighbour and merges empty the right one, so the first leaf stays first.
const FIRST_LEAF: u32 = 0;

/// A leaf and its key bounds: entries with `low < key < high` belong there.
#[derive(Debug, Clone, Copy)]
struct Finger {
    leaf: u32,
    low: u64,
    high: u64,
}

impl Finger {
    const NOWHERE: Self = Self { leaf: NONE, low: 0, high: 0 };

    #[inline]
    fn covers(&self, key: u64) -> bool {
        self.low < key && key < self.high
    }
}

impl SortedSet {
    /// An empty set for at most `capacity` entries.
    ///
    /// # Panics
    /// If `capacity` is `u32::MAX` or more: nodes are linked by 32-bit index.
    pub fn with_capacity(capacity: usize) -> Self {
        assert!(capacity < u32::MAX as usize, "a SortedSet holds less than u32::MAX entries, not {capacity}");
        let (leaves_max, inners_max) = nodes_max(capacity);
        let mut set = Self {
            leaves: Arena::with_capacity(leaves_max),
            inners: Arena::with_capacity(inners_max),
            root: FIRST_LEAF,
            height: 0,
            last_leaf: FIRST_LEAF,
            len: 0,
            capacity,
            near: [Finger::NOWHERE; STREAMS],
            near_next: 0,
            near_slot: 0,
            inserts_ahead: Prefetched::NONE,
            removals_ahead: Prefetched::NONE,
            head: Finger::NOWHERE,
            head_slot: 0,
        };
        set.clear();
        set
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The maximum number of entries.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Removes all entries, and keeps the memory. O(1).
    pub fn clear(&mut self) {
        self.leaves.clear();
        self.inners.clear();
        self.root = self.leaves.take(Leaf::EMPTY);
        self.height = 0;
        self.last_leaf = self.root;
        self.len = 0;
        self.near = [Finger::NOWHERE; STREAMS];
        self.inserts_ahead = Prefetched::NONE;
        self.removals_ahead = Prefetched::NONE;
        self.head = Finger::NOWHERE;
    }

    /// Adds `(key, value)`, which must not be in the set yet.
    ///
    /// # Panics
    /// If the set is full: a bug of the caller. Debug builds also panic if the pair is in the set already.
    #[inline]
    pub fn insert(&mut self, key: u64, value: u32) {
        assert!(self.len < self.capacity, "SortedSet is full: it was built for {} entries", self.capacity);
        let entry = (key, value);
        let mut leaf = self.near_leaf(entry);
        if self.leaves[leaf].is_full() {
            self.split(entry);
            leaf = self.near_leaf(entry);
        }
        let leaf = &mut self.leaves[leaf];
        // Most often the slot that a look-up of neighbours has just found.
        let slot = if leaf.is_lower(self.near_slot, entry) { self.near_slot } else { leaf.lower(entry) };
        debug_assert_ne!(leaf.get(slot), Some(entry), "inserted twice");
        leaf.insert(slot, entry);
        self.len += 1;
    }

    /// Removes `(key, value)`; `false` if it is not in the set.
    #[inline]
    pub fn remove(&mut self, key: u64, value: u32) -> bool {
        let entry = (key, value);
        let leaf = self.head_leaf(entry);
        let slot = self.leaves[leaf].lower(entry);
        let found = self.leaves[leaf].get(slot) == Some(entry);
        if found {
            self.remove_at(leaf, slot);
        }
        found
    }

    /// The least entry.
    #[inline]
    pub fn first(&self) -> Option<Entry> {
        self.leaves[FIRST_LEAF].first()
    }

    /// The greatest entry.
    #[inline]
    pub fn last(&self) -> Option<Entry> {
        self.leaves[self.last_leaf].last()
    }

    /// Removes and returns the least entry.
    #[inline]
    pub fn pop_first(&mut self) -> Option<Entry> {
        self.first()?;
        let least = self.remove_at(FIRST_LEAF, self.leaves[FIRST_LEAF].start());
        (self.head, self.head_slot) = (Finger { leaf: FIRST_LEAF, ..Finger::NOWHERE }, 0);
        Some(least)
    }

    /// The least entry whose key is `key` or greater.
    #[inline]
    pub fn at_or_after(&self, key: u64) -> Option<Entry> {
        let (leaf, slot) = self.seek((key, 0));
        self.at_or_next(leaf, slot)
    }

    /// The greatest entry whose key is less than `key`.
    #[inline]
    pub fn before(&self, key: u64) -> Option<Entry> {
        let (leaf, slot) = self.seek((key, 0));
        self.previous(leaf, slot)
    }

    /// The least entry greater than `entry`, which need not be in the set.
    #[inline]
    pub fn after(&self, entry: Entry) -> Option<Entry> {
        let (leaf, slot) = self.seek(entry);
        let found = self.leaves[leaf].get(slot) == Some(entry);
        self.at_or_next(leaf, slot + usize::from(found))
    }

    /// The greatest entry whose key is less than `key`, and the least entry whose key is `key` or greater, in one
    /// descent.
    ///
    /// Moves a finger there: an insert that follows needs no descent.
    #[inline]
    pub fn neighbours(&mut self, key: u64) -> (Option<Entry>, Option<Entry>) {
        let leaf = self.near_leaf((key, 0));
        let slot = self.leaves[leaf].lower((key, 0));
        self.near_slot = slot;
        (self.previous(leaf, slot), self.at_or_next(leaf, slot))
    }

    /// Removes and returns the least entry whose key is `key` or greater: the step of a one-way sweep.
    #[inline]
    pub fn pop_at_or_after(&mut self, key: u64) -> Option<Entry> {
        let mut leaf = self.head_leaf((key, 0));
        let node = &self.leaves[leaf];
        // Most often the slot after that of the last step.
        let mut slot = self.head_slot.max(node.start());
        if !node.is_lower(slot, (key, 0)) {
            slot = node.lower((key, 0));
        }
        if slot == self.leaves[leaf].end() {
            let next = self.leaves.get(self.leaves[leaf].next)?;
            slot = next.start();
            if let Some(after) = self.leaves.get(next.next) {
                after.prefetch();
            }
            leaf = self.head_leaf(next.first()?);
        }
        self.head_slot = slot;
        let taken = self.remove_at(leaf, slot);
        if self.head.leaf == NONE {
            // The leaf was merged with its neighbour: locate the sweep again, for `ahead`.
            leaf = self.head_leaf(taken);
            self.head_slot = self.leaves[leaf].lower(taken);
        }
        Some(taken)
    }

    /// Does the same as [`neighbours`](Self::neighbours), but moves the finger of removals there. For callers that then
    /// remove one of the two.
    #[inline]
    pub fn around(&mut self, key: u64) -> (Option<Entry>, Option<Entry>) {
        let leaf = self.head_leaf((key, 0));
        let slot = self.leaves[leaf].lower((key, 0));
        (self.previous(leaf, slot), self.at_or_next(leaf, slot))
    }

    /// The value of the entry that [`pop_at_or_after`](Self::pop_at_or_after) will most likely return after `ahead`
    /// others. `None` beyond the next leaf.
    #[inline]
    pub fn ahead(&self, ahead: usize) -> Option<u32> {
        let leaf = self.leaves.get(self.head.leaf)?;
        let slot = self.head_slot.max(leaf.start()) + ahead;
        let entry = match slot.checked_sub(leaf.end()) {
            None => leaf.get(slot),
            Some(beyond) => self.leaves.get(leaf.next).and_then(|next| next.get(next.start() + beyond)),
        };
        entry.map(|(_, value)| value)
    }

    /// Changes the key of `(old, value)`; returns `false` if it is not in the set. O(1) at the last look-up of
    /// neighbours, if the order stays the same.
    #[inline]
    pub fn rekey(&mut self, old: u64, new: u64, value: u32) -> bool {
        let leaf = self.near_leaf((old, value));
        let slot = self.leaves[leaf].lower((old, value));
        if self.leaves[leaf].get(slot) != Some((old, value)) {
            return false;
        }
        let stays = self.near.iter().any(|near| near.leaf == leaf && near.covers(new));
        if stays && self.leaves[leaf].keeps_order(slot, (new, value)) {
            self.leaves[leaf].set_key(slot, new);
        } else {
            self.remove_at(leaf, slot);
            self.insert(new, value);
        }
        true
    }

    /// The entries with keys in `keys`, in ascending order.
    pub fn range(&self, keys: impl RangeBounds<u64>) -> Range<'_> {
        Range::new(self, keys)
    }

    /// The leaf to which `entry` belongs; moves a finger of inserts there.
    #[inline]
    fn near_leaf(&mut self, entry: Entry) -> u32 {
        if let Some(near) = self.near.iter().find(|near| near.covers(entry.0)) {
            return near.leaf;
        }
        let prefetched = self.inserts_ahead.take(entry.0, &self.leaves);
        let near = prefetched.unwrap_or_else(|| self.locate(entry));
        self.near[self.near_next] = near;
        self.near_next = (self.near_next + 1) % STREAMS;
        near.leaf
    }

    /// The leaf to which `entry` belongs; moves the finger of removals there.
    #[inline]
    fn head_leaf(&mut self, entry: Entry) -> u32 {
        if !self.head.covers(entry.0) {
            let prefetched = self.removals_ahead.take(entry.0, &self.leaves);
            self.head = prefetched.unwrap_or_else(|| self.locate(entry));
        }
        self.head.leaf
    }

    /// The leaf to which `entry` belongs, with its key bounds.
    ///
    /// Always inlined: a finger returned through memory would be written as several values and read as one. Such a read
    /// cannot be forwarded from the store buffer: it stalls until all earlier stores are done, including stores to
    /// leaves that are in no cache.
    #[expect(clippy::inline_always, reason = "a call would stall on memory, see above")]
    #[inline(always)]
    fn locate(&self, entry: Entry) -> Finger {
        let mut finger = Finger { leaf: self.root, low: 0, high: u64::MAX };
        for _ in 0..self.height {
            let inner = &self.inners[finger.leaf];
            let slot = inner.find(entry);
            let (low, high) = inner.bounds(slot, finger.high);
            finger = Finger { leaf: inner.child(slot), low, high };
        }
        finger
    }

    /// The leaf to which `entry` belongs, and the slot of the first entry in it that is not less.
    #[inline]
    fn seek(&self, entry: Entry) -> (u32, usize) {
        let leaf = self.locate(entry).leaf;
        (leaf, self.leaves[leaf].lower(entry))
    }

    #[inline]
    fn at_or_next(&self, leaf: u32, slot: usize) -> Option<Entry> {
        let leaf = &self.leaves[leaf];
        leaf.get(slot).or_else(|| self.leaves.get(leaf.next)?.first())
    }

    #[inline]
    fn previous(&self, leaf: u32, slot: usize) -> Option<Entry> {
        let leaf = &self.leaves[leaf];
        leaf.get(slot.wrapping_sub(1)).or_else(|| self.leaves.get(leaf.prev)?.last())
    }

    #[inline]
    fn remove_at(&mut self, leaf: u32, slot: usize) -> Entry {
        let node = &mut self.leaves[leaf];
        let entry = node.remove(slot);
        self.len -= 1;
        if node.len() < LEAF_MIN && self.height > 0 {
            self.refill(entry);
        }
        entry
    }
}

/// The maximum number of leaves and inner nodes for `capacity` entries.
///
/// Every node except the root has its minimum, so a level above `n` nodes has at most `n / minimum` nodes, or one.
fn nodes_max(capacity: usize) -> (usize, usize) {
    let leaves = (capacity / LEAF_MIN).max(1);
    let mut level = leaves;
    let mut inners = 0;
    while level > 1 {
        level = (level / INNER_MIN).max(1);
        inners += level;
    }
    (leaves, inners)
}
