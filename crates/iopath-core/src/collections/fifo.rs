//! A FIFO with a stamp per member, from which any member can be removed in O(1). Allocated once. For many short lists
//! over the same members there is `list.rs`.
//!
//! The order is kept in a ring, not in links. A removal from a linked list touches three members: the removed one and
//! its two neighbours. With a million members queued, each is a cache miss. In a ring, consecutive arrivals and
//! consecutive removals from the front are adjacent in memory. A removal from the middle leaves a gap.

use super::list::Member;
use prefetch_index::prefetch_index;
use std::marker::PhantomData;

/// Marks a gap. No member has these bits.
const GAP: u32 = u32::MAX;

/// The position of each member in its [`Fifo`]. FIFOs may share one array if each member is in at most one of them.
#[derive(Debug)]
pub(crate) struct Positions<T> {
    positions: Box<[u32]>,
    of: PhantomData<T>,
}

/// Members in order of arrival. Positions count up without end, modulo 2³².
///
/// The ring has two slots per member. When all slots are taken, the members are moved together. Then at least half of
/// the slots are gaps, so an insert is O(1) on average.
#[derive(Debug)]
pub(crate) struct Fifo<T> {
    members: Box<[u32]>,
    stamps: Box<[u64]>,
    /// The position of the oldest member, never a gap; equal to `back` if there is no member.
    front: u32,
    /// The position of the next member to be added.
    back: u32,
    len: usize,
    of: PhantomData<T>,
}

impl<T: Member> Positions<T> {
    pub(crate) fn new(members_max: usize) -> Self {
        Self { positions: vec![0; members_max].into(), of: PhantomData }
    }

    /// Prefetches the position of a member.
    #[inline]
    pub(crate) fn prefetch(&self, member: T) {
        prefetch_index(&self.positions, member.index());
    }
}

impl<T: Member> Fifo<T> {
    pub(crate) fn new(members_max: usize) -> Self {
        let slots = (2 * members_max).next_power_of_two();
        let (members, stamps) = (vec![0; slots].into(), vec![0; slots].into());
        Self { members, stamps, front: 0, back: 0, len: 0, of: PhantomData }
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// The oldest member and its stamp.
    #[inline]
    pub(crate) fn front(&self) -> Option<(u64, T)> {
        let slot = self.slot(self.front);
        (self.len > 0).then(|| (self.stamps[slot], T::from_bits(self.members[slot])))
    }

    /// The members at distances `from` to `to` from the front. Gaps count in the distance.
    #[inline]
    pub(crate) fn ahead(&self, from: u32, to: u32) -> impl Iterator<Item = T> {
        let taken = self.back.wrapping_sub(self.front);
        let distances = from.min(taken)..to.min(taken);
        distances
            .map(|ahead| self.members[self.slot(self.front.wrapping_add(ahead))])
            .filter(|bits| *bits != GAP)
            .map(T::from_bits)
    }

    /// Prefetches the ring slot of a member. Prefetch the position of the member before.
    #[inline]
    pub(crate) fn prefetch(&self, positions: &Positions<T>, member: T) {
        prefetch_index(&self.members, self.slot(positions.positions[member.index()]));
    }

    /// Adds a member as the newest.
    #[inline]
    pub(crate) fn push_back(&mut self, positions: &mut Positions<T>, member: T, stamp: u64) {
        if self.back.wrapping_sub(self.front) as usize == self.members.len() {
            self.close_gaps(positions);
        }
        let slot = self.slot(self.back);
        self.members[slot] = member.bits();
        self.stamps[slot] = stamp;
        positions.positions[member.index()] = self.back;
        self.back = self.back.wrapping_add(1);
        self.len += 1;
    }

    /// Removes a member at any position.
    ///
    /// # Panics
    /// If the member is not in this list: a bug of the caller.
    #[inline]
    pub(crate) fn remove(&mut self, positions: &Positions<T>, member: T) {
        let front = self.slot(self.front);
        let slot = if self.members[front] == member.bits() {
            // The index of the removed member is the next to be reused.
            positions.prefetch(member);
            front
        } else {
            self.slot_of(positions, member)
        };
        self.members[slot] = GAP;
        self.len -= 1;
        if self.len == 0 {
            // Starts over at the first slots, which are in the cache of the processor.
            self.front &= !(self.members.len() as u32 - 1);
            self.back = self.front;
            return;
        }
        while self.front != self.back && self.members[self.slot(self.front)] == GAP {
            self.front = self.front.wrapping_add(1);
        }
    }

    /// The stamp of a member of this list.
    pub(crate) fn stamp(&self, positions: &Positions<T>, member: T) -> u64 {
        self.stamps[self.slot_of(positions, member)]
    }

    /// Removes `other` and moves `member` to the position and stamp of `other`. Both must be in the list.
    pub(crate) fn replace(&mut self, positions: &mut Positions<T>, other: T, member: T) {
        let slot = self.slot_of(positions, other);
        self.remove(positions, member);
        self.members[slot] = member.bits();
        positions.positions[member.index()] = positions.positions[other.index()];
    }

    fn slot(&self, position: u32) -> usize {
        position as usize & (self.members.len() - 1)
    }

    fn slot_of(&self, positions: &Positions<T>, member: T) -> usize {
        let slot = self.slot(positions.positions[member.index()]);
        assert!(self.members[slot] == member.bits(), "member {:#x} is not in the list", member.bits());
        slot
    }

    /// Moves all members together, towards the front.
    #[cold]
    fn close_gaps(&mut self, positions: &mut Positions<T>) {
        let mut to = self.front;
        for from in 0..self.members.len() as u32 {
            let from = self.slot(self.front.wrapping_add(from));
            let bits = self.members[from];
            if bits != GAP {
                let slot = self.slot(to);
                (self.members[slot], self.stamps[slot]) = (bits, self.stamps[from]);
                positions.positions[T::from_bits(bits).index()] = to;
                to = to.wrapping_add(1);
            }
        }
        self.back = to;
        assert!(self.len * 2 <= self.members.len(), "more members in the list than it was built for");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::request::Tag;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    const TAGS: u32 = 6;

    fn all(fifo: &Fifo<Tag>) -> Vec<(u64, u32)> {
        let tags = fifo.ahead(0, u32::MAX);
        tags.map(Tag::to_bits).map(|bits| (u64::from(bits >> 24), bits)).collect()
    }

    proptest! {
        /// Compares with a plain queue: additions, removals at any position, replacements. The stamp is the generation.
        #[test]
        fn keeps_the_order_of_arrival_through_removals_and_replacements(steps in prop::collection::vec((0..3_u8, 0..TAGS, 0..TAGS), 0..400)) {
            let mut positions = Positions::new(TAGS as usize);
            let mut fifo = Fifo::new(TAGS as usize);
            (fifo.front, fifo.back) = (u32::MAX - 20, u32::MAX - 20);
            let mut model = VecDeque::<(u64, u32)>::new();
            let mut generation = 0;
            for (step, index, other) in steps {
                let at = |model: &VecDeque<(u64, u32)>, index| model.iter().position(|(_, bits)| bits & 0xFF_FFFF == index);
                match (step, at(&model, index), at(&model, other)) {
                    (0 | 1, None, _) => {
                        generation = (generation + 1) % 128;
                        let bits = index | generation << 24;
                        fifo.push_back(&mut positions, Tag::from_bits(bits), u64::from(generation));
                        model.push_back((u64::from(generation), bits));
                    }
                    (0 | 1, Some(at), _) => {
                        fifo.remove(&positions, Tag::from_bits(model[at].1));
                        model.remove(at);
                    }
                    (_, Some(member), Some(other)) if member != other => {
                        let (stamp, replaced) = model[other];
                        let kept = model[member].1;
                        fifo.replace(&mut positions, Tag::from_bits(replaced), Tag::from_bits(kept));
                        prop_assert_eq!(fifo.stamp(&positions, Tag::from_bits(kept)), stamp);
                        model[other] = (stamp, kept);
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
    fn gaps_behind_an_old_member_are_reused() {
        let mut positions = Positions::new(2);
        let mut fifo = Fifo::new(2);
        fifo.push_back(&mut positions, Tag::from_bits(0), 7);
        for _ in 0..1000 {
            fifo.push_back(&mut positions, Tag::from_bits(1), 8);
            fifo.remove(&positions, Tag::from_bits(1));
        }
        assert_eq!((fifo.len(), fifo.front()), (1, Some((7, Tag::from_bits(0)))));
    }

    #[test]
    #[should_panic(expected = "is not in the list")]
    fn a_second_removal_panics() {
        let mut positions = Positions::new(2);
        let mut fifo = Fifo::new(2);
        (0..2).for_each(|bits| fifo.push_back(&mut positions, Tag::from_bits(bits), 0));
        (0..2).for_each(|_| fifo.remove(&positions, Tag::from_bits(1)));
    }
}
