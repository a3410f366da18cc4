//! Memory shared with other processes: a mapping of their file, such as the memory of a virtual machine. Copies in and
//! out, atomic numbers, and buffers for direct I/O. Does not know what the bytes mean.
//!
//! # Why this is sound
//!
//! The other process may change each byte at any time, so no reference to the bytes is ever made. They are copied by
//! address, loaded and stored as atomic numbers, or read and written by the kernel. Every value of a byte is valid, and
//! the caller checks a copy, never the original. If the other process truncates the file, a page of zeroes replaces
//! each lost page (`kernel/sigbus.rs`), and every later access fails: no zeroes pass for bytes of the file. The kernel
//! transfers the zeroes of a replaced page like other bytes: check [`SharedMemory::has_faulted`] after a transfer.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::aligned::page_bytes;
use crate::io_buf::{IoBuf, IoBufMut};
use crate::kernel::sigbus::{Watch, mapped_page_bytes};

/// A part of a file, mapped into memory that other processes share.
#[derive(Debug)]
pub struct SharedMemory {
    /// Dropped before the mapping: see `drop`.
    watch: Option<Watch>,
    start: NonNull<u8>,
    bytes: usize,
    /// The whole mapping, whose huge pages may begin before the bytes and end after them.
    mapping: (NonNull<u8>, usize),
}

// SAFETY: the mapping belongs to no thread, and all accesses are those of the rules above.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `bytes` bytes of a file from `offset` on, for reading and writing. Also of a file of huge pages.
    ///
    /// # Errors
    /// The error of the system (`mmap(2)`). `InvalidInput` if the offset is not a multiple of a page, or the file is
    /// shorter.
    pub fn map(file: &File, offset: u64, bytes: u64) -> io::Result<Self> {
        let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidInput, reason);
        if !offset.is_multiple_of(page_bytes() as u64) {
            return Err(invalid(format!("offset {offset} is not a multiple of a page")));
        }
        let file_bytes = file.metadata()?.len();
        if offset.checked_add(bytes).is_none_or(|end| end > file_bytes) {
            return Err(invalid(format!(
                "{bytes} bytes at offset {offset} of a shared file of {file_bytes} bytes"
            )));
        }
        let bytes = usize::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let page = mapped_page_bytes(file.as_fd())?;
        let skip = offset % page as u64;
        let mapped = bytes.checked_add(skip as usize).and_then(|end| end.checked_next_multiple_of(page));
        let mapped = mapped.ok_or(io::ErrorKind::OutOfMemory)?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // The owner of the file has reserved its huge pages.
        let flags = MapFlags::SHARED | MapFlags::NORESERVE;
        // SAFETY: a new shared mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { mmap(ptr::null_mut(), mapped, protection, flags, file.as_fd(), offset - skip)? };
        let base = NonNull::new(base.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the skipped bytes lie in the mapping.
        let start = unsafe { base.add(skip as usize) };
        let mut memory = Self { watch: None, start, bytes, mapping: (base, mapped) };
        let first = base.as_ptr() as usize;
        // SAFETY: the range is our own mapping until `drop`, which ends the watch first. It holds plain bytes.
        memory.watch = Some(unsafe { Watch::new(first..first + mapped, page)? });
        Ok(memory)
    }

    /// The number of bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// Whether a page could not be loaded: the other process has truncated its file, or its memory is exhausted.
    pub fn has_faulted(&self) -> bool {
        self.watch.as_ref().is_some_and(Watch::faulted)
    }

    /// `value` if no page was lost before, so that it comes from no zeroes.
    #[inline]
    fn intact<T>(&self, value: T) -> Option<T> {
        (!self.has_faulted()).then_some(value)
    }

    /// Copies the bytes from `at` on to `target`. `None` if they reach past the end, or a page is lost
    /// ([`SharedMemory::has_faulted`]).
    #[must_use]
    pub fn read(&self, at: u64, target: &mut [u8]) -> Option<()> {
        let from = self.place(at, target.len(), 1)?;
        // SAFETY: the source lies in the mapping, and the target is memory of this process alone.
        unsafe { ptr::copy_nonoverlapping(from.as_ptr(), target.as_mut_ptr(), target.len()) };
        self.intact(())
    }

    /// Copies `source` to the bytes from `at` on. `None` if they reach past the end, or a page is lost.
    #[must_use]
    pub fn write(&self, at: u64, source: &[u8]) -> Option<()> {
        let to = self.place(at, source.len(), 1)?;
        // SAFETY: the target lies in the mapping, and the source is memory of this process alone.
        unsafe { ptr::copy_nonoverlapping(source.as_ptr(), to.as_ptr(), source.len()) };
        self.intact(())
    }

    /// A number of 16 bits, little-endian. `None` if it is not aligned or lies outside, or a page is lost. So do the
    /// others.
    #[must_use]
    pub fn load_u16(&self, at: u64, order: Ordering) -> Option<u16> {
        let place = self.place(at, 2, 2)?.cast::<u16>();
        // SAFETY: an aligned number in the mapping, which lives as long as `self` and is accessed atomically.
        let number = unsafe { AtomicU16::from_ptr(place.as_ptr()) };
        self.intact(u16::from_le(number.load(order)))
    }

    /// Stores a number of 16 bits.
    #[must_use]
    pub fn store_u16(&self, at: u64, value: u16, order: Ordering) -> Option<()> {
        let place = self.place(at, 2, 2)?.cast::<u16>();
        // SAFETY: as in `load_u16`.
        let number = unsafe { AtomicU16::from_ptr(place.as_ptr()) };
        number.store(value.to_le(), order);
        self.intact(())
    }

    /// Stores a number of 32 bits.
    #[must_use]
    pub fn store_u32(&self, at: u64, value: u32, order: Ordering) -> Option<()> {
        let place = self.place(at, 4, 4)?.cast::<u32>();
        // SAFETY: as in `load_u16`.
        let number = unsafe { AtomicU32::from_ptr(place.as_ptr()) };
        number.store(value.to_le(), order);
        self.intact(())
    }

    /// A number of 64 bits.
    #[must_use]
    pub fn load_u64(&self, at: u64, order: Ordering) -> Option<u64> {
        let place = self.place(at, 8, 8)?.cast::<u64>();
        // SAFETY: as in `load_u16`.
        let number = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        self.intact(u64::from_le(number.load(order)))
    }

    /// Stores a number of 64 bits.
    #[must_use]
    pub fn store_u64(&self, at: u64, value: u64, order: Ordering) -> Option<()> {
        let place = self.place(at, 8, 8)?.cast::<u64>();
        // SAFETY: as in `load_u16`.
        let number = unsafe { AtomicU64::from_ptr(place.as_ptr()) };
        number.store(value.to_le(), order);
        self.intact(())
    }

    /// The address of a byte, for checks of alignment.
    pub fn address(&self, at: u64) -> usize {
        (self.start.as_ptr() as usize).wrapping_add(at as usize)
    }

    /// `bytes` bytes from `at` on as a buffer for direct I/O. `None` if they reach past the end, or a page is lost.
    #[must_use]
    pub fn buffer(self: &Arc<Self>, at: u64, bytes: usize) -> Option<SharedBuf> {
        let start = self.intact(self.place(at, bytes, 1)?)?;
        Some(SharedBuf { start, bytes, _memory: Arc::clone(self) })
    }

    /// The address of `bytes` bytes from `at` on, if they lie in the mapping and the address is aligned.
    #[inline]
    fn place(&self, at: u64, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let at = usize::try_from(at).ok()?;
        if at > self.bytes || bytes > self.bytes - at {
            return None;
        }
        // SAFETY: within the mapping, or one past its end for no bytes.
        let place = unsafe { self.start.add(at) };
        place.as_ptr().addr().is_multiple_of(align).then_some(place)
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        self.watch = None;
        // SAFETY: our own mapping, unmapped once; the buffers in it own a share of this value.
        let result = unsafe { munmap(self.mapping.0.as_ptr().cast(), self.mapping.1) };
        debug_assert!(result.is_ok(), "munmap of our own mapping: {result:?}");
    }
}

/// A part of a [`SharedMemory`] as a buffer for direct I/O, without a copy. The mapping lives as long as the buffer.
///
/// Only batches of direct I/O on files and block devices accept it: the kernel transfers the bytes. Buffers may
/// overlap; then a read leaves undefined bytes, as two programs do that read into the same memory.
#[derive(Debug)]
pub struct SharedBuf {
    start: NonNull<u8>,
    bytes: usize,
    _memory: Arc<SharedMemory>,
}

// SAFETY: the address of a mapping that any thread may access, and that the value keeps alive.
unsafe impl Send for SharedBuf {}
// SAFETY: as above.
unsafe impl Sync for SharedBuf {}

// SAFETY: the mapping lives as long as the value, and never moves. Other processes may change the bytes: `IS_SHARED`.
// They were initialised by the kernel.
unsafe impl IoBuf for SharedBuf {
    const IS_SHARED: bool = true;

    #[inline]
    fn start(&self) -> NonNull<u8> {
        self.start
    }

    #[inline]
    fn init_bytes(&self) -> usize {
        self.bytes
    }

    #[inline]
    fn space(&mut self) -> Option<NonNull<[u8]>> {
        Some(NonNull::slice_from_raw_parts(self.start, self.bytes))
    }
}

impl IoBufMut for SharedBuf {}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};

    fn memory(bytes: u64) -> (File, Arc<SharedMemory>) {
        let file = File::from(memfd_create("test", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(bytes).unwrap();
        let memory = Arc::new(SharedMemory::map(&file, 0, bytes).unwrap());
        (file, memory)
    }

    #[test]
    fn numbers_and_copies_stay_inside() {
        let (_file, memory) = memory(4096);
        memory.store_u16(4094, 0x1234, Ordering::Relaxed).unwrap();
        assert_eq!(memory.load_u16(4094, Ordering::Relaxed), Some(0x1234));
        let mut bytes = [0; 2];
        memory.read(4094, &mut bytes).unwrap();
        assert_eq!(bytes, [0x34, 0x12]);
        for (at, length) in [(4095, 2), (4096, 1), (u64::MAX, 1), (u64::MAX - 1, 4096)] {
            assert_eq!(memory.read(at, &mut vec![0; length]), None, "{length} bytes at {at}");
            assert_eq!(memory.write(at, &vec![0; length]), None, "{length} bytes at {at}");
            assert!(memory.buffer(at, length).is_none(), "{length} bytes at {at}");
        }
        assert_eq!(memory.load_u16(4096, Ordering::Relaxed), None);
        assert_eq!(memory.load_u16(1, Ordering::Relaxed), None, "not aligned");
        assert_eq!(memory.store_u64(4092, 1, Ordering::Relaxed), None);
        assert_eq!(memory.store_u32(4094, 1, Ordering::Relaxed), None);
    }

    #[test]
    fn a_part_outside_of_the_file_is_refused() {
        let (file, _memory) = memory(8192);
        for (offset, bytes) in [(0, 8193), (4096, 8192), (u64::MAX - 4095, 8192), (1, 4096)] {
            let error = SharedMemory::map(&file, offset, bytes).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{bytes} bytes at {offset}");
        }
        assert_eq!(SharedMemory::map(&file, 4096, 4096).unwrap().bytes(), 4096);
    }

    #[test]
    fn no_byte_of_a_truncated_file_is_read() {
        let (file, memory) = memory(8192);
        memory.write(4096, &[7; 4096]).unwrap();
        file.set_len(4096).unwrap();
        let mut byte = [1];
        assert!(!memory.has_faulted(), "no access yet");
        assert_eq!((memory.read(5000, &mut byte), memory.has_faulted()), (None, true));
        assert_eq!(memory.read(0, &mut byte), None, "nor of another page");
        assert_eq!(memory.write(0, &[1]), None);
        assert_eq!(memory.load_u16(0, Ordering::Relaxed), None);
        assert!(memory.buffer(0, 512).is_none());
    }

    #[test]
    fn a_truncated_file_of_huge_pages_is_a_fault_and_not_the_end() {
        let Ok(file) = memfd_create("huge", MemfdFlags::CLOEXEC | MemfdFlags::HUGETLB).map(File::from) else {
            eprintln!("skipped: the kernel has no huge pages of hugetlbfs");
            return;
        };
        let huge = mapped_page_bytes(file.as_fd()).unwrap() as u64;
        assert!(huge > page_bytes() as u64, "{huge}");
        file.set_len(3 * huge).unwrap();
        // Neither the start nor the end of the part is that of a huge page.
        let memory = SharedMemory::map(&file, huge + 4096, huge).unwrap();
        assert_eq!(memory.bytes(), huge);
        file.set_len(0).unwrap();
        let mut bytes = vec![1; huge as usize];
        assert_eq!((memory.read(0, &mut bytes), memory.has_faulted()), (None, true));
        assert!(bytes.iter().all(|&byte| byte == 0), "both huge pages were replaced");
    }

    #[test]
    fn a_buffer_keeps_the_mapping() {
        let (file, memory) = memory(4096);
        let mut buffer = memory.buffer(512, 1024).unwrap();
        drop((file, memory));
        assert_eq!(buffer.space().unwrap().len(), 1024);
        // SAFETY: within the mapping, which no other process has.
        unsafe { buffer.start().write(9) };
        // SAFETY: as above.
        assert_eq!(unsafe { buffer.start().read() }, 9);
    }
}
