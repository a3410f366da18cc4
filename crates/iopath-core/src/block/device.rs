//! The block device: the one trait at the lower end of the path, and what crosses it.
//!
//! Real devices (`io_uring`, threads), devices in memory, modelled disks and middleware (fault, delay,
//! stripe) all implement it. A device neither merges nor orders: it has been given requests within its
//! [`Limits`], none of which overlap another in flight unless both are reads.

use crate::block::bio::{Op, Priority, Stream};
use crate::block::limits::Limits;
use crate::block::request::{Chain, Tag};
use crate::block::table::BioTable;
use crate::error::IoError;
use crate::memory::Memory;
use crate::sector::Extent;
use crate::time::Instant;

/// Takes requests and completes them, in any order, each exactly once.
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

    /// What the device takes in one request.
    fn limits(&self) -> &Limits;

    /// Takes a request. It may wait in the device until [`BlockDevice::commit`].
    ///
    /// A device completes a request whole or with an error: it continues short transfers itself.
    ///
    /// # Errors
    /// [`Busy`] when the device has no room now; the request stays the caller's, to be requeued.
    fn submit(&mut self, io: &Io<'_, Self::Memory>, now: Instant) -> Result<(), Busy>;

    /// Hands over all that was submitted since the last time, in one system call where it takes one.
    ///
    /// Polling may submit again what a short transfer left, so `commit` comes after polling and before a wait. When it
    /// returns, any thread that waits for the device has been told of what is ready to be polled.
    fn commit(&mut self, now: Instant);

    /// The next request that has completed, without waiting.
    fn poll_completion(&mut self, now: Instant) -> Option<Completion>;

    /// When the device is to be polled and committed again at the latest, if it knows. Modelled devices know when their
    /// next request has completed. Real ones name a time only for what nothing announces, such as requests that the system had
    /// no memory for.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// So that devices of several kinds can be members of one.
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
    /// The request that was not taken.
    pub tag: Tag,
}

/// A request that has completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Completion {
    /// Which request.
    pub tag: Tag,
    /// The whole of it done, or why not.
    pub result: Result<(), IoError>,
}

/// A request on its way to the device.
#[derive(Debug)]
pub struct Io<'a, M> {
    /// Names the request until it completes.
    pub tag: Tag,
    /// What to do.
    pub op: Op,
    /// Where; empty for a flush.
    pub extent: Extent,
    /// Write only: on the medium when complete.
    pub fua: bool,
    /// The stream of the request's first bio.
    pub stream: Stream,
    /// How urgent it is.
    pub priority: Priority,
    memory: Pieces<'a, M>,
}

#[derive(Debug)]
enum Pieces<'a, M> {
    Slice(&'a [M]),
    Bios { table: &'a BioTable<M>, first: u32 },
}

impl<'a, M: Memory> Io<'a, M> {
    /// A request that reads into or writes from `memory`, in that order: for devices on top of devices.
    pub const fn new(tag: Tag, op: Op, extent: Extent, memory: &'a [M]) -> Self {
        let (stream, priority) = (Stream(0), Priority::BestEffort);
        Self { tag, op, extent, fua: false, stream, priority, memory: Pieces::Slice(memory) }
    }

    pub(crate) const fn of_bios(tag: Tag, chain: &Chain, fua: bool, table: &'a BioTable<M>) -> Self {
        let Chain { op, extent, stream, priority, first, .. } = *chain;
        Self { tag, op, extent, fua, stream, priority, memory: Pieces::Bios { table, first } }
    }

    /// The memory of the request in device order; neighbours in memory come as one segment.
    pub fn segments(&self) -> Segments<'a, M> {
        let mut pieces = match self.memory {
            Pieces::Slice(slice) => Cursor::Slice(slice),
            Pieces::Bios { table, first } => Cursor::Bios { table, next: first },
        };
        let pending = pieces.next();
        Segments { pieces, pending }
    }
}

/// The segments of a request, in device order.
#[derive(Debug)]
pub struct Segments<'a, M> {
    pieces: Cursor<'a, M>,
    pending: Option<M>,
}

#[derive(Debug)]
enum Cursor<'a, M> {
    Slice(&'a [M]),
    Bios { table: &'a BioTable<M>, next: u32 },
}

impl<M: Memory> Cursor<'_, M> {
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

    fn next(&mut self) -> Option<M> {
        let mut segment = self.pending.take()?;
        while let Some(piece) = self.pieces.next() {
            let Some(longer) = segment.join(piece) else {
                self.pending = Some(piece);
                break;
            };
            segment = longer;
        }
        Some(segment)
    }
}
