//! Unaligned direct I/O through an aligned buffer: a thread executes the steps of `iopath_core::volume`. A write of a
//! part of a block reads, changes and writes the block while its range is locked. Writes of whole blocks by other paths
//! lock it, too: [`RangeLock`].

use super::Volume;
use crate::bounce::{BUFFER_BYTES, Bounce, Locked};
use crate::error::{Cause, Error, ErrorKind, Result};
use iopath_core::volume::{BouncedRead, BouncedWrite, ReadStep, WriteStep};
use iopath_core::{IoError, Op};
use iopath_os::NoMemory;
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
    /// Locks a range for a write by a batch of [`SharedBuf`](crate::buffers::SharedBuf), which does not lock itself. On
    /// a volume with [`Unaligned::Bounce`](crate::Unaligned::Bounce), a write of a part of a block reads the block,
    /// changes it and writes it. Without the lock, it could undo a write of the block that completed in between. Hold
    /// the lock until the write has completed. Such locks do not exclude each other.
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
        let bytes = buffer.len();
        let mut read = self.checked(Op::Read, offset, bytes as u64, |shape, size| {
            BouncedRead::new(shape, offset, bytes, BUFFER_BYTES, size)
        })?;
        if let ReadStep::Done(bytes) = read.poll() {
            return Ok(bytes);
        }
        let done = bounce.with_buffer(|blocks| -> Result<usize> {
            loop {
                match read.poll() {
                    ReadStep::Read { offset, bytes } => {
                        read.handle_read(self.read_blocks(&mut blocks[..bytes], offset)?);
                    }
                    ReadStep::Copy { from, to } => {
                        let bytes = to.len();
                        buffer[to].copy_from_slice(&blocks[from..from + bytes]);
                        read.handle_copied();
                    }
                    ReadStep::Done(bytes) => return Ok(bytes),
                }
            }
        });
        done.map_err(|error| self.no_memory(Op::Read, offset, bytes, error))?
    }

    pub(super) fn write_bounced(&self, bounce: &Bounce, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let bytes = buffer.len();
        let mut write = self.checked(Op::Write, offset, bytes as u64, |shape, _| {
            BouncedWrite::new(shape, offset, bytes, BUFFER_BYTES, fua)
        })?;
        let _locked = bounce.lock_range(write.lock_range());
        self.checked(Op::Write, offset, bytes as u64, |_, size| write.handle_locked(size))?;
        if write.poll() == WriteStep::Done {
            return Ok(());
        }
        let written =
            bounce.with_buffer(|blocks| self.write_locked(bounce, &mut write, buffer, &mut blocks[..]));
        written.map_err(|error| self.no_memory(Op::Write, offset, bytes, error))?
    }

    /// Executes the steps of a write whose range is locked.
    fn write_locked(
        &self,
        bounce: &Bounce,
        write: &mut BouncedWrite,
        buffer: &[u8],
        blocks: &mut [u8],
    ) -> Result<()> {
        loop {
            match write.poll() {
                WriteStep::Read { offset, at } => {
                    self.read_blocks(&mut blocks[at], offset)?;
                }
                WriteStep::Copy { from, to } => {
                    blocks[to..to + from.len()].copy_from_slice(&buffer[from]);
                }
                WriteStep::Write { offset, bytes } => self.write_blocks(&blocks[..bytes], offset)?,
                WriteStep::WriteTail { offset, at } => {
                    let bytes = at.len() as u64;
                    let written = match bounce.tail() {
                        Some(tail) => tail.write_all_at(&blocks[at], offset).map_err(IoError::from),
                        None => Err(IoError::Alignment),
                    };
                    written.map_err(|source| self.io_error(Op::Write, offset, bytes, source))?;
                }
                WriteStep::Flush => self.flush()?,
                WriteStep::Done => return Ok(()),
                WriteStep::Lock(range) => unreachable!("{range:?} is locked already"),
            }
            write.handle_done();
        }
    }

    /// An aligned write on a volume with bounced writes. The lock prevents a bounced write from restoring old bytes.
    pub(super) fn write_aligned(&self, bounce: &Bounce, buffer: &[u8], offset: u64, fua: bool) -> Result<()> {
        let _locked = self.lock_blocks(bounce, offset, buffer.len() as u64);
        self.write_direct(buffer, offset, fua)
    }

    pub(super) fn lock_blocks<'a>(&self, bounce: &'a Bounce, offset: u64, bytes: u64) -> Locked<'a> {
        bounce.lock_range(self.lock_range_of(offset, bytes))
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
        self.shape().lock_range(offset, bytes)
    }

    fn no_memory(&self, op: Op, offset: u64, bytes: usize, error: NoMemory) -> Error {
        let error = Cause::Memory(error);
        self.error(ErrorKind::NoMemory).of_range(op, offset, bytes as u64).because(error)
    }
}
