//! Writes the bytes after the last whole block of a volume, since direct I/O cannot write them.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use iopath_core::{IoError, Op};
use rustix::fs::{Advice, fadvise, fdatasync};
use rustix::io::Errno;

use crate::device::MemoryTail;
use crate::errno::io_error_of;

/// The target of writes that bypass direct I/O: a file that is open without `O_DIRECT`, or a disk in memory.
pub trait Tail: fmt::Debug + Send + Sync {
    /// Writes a first part of `bytes` from byte `offset` on, as [`FileExt::write_at`] does. Returns its length.
    ///
    /// # Errors
    /// The error of the storage. Nothing is written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, IoError>;

    /// A flush of the storage has failed. Drops the kernel's copies of bytes that may be lost: ext4, for one, may not
    /// make such a page durable, even after a later write to it. Default: nothing.
    fn handle_failed_flush(&self) {}

    /// Writes all of `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// [`WriteStopped`], with the length of the part that is written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), WriteStopped> {
        let mut written = 0;
        while written < bytes.len() {
            match self.write_at(&bytes[written..], offset + written as u64) {
                // A storage that takes no bytes, and has no error, has no room.
                Ok(0) => return Err(WriteStopped { written, error: IoError::NoSpace }),
                Ok(bytes) => written += bytes,
                Err(error) => return Err(WriteStopped { written, error }),
            }
        }
        Ok(())
    }
}

/// A write that the storage has refused after a first part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the storage has refused a write after {written} bytes")]
pub struct WriteStopped {
    /// The number of bytes that are written.
    pub written: usize,
    /// The error of the rest.
    #[source]
    pub error: IoError,
}

impl From<WriteStopped> for IoError {
    fn from(stopped: WriteStopped) -> Self {
        stopped.error
    }
}

impl Tail for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, IoError> {
        loop {
            match FileExt::write_at(self, bytes, offset) {
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INTR) => {}
                result => return result.map_err(|error| io_error_of(Op::Write, &error)),
            }
        }
    }

    fn handle_failed_flush(&self) {
        // The advice keeps dirty pages. A write of another thread may have made one dirty since: its caller writes
        // again, too, after a failed flush. Other descriptors still report the error.
        let _ = fdatasync(self);
        let _ = fadvise(self, 0, None, Advice::DontNeed);
    }
}

impl Tail for MemoryTail {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, IoError> {
        self.write_all_at(bytes, offset)?;
        Ok(bytes.len())
    }
}
