//! A request to the page cache, and its progress. Plain data: the other files of this folder execute it.

use iopath_core::Op;
use iopath_core::cache::Frame;

use crate::buffered::BufferedError;
use crate::pool::PoolBuf;

/// A request for [`CacheQueue::queue`](super::CacheQueue::queue): any offset and length.
#[derive(Debug)]
pub struct CacheRequest {
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The number of bytes. A read ends at the end of the volume; a flush ignores the number.
    pub bytes: u64,
    /// The buffer of a read or write, of at least `bytes` bytes.
    pub buffer: Option<PoolBuf>,
    /// A write completes when its bytes are on the medium.
    pub is_durable: bool,
    /// Writes exclude direct I/O in units of this many bytes: see
    /// [`Buffered::begin_direct_in_units`](super::super::Buffered::begin_direct_in_units).
    pub unit_bytes: u64,
    /// Returned with the completion.
    pub token: u64,
}

/// A request that has completed.
#[derive(Debug)]
pub struct Completed {
    /// The token of the request.
    pub token: u64,
    /// The operation.
    pub op: Op,
    /// The first byte.
    pub offset: u64,
    /// The length of the request.
    pub bytes: u64,
    /// The buffer of the request.
    pub buffer: Option<PoolBuf>,
    /// The number of bytes.
    pub result: Result<usize, BufferedError>,
}

/// A request that has not completed.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) op: Op,
    pub(super) offset: u64,
    pub(super) bytes: u64,
    pub(super) buffer: Option<PoolBuf>,
    pub(super) unit_bytes: u64,
    is_durable: bool,
    token: u64,
    pub(super) stage: Stage,
    pub(super) progress: Progress,
    /// Its place in the order of all requests of the queue.
    pub(super) number: u64,
    /// Set while it waits for an outcome other than that of a command.
    pub(super) waiter: Option<usize>,
    pub(super) is_starved: bool,
    /// The page of a write that can continue, pinned so that it is not evicted until then.
    pub(super) pinned: Option<Frame>,
    /// The first of the requests that begin after it.
    pub(super) first_follower: Option<u32>,
    /// The next of the requests that begin after the same request.
    pub(super) next_follower: Option<u32>,
}

/// The progress of a request.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Progress {
    pub(super) has_begun: bool,
    /// Completed bytes; for a discard, those of the current stage.
    pub(super) done: usize,
    /// For a read: the number of its bytes before the end of the volume.
    pub(super) available: usize,
    /// For a read: the number of failed resizes at its beginning.
    pub(super) failed_resizes: u64,
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

impl CacheRequest {
    pub(super) fn check(&self) {
        if self.op.has_memory() {
            let buffer_bytes = self.buffer.as_ref().map_or(0, |buffer| buffer.len());
            assert!(self.bytes <= buffer_bytes as u64, "{} bytes in a buffer of {buffer_bytes}", self.bytes);
        }
    }

    /// The completion of a request that needed no waiting.
    pub(super) fn completed(self, result: Result<usize, BufferedError>) -> Completed {
        let Self { op, offset, bytes, buffer, token, .. } = self;
        Completed { token, op, offset, bytes, buffer, result }
    }
}

impl Request {
    pub(super) fn new(request: CacheRequest, number: u64, progress: Progress) -> Self {
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
            stage,
            progress,
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
            Op::Read => self.progress.done,
            Op::Flush => 0,
            Op::Write | Op::Discard | Op::WriteZeroes => self.bytes as usize,
        }
    }

    pub(super) fn completed(self, result: Result<usize, BufferedError>) -> Completed {
        let Self { op, offset, bytes, buffer, token, .. } = self;
        Completed { token, op, offset, bytes, buffer, result }
    }
}
