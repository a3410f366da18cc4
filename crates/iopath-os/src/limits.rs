//! The limits of one request to a file or block device. The caller supplies the discovered alignment.

use std::fs;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use iopath_core::{Limits, SECTOR_BYTES};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::answers::{Answer, Answers};
use crate::target::{DeviceNumber, FileStat};

/// Properties of a target that the caller has discovered.
#[derive(Debug, Clone, Copy)]
pub struct Geometry {
    /// Memory addresses are multiples of this many bytes.
    pub memory_align_bytes: u32,
    /// Offsets and lengths are multiples of this many bytes: 512 or a multiple of it.
    pub logical_block_bytes: u32,
    /// The maximum bytes of a request; see [`REQUEST_BYTES`].
    pub request_bytes_max: u64,
}

/// A good value for the maximum size of a request: 512 KiB.
///
/// The kernel accepts larger requests, splits them to the disk's limit (`queue/max_sectors_kb`), and reports one
/// completion. A large transfer in pieces of this size keeps several requests in flight and returns its first bytes
/// earlier. Above this size the cost of the calls is negligible.
pub const REQUEST_BYTES: u64 = 512 << 10;

/// The maximum number of segments of a request: few enough that the kernel keeps their list without allocating pages.
const SEGMENTS_MAX: u16 = 128;

/// The maximum number of requests in flight; a device may lower it.
const DEPTH_MAX: u32 = 4096;

/// The maximum bytes of a discard or write-zeroes on a file, which only changes metadata.
const FILE_FALLOCATE_BYTES_MAX: u64 = 1 << 30;

/// The maximum bytes of a write-zeroes on a disk without such a command: the kernel writes the zeroes.
const WRITTEN_ZEROES_BYTES_MAX: u64 = 4 << 20;

/// The maximum length in bytes to which this process may extend a file (`RLIMIT_FSIZE`). An attempt to exceed it raises
/// `SIGXFSZ`, which ends a process that does not handle it.
pub fn file_size_limit() -> u64 {
    getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX)
}

/// The limits of an open file or block device.
///
/// The capacity is rounded up to whole logical blocks: the devices of this crate read a partial last block of a file as
/// if zeroes followed. For a file open for writing, support for holes is tested past its end, so that no data is at
/// risk.
///
/// # Errors
/// The errors of `fstat(2)`, `lseek(2)` and `fcntl(2)`, and `InvalidInput` for a target that is neither a file nor a
/// block device.
pub fn limits_of(fd: impl AsFd, geometry: &Geometry) -> io::Result<Limits> {
    let file = fs::File::from(fd.as_fd().try_clone_to_owned()?);
    let flags = rustix::fs::fcntl_getfl(&file)?;
    limits_of_open(&file, &FileStat::of(&file)?, flags, geometry)
}

/// Does the same as [`limits_of`], with the properties of the open file and its flags.
///
/// # Errors
/// Returns the errors of [`limits_of`].
pub fn limits_of_open(
    file: &fs::File,
    stat: &FileStat,
    flags: OFlags,
    geometry: &Geometry,
) -> io::Result<Limits> {
    let (bytes, rules) = match (stat.file_bytes(), stat.device()) {
        (Some(bytes), _) => (bytes, Rules::of_file(file, stat, bytes, flags)),
        (_, Some(device)) => {
            let queue = queue_directory(device);
            (rustix::fs::seek(file, SeekFrom::End(0))?, Rules::of_disk(queue.as_deref(), flags))
        }
        (None, None) => {
            let reason = "neither a regular file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
    };
    let block = u64::from(geometry.logical_block_bytes.max(SECTOR_BYTES as u32));
    Ok(Limits {
        capacity: bytes.next_multiple_of(block) / SECTOR_BYTES,
        logical_block_bytes: block as u32,
        memory_align_bytes: geometry.memory_align_bytes.max(1),
        request_bytes_max: (geometry.request_bytes_max / block * block).max(block),
        segments_max: SEGMENTS_MAX,
        chunk_sectors: 0,
        depth_max: DEPTH_MAX,
        discard_bytes_max: rules.discard_bytes_max,
        write_zeroes_bytes_max: rules.write_zeroes_bytes_max,
        volatile_cache: rules.volatile_cache,
        fua: true,
    })
}

/// The limits that differ between files and disks.
struct Rules {
    discard_bytes_max: u64,
    write_zeroes_bytes_max: u64,
    volatile_cache: bool,
}

impl Rules {
    fn of_file(file: &fs::File, stat: &FileStat, bytes: u64, flags: OFlags) -> Self {
        let may_punch = is_writable(flags) && takes_holes(file, stat, bytes);
        let bytes_max = if may_punch { FILE_FALLOCATE_BYTES_MAX } else { 0 };
        Self { discard_bytes_max: bytes_max, write_zeroes_bytes_max: bytes_max, volatile_cache: true }
    }

    /// The limits in `/sys/dev/block/M:N/queue`. Without that directory, the safe values: no discard, and a cache that
    /// needs flushes.
    ///
    /// A disk's discard is `FALLOC_FL_PUNCH_HOLE`, which the kernel executes as write-zeroes and refuses if the
    /// disk has no such command (`block/fops.c`, `blkdev_fallocate`); zeroing falls back to writing zeroes.
    fn of_disk(queue: Option<&Path>, flags: OFlags) -> Self {
        let setting = |name| queue.and_then(|queue| fs::read_to_string(queue.join(name)).ok());
        let zeroes = setting("write_zeroes_max_bytes").and_then(|text| text.trim().parse::<u64>().ok());
        let zeroes = zeroes.unwrap_or(0).min(FILE_FALLOCATE_BYTES_MAX);
        let through = setting("write_cache").is_some_and(|text| text.trim() == "write through");
        let writable = is_writable(flags);
        Self {
            discard_bytes_max: if writable { zeroes } else { 0 },
            write_zeroes_bytes_max: if writable { zeroes.max(WRITTEN_ZEROES_BYTES_MAX) } else { 0 },
            // Without O_DIRECT the kernel's page cache is a volatile cache.
            volatile_cache: !(through && flags.contains(OFlags::DIRECT)),
        }
    }
}

fn is_writable(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

/// Whether the file supports holes. The first file of each filesystem is tested. That sets mtime and ctime, by which
/// programs see that a file has changed.
fn takes_holes(file: &fs::File, stat: &FileStat, bytes: u64) -> bool {
    static KNOWN: Answers = Answers::new();
    KNOWN.of(file, stat, || asks_holes(file, bytes))
}

/// Makes a hole far past the end of the file, which changes no byte. Blocks that were allocated in advance lie directly
/// behind the end, so the hole is at the largest power of two that the filesystem accepts.
fn asks_holes(file: &fs::File, bytes: u64) -> Answer {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let far = (0..63).rev().map(|shift| 1_u64 << shift).take_while(|offset| *offset >= bytes);
    let mut punched = far.map(|offset| rustix::fs::fallocate(file, mode, offset, 4096));
    match punched.find(|punched| *punched != Err(Errno::FBIG)).unwrap_or(Err(Errno::FBIG)) {
        Ok(()) => Answer::OfFilesystem(true),
        Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NODEV) => Answer::OfFilesystem(false),
        // The file is immutable, append-only or sealed.
        Err(Errno::PERM) => Answer::OfFile(false),
        Err(_) => Answer::OfFile(true),
    }
}

/// The `queue` directory of the disk with this block device number, or of the disk of this partition.
fn queue_directory(device: DeviceNumber) -> Option<PathBuf> {
    let disk = Path::new("/sys/dev/block").join(device.to_string());
    [disk.join("queue"), disk.join("../queue")].into_iter().find(|path| path.is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    const GEOMETRY: Geometry =
        Geometry { memory_align_bytes: 4, logical_block_bytes: 4096, request_bytes_max: 1_000_000 };

    #[test]
    fn a_file_ends_with_its_last_block_begun() {
        let file = tempfile::tempfile().unwrap();
        for (bytes, sectors) in [(0, 0), (1, 8), (4096, 8), (4097, 16)] {
            file.set_len(bytes).unwrap();
            let limits = limits_of(&file, &GEOMETRY).unwrap();
            assert_eq!(limits.capacity, sectors, "{bytes} bytes");
            assert_eq!(limits.request_bytes_max, 999_424, "whole blocks");
            assert!(limits.volatile_cache && limits.fua);
            assert_eq!(file.metadata().unwrap().len(), bytes, "the test changed the size");
        }
    }

    #[test]
    fn a_read_only_target_cannot_be_discarded() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let limits = limits_of(fs::File::open(path.path()).unwrap(), &GEOMETRY).unwrap();
        assert_eq!((limits.discard_bytes_max, limits.write_zeroes_bytes_max), (0, 0));
    }

    #[test]
    fn the_times_of_a_file_stay() {
        let files = [(), ()].map(|()| tempfile::tempfile().unwrap());
        for (number, file) in files.iter().enumerate() {
            file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            limits_of(file, &GEOMETRY).unwrap();
            let modified = file.metadata().unwrap().modified().unwrap();
            // The first file of a filesystem is tested.
            assert!(number == 0 || modified == std::time::SystemTime::UNIX_EPOCH);
        }
    }

    #[test]
    fn blocks_past_the_end_stay_allocated() {
        use std::os::unix::fs::MetadataExt;
        // A hole past the end frees blocks on tmpfs and XFS, but not on ext4.
        for directory in [std::env::temp_dir(), "/dev/shm".into()] {
            let Ok(file) = tempfile::tempfile_in(&directory) else { continue };
            file.set_len(4096).unwrap();
            if rustix::fs::fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 8 << 20).is_err() {
                eprintln!("skipped: no blocks past the end in {}", directory.display());
                continue;
            }
            let blocks = || file.metadata().unwrap().blocks();
            let before = blocks();
            asks_holes(&file, 4096);
            assert_eq!(blocks(), before, "{}", directory.display());
        }
    }

    #[test]
    fn a_pipe_is_no_target() {
        let (pipe, _other) = io::pipe().unwrap();
        assert_eq!(limits_of(&pipe, &GEOMETRY).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }
}
