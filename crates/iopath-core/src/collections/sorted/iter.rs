//! Iteration over a [`SortedSet`] between two keys in ascending order, along the links of the leaves.

use std::fmt;
use std::iter::FusedIterator;
use std::ops::{Bound, RangeBounds};

use super::node::NONE;
use super::{Entry, SortedSet};

/// The entries of a [`SortedSet`] with keys in a range, in ascending order. See [`SortedSet::range`].
#[derive(Clone)]
pub struct Range<'a> {
    set: &'a SortedSet,
    leaf: u32,
    slot: usize,
    end: Bound<u64>,
}

impl fmt::Debug for Range<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Range")
            .field("leaf", &self.leaf)
            .field("slot", &self.slot)
            .field("end", &self.end)
            .finish_non_exhaustive()
    }
}

impl<'a> Range<'a> {
    pub(super) fn new(set: &'a SortedSet, keys: impl RangeBounds<u64>) -> Self {
        let end = keys.end_bound().cloned();
        let start = match keys.start_bound().cloned() {
            Bound::Included(key) => Some(key),
            Bound::Excluded(key) => key.checked_add(1),
            Bound::Unbounded => Some(0),
        };
        let (leaf, slot) = start.map_or((NONE, 0), |key| set.seek((key, 0)));
        Self { set, leaf, slot, end }
    }
}

impl Iterator for Range<'_> {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        let mut leaf = self.set.leaves.get(self.leaf)?;
        if self.slot == leaf.end() {
            self.leaf = leaf.next;
            leaf = self.set.leaves.get(self.leaf)?;
            self.slot = leaf.start();
        }
        let entry = leaf.get(self.slot).filter(|&(key, _)| match self.end {
            Bound::Included(end) => key <= end,
            Bound::Excluded(end) => key < end,
            Bound::Unbounded => true,
        });
        match entry {
            Some(_) => self.slot += 1,
            None => self.leaf = NONE,
        }
        entry
    }
}

impl FusedIterator for Range<'_> {}
