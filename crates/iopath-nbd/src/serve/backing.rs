//! An export as one worker uses it: a volume and a batch of its I/O. It has no knowledge of connections.

use std::collections::VecDeque;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use iopath::batch::Refused;
use iopath::buffers::BorrowedBytes;
use iopath::log::RequestLog;
use iopath::target::Kind;
use iopath::{Advice, BatchOptions, Completion, ErrorKind, LocalBatch, PoolBuf, Request, Stream, Volume};

use super::storage::{DEPTH, Data, Done, Io, PIECE, Pages, Storage, Zeroing};
use crate::errno::Errno;

/// The volumes of a server, and what the event loop of one worker needs of them.
#[derive(Debug)]
pub(super) struct Volumes {
    all: Arc<[Volume]>,
    log: Option<RequestLog>,
    /// Descriptors of new backings, for the event loop.
    pub(super) new_descriptors: Vec<OwnedFd>,
}

impl Volumes {
    pub(super) fn new(all: Arc<[Volume]>, log: Option<RequestLog>) -> Self {
        Self { all, log, new_descriptors: Vec::new() }
    }
}

/// A volume and the I/O of one worker.
#[derive(Debug)]
pub(super) struct Backing {
    volume: Volume,
    batch: LocalBatch,
    /// I/O that completed without the batch.
    completed: VecDeque<Done<Self>>,
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
}

impl Storage for Backing {
    type Buffer = PoolBuf;
    type Pages = BorrowedBytes;
    type Source = Volumes;

    fn open(source: &mut Volumes, export: usize) -> Result<Self, String> {
        let (backing, descriptor) = Self::new(source.all[export].clone(), source.log.as_ref())?;
        source.new_descriptors.push(descriptor);
        Ok(backing)
    }

    fn buffer(&self) -> Option<PoolBuf> {
        self.batch.buffer()
    }

    fn read_cached(&mut self, offset: u64, length: usize, token: u64) -> bool {
        let Some(pages) = self.batch.borrow(offset, length) else { return false };
        self.completed.push_back(Done { token, data: Some(Data::Pages(pages)), result: Ok(length) });
        true
    }

    fn queue(&mut self, io: Io<PoolBuf>, token: u64, stream: Stream) {
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

    fn has_room(&self) -> bool {
        self.batch.in_flight() < DEPTH
    }

    fn handle_notification(&mut self) {
        self.is_notified = true;
    }

    fn submit(&mut self) {
        self.batch.submit();
    }

    fn poll(&mut self) -> Option<Done<Self>> {
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

    fn next_timeout(&self) -> Option<Duration> {
        if self.completed.is_empty() { self.batch.next_timeout() } else { Some(Duration::ZERO) }
    }

    fn zeroing(&self) -> Zeroing {
        let facts = self.volume.facts();
        Zeroing {
            punches: self.volume.range_support().discard_zeroes,
            is_file: facts.target.kind == Kind::RegularFile,
            block_bytes: facts.block_bytes,
        }
    }

    fn data_ranges(&self, offset: u64, length: u64, ranges_max: usize) -> Result<Vec<Range<u64>>, String> {
        self.volume.first_data_ranges(offset, length, ranges_max).map_err(|error| error.to_string())
    }

    fn prefetch(&self, offset: u64, length: u64) {
        // A hint: an error of the device appears at the read that follows.
        let _ = self.volume.advise(offset, length, Advice::WillNeed);
    }
}

impl Pages for BorrowedBytes {
    fn len(&self) -> usize {
        Self::len(self)
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        Self::slices(self)
    }
}

fn data_of<E>(buffer: Option<PoolBuf>, result: &Result<usize, E>) -> Option<Data<Backing>> {
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
