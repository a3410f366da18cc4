//! Requests by where they start: what the sorted elevators sweep over and find neighbours in. Knows no age.

use super::{Neighbours, Outline};
use crate::block::table::{RequestTable, Tag};
use crate::collections::fifo::{Fifo, Places};
use crate::collections::sorted::{Entry, SortedSet};
use crate::sector::{Extent, Sector};

/// Queued requests in the order of their first sector.
///
/// A sector number leaves nine bits of a key free ([`Sector::MAX`]). They hold the length, as far as it goes:
/// so what ends where is known from the key alone, and a look-up for a merge touches no request that it does
/// not find. With a million requests queued that is a wait for memory less, of two.
#[derive(Debug)]
pub(super) struct BySector {
    set: SortedSet,
    /// How many of the oldest were looked up ahead and are still here, if only the oldest left since.
    prefetched: u32,
}

/// How many of the oldest are looked up together.
const FORESEEN: u32 = 32;

const LENGTH_BITS: u32 = 9;
/// Stands for this length and all above.
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(Sector::MAX.0.leading_zeros() >= LENGTH_BITS);

const fn key(extent: Extent) -> u64 {
    let length = if extent.sectors() < LENGTH_MAX { extent.sectors() } else { LENGTH_MAX };
    extent.start().0 << LENGTH_BITS | length
}

/// The least key of what starts at `start`.
const fn first_key(start: Sector) -> u64 {
    start.0 << LENGTH_BITS
}

impl BySector {
    /// From how many requests on they are not all close to the processor: with fewer it is not worth the while
    /// to ask for memory ahead. The one such threshold: the set itself has none.
    const FAR_FROM: usize = 4096;

    pub(super) fn new(requests_max: usize) -> Self {
        Self { set: SortedSet::with_capacity(requests_max), prefetched: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.set.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    pub(super) fn insert(&mut self, tag: Tag, requests: &RequestTable) {
        self.set.insert(key(requests[tag].extent()), tag.to_bits());
    }

    /// Takes a request out; whether it was there.
    pub(super) fn remove(&mut self, tag: Tag, requests: &RequestTable) -> bool {
        self.set.remove(key(requests[tag].extent()), tag.to_bits())
    }

    /// `tag` was `before` and is now what the table says.
    pub(super) fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable) {
        let was_there = self.set.rekey(key(before), key(requests[tag].extent()), tag.to_bits());
        debug_assert!(was_there, "{tag:?} was merged and is not queued");
    }

    /// Takes the lowest request at `head` or above, or the lowest of all: the step of a one-way sweep.
    pub(super) fn pop_upward(&mut self, head: Sector) -> Option<Tag> {
        self.pop_at_or_after(head).or_else(|| self.pop_first())
    }

    /// Takes the lowest request at `head` or above.
    pub(super) fn pop_at_or_after(&mut self, head: Sector) -> Option<Tag> {
        self.set.pop_at_or_after(first_key(head)).map(|(_, bits)| Tag::from_bits(bits))
    }

    /// Takes the request that starts nearest to `head`; of two as near, the higher.
    pub(super) fn pop_nearest(&mut self, head: Sector) -> Option<Tag> {
        let distance = |(key, _): Entry| (key >> LENGTH_BITS).abs_diff(head.0);
        let nearest = match self.set.around(first_key(head)) {
            (Some(below), Some(above)) if distance(below) < distance(above) => below,
            (below, above) => above.or(below)?,
        };
        self.set.remove(nearest.0, nearest.1);
        Some(Tag::from_bits(nearest.1))
    }

    /// Where the lowest request starts. O(1).
    pub(super) fn least(&self) -> Option<Sector> {
        self.set.first().map(|(key, _)| Sector(key >> LENGTH_BITS))
    }

    pub(super) fn pop_first(&mut self) -> Option<Tag> {
        self.set.pop_first().map(|(_, bits)| Tag::from_bits(bits))
    }

    /// Asks for the memory that inserts or look-ups of `arrivals` will touch.
    pub(super) fn prefetch<'a>(&mut self, arrivals: impl Iterator<Item = &'a Outline>) {
        if self.len() < Self::FAR_FROM {
            return;
        }
        self.set.prefetch_inserts(arrivals.map(|arrival| first_key(arrival.extent.end())));
    }

    /// Asks for the requests that the next steps of the sweep will take, and for their places in a fifo, if they
    /// are in one; names one whose place was asked for some steps ago, so that the fifo's memory can be, too.
    pub(super) fn look_ahead(&self, requests: &RequestTable, places: Option<&Places>) -> Option<Tag> {
        if self.len() < Self::FAR_FROM {
            return None;
        }
        let ahead = |steps| self.set.ahead(steps).map(Tag::from_bits);
        if let Some(far) = ahead(12) {
            requests.prefetch(far);
            places.inspect(|places| places.prefetch(far));
        }
        ahead(6)
    }

    /// Takes out `tag`, the oldest of `fifo`, from whose front more will be taken.
    pub(super) fn remove_front(&mut self, tag: Tag, fifo: &Fifo, requests: &RequestTable) {
        if self.len() >= Self::FAR_FROM {
            if self.prefetched == 0 {
                self.prefetch_removals(fifo.ahead(0, FORESEEN), requests);
                fifo.ahead(FORESEEN, 2 * FORESEEN).for_each(|tag| requests.prefetch(tag));
                self.prefetched = FORESEEN;
            }
            self.prefetched -= 1;
        }
        self.remove(tag, requests);
    }

    /// Asks for the memory that taking out `tags`, in this order, will touch.
    pub(super) fn prefetch_removals(&mut self, tags: impl Iterator<Item = Tag>, requests: &RequestTable) {
        if self.len() >= Self::FAR_FROM {
            let entry = |tag: Tag| (key(requests[tag].extent()), tag.to_bits());
            self.set.prefetch_removals(tags.map(entry));
        }
    }

    /// Asks for the requests of which [`prefetch_removals`](Self::prefetch_removals) will have to know where they are.
    pub(super) fn prefetch_requests(&self, tags: impl Iterator<Item = Tag>, requests: &RequestTable) {
        if self.len() >= Self::FAR_FROM {
            tags.for_each(|tag| requests.prefetch(tag));
        }
    }

    /// What ends where `arrival` starts, and what starts where it ends.
    pub(super) fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let Outline { extent, .. } = *arrival;
        let (below, above) = self.set.neighbours(first_key(extent.end()));
        let before = |(key, bits): Entry| {
            let tag = Tag::from_bits(bits);
            let (start, length) = (key >> LENGTH_BITS, key & LENGTH_MAX);
            let end = if length < LENGTH_MAX { start + length } else { requests[tag].extent().end().0 };
            (end == extent.start().0).then_some(tag)
        };
        let after =
            |(key, bits): Entry| (key >> LENGTH_BITS == extent.end().0).then_some(Tag::from_bits(bits));
        Neighbours { before: below.and_then(before), after: above.and_then(after) }
    }
}
