//! The errors of a volume: of I/O that its checks refuse (`iopath_core::volume`), and of I/O that failed.

use super::Volume;
use crate::bounce::Bounce;
use crate::error::{Error, ErrorKind, Result};
use iopath_core::volume::{CheckError, VolumeShape, check_within};
use iopath_core::{Extent, IoError, Op, SubmitError};

impl Volume {
    /// Handles an I/O that failed at the device. Returns its error.
    #[cold]
    pub(crate) fn failed(&self, op: Op, extent: Extent, source: IoError) -> Error {
        // A durable write can have the error of a flush.
        if matches!(op, Op::Flush | Op::Write)
            && let Some(tail) = self.bounce().and_then(Bounce::tail)
        {
            tail.handle_failed_flush();
        }
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
                (ErrorKind::BatchFull { depth: self.shared.storage.options.depth }, bio)
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
    #[inline]
    pub(crate) fn readable(&self, offset: u64, bytes: u64) -> Result<(Extent, u64)> {
        self.checked(Op::Read, offset, bytes, |shape, size| shape.extent(Op::Read, offset, bytes, size))
    }

    /// Does the same as [`Volume::readable`] of a volume that is not raw: the extent ends with the last block of the
    /// volume.
    pub(super) fn readable_to_end(&self, offset: u64, bytes: u64) -> Result<(Extent, u64)> {
        self.checked(Op::Read, offset, bytes, |shape, size| shape.readable_to_end(offset, bytes, size))
    }

    /// The extent of a write, discard or write-zeroes.
    #[inline]
    pub(crate) fn writable(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent> {
        let checked = self.checked(op, offset, bytes, |shape, size| shape.extent(op, offset, bytes, size));
        checked.map(|(extent, _)| extent)
    }

    pub(crate) fn check_within(&self, op: Op, offset: u64, bytes: u64) -> Result<()> {
        self.checked(op, offset, bytes, |_, size| check_within(offset, bytes, size))
    }

    pub(crate) fn check_writable(&self, op: Op, offset: u64, bytes: u64) -> Result<()> {
        self.checked(op, offset, bytes, |shape, _| shape.check_writable())
    }

    pub(super) fn whole_blocks(&self, op: Op, offset: u64, bytes: u64) -> Result<Extent> {
        self.checked(op, offset, bytes, |shape, size| shape.whole_blocks(offset, bytes, size))
    }

    pub(crate) fn check_memory(&self, op: Op, address: usize, offset: u64, bytes: u64) -> Result<()> {
        self.checked(op, offset, bytes, |shape, _| shape.check_memory(address))
    }

    /// A check of a range, with the present size of the volume.
    #[inline]
    pub(crate) fn checked<T>(
        &self,
        op: Op,
        offset: u64,
        bytes: u64,
        check: impl FnOnce(&VolumeShape, u64) -> std::result::Result<T, CheckError>,
    ) -> Result<T> {
        check(self.shape(), self.size_bytes()).map_err(|error| self.check_failed(error, op, offset, bytes))
    }

    #[cold]
    fn check_failed(&self, error: CheckError, op: Op, offset: u64, bytes: u64) -> Error {
        let kind = match error {
            CheckError::ReadOnly => ErrorKind::ReadOnly,
            CheckError::PastEnd { size_bytes } => ErrorKind::PastEnd { size_bytes },
            CheckError::Unaligned { align_bytes } => ErrorKind::Unaligned { align_bytes },
            CheckError::UnalignedMemory { align_bytes } => ErrorKind::UnalignedMemory { align_bytes },
        };
        self.error(kind).of_range(op, offset, bytes)
    }
}
