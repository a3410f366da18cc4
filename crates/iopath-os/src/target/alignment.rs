//! Discovers the alignment of direct I/O to a file or device.
//!
//! Sources, the most reliable first: statx(2) with `STATX_DIOALIGN` (Linux 6.1), the block device, trial reads. For
//! fast sizes, see `Disk::optimal_io_bytes`.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::disk::Disk;
use super::mounts::Mounts;
use super::roots::{FileId, Roots};
use super::stat::{FileStat, Reported};

/// The alignment of direct I/O. Memory and offset have different alignments: a disk can require 4 bytes for memory and
/// 512 for offsets, and its filesystem 4096 for offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DioAlignment {
    /// The address of each memory segment is a multiple of this.
    pub memory_bytes: u32,
    /// Offset and length of each transfer are multiples of this.
    pub offset_bytes: u32,
    /// The same for reads, if a filesystem requires less for reads (xfs with shared extents); otherwise `offset_bytes`.
    pub read_offset_bytes: u32,
    /// Its source.
    pub source: AlignmentSource,
}

/// The source of an alignment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AlignmentSource {
    /// The kernel reported it for this file (statx).
    Statx,
    /// The block device's logical block size and its `dma_alignment`.
    BlockDevice,
    /// The smallest alignment with which trial reads succeeded.
    Trial,
    /// The default, because unaligned trial reads succeeded. Such a success proves nothing: filesystems may serve
    /// unaligned reads from the page cache. The default is the largest alignment in common use.
    Inconclusive,
}

/// The reason why direct I/O is not possible.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DioError {
    /// The filesystem does not support `O_DIRECT`.
    #[error(
        "{path}: {filesystem} refuses O_DIRECT; use path kernel-buffered or kernel-mmap, or a target on another filesystem"
    )]
    Refused {
        /// The file.
        path: PathBuf,
        /// Type of its filesystem, "a filesystem of unknown type", or the device.
        filesystem: String,
    },
    /// The file cannot be opened for reading.
    #[error("cannot open {path} for direct reading: {source}; check the path and its permissions")]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Debug for DioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        iopath_core::debug::error("DioError", self, f)
    }
}

impl DioAlignment {
    /// Discovers the alignment for the regular file or block device at `path`. Reads at most a few blocks of it.
    ///
    /// # Errors
    /// [`DioError`]: direct I/O is refused, or the file cannot be opened for reading.
    pub fn discover(path: impl AsRef<Path>) -> Result<Self, DioError> {
        Self::discover_in(&Roots::live(), path.as_ref())
    }

    fn discover_in(roots: &Roots, path: &Path) -> Result<Self, DioError> {
        let file = open_direct(roots, path)?;
        let stat = FileStat::of(&file).map_err(|source| DioError::Open { path: path.to_owned(), source })?;
        Self::of_open_in(roots, &file, &stat, path)
    }

    /// The alignment for a file that is open for direct reads. `path` is its name in errors.
    ///
    /// # Errors
    /// [`DioError::Refused`].
    pub fn of_open(file: &File, stat: &FileStat, path: &Path) -> Result<Self, DioError> {
        Self::of_open_in(&Roots::live(), file, stat, path)
    }

    fn of_open_in(roots: &Roots, file: &File, stat: &FileStat, path: &Path) -> Result<Self, DioError> {
        let refused = || DioError::Refused { path: path.to_owned(), filesystem: filesystem_of(roots, path) };
        match stat.alignment() {
            Reported::Aligned { memory_bytes, offset_bytes, read_offset_bytes } => {
                let source = AlignmentSource::Statx;
                Ok(Self { memory_bytes, offset_bytes, read_offset_bytes, source })
            }
            Reported::Refused => Err(refused()),
            Reported::Nothing => from_block_device(roots, file, stat)
                .or_else(|| from_trial(|span| is_accepted(file, span)))
                .ok_or_else(refused),
        }
    }

    /// Whether a transfer of `length` bytes at `offset` from or to memory at `address` is aligned for both directions.
    pub fn permits(&self, address: usize, offset: u64, length: usize) -> bool {
        address.is_multiple_of(self.memory_bytes as usize)
            && offset.is_multiple_of(self.offset_bytes.into())
            && length.is_multiple_of(self.offset_bytes as usize)
    }
}

fn open_direct(roots: &Roots, path: &Path) -> Result<File, DioError> {
    let flags = libc::O_DIRECT | libc::O_CLOEXEC | libc::O_NONBLOCK;
    OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|source| {
        let path = path.to_owned();
        match source.raw_os_error() {
            Some(libc::EINVAL) => DioError::Refused { filesystem: filesystem_of(roots, &path), path },
            _ => DioError::Open { path, source },
        }
    })
}

/// The filesystem's type for a message; the mount table may be missing.
fn filesystem_of(roots: &Roots, path: &Path) -> String {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let device = FileId::of(&real).map(|id| id.device);
    let mounts = Mounts::load(roots).unwrap_or_default();
    device
        .and_then(|device| mounts.holding(None, device, &real))
        .map_or_else(|| "a filesystem of unknown type".to_owned(), |mount| mount.fs_type.clone())
}

/// `BLKSSZGET` for offsets; sysfs `dma_alignment` for memory. Kernels without that attribute require the
/// alignment of offsets for memory, too. `None` if the file is not a block device.
fn from_block_device(roots: &Roots, file: &File, stat: &FileStat) -> Option<DioAlignment> {
    let device = stat.device()?;
    let offset_bytes = rustix::fs::ioctl_blksszget(file).ok()?;
    let disk = Disk::find(roots, device);
    let memory_bytes = disk.and_then(|disk| disk.dma_alignment_bytes).unwrap_or(offset_bytes);
    let source = AlignmentSource::BlockDevice;
    Some(DioAlignment { memory_bytes, offset_bytes, read_offset_bytes: offset_bytes, source })
}

/// Alignments to try, smallest first. If 1 succeeds, reads may come from the page cache, and trial reads prove nothing.
const TRIALS: [u32; 9] = [1, 512, 1024, 2048, 4096, 8192, 16384, 32768, LARGEST];
/// The largest page size of Linux on any architecture, and so the largest block size.
const LARGEST: u32 = 65536;

/// Finds the smallest alignments that `accepts` accepts; `None` if it refuses all. `accepts` reads from the start of
/// the file into a range of a buffer. The buffer is aligned to [`LARGEST`] and has twice that length.
fn from_trial(mut accepts: impl FnMut(Range<usize>) -> bool) -> Option<DioAlignment> {
    let offset = TRIALS.into_iter().find(|&trial| accepts(0..trial as usize))?;
    let length = if offset == 1 { LARGEST } else { offset } as usize;
    let memory = TRIALS.into_iter().find(|&trial| {
        // The address `trial` has no larger alignment than `trial`; `LARGEST` needs no space after the buffer.
        let start = if trial == LARGEST { 0 } else { trial as usize };
        accepts(start..start + length)
    })?;
    let proven = |trial: u32| if trial == 1 { safe_bytes() } else { trial };
    let conclusive = offset != 1 && memory != 1;
    Some(DioAlignment {
        memory_bytes: proven(memory),
        offset_bytes: proven(offset),
        read_offset_bytes: proven(offset),
        source: if conclusive { AlignmentSource::Trial } else { AlignmentSource::Inconclusive },
    })
}

/// The larger of a page and 4096 bytes, the largest block size in common use.
fn safe_bytes() -> u32 {
    (rustix::param::page_size() as u32).max(4096)
}

/// Whether the kernel accepts the alignment of a read. Only `EINVAL` refuses the alignment; other errors come after the
/// check.
fn is_accepted(file: &File, span: Range<usize>) -> bool {
    let largest = LARGEST as usize;
    let mut memory = vec![0_u8; 3 * largest];
    let first_aligned = memory.as_ptr().align_offset(largest);
    let buffer = &mut memory[first_aligned..first_aligned + 2 * largest];
    match file.read_at(&mut buffer[span], 0) {
        Ok(_) => true,
        Err(e) => e.raw_os_error() != Some(libc::EINVAL),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file that requires these two alignments.
    fn file_requiring(memory: usize, offset: usize) -> impl FnMut(Range<usize>) -> bool {
        move |span| span.start.is_multiple_of(memory) && span.len().is_multiple_of(offset)
    }

    #[test]
    fn trials_find_the_alignments_of_memory_and_offset() {
        for (memory, offset) in [(512, 512), (512, 4096), (4096, 512), (65536, 65536), (2048, 16384)] {
            let found = from_trial(file_requiring(memory, offset)).expect("something is accepted");
            assert_eq!((found.memory_bytes, found.offset_bytes), (memory as u32, offset as u32));
            assert_eq!(found.source, AlignmentSource::Trial);
        }
    }

    #[test]
    fn success_at_one_byte_proves_nothing() {
        let found = from_trial(|_| true).expect("everything is accepted");
        assert_eq!(found.source, AlignmentSource::Inconclusive);
        assert!(found.memory_bytes >= 4096 && found.offset_bytes >= 4096);
        let found = from_trial(file_requiring(1, 512)).expect("something is accepted");
        assert_eq!((found.source, found.offset_bytes), (AlignmentSource::Inconclusive, 512));
    }

    #[test]
    fn a_file_that_refuses_everything_has_no_alignment() {
        assert_eq!(from_trial(|_| false), None);
    }

    #[test]
    fn trials_on_a_real_file_agree_with_the_kernel() {
        // In the directory of the test program: the system's temporary directory is often in memory.
        let test = std::env::current_exe().expect("a running test has a path");
        let file =
            tempfile::NamedTempFile::new_in(test.parent().expect("and a directory")).expect("temporary file");
        file.as_file().write_all_at(&vec![7; 1 << 16], 0).expect("64 KiB to write");
        let Ok(direct) = open_direct(&Roots::live(), file.path()) else {
            return eprintln!("skipped: this filesystem refuses O_DIRECT");
        };
        let tried =
            from_trial(|span| is_accepted(&direct, span)).expect("a file opened with O_DIRECT can be read");
        let stat = FileStat::of(&direct).expect("an open file");
        let reported =
            DioAlignment::of_open(&direct, &stat, file.path()).expect("it was opened with O_DIRECT");
        if reported.source != AlignmentSource::Statx {
            return eprintln!("skipped: this kernel or filesystem does not report STATX_DIOALIGN");
        }
        assert!(tried.offset_bytes >= reported.read_offset_bytes, "{tried:?} {reported:?}");
        assert!(reported.permits(0, u64::from(reported.offset_bytes), reported.offset_bytes as usize));
        assert!(!reported.permits(0, u64::from(reported.offset_bytes) + 1, reported.offset_bytes as usize));
    }

    #[test]
    fn a_block_device_answers_as_statx_does() {
        let roots = Roots::live();
        let devices = std::fs::read_dir(roots.sys.join("block")).into_iter().flatten().flatten();
        let mut compared = 0;
        for device in devices.filter_map(|entry| open_direct(&roots, &roots.dev.join(entry.file_name())).ok())
        {
            let stat = FileStat::of(&device).expect("an open device");
            let Reported::Aligned { memory_bytes, offset_bytes, .. } = stat.alignment() else { continue };
            let asked = from_block_device(&roots, &device, &stat).expect("it is a block device");
            assert_eq!((asked.memory_bytes, asked.offset_bytes), (memory_bytes, offset_bytes));
            compared += 1;
        }
        if compared == 0 {
            eprintln!("skipped: no block device that may be read, or no STATX_DIOALIGN here");
        }
    }
}
