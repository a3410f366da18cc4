//! The queue of the sorted elevators: requests by sector and, within each class, by age. It keeps the head and finds
//! the neighbours of an arrival. Each elevator decides between sector order and age.

use super::{Neighbours, Outline, PREFETCH_FROM};
use crate::block::bio::Op;
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::collections::fifo::{Fifo, Positions};
use crate::collections::sorted::{Entry, SortedSet};
use crate::sector::{Extent, Sector};
use std::fmt;

/// Queued requests in sector order, and in `CLASSES` lists by age: none, one for all, or [`READS`] and [`WRITES`].
///
/// A sector number leaves nine bits of a key unused ([`Sector::MAX`]). They hold the length of the request, up to a
/// maximum. So the end of a request is known from its key alone, and a look-up of neighbours reads only requests that
/// it returns. With a million requests queued, that saves one of two cache misses.
pub(super) struct SortedQueue<const CLASSES: usize> {
    by_sector: SortedSet,
    by_age: [Fifo<Tag>; CLASSES],
    /// The positions in the lists by age.
    positions: Positions<Tag>,
    /// The sector after the request dispatched last.
    head: Sector,
    /// How many of the oldest requests are prefetched, as long as only the oldest are removed.
    prefetched: u32,
}

impl<const CLASSES: usize> fmt::Debug for SortedQueue<CLASSES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SortedQueue")
            .field("queued", &self.by_sector.len())
            .field("head", &self.head)
            .finish_non_exhaustive()
    }
}

/// The class of reads, if there are two classes.
pub(super) const READS: usize = 0;
/// The class of writes, discards and write-zeroes.
pub(super) const WRITES: usize = 1;

/// How many of the oldest requests are prefetched together.
const PREFETCH_OLDEST: u32 = 32;

const LENGTH_BITS: u32 = 9;
/// This length or any greater one.
const LENGTH_MAX: u64 = (1 << LENGTH_BITS) - 1;
const _: () = assert!(Sector::MAX.0.leading_zeros() >= LENGTH_BITS);

const fn key(extent: Extent) -> u64 {
    let length = if extent.sectors() < LENGTH_MAX { extent.sectors() } else { LENGTH_MAX };
    extent.start().0 << LENGTH_BITS | length
}

/// The least key of a request that starts at `start`.
const fn first_key(start: Sector) -> u64 {
    start.0 << LENGTH_BITS
}

impl<const CLASSES: usize> SortedQueue<CLASSES> {
    pub(super) fn new(requests_max: usize) -> Self {
        Self {
            by_sector: SortedSet::with_capacity(requests_max),
            by_age: std::array::from_fn(|_| Fifo::new(requests_max)),
            positions: Positions::new(if CLASSES == 0 { 0 } else { requests_max }),
            head: Sector(0),
            prefetched: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_sector.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_sector.is_empty()
    }

    /// The number of requests of a class.
    pub(super) fn len_of(&self, class: usize) -> usize {
        self.by_age[class].len()
    }

    /// The sector after the request dispatched last.
    pub(super) const fn head(&self) -> Sector {
        self.head
    }

    /// The first sector of the lowest request. O(1).
    pub(super) fn lowest(&self) -> Option<Sector> {
        self.by_sector.first().map(|(key, _)| Sector(key >> LENGTH_BITS))
    }

    /// The oldest request of a class, with its stamp.
    pub(super) fn oldest(&self, class: usize) -> Option<(u64, Tag)> {
        self.by_age[class].front()
    }

    /// Adds a request. Within a class, stamps ascend.
    #[inline]
    pub(super) fn insert(&mut self, tag: Tag, stamp: u64, requests: &RequestTable) {
        let request = &requests[tag];
        self.by_sector.insert(key(request.extent()), tag.to_bits());
        if let Some(by_age) = self.by_age.get_mut(class(CLASSES, request.op())) {
            by_age.push_back(&mut self.positions, tag, stamp);
        }
    }

    /// Removes a request; the head stays.
    pub(super) fn remove(&mut self, tag: Tag, requests: &RequestTable) {
        let was_queued = self.by_sector.remove(key(requests[tag].extent()), tag.to_bits());
        debug_assert!(was_queued, "{tag:?} is removed and is not queued");
        self.remove_by_age(tag, requests);
    }

    /// Removes and returns any request; the head stays.
    pub(super) fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.by_sector.pop_first().map(tag_of)?;
        self.remove_by_age(tag, requests);
        Some(tag)
    }

    /// A merge has changed the extent of `tag` from `before` to that in the table.
    pub(super) fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable) {
        let was_queued = self.by_sector.rekey(key(before), key(requests[tag].extent()), tag.to_bits());
        debug_assert!(was_queued, "{tag:?} was merged and is not queued");
    }

    /// Removes `tag`, which was merged into `into`. `into` gets the earlier stamp and position of the two.
    pub(super) fn absorb_older(&mut self, tag: Tag, into: Tag, requests: &RequestTable) {
        let was_queued = self.by_sector.remove(key(requests[tag].extent()), tag.to_bits());
        debug_assert!(was_queued, "{tag:?} was merged and is not queued");
        let by_age = &mut self.by_age[class_of(CLASSES, tag, requests)];
        if by_age.stamp(&self.positions, tag) < by_age.stamp(&self.positions, into) {
            by_age.replace(&mut self.positions, tag, into);
        } else {
            by_age.remove(&self.positions, tag);
        }
    }

    /// Dispatches the lowest request at the head or above, or else the lowest of all: one step of a one-way sweep.
    pub(super) fn dispatch_cyclic(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.pop_upward().or_else(|| self.by_sector.pop_first().map(tag_of))?;
        self.prefetch_sweep(requests);
        Some(self.dispatched(tag, requests))
    }

    /// Dispatches the lowest request at the head or above, if there is one.
    #[inline]
    pub(super) fn dispatch_upward(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.pop_upward()?;
        self.prefetch_sweep(requests);
        Some(self.dispatched(tag, requests))
    }

    /// Dispatches the lowest request.
    pub(super) fn dispatch_lowest(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.by_sector.pop_first().map(tag_of)?;
        self.prefetch_sweep(requests);
        Some(self.dispatched(tag, requests))
    }

    /// Dispatches the request that starts nearest to the head; of two at the same distance, the one at the higher
    /// sector.
    pub(super) fn dispatch_nearest(&mut self, requests: &RequestTable) -> Option<Tag> {
        let distance = |(key, _): Entry| (key >> LENGTH_BITS).abs_diff(self.head.0);
        let nearest = match self.by_sector.around(first_key(self.head)) {
            (Some(below), Some(above)) if distance(below) < distance(above) => below,
            (below, above) => above.or(below)?,
        };
        self.by_sector.remove(nearest.0, nearest.1);
        Some(self.dispatched(tag_of(nearest), requests))
    }

    /// Dispatches the oldest request of a class, and prefetches the next oldest, since such dispatches come in series.
    pub(super) fn dispatch_oldest(&mut self, class: usize, requests: &RequestTable) -> Option<Tag> {
        let (_, tag) = self.oldest(class)?;
        if self.len() >= PREFETCH_FROM {
            if self.prefetched == 0 {
                let by_age = &self.by_age[class];
                let entry = |tag: Tag| (key(requests[tag].extent()), tag.to_bits());
                self.by_sector.prefetch_removals(by_age.ahead(0, PREFETCH_OLDEST).map(entry));
                by_age.ahead(PREFETCH_OLDEST, 2 * PREFETCH_OLDEST).for_each(|tag| requests.prefetch(tag));
                self.prefetched = PREFETCH_OLDEST;
            }
            self.prefetched -= 1;
        }
        self.dispatch(tag, requests)
    }

    /// Dispatches `tag`, if it is queued.
    pub(super) fn dispatch(&mut self, tag: Tag, requests: &RequestTable) -> Option<Tag> {
        let was_queued = self.by_sector.remove(key(requests[tag].extent()), tag.to_bits());
        was_queued.then(|| self.dispatched(tag, requests))
    }

    /// Prefetches the memory that inserts or look-ups of `arrivals` will use.
    pub(super) fn prefetch<'a>(&mut self, arrivals: impl Iterator<Item = &'a Outline>) {
        if self.len() >= PREFETCH_FROM {
            self.by_sector.prefetch_inserts(arrivals.map(|arrival| first_key(arrival.extent.end())));
        }
    }

    /// Prefetches the memory that removals of `tags`, in this order, will use.
    pub(super) fn prefetch_removals(&mut self, tags: impl Iterator<Item = Tag>, requests: &RequestTable) {
        if self.len() >= PREFETCH_FROM {
            let entry = |tag: Tag| (key(requests[tag].extent()), tag.to_bits());
            self.by_sector.prefetch_removals(tags.map(entry));
        }
    }

    /// Prefetches the requests that [`prefetch_removals`](Self::prefetch_removals) will read.
    pub(super) fn prefetch_requests(&self, tags: impl Iterator<Item = Tag>, requests: &RequestTable) {
        if self.len() >= PREFETCH_FROM {
            tags.for_each(|tag| requests.prefetch(tag));
        }
    }

    /// The requests that end where `arrival` starts and that start where it ends.
    #[inline]
    pub(super) fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let Outline { extent, .. } = *arrival;
        let (below, above) = self.by_sector.neighbours(first_key(extent.end()));
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

    fn pop_upward(&mut self) -> Option<Tag> {
        self.by_sector.pop_at_or_after(first_key(self.head)).map(tag_of)
    }

    /// Completes the dispatch of `tag`, which the caller has removed from the sector order.
    fn dispatched(&mut self, tag: Tag, requests: &RequestTable) -> Tag {
        self.remove_by_age(tag, requests);
        self.head = requests[tag].extent().end();
        tag
    }

    fn remove_by_age(&mut self, tag: Tag, requests: &RequestTable) {
        if let Some(by_age) = self.by_age.get_mut(class_of(CLASSES, tag, requests)) {
            by_age.remove(&self.positions, tag);
        }
    }

    /// Prefetches for the next steps of the sweep. A position names a slot in a list by age, so positions are
    /// prefetched further ahead than slots.
    fn prefetch_sweep(&self, requests: &RequestTable) {
        if self.len() < PREFETCH_FROM {
            return;
        }
        let ahead = |steps| self.by_sector.ahead(steps).map(Tag::from_bits);
        if let Some(far) = ahead(12) {
            requests.prefetch(far);
            if CLASSES > 0 {
                self.positions.prefetch(far);
            }
        }
        if CLASSES > 0
            && let Some(near) = ahead(6)
        {
            self.by_age[class_of(CLASSES, near, requests)].prefetch(&self.positions, near);
        }
    }
}

fn tag_of((_, bits): Entry) -> Tag {
    Tag::from_bits(bits)
}

/// The class of an operation.
const fn class(classes: usize, op: Op) -> usize {
    if classes > 1 && op.is_write() { WRITES } else { READS }
}

/// The class of a request. Reads the request only if there are several classes.
fn class_of(classes: usize, tag: Tag, requests: &RequestTable) -> usize {
    if classes > 1 { class(classes, requests[tag].op()) } else { READS }
}
