//! An export as one worker uses it: a volume and a batch of its I/O. It has no knowledge of connections.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use iopath::batch::Refused;
use iopath::buffers::BorrowedBytes;
use iopath::log::RequestLog;
use iopath::{BatchOptions, Completion, ErrorKind, LocalBatch, PoolBuf, Request, Stream, Volume};

use crate::errno::Errno;

/// Bytes of a buffer. Longer requests are transferred in pieces of this size.
pub(super) const PIECE: usize = 128 << 10;

/// Requests in flight, and buffers, for each worker and export.
pub(super) const DEPTH: u32 = 256;

/// An I/O for the batch.
#[derive(Debug)]
pub(super) enum Io {
    Read { buffer: PoolBuf, offset: u64, length: usize },
    Write { buffer: PoolBuf, offset: u64, length: usize, is_durable: bool },
    Flush,
    Discard { offset: u64, length: u64 },
    Zeroes { offset: u64, length: u64 },
}

/// Bytes for a reply.
#[derive(Debug)]
pub(super) enum Data {
    /// The first bytes of a buffer that the device read into.
    Buffer(PoolBuf, usize),
    /// Pages of the page cache.
    Pages(BorrowedBytes),
    /// A copy of a buffer that other connections needed.
    Parked(Box<[u8]>),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Buffer(_, length) => *length,
            Self::Pages(pages) => pages.len(),
            Self::Parked(bytes) => bytes.len(),
        }
    }

    /// Frees the buffer, if there is one.
    pub(super) fn park(&mut self) -> bool {
        let Self::Buffer(buffer, length) = self else { return false };
        *self = Self::Parked(buffer[..*length].into());
        true
    }
}

/// The result of an I/O.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) token: u64,
    /// The bytes of a read.
    pub(super) data: Option<Data>,
    pub(super) result: Result<usize, (Errno, String)>,
}

/// A volume and the I/O of one worker.
#[derive(Debug)]
pub(super) struct Backing {
    volume: Volume,
    batch: LocalBatch,
    /// I/O that completed without the batch.
    completed: VecDeque<Done>,
    /// The descriptor was readable, until the next poll of the batch, which clears it.
    is_notified: bool,
}

impl Backing {
    /// A backing, and the descriptor that becomes readable when I/O completes.
    pub(super) fn new(volume: Volume, log: Option<&RequestLog>) -> Result<(Self, OwnedFd), String> {
        let mut batch =
            volume.local_batch(&BatchOptions::new(DEPTH, PIECE)).map_err(|error| error.to_string())?;
        if let Some(log) = log {
            batch.start_log(log.sink());
        }
        let ready = batch.completion_fd().map_err(|error| error.to_string())?;
        Ok((Self { volume, batch, completed: VecDeque::new(), is_notified: false }, ready))
    }

    pub(super) fn volume(&self) -> &Volume {
        &self.volume
    }

    /// An unused buffer.
    pub(super) fn buffer(&self) -> Option<PoolBuf> {
        self.batch.buffer()
    }

    /// Completes a read from the page cache, without a copy, if all of its pages are cached.
    pub(super) fn read_cached(&mut self, offset: u64, length: usize, token: u64) -> bool {
        let Some(pages) = self.batch.borrow(offset, length) else { return false };
        self.completed.push_back(Done { token, data: Some(Data::Pages(pages)), result: Ok(length) });
        true
    }

    /// Queues an I/O, which may complete at once. The caller has checked [`Backing::has_room`].
    pub(super) fn queue(&mut self, io: Io, token: u64, stream: Stream) {
        let length = match &io {
            Io::Read { length, .. } | Io::Write { length, .. } => *length,
            Io::Flush | Io::Discard { .. } | Io::Zeroes { .. } => 0,
        };
        let (request, unaligned) = match io {
            Io::Read { buffer, offset, length } => {
                (Request::read(buffer, offset).bytes(length), Unaligned::Read { offset })
            }
            Io::Write { buffer, offset, length, is_durable } => (
                Request::write(buffer, offset).bytes(length).durable(is_durable),
                Unaligned::Write { offset, is_durable },
            ),
            Io::Flush => (Request::flush(), Unaligned::None),
            Io::Discard { offset, length } => {
                (Request::discard(offset, length), Unaligned::Discard { offset, length })
            }
            Io::Zeroes { offset, length } => {
                (Request::write_zeroes(offset, length), Unaligned::Zeroes { offset, length })
            }
        };
        if let Err(Refused { error, mut buffer, .. }) = self.batch.queue(request.token(token).stream(stream))
        {
            let is_unaligned =
                matches!(error.kind(), ErrorKind::Unaligned { .. } | ErrorKind::UnalignedMemory { .. });
            let result = if is_unaligned {
                self.execute(&unaligned, buffer.as_deref_mut().map(|buffer| &mut buffer[..length]))
            } else {
                Err(error)
            };
            let result = result.map_err(|error| (errno_of(&error), error.to_string()));
            self.completed.push_back(Done { token, data: data_of(buffer, &result), result });
        }
    }

    /// Whether the batch accepts a further request.
    pub(super) fn has_room(&self) -> bool {
        self.batch.in_flight() < DEPTH
    }

    /// Executes an I/O that a batch cannot: its ends lie inside of blocks. The volume copies these blocks.
    fn execute(&self, io: &Unaligned, buffer: Option<&mut [u8]>) -> Result<usize, iopath::Error> {
        let buffer = buffer.unwrap_or_default();
        let length = buffer.len();
        match *io {
            Unaligned::Read { offset } => return self.volume.read_at(buffer, offset),
            Unaligned::Write { offset, is_durable: false } => self.volume.write_at(buffer, offset)?,
            Unaligned::Write { offset, is_durable: true } => self.volume.write_durably_at(buffer, offset)?,
            Unaligned::Discard { offset, length } => self.volume.discard(offset, length)?,
            Unaligned::Zeroes { offset, length } => self.volume.write_zeroes(offset, length)?,
            Unaligned::None => {}
        }
        Ok(length)
    }

    /// The descriptor is readable.
    pub(super) fn handle_notification(&mut self) {
        self.is_notified = true;
    }

    /// Submits queued I/O.
    pub(super) fn submit(&mut self) {
        self.batch.submit();
    }

    /// The next completed I/O.
    pub(super) fn poll(&mut self) -> Option<Done> {
        if let Some(done) = self.completed.pop_front() {
            return Some(done);
        }
        // A poll may cost a system call, which clears the descriptor.
        if self.batch.in_flight() == 0 && !std::mem::take(&mut self.is_notified) {
            return None;
        }
        let Completion { token, buffer, result, .. } = self.batch.poll()?;
        let result = result.map_err(|error| (errno_of(&error), error.to_string()));
        Some(Done { token, data: data_of(buffer, &result), result })
    }

    /// The longest time until the next [`Backing::poll`].
    pub(super) fn next_timeout(&self) -> Option<Duration> {
        if self.completed.is_empty() { self.batch.next_timeout() } else { Some(Duration::ZERO) }
    }
}

fn data_of<E>(buffer: Option<PoolBuf>, result: &Result<usize, E>) -> Option<Data> {
    buffer.zip(result.as_ref().ok()).map(|(buffer, length)| Data::Buffer(buffer, *length))
}

/// An I/O whose ends lie inside of blocks.
#[derive(Debug)]
enum Unaligned {
    Read { offset: u64 },
    Write { offset: u64, is_durable: bool },
    Discard { offset: u64, length: u64 },
    Zeroes { offset: u64, length: u64 },
    None,
}

/// The code of the protocol for an error of a volume.
pub(super) fn errno_of(error: &iopath::Error) -> Errno {
    const EROFS: i32 = 30;
    const EDQUOT: i32 = 122;
    match error.errno() {
        1 | EROFS => Errno::PERMISSION,
        12 => Errno::NO_MEMORY,
        22 => Errno::INVALID,
        28 | EDQUOT => Errno::NO_SPACE,
        95 => Errno::NOT_SUPPORTED,
        _ => Errno::IO,
    }
}
