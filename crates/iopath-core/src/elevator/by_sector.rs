//! Requests by where they start: what the sorted elevators sweep over and find neighbours in. Knows no age.

use super::{Neighbours, Outline};
use crate::sector::{Extent, Sector};
use crate::sorted::SortedSet;
use crate::table::{RequestTable, Tag};

/// Queued requests in the order of their first sector.
#[derive(Debug)]
pub(super) struct BySector {
    set: SortedSet,
}

impl BySector {
    pub(super) fn new(requests_max: usize) -> Self {
        Self { set: SortedSet::with_capacity(requests_max) }
    }

    pub(super) fn len(&self) -> usize {
        self.set.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn insert(&mut self, tag: Tag, requests: &RequestTable) {
        self.set.insert(requests[tag].extent().start().0, tag.to_bits());
    }

    /// Takes a request out; whether it was there.
    pub(super) fn remove(&mut self, tag: Tag, requests: &RequestTable) -> bool {
        self.set.remove(requests[tag].extent().start().0, tag.to_bits())
    }

    /// `tag` was at `before` and is now where the table says: a front merge moves it.
    pub(super) fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable) {
        if requests[tag].extent().start() != before.start() {
            self.set.remove(before.start().0, tag.to_bits());
            self.insert(tag, requests);
        }
    }

    /// Takes the lowest request at `head` or above, or the lowest of all: the step of a one-way sweep.
    pub(super) fn pop_upward(&mut self, head: Sector) -> Option<Tag> {
        self.pop_at_or_after(head).or_else(|| self.pop_first())
    }

    /// Takes the lowest request at `head` or above.
    pub(super) fn pop_at_or_after(&mut self, head: Sector) -> Option<Tag> {
        self.set.pop_at_or_after(head.0).map(|(_, bits)| Tag::from_bits(bits))
    }

    /// Takes the request that starts nearest to `head`; of two as near, the higher.
    pub(super) fn pop_nearest(&mut self, head: Sector) -> Option<Tag> {
        self.set.pop_nearest(head.0).map(|(_, bits)| Tag::from_bits(bits))
    }

    pub(super) fn pop_first(&mut self) -> Option<Tag> {
        self.set.pop_first().map(|(_, bits)| Tag::from_bits(bits))
    }

    /// What ends where `arrival` starts, and what starts where it ends.
    pub(super) fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let end = arrival.extent.end().0;
        let (below, above) = self.set.neighbours(end);
        let before = |(_, bits)| {
            let tag = Tag::from_bits(bits);
            requests[tag].extent().is_followed_by(arrival.extent).then_some(tag)
        };
        let after = |(start, bits)| (start == end).then_some(Tag::from_bits(bits));
        Neighbours { before: below.and_then(before), after: above.and_then(after) }
    }
}
