//! Checks the range, the alignment and the mode of an I/O before it begins, and creates the errors of failed I/O.

use super::Volume;
use crate::error::{Error, ErrorKind, Result};
use iopath_core::{Extent, IoError, Op, SubmitError};

impl Volume {
    /// The error of an I/O that failed at the device.
    pub(crate) fn failed(&self, op: Op, extent: Extent, source: IoError) -> Error {
        self.io_error(op, extent.offset(), extent.bytes(), source)
    }

    pub(crate) fn io_error(&self, op: Op, offset: u64, bytes: u64, source: IoError) -> Error {
        self.error(ErrorKind::Io(source)).of_range(op, offset, bytes)
    }

    /// The error of an I/O that passed the checks of this file, and that the queue refused.
    pub(crate) fn refused<M>(&self, error: &SubmitError<M>) -> Error {
        let (kind, bio) = match error {
            SubmitError::Unsupported(bio) => (ErrorKind::Unsupported, bio),
            SubmitError::OutOfRange { bio, .. } => {
                (ErrorKind::PastEnd { size_bytes: self.size_bytes() }, bio)
            }
            SubmitError::QueueFull(bio) => {
                (ErrorKind::BatchFull { depth: self.shared.source.options.depth }, bio)
            }
            SubmitError::Unaligned { bio, .. } => {
                (ErrorKind::Unaligned { align_bytes: self.facts().block_bytes }, bio)
            }
            SubmitError::MemoryMismatch { bio, memory_bytes } => {
                (ErrorKind::BufferTooSmall { buffer_bytes: *memory_bytes }, bio)
            }
        };
        self.error(kind).of_range(bio.op, bio.extent.offset(), bio.extent.bytes())
    }

    /// The extent of a read, and the number of its bytes that lie in the volume.
    pub(crate) fn readable(&self, offset: u64, bytes: u64) -> Result<(Extent, u64)> {
        if !self.cuts_off_at_end() {
            let extent = self.whole_blocks(Op::Read, offset, bytes)?;
            self.check_within(Op::Read, offset, bytes)?;
            return Ok((extent, bytes));
        }
        self.readable_to_end(offset, bytes)
    }

    /// Does the same as [`Volume::readable`] of a volume that is not raw: the extent ends with the last block of the
    /// volume.
    pub(super) fn readable_to_end(&self, offset: u64, bytes: u64) -> Result<(Extent, u64)> {
        let size = self.size_bytes();
        let extent = self.whole_blocks(Op::Read, offset, bytes)?;
        if extent.offset() + extent.bytes() <= size {
            return Ok((extent, bytes));
        }
        let block = u64::from(self.facts().block_bytes);
        let available = size.saturating_sub(offset);
        let extent = Extent::from_bytes(offset, available.next_multiple_of(block));
        Ok((extent.ok_or_else(|| self.past_end(Op::Read, offset, bytes))?, available))
    }

    /// The extent of a write, discard or write-zeroes.
    pub(crate) fn writable(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent> {
        self.check_writable(op, offset, bytes)?;
        let extent = self.whole_blocks(op, offset, bytes)?;
        self.check_within(op, offset, bytes)?;
        Ok(extent)
    }

    pub(crate) fn check_within(&self, op: Op, offset: u64, bytes: u64) -> Result<()> {
        match offset.checked_add(bytes) {
            Some(end) if end <= self.size_bytes() => Ok(()),
            _ => Err(self.past_end(op, offset, bytes)),
        }
    }

    pub(crate) fn check_writable(&self, op: Op, offset: u64, bytes: u64) -> Result<()> {
        if self.shared.source.options.write {
            return Ok(());
        }
        Err(self.error(ErrorKind::ReadOnly).of_range(op, offset, bytes))
    }

    pub(super) fn whole_blocks(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent> {
        let block = u64::from(self.facts().block_bytes);
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(self.unaligned(op, offset, bytes));
        }
        let in_range = offset.checked_add(bytes).is_some();
        let extent = Extent::from_bytes(offset, bytes).filter(|_| in_range);
        extent.ok_or_else(|| self.past_end(op, offset, bytes))
    }

    /// Checks a direct write before it extends the volume.
    pub(super) fn check_alignment(&self, buffer: &[u8], offset: u64) -> Result<()> {
        let bytes = buffer.len() as u64;
        self.check_writable(Op::Write, offset, bytes)?;
        if self.has_cache() || self.bounce().is_some() {
            return Ok(());
        }
        self.whole_blocks(Op::Write, offset, bytes)?;
        self.check_memory(Op::Write, buffer.as_ptr().addr(), offset, bytes)
    }

    pub(crate) fn check_memory(&self, op: Op, address: usize, offset: u64, bytes: u64) -> Result<()> {
        let align_bytes = self.facts().memory_align_bytes;
        if address.is_multiple_of(align_bytes as usize) {
            return Ok(());
        }
        Err(self.error(ErrorKind::UnalignedMemory { align_bytes }).of_range(op, offset, bytes))
    }

    fn unaligned(&self, op: Op, offset: u64, bytes: u64) -> Error {
        let align_bytes = self.facts().block_bytes;
        self.error(ErrorKind::Unaligned { align_bytes }).of_range(op, offset, bytes)
    }

    fn past_end(&self, op: Op, offset: u64, bytes: u64) -> Error {
        let size_bytes = self.size_bytes();
        self.error(ErrorKind::PastEnd { size_bytes }).of_range(op, offset, bytes)
    }
}
