//! A request for a batch. Plain data: elevators interpret stream and priority.

use iopath_core::{Op, Priority, Stream};
use iopath_os::PoolBuf;

/// An I/O for [`Batch::queue`](crate::Batch::queue): the operation, its range, and optional settings.
///
/// ```
/// use iopath::{Priority, Request, Stream};
///
/// let discard = Request::discard(1 << 20, 64 << 10).token(7);
/// let urgent = Request::flush().priority(Priority::RealTime).stream(Stream(1));
/// # let _ = (discard, urgent);
/// ```
#[derive(Debug)]
#[must_use = "a request does nothing until it is queued"]
pub struct Request {
    pub(super) op: Op,
    pub(super) buffer: Option<PoolBuf>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) token: u64,
    pub(super) stream: Option<Stream>,
    pub(super) priority: Option<Priority>,
    pub(super) is_durable: bool,
}

impl Request {
    const fn new(op: Op, buffer: Option<PoolBuf>, offset: u64, bytes: u64) -> Self {
        Self { op, buffer, offset, bytes, token: 0, stream: None, priority: None, is_durable: false }
    }

    /// Reads into the whole `buffer`, starting at byte `offset`, unless [`Request::bytes`] sets a smaller length.
    pub fn read(buffer: PoolBuf, offset: u64) -> Self {
        let bytes = buffer.len() as u64;
        Self::new(Op::Read, Some(buffer), offset, bytes)
    }

    /// Writes the whole `buffer`, starting at byte `offset`, unless [`Request::bytes`] sets a smaller length.
    pub fn write(buffer: PoolBuf, offset: u64) -> Self {
        let bytes = buffer.len() as u64;
        Self::new(Op::Write, Some(buffer), offset, bytes)
    }

    /// Makes all writes durable that completed before the flush was queued.
    pub const fn flush() -> Self {
        Self::new(Op::Flush, None, 0, 0)
    }

    /// Frees the space of whole blocks: see [`Volume::discard`](crate::Volume::discard).
    pub const fn discard(offset: u64, bytes: u64) -> Self {
        Self::new(Op::Discard, None, offset, bytes)
    }

    /// Makes whole blocks read as zeroes: see [`Volume::write_zeroes`](crate::Volume::write_zeroes).
    pub const fn write_zeroes(offset: u64, bytes: u64) -> Self {
        Self::new(Op::WriteZeroes, None, offset, bytes)
    }

    /// Transfers the first `bytes` bytes of the buffer instead of all.
    pub const fn bytes(mut self, bytes: usize) -> Self {
        self.bytes = bytes as u64;
        self
    }

    /// A number that the completion returns: 0 unless set.
    pub const fn token(mut self, token: u64) -> Self {
        self.token = token;
        self
    }

    /// The stream, for elevators that divide the device among streams (`fair`). Default: the stream of the batch.
    pub const fn stream(mut self, stream: Stream) -> Self {
        self.stream = Some(stream);
        self
    }

    /// The priority, for elevators that use it (`deadline`). Default: the priority of the batch. The elevator
    /// dispatches the request before waiting requests of lower priority; requests already at the device are not
    /// affected. Requests of different priority are never merged.
    pub const fn priority(mut self, priority: Priority) -> Self {
        self.priority = Some(priority);
        self
    }

    /// For a write: the request completes when the bytes are on the medium. A direct volume uses forced unit access; a
    /// volume with a page cache flushes the device.
    pub const fn durable(mut self, is_durable: bool) -> Self {
        self.is_durable = is_durable;
        self
    }
}
