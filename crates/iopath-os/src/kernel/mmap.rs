//! Reads and writes by copying from and to a file mapped into memory: no system call, but a page fault for each page
//! that is not mapped yet. Like most programs, it gives the kernel no advice, unless the caller has a hint.

use std::ffi::c_void;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};

use rustix::fs::{StatVfs, fstatvfs};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, msync, munmap};

use super::sigbus::{Watch, mapped_page_bytes};
use super::{Blocking, Direction, Hint, Slots, Transfer, trim};

/// A file mapped into memory, to copy from and to.
///
/// If the mapping can no longer be read or written, the current and all later transfers fail, and the process
/// continues. The error is `UnexpectedEof` if the file shrank, ENOSPC if a store had no room, and EIO if the device
/// failed.
pub struct Mmap {
    /// Dropped before the mapping: see `drop`.
    watch: Option<Watch>,
    start: NonNull<u8>,
    len: usize,
    page_bytes: usize,
    writable: bool,
    file: File,
}

impl fmt::Debug for Mmap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mmap")
            .field("bytes", &self.len)
            .field("page_bytes", &self.page_bytes)
            .field("writable", &self.writable)
            .finish_non_exhaustive()
    }
}

impl Mmap {
    /// Maps the first `len` bytes of `file`, writable if requested (then the file must be open for writing).
    ///
    /// Errors: ENODEV if the filesystem does not support mappings, ENOMEM if the address space is full, EINVAL for no
    /// bytes.
    pub fn new(file: File, len: u64, writable: bool) -> io::Result<Self> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let page_bytes = mapped_page_bytes(file.as_fd())?;
        let protection = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no existing memory. Other processes
        // may change the file, so no reference to the mapped bytes is ever made: they are only copied.
        let start = unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, file.as_fd(), 0)? };
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut mapped = Self { watch: None, start, len, page_bytes, writable, file };
        let first = start.as_ptr() as usize;
        // SAFETY: the range is our own mapping until `drop`, which ends the watch first. Its bytes are only copied.
        mapped.watch = Some(unsafe { Watch::new(first..first + len, page_bytes)? });
        Ok(mapped)
    }

    /// Tells the kernel the expected order of the accesses (`madvise(2)`).
    ///
    /// # Errors
    /// The error of the system.
    pub fn hint(&self, hint: Hint) -> io::Result<()> {
        let advice = match hint {
            Hint::Random => Advice::Random,
            Hint::Sequential => Advice::Sequential,
        };
        // SAFETY: the range is our own mapping, and this advice changes no content.
        Ok(unsafe { madvise(self.start.as_ptr().cast::<c_void>(), self.len, advice) }?)
    }

    fn check(&self) -> io::Result<()> {
        match &self.watch {
            Some(watch) if watch.faulted() => Err(self.fault()),
            _ => Ok(()),
        }
    }

    fn fault(&self) -> io::Error {
        match self.file.metadata() {
            Ok(about) if about.is_file() && about.len() < self.len as u64 => {
                io::ErrorKind::UnexpectedEof.into()
            }
            _ if self.is_full() => io::Error::from_raw_os_error(libc::ENOSPC),
            _ => io::Error::from_raw_os_error(libc::EIO),
        }
    }

    /// Whether the filesystem has no block left: a store to a hole is then a SIGBUS.
    fn is_full(&self) -> bool {
        let is_full = |stat: StatVfs| stat.f_blocks > 0 && stat.f_bavail == 0;
        self.writable && fstatvfs(&self.file).is_ok_and(is_full)
    }
}

impl Blocking for Mmap {
    fn run(&mut self, slots: &mut Slots, slot: u32, transfer: Transfer) -> io::Result<()> {
        let end = transfer.offset.checked_add(u64::from(transfer.bytes));
        if end.is_none_or(|end| end > self.len as u64) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if transfer.direction == Direction::Trim {
            return trim(&self.file, transfer);
        }
        if transfer.direction == Direction::Write {
            if !self.writable {
                return Err(io::Error::from_raw_os_error(libc::EBADF));
            }
            // SAFETY: nothing is in flight between two calls of a synchronous connection.
            unsafe { slots.stamp(slot, transfer.offset) };
        }
        let buffer = slots.start(slot).as_ptr();
        // SAFETY: the offset is within the mapping, as checked above.
        let mapped = unsafe { self.start.add(transfer.offset as usize) }.as_ptr();
        let bytes = transfer.bytes as usize;
        match transfer.direction {
            // SAFETY: both regions are live and hold `bytes` bytes: the buffer is at least that long (`Blocking`). They
            // are separate mappings, and any byte value is valid. The watch handles a page that the kernel cannot load.
            Direction::Read => unsafe { ptr::copy_nonoverlapping(mapped, buffer, bytes) },
            // SAFETY: as above, and the mapping is writable, as checked above.
            Direction::Write | Direction::Trim => unsafe { ptr::copy_nonoverlapping(buffer, mapped, bytes) },
        }
        self.check()
    }

    /// `msync(2)`, then `fdatasync(2)`.
    fn flush(&mut self) -> io::Result<()> {
        self.write_back()?;
        self.file.sync_data()?;
        self.check()
    }

    /// `msync(2)`, then `fsync(2)`.
    fn flush_all(&mut self) -> io::Result<()> {
        self.write_back()?;
        self.file.sync_all()?;
        self.check()
    }
}

impl Mmap {
    fn write_back(&self) -> io::Result<()> {
        // SAFETY: our own mapping; writing it back changes no byte of it.
        unsafe { msync(self.start.as_ptr().cast::<c_void>(), self.len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Mmap {
    fn drop(&mut self) {
        self.watch = None;
        // The kernel has rounded the length up.
        let mapped = self.len.next_multiple_of(self.page_bytes);
        // SAFETY: our own mapping, unmapped once; no reference to it exists.
        let result = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), mapped) };
        debug_assert!(result.is_ok(), "munmap of our own mapping: {result:?}");
    }
}
