//! The streams that `fair` knows: found by hash, as many as requests can be queued, the longest idle forgotten
//! first. Knows nothing of turns.

use crate::block::bio::Stream;
use crate::block::table::Tag;
use crate::collections::list::{Links, List, Member};
use std::ops::{Index, IndexMut};

/// The weight of a stream that none was set for.
pub(super) const WEIGHT_DEFAULT: u32 = 100;
pub(super) const WEIGHT_MAX: u32 = 10_000;

const NONE: u32 = u32::MAX;

/// A stream's place in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot(pub(super) u32);

impl Member for Slot {
    fn bits(self) -> u32 {
        self.0
    }

    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is known of one stream.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// What it has been served, over its weight; when it has requests, where it stands in the order.
    pub(super) virtual_time: u64,
    pub(super) weight: u32,
    /// Its requests, oldest first.
    pub(super) queue: List<Tag>,
    stream: Stream,
    /// The next with the same hash.
    next: u32,
}

/// A table of streams that never allocates after construction, but for weights.
#[derive(Debug)]
pub(super) struct Streams {
    states: Vec<State>,
    states_max: usize,
    /// The first stream of each hash.
    buckets: Box<[u32]>,
    /// Streams without requests, the longest idle first.
    idle: List<Slot>,
    links: Links<Slot>,
    /// Weights set, by stream.
    weights: Vec<(Stream, u32)>,
}

impl Streams {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            states: Vec::with_capacity(streams_max),
            states_max: streams_max,
            buckets: vec![NONE; streams_max.next_power_of_two()].into(),
            idle: List::EMPTY,
            links: Links::new(streams_max),
            weights: Vec::new(),
        }
    }

    /// The slot of a stream that has a request, or is about to: it is idle no longer.
    pub(super) fn enter(&mut self, stream: Stream) -> Slot {
        match self.find(stream) {
            Some(slot) if self[slot].queue.is_empty() => {
                self.idle.remove(&mut self.links, slot);
                slot
            }
            Some(slot) => slot,
            None => self.add(stream),
        }
    }

    /// A stream has no request any more.
    pub(super) fn rest(&mut self, slot: Slot) {
        self.idle.push_back(&mut self.links, slot);
    }

    /// Remembers the weight of a stream; its slot, if it has one, where the weight is yet to be set.
    pub(super) fn set_weight(&mut self, stream: Stream, weight: u32) -> Option<Slot> {
        assert!((1..=WEIGHT_MAX).contains(&weight), "a weight is 1 to {WEIGHT_MAX}, not {weight}");
        match self.weights.binary_search_by_key(&stream, |(stream, _)| *stream) {
            Ok(place) => self.weights[place].1 = weight,
            Err(place) => self.weights.insert(place, (stream, weight)),
        }
        self.find(stream)
    }

    /// The least and the greatest weight.
    pub(super) fn weight_range(&self) -> (u32, u32) {
        let widen = |(least, greatest): (u32, u32), (_, weight): &(Stream, u32)| {
            (least.min(*weight), greatest.max(*weight))
        };
        self.weights.iter().fold((WEIGHT_DEFAULT, WEIGHT_DEFAULT), widen)
    }

    fn find(&self, stream: Stream) -> Option<Slot> {
        let mut slot = self.buckets[self.bucket(stream)];
        while slot != NONE && self.states[slot as usize].stream != stream {
            slot = self.states[slot as usize].next;
        }
        (slot != NONE).then_some(Slot(slot))
    }

    /// Takes a slot for a stream that has none: a new one, or that of the longest idle.
    fn add(&mut self, stream: Stream) -> Slot {
        let weight = self.weights.binary_search_by_key(&stream, |(stream, _)| *stream);
        let weight = weight.map_or(WEIGHT_DEFAULT, |place| self.weights[place].1);
        let bucket = self.bucket(stream);
        let state = State { virtual_time: 0, weight, queue: List::EMPTY, stream, next: self.buckets[bucket] };
        if self.states.len() < self.states_max {
            self.states.push(state);
            self.buckets[bucket] = self.states.len() as u32 - 1;
        } else {
            let slot = self.idle.pop_front(&mut self.links);
            let slot = slot.expect("no more streams have requests than there are requests");
            self.unhash(slot);
            // What it took the place of may have been the first of the same hash.
            self[slot] = State { next: self.buckets[bucket], ..state };
            self.buckets[bucket] = slot.0;
        }
        Slot(self.buckets[bucket])
    }

    fn unhash(&mut self, slot: Slot) {
        let State { stream, next, .. } = self[slot];
        let bucket = self.bucket(stream);
        if self.buckets[bucket] == slot.0 {
            self.buckets[bucket] = next;
            return;
        }
        let mut before = self.buckets[bucket];
        while self.states[before as usize].next != slot.0 {
            before = self.states[before as usize].next;
        }
        self.states[before as usize].next = next;
    }

    /// Multiplicative hash (Knuth): streams are often numbered one by one.
    fn bucket(&self, stream: Stream) -> usize {
        let hash = u64::from(stream.0) * 0x9E37_79B9;
        (hash >> 8) as usize & (self.buckets.len() - 1)
    }
}

impl Index<Slot> for Streams {
    type Output = State;

    fn index(&self, slot: Slot) -> &State {
        &self.states[slot.index()]
    }
}

impl IndexMut<Slot> for Streams {
    fn index_mut(&mut self, slot: Slot) -> &mut State {
        &mut self.states[slot.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_is_forgotten_first_and_the_others_are_found() {
        let mut streams = Streams::new(8);
        for id in 0..8 {
            let slot = streams.enter(Stream(id));
            streams[slot].virtual_time = u64::from(id) + 1;
            streams.rest(slot);
        }
        for id in 8..1000 {
            let slot = streams.enter(Stream(id));
            assert_eq!(streams[slot].virtual_time, 0, "stream {id} is new");
            streams[slot].virtual_time = u64::from(id) + 1;
            streams.rest(slot);
            for known in id - 7..=id {
                let slot = streams.find(Stream(known)).unwrap();
                assert_eq!(streams[slot].virtual_time, u64::from(known) + 1);
            }
            assert_eq!(streams.find(Stream(id - 8)), None);
        }
    }

    #[test]
    fn a_weight_outlives_its_slot() {
        let mut streams = Streams::new(1);
        assert_eq!(streams.set_weight(Stream(7), 300), None);
        for (id, weight) in [(7, 300), (8, 100), (7, 300)] {
            let slot = streams.enter(Stream(id));
            assert_eq!(streams[slot].weight, weight);
            streams.rest(slot);
        }
        assert_eq!(streams.weight_range(), (100, 300));
    }
}
