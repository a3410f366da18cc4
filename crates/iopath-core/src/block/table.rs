//! Slots for bios and requests: allocated once per queue, taken and released in O(1).

use crate::block::bio::Bio;
use crate::block::request::{Chain, NONE, Request, State, Tag};
use crate::error::IoError;
use crate::time::Instant;
use prefetch_index::prefetch_index;
use std::fmt;
use std::ops::{Index, IndexMut};

/// The requests of a queue, by tag. Elevators read the table; only the queue writes to it.
pub struct RequestTable {
    slots: Box<[Request]>,
    free: Vec<u32>,
}

impl fmt::Debug for RequestTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestTable")
            .field("requests", &self.len())
            .field("capacity", &self.capacity())
            .finish_non_exhaustive()
    }
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

/// A bio in the queue, or a piece split from one. On one cache line, if the memory handle has at most 24 bytes.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct BioSlot<M> {
    pub(crate) bio: Bio<M>,
    /// The next bio of the same request.
    pub(crate) next: u32,
    /// The bio that this piece was split from, or [`NO_PARENT`]; and [`ALONE`].
    parent: u32,
}

/// The bio must not be merged: it is a retry after a merged request failed.
const ALONE: u32 = 1 << 31;
const NO_PARENT: u32 = ALONE - 1;

impl<M> BioSlot<M> {
    /// The bio that this piece was split from.
    #[inline]
    pub(crate) const fn parent(&self) -> Option<u32> {
        let parent = self.parent & !ALONE;
        if parent == NO_PARENT { None } else { Some(parent) }
    }

    /// Whether the bio must not be merged.
    pub(crate) const fn is_alone(&self) -> bool {
        self.parent & ALONE != 0
    }

    /// Forbids merges of the bio, which is retried.
    pub(crate) const fn set_alone(&mut self) {
        self.parent |= ALONE;
    }
}

/// The progress of a bio that is split.
#[derive(Debug, Clone, Default)]
pub(crate) struct Split {
    /// The sectors that were split off so far.
    pub(crate) sectors: u64,
    /// The pieces that have not completed yet.
    pub(crate) pieces: u32,
    /// The first error of a piece.
    pub(crate) error: Option<IoError>,
}

/// The bios of a queue, by slot number.
#[derive(Debug)]
pub(crate) struct BioTable<M> {
    /// Grows to the maximum number of slots taken at one time, within its capacity.
    slots: Vec<BioSlot<M>>,
    /// For each slot. Apart from the slots, since most bios are not split. The default, except for a bio that is split.
    splits: Vec<Split>,
    free: Vec<u32>,
}

impl<M> BioTable<M> {
    pub(crate) fn new(capacity: usize) -> Self {
        assert!(capacity < NO_PARENT as usize, "a link names less than {NO_PARENT} bios, not {capacity}");
        Self {
            slots: Vec::with_capacity(capacity),
            splits: Vec::with_capacity(capacity),
            free: Vec::with_capacity(capacity),
        }
    }

    /// Takes a slot for a bio, or for a piece of the bio in slot `parent`.
    #[inline]
    pub(crate) fn insert(&mut self, bio: Bio<M>, parent: Option<u32>) -> u32 {
        let taken = BioSlot { bio, next: NONE, parent: parent.unwrap_or(NO_PARENT) };
        if let Some(slot) = self.free.pop() {
            self[slot] = taken;
            return slot;
        }
        assert!(self.slots.len() < self.slots.capacity(), "the queue took more bios than it has slots for");
        self.slots.push(taken);
        self.splits.push(Split::default());
        self.slots.len() as u32 - 1
    }

    /// The bio in a slot, and its progress if it is split.
    #[inline]
    pub(crate) fn split_mut(&mut self, slot: u32) -> (&BioSlot<M>, &mut Split) {
        (&self.slots[slot as usize], &mut self.splits[slot as usize])
    }

    /// All pieces of a split bio have completed. Returns its first error.
    pub(crate) fn end_split(&mut self, slot: u32) -> Result<(), IoError> {
        std::mem::take(&mut self.splits[slot as usize]).error.map_or(Ok(()), Err)
    }

    /// Prefetches the memory of a bio.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch_index(&self.slots, slot as usize);
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
