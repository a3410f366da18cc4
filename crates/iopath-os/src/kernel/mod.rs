//! The kernel's own I/O paths to a file or block device, as programs use them. Measurements compare iopath with them.
//!
//! | type | system calls | in flight |
//! |---|---|---|
//! | [`OneAtATime`] [`Pread`] | `pread(2)`, `pwrite(2)`; direct or through the page cache as the file was opened | 1 |
//! | [`Uring`] | `io_uring_enter(2)`, one for a few transfers | as many as there are buffers |
//! | [`OneAtATime`] [`Mmap`] | none but page faults | 1 |
//!
//! All identify transfers by slot: slot `i` moves bytes between the file and buffer `i`. The connection owns the
//! buffers, so a caller cannot access memory in flight. These types are not block devices of iopath: they have no queue
//! and no elevator, and share no code with the paths of iopath.

mod mmap;
mod one;
mod pread;
pub(crate) mod sigbus;
mod slots;
mod stamp;
mod uring;

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

pub use mmap::Mmap;
pub use one::{Blocking, OneAtATime};
pub use pread::Pread;
pub use slots::{Pages, Slots};
pub use stamp::Stamp;
pub use uring::{Polling, Uring};

/// The expected order of the accesses to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// Random: no readahead.
    Random,
    /// Sequential: more readahead.
    Sequential,
}

/// Tells the kernel the expected order of the accesses to a file through the page cache (`posix_fadvise(2)`).
///
/// # Errors
/// The error of the system.
pub fn hint(file: &File, hint: Hint) -> io::Result<()> {
    let advice = match hint {
        Hint::Random => Advice::Random,
        Hint::Sequential => Advice::Sequential,
    };
    Ok(fadvise(file, 0, None, advice)?)
}

/// Drops the clean pages of a range from the page cache.
///
/// # Errors
/// The error of the system.
pub fn drop_pages(file: &File, start_bytes: u64, bytes: u64) -> io::Result<()> {
    let Some(length) = NonZeroU64::new(bytes) else { return Ok(()) };
    Ok(fadvise(file, start_bytes, Some(length), Advice::DontNeed)?)
}

/// The direction of a transfer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
    /// The range holds no data afterwards: a hole in a file (`FALLOC_FL_PUNCH_HOLE`). No memory is involved.
    Trim,
}

/// One transfer between the file and the buffer of a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transfer {
    /// The direction.
    pub direction: Direction,
    /// The offset in the file, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub bytes: u32,
}

/// A completed transfer.
#[derive(Debug)]
pub struct Done {
    /// The slot of the transfer, which is free again.
    pub slot: u32,
    /// Success of the whole length, or the error: [`io::ErrorKind::UnexpectedEof`] if the file ends early,
    /// [`io::ErrorKind::WriteZero`] if the device takes no more bytes, else the system's errno.
    pub result: io::Result<()>,
}

/// Opens an existing file or block device for transfers. `direct` adds `O_DIRECT`, which bypasses the page cache
/// (`open(2)`); filesystems without it return EINVAL.
pub fn open(path: &Path, writes: bool, direct: bool) -> io::Result<File> {
    open_with(path, writes, if direct { OFlags::DIRECT } else { OFlags::empty() })
}

/// As [`open`], with any flags that change transfers, such as `O_DSYNC`.
pub fn open_with(path: &Path, writes: bool, flags: OFlags) -> io::Result<File> {
    let flags = (flags | OFlags::CLOEXEC).bits().cast_signed();
    OpenOptions::new().read(true).write(writes).custom_flags(flags).open(path)
}

/// Trims the range of a transfer. The kernel executes it on a block device as write-zeroes that may unmap.
fn trim(file: &File, transfer: Transfer) -> io::Result<()> {
    Ok(fallocate(file, TRIM, transfer.offset, transfer.bytes.into())?)
}

/// The mode of `fallocate(2)` for a trim.
const TRIM: FallocateFlags = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);

/// The next action after a transfer with `done` bytes moved `moved` more.
///
/// A short transfer continues at the last multiple of `align`, since direct I/O refuses any other offset. If it makes
/// no progress there, the file has ended.
fn advance(transfer: Transfer, done: u32, moved: u32, align: u32) -> Progress {
    let end = done + moved;
    if end >= transfer.bytes {
        return Progress::Whole;
    }
    let from = end - end % align;
    if from <= done {
        return Progress::Ended(match transfer.direction {
            Direction::Read => io::ErrorKind::UnexpectedEof,
            Direction::Write | Direction::Trim => io::ErrorKind::WriteZero,
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
    fn short_transfers_continue_at_an_aligned_offset_or_end() {
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
