//! A request to the page cache, and its progress. Plain data: the other files of this folder execute it.

use std::fmt;

use iopath_core::Op;
use iopath_core::buffered::BufferedRead;
use iopath_core::cache::Frame;

use crate::buffered::BufferedError;
use crate::io_buf::{IoBuf, usable_bytes};
use crate::pool::PoolBuf;

/// A request for [`CacheQueue::queue`](super::CacheQueue::queue): any offset and length.
pub struct CacheRequest<B = PoolBuf> {
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes. A read ends at the end of the volume; a flush ignores the number.
    pub bytes: u64,
    /// The buffer of a read or write, of at least `bytes` bytes.
    pub buffer: Option<B>,
    /// A write completes when its bytes are on the medium.
    pub is_durable: bool,
    /// Writes exclude direct I/O in units of this many bytes: see
    /// [`Buffered::begin_direct_in_units`](super::super::Buffered::begin_direct_in_units).
    pub unit_bytes: u64,
    /// Returned with the completion.
    pub token: u64,
}

/// A request that has completed.
pub struct Completed<B = PoolBuf> {
    /// The token of the request.
    pub token: u64,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The length of the request.
    pub bytes: u64,
    /// The buffer of the request.
    pub buffer: Option<B>,
    /// The number of bytes.
    pub result: Result<usize, BufferedError>,
}

/// A request that has not completed.
pub(super) struct Request<B> {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) buffer: Option<B>,
    pub(super) unit_bytes: u64,
    is_durable: bool,
    pub(super) token: u64,
    /// Nobody expects its completion.
    pub(super) is_cancelled: bool,
    pub(super) stage: Stage,
    /// A read that has begun.
    pub(super) read: Option<BufferedRead>,
    /// Completed bytes of the current stage; of a read, once it is complete.
    pub(super) done: usize,
    /// Its place in the order of all requests of the queue.
    pub(super) number: u64,
    /// Set while it waits for an outcome other than that of a command.
    pub(super) waiter: Option<usize>,
    pub(super) is_starved: bool,
    /// The next page of a read or write that can continue, pinned so that it is not evicted until then.
    pub(super) pinned: Option<Frame>,
    /// The first of the requests that begin after it.
    pub(super) first_follower: Option<u32>,
    /// The next of the requests that begin after the same request.
    pub(super) next_follower: Option<u32>,
}

/// The current stage of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Read,
    Write,
    /// Zeroes the bytes before the first whole block of a discard or write of zeroes.
    ZeroHead,
    /// Discards or zeroes the whole blocks.
    Clear,
    /// Zeroes the bytes after the last whole block.
    ZeroTail,
    /// Flushes: a durable write its range, a flush everything.
    Flush,
}

impl<B: IoBuf> CacheRequest<B> {
    pub(super) fn check(&mut self) {
        if self.op.has_memory() {
            let op = self.op;
            let buffer_bytes = self.buffer.as_mut().map_or(0, |buffer| usable_bytes(buffer, op));
            assert!(self.bytes <= buffer_bytes as u64, "{} bytes in a buffer of {buffer_bytes}", self.bytes);
        }
    }

    /// The completion of a request that needed no waiting.
    pub(super) fn completed(self, result: Result<usize, BufferedError>) -> Completed<B> {
        let Self { op, offset, bytes, mut buffer, token, .. } = self;
        note_read(op, &mut buffer, &result);
        Completed { token, op, offset, bytes, buffer, result }
    }
}

/// Records the bytes that a read has copied into its buffer.
fn note_read<B: IoBuf>(op: Op, buffer: &mut Option<B>, result: &Result<usize, BufferedError>) {
    if let (Op::Read, Some(buffer), Ok(bytes)) = (op, buffer, result) {
        // SAFETY: the result of a read is the number of bytes that were copied, from the first on.
        unsafe { buffer.set_init(*bytes) };
    }
}

impl<B> fmt::Debug for CacheRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, offset, bytes, token, .. } = self;
        let mut debug = f.debug_struct("CacheRequest");
        debug.field("op", op).field("offset", offset).field("bytes", bytes).field("token", token);
        debug.finish_non_exhaustive()
    }
}

impl<B> fmt::Debug for Completed<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { token, op, offset, bytes, result, .. } = self;
        let mut debug = f.debug_struct("Completed");
        debug.field("op", op).field("offset", offset).field("bytes", bytes).field("token", token);
        debug.field("result", result).finish_non_exhaustive()
    }
}

impl<B: IoBuf> Request<B> {
    pub(super) fn new(request: CacheRequest<B>, number: u64, read: Option<BufferedRead>) -> Self {
        let CacheRequest { op, offset, bytes, buffer, is_durable, unit_bytes, token } = request;
        let stage = match op {
            Op::Read => Stage::Read,
            Op::Write => Stage::Write,
            Op::Flush => Stage::Flush,
            Op::Discard | Op::WriteZeroes => Stage::ZeroHead,
        };
        Self {
            op,
            offset,
            bytes,
            buffer,
            unit_bytes,
            is_durable,
            token,
            is_cancelled: false,
            stage,
            read,
            done: 0,
            number,
            waiter: None,
            is_starved: false,
            pinned: None,
            first_follower: None,
            next_follower: None,
        }
    }

    /// The stage after this one.
    pub(super) const fn next_stage(&self) -> Option<Stage> {
        match self.stage {
            Stage::ZeroHead => Some(Stage::Clear),
            Stage::Clear => Some(Stage::ZeroTail),
            Stage::Write if self.is_durable => Some(Stage::Flush),
            Stage::Read | Stage::Write | Stage::ZeroTail | Stage::Flush => None,
        }
    }

    /// The bytes that a request without an error has transferred, cleared or flushed.
    pub(super) const fn transferred(&self) -> usize {
        match self.op {
            Op::Read => self.done,
            Op::Flush => 0,
            Op::Write | Op::Discard | Op::WriteZeroes => self.bytes as usize,
        }
    }

    pub(super) fn completed(self, result: Result<usize, BufferedError>) -> Completed<B> {
        let Self { op, offset, bytes, mut buffer, token, .. } = self;
        note_read(op, &mut buffer, &result);
        Completed { token, op, offset, bytes, buffer, result }
    }
}
