//! Slots for bios and requests: allocated once per queue, taken and given back in O(1).

use crate::block::bio::{Bio, Op, Priority, Stream};
use crate::block::elevator::Outline;
use crate::block::merge::Chain;
use crate::error::IoError;
use crate::sector::Extent;
use crate::time::Instant;
use prefetch_index::prefetch_index;
use std::fmt;
use std::num::NonZeroU32;
use std::ops::{Index, IndexMut};

/// No slot: the end of a chain.
pub(crate) const NONE: u32 = u32::MAX;

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Names a request from the moment it has a slot until it completes.
///
/// Carries the slot's generation, so that a completion that comes too late is told from the next
/// request in the same slot.
///
/// Stored inverted, so that no tag is zero: two tags that may be missing fit one register. Returned through memory,
/// they would be read back wider than they were written, and such a read waits until every store before it is
/// done, be it to memory that is not yet in any cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(NonZeroU32);

const _: () = assert!(size_of::<Option<Tag>>() == 4);

impl Tag {
    /// The most requests a queue can have slots for.
    pub const COUNT_MAX: usize = INDEX_MASK as usize;

    const fn new(index: u32, generation: u8) -> Self {
        Self::from_bits(index | (generation as u32) << INDEX_BITS)
    }

    /// The slot, from 0 to one less than the queue's slots: an index for per-request tables.
    pub const fn index(self) -> usize {
        (self.to_bits() & INDEX_MASK) as usize
    }

    /// The tag as a number, for structures and devices that carry numbers.
    pub const fn to_bits(self) -> u32 {
        !self.0.get()
    }

    /// The tag that [`Tag::to_bits`] gave.
    ///
    /// # Panics
    /// If there is no such tag: it would name one slot more than a queue can have.
    pub const fn from_bits(bits: u32) -> Self {
        Self(NonZeroU32::new(!bits).expect("no tag is all ones"))
    }

    const fn next_generation(self) -> Self {
        Self::from_bits(self.to_bits().wrapping_add(1 << INDEX_BITS))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tag").field(&self.to_bits()).finish()
    }
}

/// Where a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// Has its slot; in the plug if one is on.
    Taken,
    Queued,
    InFlight,
    Requeued,
    Done,
}

/// One I/O to the device, made of one bio or of several that touch one another. One cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Request {
    pub(crate) chain: Chain,
    pub(crate) state: State,
    arrived: Instant,
    tag: Tag,
}

impl Request {
    /// What it does.
    pub const fn op(&self) -> Op {
        self.chain.op
    }

    /// Where.
    pub const fn extent(&self) -> Extent {
        self.chain.extent
    }

    /// The stream of its first bio.
    pub const fn stream(&self) -> Stream {
        self.chain.stream
    }

    /// How urgent it is.
    pub const fn priority(&self) -> Priority {
        self.chain.priority
    }

    /// In how many pieces of memory it is.
    pub const fn segments(&self) -> u32 {
        self.chain.segments
    }

    /// All that an elevator may know of it but its age.
    pub const fn outline(&self) -> Outline {
        self.chain.outline()
    }

    /// When its first bio got a request slot.
    pub const fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// The requests of a queue, by tag. Elevators read it; only the queue writes.
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
            // Popped from the end: low slots first, and the one used last, still in the cache, before all.
            free: (0..capacity as u32).rev().collect(),
        }
    }

    /// Takes a slot for `chain`, if one is free.
    pub(crate) fn take(&mut self, chain: Chain, now: Instant) -> Option<Tag> {
        let slot = &mut self.slots[self.free.pop()? as usize];
        slot.chain = chain;
        slot.arrived = now;
        slot.state = State::Taken;
        Some(slot.tag)
    }

    /// Gives the slot back; its tag is never used again until the generation has gone round.
    pub(crate) fn release(&mut self, tag: Tag) {
        let slot = &mut self[tag];
        assert!(slot.state != State::Free, "{tag:?} given back twice");
        slot.state = State::Free;
        slot.tag = tag.next_generation();
        self.free.push(tag.index() as u32);
    }

    /// Asks for the memory of a request without waiting for it.
    #[inline]
    pub fn prefetch(&self, tag: Tag) {
        prefetch_index(&self.slots, tag.index());
    }

    /// How many requests the table has slots for.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// How many slots are taken.
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
        assert!(request.tag == tag, "{tag:?} names a request that is over");
        request
    }
}

impl IndexMut<Tag> for RequestTable {
    fn index_mut(&mut self, tag: Tag) -> &mut Request {
        let request = &mut self.slots[tag.index()];
        assert!(request.tag == tag, "{tag:?} names a request that is over");
        request
    }
}

/// A bio in the queue, or a piece cut from one.
#[derive(Debug)]
pub(crate) struct BioSlot<M> {
    pub(crate) bio: Bio<M>,
    /// The next bio of the same request.
    pub(crate) next: u32,
    /// The bio this piece was cut from.
    pub(crate) parent: u32,
    /// Of a bio that is cut into pieces: how many of them are not yet over.
    pub(crate) pieces: u32,
    /// Of a bio that is cut into pieces: how many sectors have been.
    pub(crate) sectors_cut: u64,
    /// The first error of a piece.
    pub(crate) error: Option<IoError>,
    /// Must not be merged: it is tried again after a merged request failed.
    pub(crate) alone: bool,
}

/// The bios of a queue, by slot number.
#[derive(Debug)]
pub(crate) struct BioTable<M> {
    /// As many as have ever been taken at once.
    slots: Vec<BioSlot<M>>,
    free: Vec<u32>,
}

impl<M> BioTable<M> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { slots: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity) }
    }

    #[inline]
    pub(crate) fn insert(&mut self, bio: Bio<M>, parent: u32) -> u32 {
        let taken = BioSlot { bio, next: NONE, parent, pieces: 0, sectors_cut: 0, error: None, alone: false };
        if let Some(slot) = self.free.pop() {
            self[slot] = taken;
            return slot;
        }
        assert!(self.slots.len() < self.slots.capacity(), "the queue took more bios than it has slots for");
        self.slots.push(taken);
        self.slots.len() as u32 - 1
    }

    /// Gives the slot back; it can be read until the next insert.
    #[inline]
    pub(crate) fn remove(&mut self, slot: u32) -> &BioSlot<M> {
        self.free.push(slot);
        &self[slot]
    }

    /// The bio at this link of a chain; `None` at its end.
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
