//! Writes the bytes after the last whole block of a volume, since direct I/O cannot write them.

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;

use iopath_core::{IoError, Op};

use crate::device::MemoryTail;
use crate::errno::io_error_of;

/// The target of writes that bypass direct I/O: a file that is open without `O_DIRECT`, or a disk in memory.
pub trait Tail: fmt::Debug + Send + Sync {
    /// Writes all of `bytes` from byte `offset` on.
    ///
    /// # Errors
    /// The error of the storage. A part may be written.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError>;
}

impl Tail for File {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        FileExt::write_all_at(self, bytes, offset).map_err(|error| io_error_of(Op::Write, &error))
    }
}

impl Tail for MemoryTail {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        self.write_all_at(bytes, offset)
    }
}
