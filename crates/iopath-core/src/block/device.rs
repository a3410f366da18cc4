//! The block device: the trait at the lower end of the path, and the types that cross it.
//!
//! Real devices (`io_uring`, threads), devices in memory, modelled disks and middleware (fault, delay, stripe, mapped
//! file) implement it. A device neither merges nor orders requests. The queue submits requests within the device's
//! [`Limits`]. Overlapping requests are in flight together only if both are reads.

use crate::block::bio::{Op, Priority, Stream};
use crate::block::limits::Limits;
use crate::block::request::{Chain, NONE, Tag};
use crate::block::table::BioTable;
use crate::debug;
use crate::error::IoError;
use crate::memory::Memory;
use crate::sector::Extent;
use crate::time::Instant;
use std::fmt;

/// Executes requests and completes each exactly once, in any order. A [`QueuedDevice`](crate::QueuedDevice) drives the
/// device:
///
/// ```text
/// while let Some(io) = queue.poll_dispatch(now) {
///     if let Err(busy) = device.submit(&io, now) {
///         queue.requeue(busy.tag, now);
///         break;
///     }
/// }
/// device.commit(now);
/// while let Some(done) = device.poll_completion(now) {
///     queue.handle_completion(done.tag, done.result, now);
/// }
/// ```
pub trait BlockDevice {
    /// The memory this device reads into and writes from.
    type Memory: Memory;

    /// The limits of one request.
    fn limits(&self) -> &Limits;

    /// Queues a request in the device. The device may delay its start until [`BlockDevice::commit`].
    ///
    /// A device completes a request as a whole or with an error: it continues short transfers itself.
    ///
    /// # Errors
    /// [`Busy`] if the device has no room now; the caller keeps the request and requeues it.
    fn submit(&mut self, io: &Io<'_, Self::Memory>, now: Instant) -> Result<(), Busy>;

    /// Starts all submitted requests. A device that needs a system call makes one for all of them (`commit_rqs` of
    /// Linux's blk-mq).
    ///
    /// Polling may submit the rest of a short transfer, so call `commit` after polling and before a wait. Before
    /// `commit` returns, the device notifies the threads that wait for it of completions that are ready to be polled.
    fn commit(&mut self, now: Instant);

    /// The next completed request, without waiting.
    fn poll_completion(&mut self, now: Instant) -> Option<Completion>;

    /// The latest time at which to poll and commit the device again. A modelled device returns the time of its next
    /// completion. A real device returns a time only for events without a notification, such as the retry of a request
    /// for which the system had no memory.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// Allows members of different types in one stripe.
impl<D: BlockDevice + ?Sized> BlockDevice for Box<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        (**self).limits()
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        (**self).submit(io, now)
    }

    fn commit(&mut self, now: Instant) {
        (**self).commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        (**self).poll_completion(now)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (**self).poll_timeout()
    }
}

/// The device has no room for a request now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device has no room for another request now")]
pub struct Busy {
    /// The refused request.
    pub tag: Tag,
}

/// A completed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// The request.
    pub tag: Tag,
    /// Success if the device executed the whole request.
    pub result: Result<(), IoError>,
}

/// A request for a device.
#[derive(Debug)]
pub struct Io<'a, M> {
    /// Identifies the request until it completes.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// The sectors; empty for a flush.
    pub extent: Extent,
    /// For writes only: the data is on the medium at completion.
    pub fua: bool,
    /// The stream of the request's first bio.
    pub stream: Stream,
    /// The priority.
    pub priority: Priority,
    memory: Pieces<'a, M>,
}

enum Pieces<'a, M> {
    Slice(&'a [M]),
    Bios { table: &'a BioTable<M>, first: u32 },
}

impl<M: fmt::Debug> fmt::Debug for Pieces<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slice(segments) => debug::List(*segments).fmt(f),
            Self::Bios { first, .. } => f.debug_struct("Bios").field("first", first).finish_non_exhaustive(),
        }
    }
}

impl<'a, M: Memory> Io<'a, M> {
    /// A request for `memory`, in that order. Devices on top of another device use it.
    pub const fn new(tag: Tag, op: Op, extent: Extent, memory: &'a [M]) -> Self {
        Self {
            tag,
            op,
            extent,
            fua: false,
            stream: Stream(0),
            priority: Priority::BestEffort,
            memory: Pieces::Slice(memory),
        }
    }

    pub(crate) const fn of_bios(tag: Tag, chain: &Chain, fua: bool, table: &'a BioTable<M>) -> Self {
        let Chain { op, extent, stream, priority, first, .. } = *chain;
        Self { tag, op, extent, fua, stream, priority, memory: Pieces::Bios { table, first } }
    }

    /// The same request by another tag: for a device that passes requests of several queues to one.
    #[must_use]
    pub const fn with_tag(&self, tag: Tag) -> Io<'a, M> {
        let Self { op, extent, fua, stream, priority, .. } = *self;
        let memory = match self.memory {
            Pieces::Slice(slice) => Pieces::Slice(slice),
            Pieces::Bios { table, first } => Pieces::Bios { table, first },
        };
        Io { tag, op, extent, fua, stream, priority, memory }
    }

    /// The memory of the request in device order. Adjacent pieces are joined into one segment.
    #[inline]
    pub fn segments(&self) -> Segments<'a, M> {
        let mut pieces = match self.memory {
            Pieces::Slice(slice) => Cursor::Slice(slice),
            Pieces::Bios { table, first } => Cursor::Bios { table, next: first },
        };
        let pending = pieces.next();
        Segments { pieces, pending }
    }
}

/// A request that a device holds after its submission: an [`Io`] with a list of segments of its own.
#[derive(Clone)]
pub struct OwnedIo<M> {
    /// The tag by which the request was submitted.
    pub tag: Tag,
    /// The operation.
    pub op: Op,
    /// The sectors; empty for a flush.
    pub extent: Extent,
    /// For writes only: the data is on the medium at completion.
    pub fua: bool,
    /// The stream of the request's first bio.
    pub stream: Stream,
    /// The priority.
    pub priority: Priority,
    /// The memory in device order.
    pub segments: Vec<M>,
}

impl<M: fmt::Debug> fmt::Debug for OwnedIo<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OwnedIo")
            .field("tag", &self.tag)
            .field("op", &self.op)
            .field("extent", &self.extent)
            .field("fua", &self.fua)
            .field("stream", &self.stream)
            .field("priority", &self.priority)
            .field("segments", &debug::List(&self.segments))
            .finish()
    }
}

impl<M: Memory> OwnedIo<M> {
    /// A copy of `io`. The allocation of `segments` is reused; its contents are replaced. A device that keeps its lists
    /// allocates nothing for a request once warm.
    pub fn new(io: &Io<'_, M>, mut segments: Vec<M>) -> Self {
        segments.clear();
        segments.extend(io.segments());
        let Io { tag, op, extent, fua, stream, priority, .. } = *io;
        Self { tag, op, extent, fua, stream, priority, segments }
    }

    /// The whole request by another tag.
    pub fn io(&self, tag: Tag) -> Io<'_, M> {
        Io { tag, ..self.part(self.extent, &self.segments) }
    }

    /// A part of the request by its own tag: `extent`, with the memory `segments`.
    pub const fn part<'a>(&self, extent: Extent, segments: &'a [M]) -> Io<'a, M> {
        let Self { tag, op, fua, stream, priority, .. } = *self;
        Io { tag, op, extent, fua, stream, priority, memory: Pieces::Slice(segments) }
    }
}

/// A flush.
impl<M> Default for OwnedIo<M> {
    fn default() -> Self {
        Self {
            tag: Tag::from_bits(0),
            op: Op::Flush,
            extent: Extent::EMPTY,
            fua: false,
            stream: Stream(0),
            priority: Priority::BestEffort,
            segments: Vec::new(),
        }
    }
}

/// The segments of a request, in device order.
#[derive(Debug)]
pub struct Segments<'a, M> {
    pieces: Cursor<'a, M>,
    pending: Option<M>,
}

enum Cursor<'a, M> {
    Slice(&'a [M]),
    Bios { table: &'a BioTable<M>, next: u32 },
}

impl<M: fmt::Debug> fmt::Debug for Cursor<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slice(segments) => debug::List(*segments).fmt(f),
            Self::Bios { next, .. } => f.debug_struct("Bios").field("next", next).finish_non_exhaustive(),
        }
    }
}

impl<M: Memory> Cursor<'_, M> {
    #[inline]
    const fn is_at_end(&self) -> bool {
        match self {
            Cursor::Slice(slice) => slice.is_empty(),
            Cursor::Bios { next, .. } => *next == NONE,
        }
    }

    #[inline]
    fn next(&mut self) -> Option<M> {
        match self {
            Cursor::Slice(slice) => {
                let (first, rest) = slice.split_first()?;
                *slice = rest;
                Some(*first)
            }
            Cursor::Bios { table, next } => {
                let bio = table.chained(*next)?;
                *next = bio.next;
                bio.bio.memory
            }
        }
    }
}

impl<M: Memory> Iterator for Segments<'_, M> {
    type Item = M;

    // Inline for the last piece, so that the only segment of most requests stays in registers. From memory, it would be
    // loaded with another width than it was stored, and such a load waits until all earlier stores are in the cache:
    // those of the copy of the request before.
    #[inline]
    fn next(&mut self) -> Option<M> {
        let segment = self.pending.take()?;
        Some(if self.pieces.is_at_end() { segment } else { self.join(segment) })
    }
}

impl<M: Memory> Segments<'_, M> {
    /// Joins the pieces that follow a segment in memory.
    fn join(&mut self, mut segment: M) -> M {
        while let Some(piece) = self.pieces.next() {
            let Some(longer) = segment.join(piece) else {
                self.pending = Some(piece);
                break;
            };
            segment = longer;
        }
        segment
    }
}
