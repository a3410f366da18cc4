//! Unaligned direct I/O through an aligned buffer, in pieces that fit the buffer. A write of a part of a block reads,
//! changes and writes the block while its range is locked. Copies no bytes, and waits for nothing: a driver executes
//! each step.
//!
//! ```text
//!   BouncedRead   Read ──▶ Copy ──▶ next piece ──▶ Done
//!   BouncedWrite  Lock ──▶ Read (first block) ──▶ Read (last block) ──▶ Copy ──▶ Write ──▶ WriteTail ──▶ next piece
//!                      ──▶ Flush ──▶ Done: unlock
//! ```
//!
//! The range of a write stays locked from [`WriteStep::Lock`] to its end, also after an error.

use super::shape::{CheckError, VolumeShape, check_within};
use std::ops::Range;

/// A part of a range, and the blocks that contain it.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// The offset of the first block on the volume.
    start: u64,
    /// The position of the bytes in the blocks.
    skip: usize,
    /// The length of the bytes.
    bytes: usize,
    /// The length of the blocks.
    blocks_bytes: usize,
}

impl Piece {
    /// The first piece of `bytes` bytes at `offset` whose blocks fit in `buffer_bytes` bytes, which are whole blocks.
    fn first(block_bytes: u32, offset: u64, bytes: usize, buffer_bytes: usize) -> Self {
        let block = u64::from(block_bytes);
        let start = offset / block * block;
        let skip = (offset - start) as usize;
        let bytes = bytes.min(buffer_bytes - skip);
        Self { start, skip, bytes, blocks_bytes: (skip + bytes).next_multiple_of(block as usize) }
    }

    /// The end of the bytes in the blocks.
    const fn end(&self) -> usize {
        self.skip + self.bytes
    }
}

/// The execution of a request of a batch on a volume with bounced I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchRoute {
    /// The device transfers the caller's memory.
    Own,
    /// The device transfers these blocks from or to an aligned copy.
    Copy {
        /// The offset of the first block on the volume.
        start: u64,
        /// The position of the caller's bytes in the blocks.
        skip: usize,
        /// The length of the blocks. No memory holds `u64::MAX` bytes.
        blocks_bytes: u64,
    },
    /// At once, by [`BouncedRead`] or [`BouncedWrite`], after all other requests of the batch.
    Now,
}

impl VolumeShape {
    /// Whether batches copy unaligned I/O: the page cache, if there is one, does so otherwise.
    pub const fn batch_bounces(&self) -> bool {
        self.bounces && !self.has_cache()
    }

    /// Checks a read or write that may be unaligned, and whose copy would hide the reason to refuse it.
    ///
    /// # Errors
    /// The volume refuses it.
    pub fn check_bounced(
        &self,
        is_write: bool,
        offset: u64,
        bytes: u64,
        size_bytes: u64,
    ) -> Result<(), CheckError> {
        if is_write {
            self.check_writable()?;
        }
        if is_write || !self.cuts_off_at_end { check_within(offset, bytes, size_bytes) } else { Ok(()) }
    }

    /// The execution of a read or write of a batch, of memory at this address. Registered memory is aligned.
    pub fn batch_route(
        &self,
        is_write: bool,
        offset: u64,
        bytes: u64,
        address: usize,
        size_bytes: u64,
    ) -> BatchRoute {
        let block = u64::from(self.block_bytes);
        let is_whole = (offset | bytes).is_multiple_of(block);
        if is_write && !is_whole {
            return BatchRoute::Now;
        }
        let end = offset.saturating_add(bytes).checked_next_multiple_of(block);
        if !is_write && !self.cuts_off_at_end && end.is_none_or(|end| end > size_bytes) {
            // The queue of a raw volume refuses a block that ends after the end of the volume.
            return BatchRoute::Now;
        }
        if is_whole && self.check_memory(address).is_ok() {
            return BatchRoute::Own;
        }
        let start = offset / block * block;
        let skip = offset - start;
        let blocks_bytes = skip.saturating_add(bytes).checked_next_multiple_of(block).unwrap_or(u64::MAX);
        BatchRoute::Copy { start, skip: skip as usize, blocks_bytes }
    }
}

/// A read in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BouncedRead {
    block_bytes: u32,
    buffer_bytes: usize,
    offset: u64,
    /// The number of bytes before the end of the volume, when the read began.
    available: usize,
    done: usize,
    /// The number of bytes of the present piece that the volume has: they are in the buffer.
    copying: Option<usize>,
}

/// The next action of the driver of a read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadStep {
    /// Read these blocks to the start of the buffer, then call [`BouncedRead::handle_read`]. The first begins in the
    /// volume; the last may end past its end, in every mode.
    Read {
        /// The offset of the first block.
        offset: u64,
        /// The length of the blocks.
        bytes: usize,
    },
    /// Copy the bytes from here in the buffer to the caller's memory, then call [`BouncedRead::handle_copied`].
    Copy {
        /// The position of the first byte in the buffer.
        from: usize,
        /// The position of the bytes in the read.
        to: Range<usize>,
    },
    /// The number of bytes read.
    Done(usize),
}

impl BouncedRead {
    /// A read through a buffer of `buffer_bytes` bytes, which are whole blocks.
    ///
    /// # Errors
    /// The volume refuses it.
    pub fn new(
        shape: &VolumeShape,
        offset: u64,
        bytes: usize,
        buffer_bytes: usize,
        size_bytes: u64,
    ) -> Result<Self, CheckError> {
        shape.check_bounced(false, offset, bytes as u64, size_bytes)?;
        let available = size_bytes.saturating_sub(offset).min(bytes as u64) as usize;
        let block_bytes = shape.block_bytes;
        Ok(Self { block_bytes, buffer_bytes, offset, available, done: 0, copying: None })
    }

    /// The next action. The same until the driver has executed it.
    pub fn poll(&self) -> ReadStep {
        if self.done == self.available {
            return ReadStep::Done(self.done);
        }
        let piece = self.piece();
        match self.copying {
            Some(bytes) => ReadStep::Copy { from: piece.skip, to: self.done..self.done + bytes },
            None => ReadStep::Read { offset: piece.start, bytes: piece.blocks_bytes },
        }
    }

    /// The blocks are in the buffer. `bytes` of them lie before the end of the volume, which may have moved.
    pub fn handle_read(&mut self, bytes: usize) {
        let piece = self.piece();
        match piece.bytes.min(bytes.saturating_sub(piece.skip)) {
            // The volume ends before the piece.
            0 => self.available = self.done,
            bytes => self.copying = Some(bytes),
        }
    }

    /// The bytes are in the caller's memory.
    ///
    /// # Panics
    /// If there were none to copy: a bug of the caller.
    pub fn handle_copied(&mut self) {
        self.done += self.copying.take().expect("a read copies after it has read");
    }

    fn piece(&self) -> Piece {
        let Self { block_bytes, buffer_bytes, offset, available, done, .. } = *self;
        Piece::first(block_bytes, offset + done as u64, available - done, buffer_bytes)
    }
}

/// A write in progress.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BouncedWrite {
    block_bytes: u32,
    buffer_bytes: usize,
    writes_last_block: bool,
    is_forced: bool,
    offset: u64,
    bytes: usize,
    /// The range to lock.
    locked: Range<u64>,
    /// The end of the whole blocks of the volume. It is final while the range is locked: a resize locks the bytes that
    /// it adds or removes, and an end beyond the locked range does not matter.
    end: u64,
    done: usize,
    stage: Stage,
}

/// The progress of a piece. Each stage may have nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Stage {
    Lock,
    ReadFirst,
    ReadLast,
    Copy,
    Write,
    WriteTail,
    Flush,
    Done,
}

/// The next action of the driver of a write. After an error, the driver unlocks the range, and drops the write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep {
    /// Lock this range ([`LockKind::Write`](super::LockKind::Write)), then call [`BouncedWrite::handle_locked`].
    Lock(Range<u64>),
    /// Read a block to this place in the buffer, then call [`BouncedWrite::handle_done`]. It begins in the volume, and
    /// may end past its end.
    Read {
        /// The offset of the block.
        offset: u64,
        /// Its place in the buffer.
        at: Range<usize>,
    },
    /// Copy these bytes of the write to the buffer, then call [`BouncedWrite::handle_done`].
    Copy {
        /// The position of the bytes in the write.
        from: Range<usize>,
        /// The position of the first byte in the buffer.
        to: usize,
    },
    /// Write whole blocks from the start of the buffer, then call [`BouncedWrite::handle_done`].
    Write {
        /// The offset of the first block.
        offset: u64,
        /// The length of the blocks.
        bytes: usize,
    },
    /// Write bytes after the last whole block of the volume from the buffer, without direct I/O, then call
    /// [`BouncedWrite::handle_done`].
    WriteTail {
        /// The offset of the bytes.
        offset: u64,
        /// Their place in the buffer.
        at: Range<usize>,
    },
    /// Flush the device, then call [`BouncedWrite::handle_done`].
    Flush,
    /// The write is complete: unlock the range.
    Done,
}

impl BouncedWrite {
    /// A write through a buffer of `buffer_bytes` bytes, which are whole blocks. A forced write ends with a flush.
    ///
    /// # Errors
    /// Writes are not permitted.
    pub fn new(
        shape: &VolumeShape,
        offset: u64,
        bytes: usize,
        buffer_bytes: usize,
        is_forced: bool,
    ) -> Result<Self, CheckError> {
        shape.check_writable()?;
        Ok(Self {
            block_bytes: shape.block_bytes,
            buffer_bytes,
            writes_last_block: shape.writes_last_block,
            is_forced,
            offset,
            bytes,
            locked: shape.lock_range(offset, bytes as u64),
            end: 0,
            done: 0,
            stage: Stage::Lock,
        })
    }

    /// The range to lock.
    pub fn lock_range(&self) -> Range<u64> {
        self.locked.clone()
    }

    /// The range is locked, and the volume has this size.
    ///
    /// # Errors
    /// The write reaches past the end of the volume.
    ///
    /// # Panics
    /// If the range was locked before: a bug of the caller.
    pub fn handle_locked(&mut self, size_bytes: u64) -> Result<(), CheckError> {
        assert!(self.stage == Stage::Lock, "a write locks its range twice");
        check_within(self.offset, self.bytes as u64, size_bytes)?;
        // The last block of a file may be partial, except in a mapped file.
        let block = u64::from(self.block_bytes);
        self.end = if self.writes_last_block {
            size_bytes.next_multiple_of(block)
        } else {
            size_bytes / block * block
        };
        self.stage = if self.bytes == 0 { Stage::Flush } else { Stage::ReadFirst };
        self.skip_stages();
        Ok(())
    }

    /// The next action. The same until the driver has executed it.
    pub fn poll(&self) -> WriteStep {
        self.step().expect("the stage has something to do")
    }

    /// The driver has executed the step.
    ///
    /// # Panics
    /// If the step was [`WriteStep::Lock`] or [`WriteStep::Done`]: a bug of the caller.
    pub fn handle_done(&mut self) {
        self.next_stage();
        self.skip_stages();
    }

    fn skip_stages(&mut self) {
        while self.step().is_none() {
            self.next_stage();
        }
    }

    fn next_stage(&mut self) {
        self.stage = match self.stage {
            Stage::ReadFirst => Stage::ReadLast,
            Stage::ReadLast => Stage::Copy,
            Stage::Copy => Stage::Write,
            Stage::Write => Stage::WriteTail,
            Stage::WriteTail => {
                self.done += self.piece().bytes;
                if self.done == self.bytes { Stage::Flush } else { Stage::ReadFirst }
            }
            Stage::Flush => Stage::Done,
            stage @ (Stage::Lock | Stage::Done) => unreachable!("a write in stage {stage:?} is continued"),
        };
    }

    /// The action of the stage; `None` if it has none.
    fn step(&self) -> Option<WriteStep> {
        let block = self.block_bytes as usize;
        let piece = self.piece();
        let (from, to) = (piece.skip, piece.end());
        // The length of the blocks that direct I/O can write.
        let whole = self.end.saturating_sub(piece.start).min(piece.blocks_bytes as u64) as usize;
        let read = |at: usize| WriteStep::Read { offset: piece.start + at as u64, at: at..at + block };
        let (first, last) = (from / block * block, to / block * block);
        match self.stage {
            Stage::Lock => Some(WriteStep::Lock(self.lock_range())),
            Stage::ReadFirst => (from > first && first < whole).then(|| read(first)),
            // A block that was read already is not read again.
            Stage::ReadLast => {
                (to > last && last < whole && (last > first || from == first)).then(|| read(last))
            }
            Stage::Copy => Some(WriteStep::Copy { from: self.done..self.done + piece.bytes, to: from }),
            Stage::Write => (whole > 0).then_some(WriteStep::Write { offset: piece.start, bytes: whole }),
            Stage::WriteTail => {
                let at = from.max(whole)..to;
                (to > whole).then(|| WriteStep::WriteTail { offset: piece.start + at.start as u64, at })
            }
            Stage::Flush => self.is_forced.then_some(WriteStep::Flush),
            Stage::Done => Some(WriteStep::Done),
        }
    }

    fn piece(&self) -> Piece {
        let Self { block_bytes, buffer_bytes, offset, bytes, done, .. } = *self;
        Piece::first(block_bytes, offset + done as u64, bytes - done, buffer_bytes)
    }
}

#[cfg(test)]
mod tests;
