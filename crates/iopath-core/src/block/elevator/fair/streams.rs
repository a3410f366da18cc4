//! The table of streams of `fair`: a hash table with a fixed number of slots. When it is full, a new stream gets the
//! slot of the stream that has been idle for longest. The order of service is in `fair.rs`.

use crate::block::bio::Stream;
use crate::block::request::Tag;
use crate::collections::list::{Links, List, Member};
use std::ops::{Index, IndexMut};

/// The weight of a stream unless it is set.
pub(super) const WEIGHT_DEFAULT: u32 = 100;
pub(super) const WEIGHT_MAX: u32 = 10_000;

const NONE: u32 = u32::MAX;

/// The number of a slot in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamSlot(pub(super) u32);

impl Member for StreamSlot {
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

/// The state of one stream.
#[derive(Debug, Clone)]
pub(super) struct State {
    /// The service it has received over its weight. Orders the streams that have requests.
    pub(super) virtual_time: u64,
    pub(super) weight: u32,
    /// Oldest first.
    pub(super) requests: List<Tag>,
    stream: Stream,
    /// The next stream with the same hash.
    next: u32,
}

/// The streams. Only setting a weight allocates after construction.
#[derive(Debug)]
pub(super) struct Streams {
    states: Vec<State>,
    states_max: usize,
    /// The first stream of each hash.
    buckets: Box<[u32]>,
    /// Streams without requests, the one that has been idle for longest first.
    idle: List<StreamSlot>,
    links: Links<StreamSlot>,
    /// The weights set, sorted by stream.
    weights: Vec<(Stream, u32)>,
}

impl Streams {
    pub(super) fn new(streams_max: usize) -> Self {
        Self {
            states: Vec::with_capacity(streams_max),
            states_max: streams_max,
            buckets: vec![NONE; streams_max.next_power_of_two()].into(),
            idle: List::EMPTY,
            links: Links::new(streams_max as u32),
            weights: Vec::new(),
        }
    }

    /// The slot of a stream whose first request is queued now. The stream is no longer idle.
    pub(super) fn activate(&mut self, stream: Stream) -> StreamSlot {
        match self.find(stream) {
            Some(slot) if self[slot].requests.is_empty() => {
                self.links.remove(&mut self.idle, slot);
                slot
            }
            Some(slot) => slot,
            None => self.add(stream),
        }
    }

    /// The last queued request of a stream was removed.
    pub(super) fn set_idle(&mut self, slot: StreamSlot) {
        self.links.push_back(&mut self.idle, slot);
    }

    /// Stores the weight of a stream. Returns the slot of the stream, if it has one; the caller sets the weight there.
    pub(super) fn set_weight(&mut self, stream: Stream, weight: u32) -> Option<StreamSlot> {
        assert!((1..=WEIGHT_MAX).contains(&weight), "a weight is 1 to {WEIGHT_MAX}, not {weight}");
        match self.weights.binary_search_by_key(&stream, |(stream, _)| *stream) {
            Ok(index) => self.weights[index].1 = weight,
            Err(index) => self.weights.insert(index, (stream, weight)),
        }
        self.find(stream)
    }

    /// The least and the greatest weight set.
    pub(super) fn weight_range(&self) -> (u32, u32) {
        let widen = |(least, greatest): (u32, u32), (_, weight): &(Stream, u32)| {
            (least.min(*weight), greatest.max(*weight))
        };
        self.weights.iter().fold((WEIGHT_DEFAULT, WEIGHT_DEFAULT), widen)
    }

    fn find(&self, stream: Stream) -> Option<StreamSlot> {
        let mut slot = self.buckets[self.bucket(stream)];
        while slot != NONE && self.states[slot as usize].stream != stream {
            slot = self.states[slot as usize].next;
        }
        (slot != NONE).then_some(StreamSlot(slot))
    }

    /// Takes a slot for a stream that has none: an unused one, or that of the stream idle for longest.
    fn add(&mut self, stream: Stream) -> StreamSlot {
        let weight = self.weights.binary_search_by_key(&stream, |(stream, _)| *stream);
        let weight = weight.map_or(WEIGHT_DEFAULT, |index| self.weights[index].1);
        let bucket = self.bucket(stream);
        let state =
            State { virtual_time: 0, weight, requests: List::EMPTY, stream, next: self.buckets[bucket] };
        if self.states.len() < self.states_max {
            self.states.push(state);
            self.buckets[bucket] = self.states.len() as u32 - 1;
        } else {
            let slot = self.links.pop_front(&mut self.idle);
            let slot = slot.expect("a stream is idle: there are no more active streams than requests");
            self.unhash(slot);
            // Read again: the replaced stream may have been the first of this bucket.
            self[slot] = State { next: self.buckets[bucket], ..state };
            self.buckets[bucket] = slot.0;
        }
        StreamSlot(self.buckets[bucket])
    }

    fn unhash(&mut self, slot: StreamSlot) {
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

    /// Multiplicative hash (Knuth): spreads streams that are numbered consecutively.
    fn bucket(&self, stream: Stream) -> usize {
        let hash = u64::from(stream.0) * 0x9E37_79B9;
        (hash >> 8) as usize & (self.buckets.len() - 1)
    }
}

impl Index<StreamSlot> for Streams {
    type Output = State;

    fn index(&self, slot: StreamSlot) -> &State {
        &self.states[slot.index()]
    }
}

impl IndexMut<StreamSlot> for Streams {
    fn index_mut(&mut self, slot: StreamSlot) -> &mut State {
        &mut self.states[slot.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_stream_replaces_the_one_idle_for_longest() {
        let mut streams = Streams::new(8);
        for id in 0..8 {
            let slot = streams.activate(Stream(id));
            streams[slot].virtual_time = u64::from(id) + 1;
            streams.set_idle(slot);
        }
        for id in 8..1000 {
            let slot = streams.activate(Stream(id));
            assert_eq!(streams[slot].virtual_time, 0, "stream {id} is new");
            streams[slot].virtual_time = u64::from(id) + 1;
            streams.set_idle(slot);
            for known in id - 7..=id {
                let slot = streams.find(Stream(known)).unwrap();
                assert_eq!(streams[slot].virtual_time, u64::from(known) + 1);
            }
            assert_eq!(streams.find(Stream(id - 8)), None);
        }
    }

    #[test]
    fn a_weight_is_kept_when_the_stream_loses_its_slot() {
        let mut streams = Streams::new(1);
        assert_eq!(streams.set_weight(Stream(7), 300), None);
        for (id, weight) in [(7, 300), (8, 100), (7, 300)] {
            let slot = streams.activate(Stream(id));
            assert_eq!(streams[slot].weight, weight);
            streams.set_idle(slot);
        }
        assert_eq!(streams.weight_range(), (100, 300));
    }
}
