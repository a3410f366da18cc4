//! Writes the bytes after the last whole block of a volume, since direct I/O cannot write them.

use std::fs::File;
use std::os::unix::fs::FileExt;

use iopath_core::{IoError, Op};

use crate::device::MemoryTail;
use crate::errno::io_error_of;

/// The target of writes that bypass direct I/O.
#[derive(Debug)]
pub enum Tail {
    /// A file, open for writing without `O_DIRECT`.
    File(File),
    /// A disk in memory.
    Memory(MemoryTail),
}

impl Tail {
    /// Writes all of `bytes` from byte `offset` on.
    pub fn write_all_at(&self, bytes: &[u8], offset: u64) -> Result<(), IoError> {
        match self {
            Self::File(file) => {
                file.write_all_at(bytes, offset).map_err(|error| io_error_of(Op::Write, &error))
            }
            Self::Memory(tail) => tail.write_all_at(bytes, offset),
        }
    }
}
