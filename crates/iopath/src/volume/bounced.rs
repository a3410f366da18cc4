//! Unaligned direct I/O through an aligned buffer. A write of a part of a block reads, changes and writes the block
//! while its range is locked. Writes of whole blocks by other paths lock it, too: [`RangeLock`].

use super::Volume;
use crate::bounce::{BUFFER_BYTES, Bounce, Locked};
use crate::error::{Cause, Error, ErrorKind, Result};
use iopath_core::{IoError, Op};
use iopath_os::{NoMemory, page_bytes};
use std::ops::Range;

/// A range in which no writer of a part of a block restores old bytes: [`Volume::try_lock_range`]. Dropping it unlocks
/// the range.
#[derive(Debug)]
pub struct RangeLock {
    volume: Volume,
    /// `None` on a volume without bounced I/O.
    range: Option<Range<u64>>,
}

impl Drop for RangeLock {
    fn drop(&mut self) {
        if let (Some(bounce), Some(range)) = (self.volume.bounce(), &self.range) {
            bounce.unlock_whole(range);
        }
    }
}

impl Volume {
    /// Locks a range for a write by a batch of [`SharedBuf`](crate::SharedBuf), which does not lock itself. On a volume
    /// with [`Unaligned::Bounce`](crate::Unaligned::Bounce), a write of a part of a block reads the block, changes it
    /// and writes it. Without the lock, it could undo a write of the block that completed in between. Hold the lock
    /// until the write has completed. Such locks do not exclude each other.
    ///
    /// Does not wait. `None` while another writer has locked the range, or waits for that. The thread that holds the
    /// lock must not write to the range in another way, or it deadlocks.
    #[must_use]
    pub fn try_lock_range(&self, offset: u64, bytes: u64) -> Option<RangeLock> {
        let range = match self.bounce() {
            Some(bounce) => Some(bounce.try_lock_whole(self.lock_range_of(offset, bytes))?),
            None => None,
        };
        Some(RangeLock { volume: self.clone(), range })
    }

    pub(super) fn read_bounced(&self, bounce: &Bounce, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let available = self.in_volume(Op::Read, offset, buffer.len())?;
        let mut done = 0;
        let buffer_bytes = buffer.len();
        while done < available {
            let piece = self.piece(offset + done as u64, available - done);
            let bytes = bounce.with_buffer(|blocks| -> Result<usize> {
                let blocks = &mut blocks[..piece.blocks];
                let read = self.read_blocks(blocks, piece.start)?;
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

    pub(super) fn write_bounced(&self, bounce: &Bounce, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
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

    /// An aligned write on a volume with bounced writes. The lock prevents a bounced write from restoring old bytes.
    pub(super) fn write_aligned(&self, bounce: &Bounce, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let _locked = self.lock_blocks(bounce, offset, buffer.len() as u64);
        self.write_direct(buffer, offset, fua)
    }

    pub(super) fn lock_blocks<'a>(&self, bounce: &'a Bounce, offset: u64, bytes: u64) -> Locked<'a> {
        bounce.lock_range(self.lock_range_of(offset, bytes))
    }

    /// Whether batches copy unaligned I/O: the page cache, if there is one, does so otherwise.
    pub(crate) fn bounces(&self) -> bool {
        self.bounce().is_some() && !self.has_cache()
    }

    /// Locks a range until [`Volume::unlock_kept`]. `None` on a volume without bounced I/O.
    pub(crate) fn lock_kept(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.bounce().map(|bounce| bounce.lock_kept(range))
    }

    /// Does the same as [`Volume::lock_kept`] if no other writer has locked a byte of the range. `Err(())` otherwise.
    pub(crate) fn try_lock_kept(&self, range: Range<u64>) -> Result<Option<Range<u64>>, ()> {
        let Some(bounce) = self.bounce() else { return Ok(None) };
        bounce.try_lock_kept(range).map(Some).ok_or(())
    }

    /// Unlocks a range of [`Volume::lock_kept`].
    pub(crate) fn unlock_kept(&self, locked: Option<Range<u64>>) {
        if let (Some(bounce), Some(range)) = (self.bounce(), locked) {
            bounce.unlock_kept(&range);
        }
    }

    /// The range to lock for a write of `bytes` bytes at `offset`.
    pub(crate) fn lock_range_of(&self, offset: u64, bytes: u64) -> Range<u64> {
        // The bytes after the last whole block of a file are written through the kernel's page cache. The kernel treats
        // a concurrent direct write to the same page as corruption.
        let block = u64::from(self.facts().block_bytes).max(page_bytes() as u64);
        let end = offset.saturating_add(bytes);
        offset / block * block..end.checked_next_multiple_of(block).unwrap_or(end)
    }

    fn write_piece(&self, bounce: &Bounce, piece: &Piece, source: &[u8], blocks: &mut [u8]) -> Result<()> {
        let block = self.facts().block_bytes as usize;
        let size = self.size_bytes();
        // The length of whole blocks in the volume. The last block of a file may be partial, except in a mapped file.
        let end = if self.source().writes_last_block() { size.next_multiple_of(block as u64) } else { size };
        let whole = (end - piece.start).min(blocks.len() as u64) as usize / block * block;
        let (from, to) = (piece.skip, piece.skip + piece.bytes);
        if !from.is_multiple_of(block) && from < whole {
            let first = from / block * block;
            self.read_blocks(&mut blocks[first..first + block], piece.start + first as u64)?;
        }
        if !to.is_multiple_of(block) && to < whole {
            let last = to / block * block;
            // Do not read the block twice.
            if last > from || from.is_multiple_of(block) {
                self.read_blocks(&mut blocks[last..last + block], piece.start + last as u64)?;
            }
        }
        blocks[from..to].copy_from_slice(source);
        self.write_blocks(&blocks[..whole.min(to.next_multiple_of(block))], piece.start)?;
        if to <= whole {
            return Ok(());
        }
        let tail = from.max(whole);
        let offset = piece.start + tail as u64;
        let written = match bounce.tail() {
            Some(tail_file) => tail_file.write_all_at(&blocks[tail..to], offset),
            None => Err(IoError::Alignment),
        };
        let failed = |source| self.io_error(Op::Write, offset, (to - tail) as u64, source);
        written.map_err(failed)
    }

    fn no_memory(&self, op: Op, offset: u64, bytes: usize, error: NoMemory) -> Error {
        let error = Cause::Memory(error);
        self.error(ErrorKind::NoMemory).of_range(op, offset, bytes as u64).because(error)
    }

    /// The part of `bytes` bytes at `offset` that lies in the volume.
    fn in_volume(&self, op: Op, offset: u64, bytes: usize) -> Result<usize> {
        if !self.cuts_off_at_end() {
            self.check_within(op, offset, bytes as u64)?;
        }
        Ok(self.size_bytes().saturating_sub(offset).min(bytes as u64) as usize)
    }

    /// The first piece of `bytes` bytes at `offset` that fits in a buffer.
    fn piece(&self, offset: u64, bytes: usize) -> Piece {
        let block = u64::from(self.facts().block_bytes);
        let start = offset / block * block;
        let skip = (offset - start) as usize;
        let bytes = bytes.min(BUFFER_BYTES - skip);
        Piece { start, skip, bytes, blocks: (skip + bytes).next_multiple_of(block as usize) }
    }
}

/// A part of a range, and its blocks.
struct Piece {
    /// The offset of the first block on the volume.
    start: u64,
    /// The offset of the bytes in the blocks.
    skip: usize,
    /// The length of the bytes.
    bytes: usize,
    /// The length of the blocks.
    blocks: usize,
}
