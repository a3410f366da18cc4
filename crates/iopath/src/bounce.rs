//! Direct I/O whose offset, length or memory does not fit the alignment, through an aligned buffer. A block that is
//! written in part is read, changed and written back under a lock on its range.

use crate::error::{Cause, Error, ErrorKind};
use crate::volume::Volume;
use iopath_core::{IoError, Op};
use iopath_os::sync::{Condvar, Mutex, MutexGuard};
use iopath_os::{AlignedBuf, NoMemory, Tail, page_bytes};
use std::ops::Range;
use std::sync::PoisonError;

/// The size of a buffer: longer I/O goes piece by piece.
const BUFFER_BYTES: usize = 256 << 10;

/// What bouncing needs.
#[derive(Debug)]
pub(crate) struct Bounce {
    /// Buffers that nobody uses.
    spare: Mutex<Vec<AlignedBuf>>,
    written: Mutex<Written>,
    is_free: Condvar,
    /// For the bytes after the last whole block.
    tail: Option<Tail>,
}

/// What is being written.
#[derive(Debug, Default)]
struct Written {
    /// Ranges of bytes.
    ranges: Vec<Range<u64>>,
    /// Who waits for one of them: nobody, mostly, and then nobody need be woken.
    waiting: u32,
}

/// A range that nobody else writes to.
pub(crate) struct Locked<'a> {
    bounce: &'a Bounce,
    range: Range<u64>,
}

impl Bounce {
    pub(crate) fn new(tail: Option<Tail>) -> Self {
        Self { spare: Mutex::default(), written: Mutex::default(), is_free: Condvar::new(), tail }
    }

    fn with_buffer<R>(&self, act: impl FnOnce(&mut AlignedBuf) -> R) -> Result<R, NoMemory> {
        let spare = lock(&self.spare).pop();
        let mut buffer = spare.map_or_else(|| AlignedBuf::new(BUFFER_BYTES), Ok)?;
        let result = act(&mut buffer);
        lock(&self.spare).push(buffer);
        Ok(result)
    }

    /// Waits until nobody writes to a byte of `range`.
    fn lock_range(&self, range: Range<u64>) -> Locked<'_> {
        let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
        let mut written = lock(&self.written);
        written.waiting += 1;
        let waited = self.is_free.wait_while(written, |written| written.ranges.iter().any(overlaps));
        let mut written = waited.unwrap_or_else(PoisonError::into_inner);
        written.waiting -= 1;
        written.ranges.push(range.clone());
        Locked { bounce: self, range }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let mut written = lock(&self.bounce.written);
        let place = written.ranges.iter().position(|range| *range == self.range);
        written.ranges.swap_remove(place.expect("what is locked is listed"));
        if written.waiting > 0 {
            self.bounce.is_free.notify_all();
        }
    }
}

/// No state is ever left half changed, so a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Volume {
    pub(crate) fn read_bounced(
        &self,
        bounce: &Bounce,
        buffer: &mut [u8],
        offset: u64,
    ) -> Result<usize, Error> {
        let there = self.there(Op::Read, offset, buffer.len())?;
        let (mut done, buffer_bytes) = (0, buffer.len());
        while done < there {
            let piece = self.piece(offset + done as u64, there - done);
            let bytes = bounce.with_buffer(|blocks| -> Result<usize, Error> {
                let blocks = &mut blocks[..piece.blocks];
                let read = self.read_direct(blocks, piece.start)?;
                let bytes = piece.bytes.min(read.saturating_sub(piece.skip));
                buffer[done..done + bytes].copy_from_slice(&blocks[piece.skip..piece.skip + bytes]);
                Ok(bytes)
            });
            let bytes = bytes.map_err(|error| self.no_memory(Op::Read, offset, buffer_bytes, error))??;
            if bytes == 0 {
                break;
            }
            done += bytes;
        }
        Ok(done)
    }

    pub(crate) fn write_bounced(
        &self,
        bounce: &Bounce,
        buffer: &[u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        self.check_writable(Op::Write, offset, buffer.len() as u64)?;
        let _locked = self.lock_blocks(bounce, offset, buffer.len() as u64);
        self.check_within(Op::Write, offset, buffer.len() as u64)?;
        let mut done = 0;
        while done < buffer.len() {
            let piece = self.piece(offset + done as u64, buffer.len() - done);
            let source = &buffer[done..done + piece.bytes];
            let written = bounce
                .with_buffer(|blocks| self.write_piece(bounce, &piece, source, &mut blocks[..piece.blocks]));
            written.map_err(|error| self.no_memory(Op::Write, offset, buffer.len(), error))??;
            done += piece.bytes;
        }
        if fua { self.flush() } else { Ok(()) }
    }

    /// An aligned write, that what is bounced beside it does not undo.
    pub(crate) fn write_beside_bounced(
        &self,
        bounce: &Bounce,
        buffer: &[u8],
        offset: u64,
        fua: bool,
    ) -> Result<(), Error> {
        let _locked = self.lock_blocks(bounce, offset, buffer.len() as u64);
        self.write_direct(buffer, offset, fua)
    }

    pub(crate) fn lock_blocks<'a>(&self, bounce: &'a Bounce, offset: u64, bytes: u64) -> Locked<'a> {
        // The bytes after a file's last whole block go through the system's page cache, which takes a direct write of
        // the same page at the same time for damage.
        let block = u64::from(self.facts().block_bytes).max(page_bytes() as u64);
        let end = offset.saturating_add(bytes);
        bounce.lock_range(offset / block * block..end.checked_next_multiple_of(block).unwrap_or(end))
    }

    fn write_piece(
        &self,
        bounce: &Bounce,
        piece: &Piece,
        source: &[u8],
        blocks: &mut [u8],
    ) -> Result<(), Error> {
        let block = self.facts().block_bytes as usize;
        let size = self.size_bytes();
        // Blocks that are there whole; of a file, the last may not be, unless it is mapped here.
        let end = if self.source().writes_last_block() { size.next_multiple_of(block as u64) } else { size };
        let whole = (end - piece.start).min(blocks.len() as u64) as usize / block * block;
        let (from, to) = (piece.skip, piece.skip + piece.bytes);
        if !from.is_multiple_of(block) && from < whole {
            let first = from / block * block;
            self.read_direct(&mut blocks[first..first + block], piece.start + first as u64)?;
        }
        if !to.is_multiple_of(block) && to < whole {
            let last = to / block * block;
            // Not again, if it is the block that was read just now.
            if last > from || from.is_multiple_of(block) {
                self.read_direct(&mut blocks[last..last + block], piece.start + last as u64)?;
            }
        }
        blocks[from..to].copy_from_slice(source);
        self.write_blocks(&blocks[..whole.min(to.next_multiple_of(block))], piece.start)?;
        if to <= whole {
            return Ok(());
        }
        let tail = from.max(whole);
        let offset = piece.start + tail as u64;
        let written = match &bounce.tail {
            Some(way) => way.write_all_at(&blocks[tail..to], offset),
            None => Err(IoError::Alignment),
        };
        let failed = |source| self.io_error(Op::Write, offset, (to - tail) as u64, source);
        written.map_err(failed)
    }

    fn no_memory(&self, op: Op, offset: u64, bytes: usize, error: NoMemory) -> Error {
        let error = Cause::Memory(error);
        self.error(ErrorKind::NoMemory).of_range(op, offset, bytes as u64).because(error)
    }

    /// How many of `bytes` bytes from `offset` on there are, on a path that is cut off at the end.
    fn there(&self, op: Op, offset: u64, bytes: usize) -> Result<usize, Error> {
        if !self.cuts_off_at_end() {
            self.check_within(op, offset, bytes as u64)?;
        }
        Ok(self.size_bytes().saturating_sub(offset).min(bytes as u64) as usize)
    }

    /// The first piece of `bytes` bytes from `offset` on that a buffer holds.
    fn piece(&self, offset: u64, bytes: usize) -> Piece {
        let block = u64::from(self.facts().block_bytes);
        let start = offset / block * block;
        let skip = (offset - start) as usize;
        let bytes = bytes.min(BUFFER_BYTES - skip);
        Piece { start, skip, bytes, blocks: (skip + bytes).next_multiple_of(block as usize) }
    }
}

/// Some bytes and the blocks they lie in.
struct Piece {
    /// Where the blocks start on the volume.
    start: u64,
    /// Where the bytes start in the blocks.
    skip: usize,
    /// How many bytes.
    bytes: usize,
    /// How long the blocks are together.
    blocks: usize,
}
