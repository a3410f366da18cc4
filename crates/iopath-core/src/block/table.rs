//! Slots for bios and requests: allocated once per queue, taken and released in O(1).

use crate::block::bio::Bio;
use crate::block::request::{Chain, NONE, Request, State, Tag};
use crate::error::IoError;
use crate::time::Instant;
use prefetch_index::prefetch_index;
use std::ops::{Index, IndexMut};

/// The requests of a queue, by tag. Elevators read the table; only the queue writes to it.
#[derive(Debug)]
pub struct RequestTable {
    slots: Box<[Request]>,
    free: Vec<u32>,
}

impl RequestTable {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity <= Tag::COUNT_MAX, "{capacity} requests; a tag can name {}", Tag::COUNT_MAX);
        let slot = |index| Request {
            chain: Chain::EMPTY,
            state: State::Free,
            arrived: Instant::ZERO,
            tag: Tag::new(index, 0),
        };
        Self {
            slots: (0..capacity as u32).map(slot).collect(),
            // A stack: low slots are taken first. A released slot is taken next, while it is still in the cache.
            free: (0..capacity as u32).rev().collect(),
        }
    }

    /// Takes a slot for `chain`; `None` if all are taken.
    #[inline]
    pub(crate) fn take(&mut self, chain: Chain, now: Instant) -> Option<Tag> {
        let slot = &mut self.slots[self.free.pop()? as usize];
        slot.chain = chain;
        slot.arrived = now;
        slot.state = State::Taken;
        Some(slot.tag)
    }

    /// Releases the slot. Its tag is not used again before the generation wraps around.
    #[inline]
    pub(crate) fn release(&mut self, tag: Tag) {
        let slot = &mut self[tag];
        assert!(slot.state != State::Free, "{tag:?} was released twice");
        slot.state = State::Free;
        slot.tag = tag.next_generation();
        self.free.push(tag.index() as u32);
    }

    /// Prefetches the memory of a request.
    #[inline]
    pub fn prefetch(&self, tag: Tag) {
        prefetch_index(&self.slots, tag.index());
    }

    /// The number of slots.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// The number of slots taken.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Whether no slot is taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Index<Tag> for RequestTable {
    type Output = Request;

    /// # Panics
    /// If the tag is not of this table or its request has completed: a bug of the elevator or device.
    fn index(&self, tag: Tag) -> &Request {
        let request = &self.slots[tag.index()];
        assert!(request.tag == tag, "{tag:?} names a request that has completed");
        request
    }
}

impl IndexMut<Tag> for RequestTable {
    fn index_mut(&mut self, tag: Tag) -> &mut Request {
        let request = &mut self.slots[tag.index()];
        assert!(request.tag == tag, "{tag:?} names a request that has completed");
        request
    }
}

/// A bio in the queue, or a piece split from one.
#[derive(Debug)]
pub(crate) struct BioSlot<M> {
    pub(crate) bio: Bio<M>,
    /// The next bio of the same request.
    pub(crate) next: u32,
    /// The bio that this piece was split from.
    pub(crate) parent: u32,
    /// The pieces of a split bio that have not completed yet.
    pub(crate) pieces: u32,
    /// The sectors of a split bio that were split off so far.
    pub(crate) sectors_split: u64,
    /// The first error of a piece.
    pub(crate) error: Option<IoError>,
    /// The bio must not be merged: it is a retry after a merged request failed.
    pub(crate) alone: bool,
}

/// The bios of a queue, by slot number.
#[derive(Debug)]
pub(crate) struct BioTable<M> {
    /// Grows to the maximum number of slots taken at one time, within its capacity.
    slots: Vec<BioSlot<M>>,
    free: Vec<u32>,
}

impl<M> BioTable<M> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity) }
    }

    #[inline]
    pub(crate) fn insert(&mut self, bio: Bio<M>, parent: u32) -> u32 {
        let taken =
            BioSlot { bio, next: NONE, parent, pieces: 0, sectors_split: 0, error: None, alone: false };
        if let Some(slot) = self.free.pop() {
            self[slot] = taken;
            return slot;
        }
        assert!(self.slots.len() < self.slots.capacity(), "the queue took more bios than it has slots for");
        self.slots.push(taken);
        self.slots.len() as u32 - 1
    }

    /// Releases the slot; its contents stay readable until the next insert.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> &BioSlot<M> {
        self.free.push(slot);
        &self[slot]
    }

    /// The bio at this link of a chain; `None` at the end of the chain.
    pub(crate) fn chained(&self, slot: u32) -> Option<&BioSlot<M>> {
        if slot == NONE { None } else { Some(&self[slot]) }
    }
}

impl<M> Index<u32> for BioTable<M> {
    type Output = BioSlot<M>;

    fn index(&self, slot: u32) -> &BioSlot<M> {
        &self.slots[slot as usize]
    }
}

impl<M> IndexMut<u32> for BioTable<M> {
    fn index_mut(&mut self, slot: u32) -> &mut BioSlot<M> {
        &mut self.slots[slot as usize]
    }
}
