//! A request for a batch. Plain data: elevators interpret stream and priority.

use iopath_core::{Op, Priority, Stream};
use iopath_os::{Buffered, IoBuf, IoBufMut, PoolBuf, space_bytes};
use std::fmt;

/// An I/O for [`Batch::queue`](crate::Batch::queue): the operation, its range, and optional settings.
///
/// ```
/// use iopath::{Priority, Request, Stream};
///
/// let discard: Request = Request::discard(1 << 20, 64 << 10).token(7);
/// let urgent: Request = Request::flush().priority(Priority::RealTime).stream(Stream(1));
/// # let _ = (discard, urgent);
/// ```
///
/// `B` is the type of the buffers of the batch: those of its pool ([`Volume::batch`](crate::Volume::batch)), or buffers
/// of the caller ([`Volume::batch_of`](crate::Volume::batch_of)).
#[must_use = "a request does nothing until it is queued"]
pub struct Request<B = PoolBuf> {
    pub(super) op: Op,
    pub(super) buffer: Option<B>,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) token: u64,
    pub(super) stream: Option<Stream>,
    pub(super) priority: Option<Priority>,
    pub(super) is_durable: bool,
}

impl<B> fmt::Debug for Request<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("op", &self.op)
            .field("offset", &self.offset)
            .field("bytes", &self.bytes)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

impl Request {
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
}

impl<B: IoBuf> Request<B> {
    /// Reads into the whole space of `buffer`, starting at byte `offset`, unless [`Request::bytes`] sets a smaller
    /// length. The space of a `Vec<u8>` is its capacity. The completion returns the buffer, in which at least the bytes
    /// read are initialised: a shorter `Vec` becomes as long.
    pub fn read_into(mut buffer: B, offset: u64) -> Self
    where
        B: IoBufMut,
    {
        let bytes = space_bytes(&mut buffer) as u64;
        Self::new(Op::Read, Some(buffer), offset, bytes)
    }

    /// Writes all initialised bytes of `buffer`, starting at byte `offset`, unless [`Request::bytes`] sets a smaller
    /// length. The completion returns the buffer.
    pub fn write_from(buffer: B, offset: u64) -> Self {
        let bytes = buffer.init_bytes() as u64;
        Self::new(Op::Write, Some(buffer), offset, bytes)
    }
}

impl<B> Request<B> {
    pub(super) const fn new(op: Op, buffer: Option<B>, offset: u64, bytes: u64) -> Self {
        Self { op, buffer, offset, bytes, token: 0, stream: None, priority: None, is_durable: false }
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

    pub(crate) fn is_read(&self) -> bool {
        self.op == Op::Read
    }

    /// Executes a read whose bytes are all in the page cache. The number of bytes.
    pub(crate) fn read_cached(&mut self, cache: &Buffered) -> Option<usize>
    where
        B: IoBuf,
    {
        let bytes = usize::try_from(self.bytes).ok()?;
        let buffer = self.buffer.as_mut().filter(|_| self.op == Op::Read)?;
        cache.try_read(buffer, self.offset, bytes)
    }

    /// The number that the completion returns.
    pub(crate) const fn token_value(&self) -> u64 {
        self.token
    }

    /// The buffer of a request that is not executed.
    pub(crate) fn into_buffer(self) -> Option<B> {
        self.buffer
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
