//! The kernel's own ways to a file or block device, as programs use them: what iopath is measured against.
//!
//! | type | system calls | in flight |
//! |---|---|---|
//! | [`OneAtATime`] [`Pread`] | `pread(2)`, `pwrite(2)`; direct or through the page cache as the file was opened | 1 |
//! | [`Uring`] | `io_uring_enter(2)`, one for a few transfers | as many as there are buffers |
//! | [`OneAtATime`] [`Mmap`] | none but page faults | 1 |
//!
//! All take transfers by slot: slot `i` moves bytes between the file and buffer `i`, which the connection owns, so
//! that no caller can touch memory which is in flight. None is a block device of iopath's own path: these have no
//! queue, no elevator, and share nothing with what they are compared to.

mod mmap;
mod one;
mod pread;
mod sigbus;
mod slots;
mod stamp;
mod uring;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub use mmap::Mmap;
pub use one::{Blocking, OneAtATime};
pub use pread::Pread;
pub use slots::Slots;
pub use stamp::Stamp;
pub use uring::Uring;

/// Which way the bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// One transfer between the file and the buffer of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// Where in the file, in bytes.
    pub offset: u64,
    /// How much, in bytes.
    pub bytes: u32,
}

/// A transfer that has ended.
#[derive(Debug)]
pub struct Done {
    /// The slot it was submitted in, free again.
    pub slot: u32,
    /// Success means the whole length. A file that ends early is [`io::ErrorKind::UnexpectedEof`], a device that
    /// takes no more bytes [`io::ErrorKind::WriteZero`]; everything else is the system's errno.
    pub result: io::Result<()>,
}

/// Opens an existing file or block device for transfers. `direct` adds `O_DIRECT`: around the page cache
/// (`open(2)`), refused with EINVAL where the filesystem knows no such thing.
pub fn open(path: &Path, writes: bool, direct: bool) -> io::Result<File> {
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(writes).custom_flags(flags | libc::O_CLOEXEC).open(path)
}

/// How far a transfer has come, counted in `done` bytes, after the system moved `moved` more: what to do next.
///
/// A short transfer goes on from the last multiple of `align`, because direct I/O refuses any other offset; one
/// that gains nothing by it has met the end.
fn advance(transfer: Transfer, done: u32, moved: u32, align: u32) -> Progress {
    let end = done + moved;
    if end >= transfer.bytes {
        return Progress::Whole;
    }
    let from = end - end % align;
    if from <= done {
        return Progress::Ended(match transfer.direction {
            Direction::Read => io::ErrorKind::UnexpectedEof,
            Direction::Write => io::ErrorKind::WriteZero,
        });
    }
    Progress::From(from)
}

/// See [`advance`].
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Whole,
    From(u32),
    Ended(io::ErrorKind),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_transfers_go_on_from_an_aligned_point_or_end() {
        let read = Transfer { direction: Direction::Read, offset: 0, bytes: 4096 };
        assert_eq!(advance(read, 0, 4096, 512), Progress::Whole);
        assert_eq!(advance(read, 0, 1000, 512), Progress::From(512));
        assert_eq!(advance(read, 0, 1000, 1), Progress::From(1000));
        assert_eq!(advance(read, 512, 488, 512), Progress::Ended(io::ErrorKind::UnexpectedEof));
        assert_eq!(advance(read, 512, 0, 512), Progress::Ended(io::ErrorKind::UnexpectedEof));
        let write = Transfer { direction: Direction::Write, ..read };
        assert_eq!(advance(write, 0, 0, 1), Progress::Ended(io::ErrorKind::WriteZero));
    }
}
