//! The request: one I/O for the device, made of one bio or of several adjacent ones, and the tag that names it. Slots
//! for requests are in `table.rs`, the conditions for a merge in `merge.rs`.

use crate::block::bio::{Bio, Op, Priority, Stream};
use crate::collections::list::Member;
use crate::sector::Extent;
use crate::time::Instant;
use std::fmt;
use std::num::NonZeroU32;

/// Marks the end of a chain of bio slots.
pub(crate) const NONE: u32 = u32::MAX;

const INDEX_BITS: u32 = 24;
const INDEX_MASK: u32 = (1 << INDEX_BITS) - 1;

/// Names a request from the time it gets a slot until it completes.
///
/// A tag carries the generation of its slot: a late completion does not match the next request in the same slot.
///
/// The bits are stored inverted, so that no tag is zero and two optional tags fit one register. A pair returned through
/// memory would be written as two values and read as one. Such a read cannot be forwarded from the store buffer: it
/// stalls until all earlier stores are done, even stores that miss every cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag(NonZeroU32);

const _: () = assert!(size_of::<Option<Tag>>() == 4);

impl Tag {
    /// The maximum number of request slots of a queue.
    pub const COUNT_MAX: usize = INDEX_MASK as usize;

    pub(super) const fn new(index: u32, generation: u8) -> Self {
        Self::from_bits(index | (generation as u32) << INDEX_BITS)
    }

    /// The slot number, below the number of slots of the queue: an index for per-request tables.
    pub const fn index(self) -> usize {
        (self.to_bits() & INDEX_MASK) as usize
    }

    /// The tag as a number, for data structures and devices that store numbers.
    pub const fn to_bits(self) -> u32 {
        !self.0.get()
    }

    /// The tag whose [`Tag::to_bits`] returned `bits`.
    ///
    /// # Panics
    /// If `bits` are all ones: no tag has them.
    pub const fn from_bits(bits: u32) -> Self {
        Self(NonZeroU32::new(!bits).expect("no tag is all ones"))
    }

    pub(super) const fn next_generation(self) -> Self {
        Self::from_bits(self.to_bits().wrapping_add(1 << INDEX_BITS))
    }
}

impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tag").field(&self.to_bits()).finish()
    }
}

impl Member for Tag {
    fn bits(self) -> u32 {
        self.to_bits()
    }

    fn from_bits(bits: u32) -> Self {
        Self::from_bits(bits)
    }

    fn index(self) -> usize {
        self.index()
    }
}

/// The stage of the queue that a request is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    /// The request has a slot, and is in the plug if the queue is plugged.
    Taken,
    Queued,
    InFlight,
    Requeued,
    Done,
}

/// One I/O for the device, made of one bio or of several adjacent ones. Occupies one cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Request {
    pub(crate) chain: Chain,
    pub(crate) state: State,
    pub(super) arrived: Instant,
    pub(super) tag: Tag,
}

impl Request {
    /// The operation.
    pub const fn op(&self) -> Op {
        self.chain.op
    }

    /// The sectors.
    pub const fn extent(&self) -> Extent {
        self.chain.extent
    }

    /// The stream of the first bio.
    pub const fn stream(&self) -> Stream {
        self.chain.stream
    }

    /// The priority of all its bios.
    pub const fn priority(&self) -> Priority {
        self.chain.priority
    }

    /// The number of memory segments.
    pub const fn segments(&self) -> u32 {
        self.chain.segments
    }

    /// The request as an elevator sees it, without its age.
    pub const fn outline(&self) -> Outline {
        self.chain.outline()
    }

    /// The time at which the first bio got a request slot.
    pub const fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// A bio or request as an elevator sees it: without memory and age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// The operation.
    pub op: Op,
    /// The sectors.
    pub extent: Extent,
    /// The stream that submitted it.
    pub stream: Stream,
    /// The I/O priority.
    pub priority: Priority,
    /// The number of memory segments.
    pub segments: u32,
}

/// The bios of a request, in sector order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) extent: Extent,
    pub(crate) op: Op,
    pub(crate) fua: bool,
    pub(crate) priority: Priority,
    /// The stream of the bio that came first.
    pub(crate) stream: Stream,
    pub(crate) segments: u32,
    pub(crate) first: u32,
    pub(crate) last: u32,
}

impl Chain {
    pub(crate) const EMPTY: Self = Self {
        extent: Extent::EMPTY,
        op: Op::Flush,
        fua: false,
        priority: Priority::BestEffort,
        stream: Stream(0),
        segments: 0,
        first: NONE,
        last: NONE,
    };

    /// The chain of the bio in `slot` alone.
    #[inline]
    pub(crate) fn of_bio<M>(slot: u32, bio: &Bio<M>) -> Self {
        Self {
            extent: bio.extent,
            op: bio.op,
            fua: bio.fua,
            priority: bio.priority,
            stream: bio.stream,
            segments: u32::from(bio.memory.is_some()),
            first: slot,
            last: slot,
        }
    }

    /// The chain as an elevator sees it.
    pub(crate) const fn outline(&self) -> Outline {
        let Self { op, extent, stream, priority, segments, .. } = *self;
        Outline { op, extent, stream, priority, segments }
    }

    /// Whether the chain has more than one bio.
    pub(crate) const fn is_merged(&self) -> bool {
        self.first != self.last
    }
}
