//! System calls that no safe crate wraps: block-device and loop ioctls, FIEMAP, locks, cachestat, mincore.
//!
//! All functions are safe: they check sizes and lifetimes themselves. They do not interpret the results.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use libc::{c_int, c_long, c_ulong};

// From <linux/fs.h>, <linux/loop.h>, <linux/fiemap.h>.
const BLKFLSBUF: c_ulong = 0x1261;
const LOOP_GET_STATUS64: c_ulong = 0x4C05;
const LOOP_MAJOR: u32 = 7;
/// `_IOR(0x12, 114, size_t)`: the size argument makes the number differ by word length.
const BLKGETSIZE64: c_ulong = ioctl_read(0x12, 114, size_of::<usize>());
/// `_IOWR('f', 11, struct fiemap)`
const FS_IOC_FIEMAP: c_ulong = ioctl_read_write(b'f', 11, size_of::<FiemapHeader>());
/// The same on every architecture of Linux except alpha, which Rust does not support.
const SYS_CACHESTAT: c_long = 451;

const IOC_WRITE: c_ulong = if inverted_directions() { 4 } else { 1 };
const IOC_READ: c_ulong = 2;
const IOC_DIRECTION_SHIFT: u32 = if inverted_directions() { 29 } else { 30 };

const fn inverted_directions() -> bool {
    cfg!(any(
        target_arch = "mips",
        target_arch = "mips64",
        target_arch = "powerpc",
        target_arch = "powerpc64",
        target_arch = "sparc",
        target_arch = "sparc64"
    ))
}

const fn ioctl_read(family: u8, number: u8, size: usize) -> c_ulong {
    IOC_READ << IOC_DIRECTION_SHIFT | (size as c_ulong) << 16 | (family as c_ulong) << 8 | number as c_ulong
}

const fn ioctl_read_write(family: u8, number: u8, size: usize) -> c_ulong {
    ioctl_read(family, number, size) | IOC_WRITE << IOC_DIRECTION_SHIFT
}

/// Capacity of a block device.
pub(super) fn block_device_bytes(device: &File) -> io::Result<u64> {
    require_block_device(device)?;
    let mut bytes = 0_u64;
    // SAFETY: the descriptor is open while `device` is borrowed, and is a block device (checked). For block devices the
    // block layer handles BLKGETSIZE64: it writes one u64 through the pointer, which points to a live u64.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), BLKGETSIZE64 as _, &raw mut bytes) };
    errno_if_negative(rc)?;
    Ok(bytes)
}

/// Writes back and drops all buffers of a block device. Needs `CAP_SYS_ADMIN`.
pub(super) fn flush_buffers(device: &File) -> io::Result<()> {
    require_block_device(device)?;
    // SAFETY: the descriptor is open while `device` is borrowed, and is a block device (checked). For block devices the
    // block layer handles BLKFLSBUF: it takes no argument and touches no memory of this process.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), BLKFLSBUF as _, 0) };
    errno_if_negative(rc)
}

/// An ioctl number can have another meaning for a character device: only block devices get these ioctls.
fn require_block_device(device: &File) -> io::Result<()> {
    if device.metadata()?.file_type().is_block_device() {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(libc::ENOTBLK))
    }
}

/// `struct loop_info64` of <linux/loop.h>; only the first three fields are read.
#[repr(C)]
pub(super) struct LoopInfo {
    /// Device number of the filesystem with the backing file.
    pub(super) device: u64,
    /// Inode number of the backing file.
    pub(super) inode: u64,
    /// Device number of the backing file if it is itself a device, else 0.
    pub(super) rdevice: u64,
    _rest: [u64; 26],
}

/// The backing of a loop device; `ENXIO` if it has none, `ENODEV` if the file is not a loop device.
pub(super) fn loop_info(device: &File) -> io::Result<LoopInfo> {
    require_block_device(device)?;
    if rustix::fs::major(device.metadata()?.rdev()) != LOOP_MAJOR {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    let mut info = LoopInfo { device: 0, inode: 0, rdevice: 0, _rest: [0; 26] };
    // SAFETY: the descriptor is open while `device` is borrowed, and belongs to the loop driver (checked). The driver
    // handles LOOP_GET_STATUS64: it writes one struct loop_info64 (232 bytes, asserted below) through the pointer,
    // which points to a live value of that size with only integer fields, valid with any bits.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &raw mut info) };
    errno_if_negative(rc)?;
    Ok(info)
}

/// Extents fetched by one FIEMAP call: 7 KiB of stack.
pub(super) const FIEMAP_BATCH: usize = 128;

/// `struct fiemap` of <linux/fiemap.h> without the extents that follow it.
#[repr(C)]
struct FiemapHeader {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

/// `struct fiemap_extent` of <linux/fiemap.h>.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct FiemapExtent {
    pub(super) logical: u64,
    pub(super) physical: u64,
    pub(super) length: u64,
    _reserved64: [u64; 2],
    pub(super) flags: u32,
    _reserved: [u32; 3],
}

#[repr(C)]
struct Fiemap {
    header: FiemapHeader,
    extents: [FiemapExtent; FIEMAP_BATCH],
}

const _: () = assert!(size_of::<LoopInfo>() == 232);
const _: () = assert!(size_of::<FiemapHeader>() == 32 && size_of::<FiemapExtent>() == 56);
const _: () = assert!(size_of::<Fiemap>() == 32 + 56 * FIEMAP_BATCH);

/// The extents of a file from byte `start` on, [`FIEMAP_BATCH`] at most, in order.
pub(super) fn fiemap(file: &File, start: u64, flags: u32) -> io::Result<Vec<FiemapExtent>> {
    let extent_count = FIEMAP_BATCH as u32;
    let header =
        FiemapHeader { start, length: u64::MAX - start, flags, mapped_extents: 0, extent_count, reserved: 0 };
    let mut map = Fiemap { header, extents: [FiemapExtent::default(); FIEMAP_BATCH] };
    // SAFETY: the descriptor is open while `file` is borrowed; FS_IOC_FIEMAP reads the header and writes it and at
    // most `extent_count` extents behind it, all within `map`, which is live, of that layout (asserted above) and
    // has only integer fields, valid with any bits.
    let rc = unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_FIEMAP as _, &raw mut map) };
    errno_if_negative(rc)?;
    let found = (map.header.mapped_extents as usize).min(FIEMAP_BATCH);
    Ok(map.extents[..found].to_vec())
}

/// A record lock (fcntl(2)) that conflicts with a write lock on all of `file`: the id of its process, or -1 if an open
/// file description holds it. `None` without such a lock.
pub(super) fn lock_holder(file: &File) -> io::Result<Option<i32>> {
    let mut lock = whole_file(libc::F_WRLCK);
    // SAFETY: the descriptor is open while `file` is borrowed; F_OFD_GETLK reads and writes one struct flock, which is
    // live for the call. It takes no lock.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    errno_if_negative(rc)?;
    Ok((lock.l_type != libc::F_UNLCK as libc::c_short).then_some(lock.l_pid))
}

/// Locks all of `file` for as long as it is open, exclusively or shared with other readers. False: another open file
/// has a conflicting lock.
pub(super) fn lock(file: &File, is_exclusive: bool) -> io::Result<bool> {
    let lock = whole_file(if is_exclusive { libc::F_WRLCK } else { libc::F_RDLCK });
    // SAFETY: the descriptor is open while `file` is borrowed; F_OFD_SETLK only reads one struct flock, which is live
    // for the call.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    match errno_if_negative(rc) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Releases the locks of the open file description of `file`, also while other descriptors or an `io_uring` instance
/// refer to it.
pub(super) fn unlock(file: &File) -> io::Result<()> {
    let lock = whole_file(libc::F_UNLCK);
    // SAFETY: as in `lock`.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    errno_if_negative(rc)
}

/// A record lock of this type on a whole file: a length of 0 extends to its end, also after growth. Calls for locks of
/// open files require a process id of 0.
const fn whole_file(lock_type: i32) -> libc::flock {
    libc::flock {
        l_type: lock_type as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// `struct cachestat` of <linux/mman.h>; counts of pages.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct CacheStat {
    pub(super) cached: u64,
    pub(super) dirty: u64,
    pub(super) writeback: u64,
    pub(super) evicted: u64,
    pub(super) recently_evicted: u64,
}

/// cachestat(2), Linux 6.5: pages of `range` in the page cache. `range` must not be empty (a length of 0 would mean
/// "to the end").
pub(super) fn cachestat(file: &File, range: &Range<u64>) -> io::Result<CacheStat> {
    assert!(range.start < range.end, "cachestat of the empty range {range:?}");
    let span = [range.start, range.end - range.start];
    let mut stat = CacheStat::default();
    // SAFETY: the descriptor is open while `file` is borrowed; the call reads the two u64 of struct
    // cachestat_range and writes the five of struct cachestat, both live for the call and of exactly that layout.
    let rc = unsafe {
        libc::syscall(SYS_CACHESTAT, file.as_raw_fd(), span.as_ptr(), &raw mut stat, 0 as libc::c_uint)
    };
    errno_if_negative(rc as c_int)?;
    Ok(stat)
}

/// Pages of `range` that mincore(2) reports as resident. `range` must not be empty and must start on a page boundary.
pub(super) fn resident_pages(file: &File, range: &Range<u64>) -> io::Result<u64> {
    let page_bytes = rustix::param::page_size();
    assert!(range.start < range.end && range.start.is_multiple_of(page_bytes as u64), "mincore of {range:?}");
    let length = usize::try_from(range.end - range.start).map_err(io::Error::other)?;
    let offset = libc::off_t::try_from(range.start).map_err(io::Error::other)?;
    let mut pages = vec![0_u8; length.div_ceil(page_bytes)];
    // SAFETY: a new mapping at an address of the kernel's choice overlaps nothing of ours. It is never read or
    // written through (PROT_NONE), so a file that shrinks meanwhile cannot raise SIGBUS.
    let map = unsafe {
        libc::mmap(std::ptr::null_mut(), length, libc::PROT_NONE, libc::MAP_SHARED, file.as_raw_fd(), offset)
    };
    if map == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `map` is the mapping of `length` bytes made above; the kernel writes one byte per page of it, and
    // `pages` has as many.
    let rc = unsafe { libc::mincore(map, length, pages.as_mut_ptr()) };
    let outcome = errno_if_negative(rc);
    // SAFETY: exactly the mapping made above; nothing points into it.
    unsafe { libc::munmap(map, length) };
    outcome?;
    Ok(pages.iter().filter(|&&page| page & 1 != 0).count() as u64)
}

fn errno_if_negative(rc: c_int) -> io::Result<()> {
    if rc < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
