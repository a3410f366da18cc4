//! Requests in order of arrival, with a stamp each, from whose middle one leaves in O(1). Allocates once. For many
//! short lists over the same members there is `list.rs`.
//!
//! A list linked through its members touches three of them whenever one leaves: its own links and its neighbours'.
//! With a million queued each is a wait for memory. Here the order is that of a ring: who comes, and who is first,
//! is next to who came and was first before; who leaves from the middle leaves a gap.

use crate::block::table::Tag;
use prefetch_index::prefetch_index;

/// Where a request left a gap. No tag's bits.
const GAP: u32 = u32::MAX;

/// For each tag its place in the one [`Fifo`] that it is in.
#[derive(Debug)]
pub(crate) struct Places {
    places: Box<[u32]>,
}

/// Requests by age; the oldest in front. Places count up for ever, modulo 2³².
///
/// The ring has twice as many places as there can be requests. When all are taken those that are not gaps move
/// together: O(1) on average, for at least half of the places are gaps then.
#[derive(Debug)]
pub(crate) struct Fifo {
    tags: Box<[u32]>,
    stamps: Box<[u64]>,
    /// The place of the oldest, which is no gap; `back` if there is none.
    front: u32,
    /// The place that the next will have.
    back: u32,
    len: usize,
}

impl Places {
    pub(crate) fn new(requests_max: usize) -> Self {
        Self { places: vec![0; requests_max].into() }
    }

    /// Asks for the memory of a request's place without waiting for it.
    #[inline]
    pub(crate) fn prefetch(&self, tag: Tag) {
        prefetch_index(&self.places, tag.index());
    }
}

impl Fifo {
    pub(crate) fn new(requests_max: usize) -> Self {
        let places = (2 * requests_max).next_power_of_two();
        let (tags, stamps) = (vec![0; places].into(), vec![0; places].into());
        Self { tags, stamps, front: 0, back: 0, len: 0 }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The oldest request, with its stamp.
    #[inline]
    pub(crate) fn front(&self) -> Option<(u64, Tag)> {
        let slot = self.slot(self.front);
        (self.len > 0).then(|| (self.stamps[slot], Tag::from_bits(self.tags[slot])))
    }

    /// The requests at places `from` to `to` behind the front; gaps count as places.
    #[inline]
    pub(crate) fn ahead(&self, from: u32, to: u32) -> impl Iterator<Item = Tag> {
        let taken = self.back.wrapping_sub(self.front);
        let places = from.min(taken)..to.min(taken);
        places
            .map(|ahead| self.tags[self.slot(self.front.wrapping_add(ahead))])
            .filter(|bits| *bits != GAP)
            .map(Tag::from_bits)
    }

    /// Asks for the memory that taking `tag` out will touch; that of its place should be there already.
    #[inline]
    pub(crate) fn prefetch(&self, places: &Places, tag: Tag) {
        prefetch_index(&self.tags, self.slot(places.places[tag.index()]));
    }

    /// Adds a request as the newest.
    #[inline]
    pub(crate) fn push_back(&mut self, places: &mut Places, tag: Tag, stamp: u64) {
        if self.back.wrapping_sub(self.front) as usize == self.tags.len() {
            self.close_gaps(places);
        }
        let slot = self.slot(self.back);
        self.tags[slot] = tag.to_bits();
        self.stamps[slot] = stamp;
        places.places[tag.index()] = self.back;
        self.back = self.back.wrapping_add(1);
        self.len += 1;
    }

    /// Takes out a request, wherever it is. It must be in this list.
    #[inline]
    pub(crate) fn remove(&mut self, places: &Places, tag: Tag) {
        let front = self.slot(self.front);
        let slot = if self.tags[front] == tag.to_bits() {
            // The slot of who leaves is the next that is taken.
            places.prefetch(tag);
            front
        } else {
            self.slot_of(places, tag)
        };
        self.tags[slot] = GAP;
        self.len -= 1;
        while self.front != self.back && self.tags[self.slot(self.front)] == GAP {
            self.front = self.front.wrapping_add(1);
        }
    }

    /// The stamp of a request in this list.
    pub(crate) fn stamp(&self, places: &Places, tag: Tag) -> u64 {
        self.stamps[self.slot_of(places, tag)]
    }

    /// Puts `tag`, which is elsewhere in the list, where `other` is, with its stamp, and takes that out.
    pub(crate) fn replace(&mut self, places: &mut Places, other: Tag, tag: Tag) {
        let slot = self.slot_of(places, other);
        self.remove(places, tag);
        self.tags[slot] = tag.to_bits();
        places.places[tag.index()] = places.places[other.index()];
    }

    fn slot(&self, place: u32) -> usize {
        place as usize & (self.tags.len() - 1)
    }

    fn slot_of(&self, places: &Places, tag: Tag) -> usize {
        let slot = self.slot(places.places[tag.index()]);
        assert!(self.tags[slot] == tag.to_bits(), "{tag:?} is not in the list");
        slot
    }

    /// Moves all requests together, the oldest to the front.
    #[cold]
    fn close_gaps(&mut self, places: &mut Places) {
        let mut to = self.front;
        for from in 0..self.tags.len() as u32 {
            let from = self.slot(self.front.wrapping_add(from));
            let bits = self.tags[from];
            if bits != GAP {
                let slot = self.slot(to);
                (self.tags[slot], self.stamps[slot]) = (bits, self.stamps[from]);
                places.places[Tag::from_bits(bits).index()] = to;
                to = to.wrapping_add(1);
            }
        }
        self.back = to;
        assert!(self.len * 2 <= self.tags.len(), "more requests in the list than it was built for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const TAGS: u32 = 6;

    fn all(fifo: &Fifo) -> Vec<(u64, u32)> {
        let tags = fifo.ahead(0, u32::MAX);
        tags.map(Tag::to_bits).map(|bits| (u64::from(bits >> 24), bits)).collect()
    }

    proptest! {
        /// Against a plain queue: comes, goes from anywhere, takes another's place. The stamp is the generation.
        #[test]
        fn keeps_the_order_of_arrival_whoever_leaves(steps in prop::collection::vec((0..3_u8, 0..TAGS, 0..TAGS), 0..400)) {
            let (mut places, mut fifo) = (Places::new(TAGS as usize), Fifo::new(TAGS as usize));
            (fifo.front, fifo.back) = (u32::MAX - 20, u32::MAX - 20);
            let (mut model, mut came) = (VecDeque::<(u64, u32)>::new(), 0);
            for (step, index, other) in steps {
                let at = |model: &VecDeque<(u64, u32)>, index| model.iter().position(|(_, bits)| bits & 0xFF_FFFF == index);
                match (step, at(&model, index), at(&model, other)) {
                    (0 | 1, None, _) => {
                        came = (came + 1) % 128;
                        let bits = index | came << 24;
                        fifo.push_back(&mut places, Tag::from_bits(bits), u64::from(came));
                        model.push_back((u64::from(came), bits));
                    }
                    (0 | 1, Some(at), _) => {
                        fifo.remove(&places, Tag::from_bits(model[at].1));
                        model.remove(at);
                    }
                    (_, Some(member), Some(other)) if member != other => {
                        let (stamp, gone) = model[other];
                        let stays = model[member].1;
                        fifo.replace(&mut places, Tag::from_bits(gone), Tag::from_bits(stays));
                        prop_assert_eq!(fifo.stamp(&places, Tag::from_bits(stays)), stamp);
                        model[other] = (stamp, stays);
                        model.remove(member);
                    }
                    _ => {}
                }
                prop_assert_eq!(fifo.len(), model.len());
                let front = fifo.front().map(|(stamp, tag)| (stamp, tag.to_bits()));
                prop_assert_eq!(front, model.front().copied());
                let bits = |(_, bits): (u64, u32)| bits;
                prop_assert!(all(&fifo).into_iter().map(bits).eq(model.iter().copied().map(bits)));
            }
        }
    }

    #[test]
    fn one_that_stays_does_not_keep_the_gaps_of_those_that_went() {
        let (mut places, mut fifo) = (Places::new(2), Fifo::new(2));
        fifo.push_back(&mut places, Tag::from_bits(0), 7);
        for _ in 0..1000 {
            fifo.push_back(&mut places, Tag::from_bits(1), 8);
            fifo.remove(&places, Tag::from_bits(1));
        }
        assert_eq!((fifo.len(), fifo.front()), (1, Some((7, Tag::from_bits(0)))));
    }

    #[test]
    #[should_panic(expected = "is not in the list")]
    fn a_request_leaves_once() {
        let (mut places, mut fifo) = (Places::new(2), Fifo::new(2));
        (0..2).for_each(|bits| fifo.push_back(&mut places, Tag::from_bits(bits), 0));
        (0..2).for_each(|_| fifo.remove(&places, Tag::from_bits(1)));
    }
}
