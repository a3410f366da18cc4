//! Memory for direct transfers: one region that starts on a page boundary and is released as a whole.
//!
//! It is not a pool, and it is independent of I/O. A caller that passes parts of it to the kernel must keep the region
//! alive and track the parts in flight.

use std::io;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use thiserror::Error;

/// The minimum length of a region on huge pages: the size of a huge page on x86-64, and on arm64 with 4 KiB pages.
pub(crate) const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The first part of a region stays on small pages. A partly used huge page after it adds at most a quarter to the
/// memory in use.
const SMALL_PAGES_BYTES: usize = 4 * HUGE_PAGE_BYTES;

/// From this length on, a region for transfers takes a whole huge page.
const HUGE_FROM: usize = 256 << 10;

/// The limit of rounding up: a longer region gains little from its last huge page.
const HUGE_MAX: usize = 1 << 30;

/// The system allocated no memory.
#[derive(Debug, Error)]
#[error(
    "no memory for a buffer of {bytes} bytes ({source}); a smaller block size, depth or number of jobs needs less"
)]
#[non_exhaustive]
pub struct NoMemory {
    /// The requested size, in bytes.
    pub bytes: usize,
    /// The error of the system (`mmap(2)`: ENOMEM past the limit of memory or mappings, EAGAIN past `RLIMIT_MEMLOCK`).
    pub source: io::Error,
}

/// One zeroed region of memory that starts on a page boundary.
///
/// A page (at least 4 KiB) is a multiple of every memory alignment that Linux requires for direct I/O
/// (`stx_dio_mem_align`, usually 4 to 512 bytes). So the start is aligned for every device. The caller must align
/// offsets into the region. Drop releases the region.
///
/// It dereferences to its bytes, and is `AsRef<[u8]>` and `AsMut<[u8]>`:
///
/// ```
/// use iopath_os::AlignedBuf;
///
/// fn sum(bytes: impl AsRef<[u8]>) -> u32 {
///     bytes.as_ref().iter().copied().map(u32::from).sum()
/// }
///
/// let mut block = AlignedBuf::new(4096)?;
/// block[..3].copy_from_slice(&[1, 2, 3]);
/// block.as_mut()[4095] = 4;
/// assert_eq!((block.len(), block.iter().max()), (4096, Some(&4)));
/// assert_eq!(sum(block), 10);
/// # Ok::<(), iopath_os::NoMemory>(())
/// ```
#[derive(Debug)]
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
    /// The size of the mapping, in bytes: `len` rounded up to whole pages or huge pages, at least one page.
    taken: usize,
    /// Only written pages take memory.
    is_sparse: bool,
}

// SAFETY: this value alone owns the region, and no thread is bound to it; shared references give only `&[u8]`.
unsafe impl Send for AlignedBuf {}
// SAFETY: as above.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates `len` zeroed bytes. Advises the kernel to use huge pages for regions of 2 MiB and more, which saves
    /// page-table walks and page pinning on each transfer. The kernel may ignore the advice.
    ///
    /// # Errors
    /// [`NoMemory`] if the system refuses that much memory.
    pub fn new(len: usize) -> Result<Self, NoMemory> {
        Self::mapped(len, len)
    }

    /// Same as [`AlignedBuf::new`], for memory that a device transfers. The last 256 KiB to 2 MiB of the region take a
    /// whole huge page. The device then receives one segment of memory, not one for each page of 4 KiB. This costs up
    /// to 1.75 MiB of memory. A virtual disk transfers large requests in few segments up to three times as fast.
    pub(crate) fn for_transfers(len: usize) -> Result<Self, NoMemory> {
        if len % HUGE_PAGE_BYTES < HUGE_FROM || len > HUGE_MAX {
            return Self::new(len);
        }
        // Less memory is better than none.
        Self::mapped(len, len.next_multiple_of(HUGE_PAGE_BYTES)).or_else(|_| Self::new(len))
    }

    /// Same as [`AlignedBuf::new`], without advice to the kernel, as the memory of most programs.
    pub(crate) fn ordinary(len: usize) -> Result<Self, NoMemory> {
        let page = page_bytes();
        Self::region(len, len, page, |taken| system::take(taken, page))
    }

    /// Same as [`AlignedBuf::new`], on huge pages that the administrator has reserved (`vm.nr_hugepages`).
    ///
    /// # Errors
    /// [`NoMemory`]: fewer of them are free.
    pub(crate) fn on_huge_pages(len: usize) -> Result<Self, NoMemory> {
        Self::region(len, len, HUGE_PAGE_BYTES, system::take_huge)
    }

    /// Keeps the region in memory (`mlock(2)`) until it is released.
    ///
    /// # Errors
    /// The error of the system: ENOMEM or EPERM past the limit of locked memory.
    pub(crate) fn lock(&self) -> io::Result<()> {
        system::lock(self.start, self.taken)
    }

    /// Reserves addresses for `len` zeroed bytes. Only written pages take memory, so `len` may exceed the memory of the
    /// machine. There is no error later: a write of a page for which there is no memory ends the process.
    pub(crate) fn sparse(len: usize) -> Result<Self, NoMemory> {
        let page = page_bytes();
        let mut region = Self::region(len, len, page, |taken| system::reserve(taken, page))?;
        region.is_sparse = true;
        Ok(region)
    }

    /// Same as [`AlignedBuf::sparse`], for memory that is used from its start on, and may be released in parts. The
    /// first [`SMALL_PAGES_BYTES`] are on small pages, so that little use takes little memory. The rest is on huge
    /// pages until the first release: their first use takes a fraction of the time.
    pub(crate) fn sparse_in_parts(len: usize) -> Result<Self, NoMemory> {
        let region = Self::sparse(len)?;
        let (start, small) = (region.start.as_ptr(), region.taken.min(SMALL_PAGES_BYTES));
        // SAFETY: the region was just mapped, and this value owns it.
        unsafe {
            system::refuse_huge(start, small);
            if small < region.taken {
                system::advise_huge(start.add(small), region.taken - small);
            }
        }
        Ok(region)
    }

    /// No further part of the region gets huge pages. Those that it has stay: a released part of one leaves the
    /// resident memory of the process at once, and the kernel gets it with the last part, or when it lacks memory.
    /// Without this, the kernel would fill the released parts again (`khugepaged`).
    pub(crate) fn refuse_huge(&self) {
        // SAFETY: this value owns the region, and the advice changes no content.
        unsafe { system::refuse_huge(self.start.as_ptr(), self.taken) };
    }

    /// Zeroes a range. A sparse region releases the memory of whole pages.
    pub(crate) fn clear(&mut self, range: Range<usize>) {
        let page = page_bytes();
        let first = range.start.next_multiple_of(page).min(range.end);
        let last = (range.end / page * page).max(first);
        assert!(range.end <= self.len, "the range lies within the region");
        // SAFETY: the pages lie within the region, which `&mut self` owns, and zeroes replace their bytes.
        if self.is_sparse && unsafe { system::release_pages(self.start.as_ptr().add(first), last - first) } {
            self[range.start..first].fill(0);
            self[last..range.end].fill(0);
        } else {
            self[range].fill(0);
        }
    }

    /// Releases the memory of whole pages of a sparse region, which read as zeroes then. They stay as they are if the
    /// system refuses.
    ///
    /// # Safety
    /// The pages lie in the region, and no reference to their bytes exists.
    pub(crate) unsafe fn release_part(&self, start: NonNull<u8>, bytes: usize) {
        debug_assert!(self.is_sparse && bytes.is_multiple_of(page_bytes()));
        // SAFETY: the caller's promises.
        let _ = unsafe { system::release_pages(start.as_ptr(), bytes) };
    }

    /// Maps `bytes` bytes, rounded up to whole pages, for a region of `len` bytes.
    fn mapped(len: usize, bytes: usize) -> Result<Self, NoMemory> {
        let page = page_bytes();
        let region = Self::region(len, bytes, page, |taken| system::take(taken, page))?;
        if region.taken >= HUGE_PAGE_BYTES {
            // SAFETY: the region was just mapped, and this value owns it.
            unsafe { system::advise_huge(region.start.as_ptr(), region.taken) };
        }
        Ok(region)
    }

    /// A region of `len` bytes, in a mapping of `bytes` bytes or more: whole pages of this size.
    fn region(
        len: usize,
        bytes: usize,
        page: usize,
        take: impl FnOnce(usize) -> io::Result<NonNull<u8>>,
    ) -> Result<Self, NoMemory> {
        let no_memory = |source| NoMemory { bytes: len, source };
        let taken = bytes.max(1).checked_next_multiple_of(page);
        let taken = taken.filter(|&taken| isize::try_from(taken).is_ok());
        let taken = taken.ok_or_else(|| no_memory(io::ErrorKind::OutOfMemory.into()))?;
        let start = take(taken).map_err(no_memory)?;
        Ok(Self { start, len, taken, is_sparse: false })
    }

    /// The requested length, in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the requested length is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes the length. Added bytes are zeroes; beyond the mapped size they take no memory until they are written. A
    /// longer region may move.
    ///
    /// # Errors
    /// [`NoMemory`]: the region is unchanged.
    pub(crate) fn resize(&mut self, len: usize) -> Result<(), NoMemory> {
        if len > self.taken {
            let page = page_bytes();
            let (start, old) = (self.start, self.taken);
            // SAFETY: this value owns the region of `old` bytes, and `&mut self` excludes references to its bytes.
            let longer =
                Self::region(len, len, page, |taken| unsafe { system::extend(start, old, taken, page) })?;
            // The old region is a part of the longer one.
            let longer = ManuallyDrop::new(longer);
            (self.start, self.taken) = (longer.start, longer.taken);
            // The bytes after the old length may have been used before the region was shortened.
            let old_len = std::mem::replace(&mut self.len, len);
            self.clear(old_len..old);
            return Ok(());
        }
        let old_len = std::mem::replace(&mut self.len, len);
        if old_len < len {
            self.clear(old_len..len);
        }
        Ok(())
    }

    /// The first byte, without a reference to the bytes. For transfers in which the kernel writes into one part while
    /// the program reads another. Valid as long as this value lives.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is the start of a live region of at least `len` initialised (zeroed) bytes, at most
        // `isize::MAX`; this value alone owns the region, so nothing but `&mut self` writes to it.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl AsRef<[u8]> for AlignedBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for AlignedBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` and `taken` are the result and the argument of `take`, and no reference outlives the value.
        unsafe { system::release(self.start, self.taken) }
    }
}

/// The size of a page of memory in bytes.
pub fn page_bytes() -> usize {
    if cfg!(miri) { 4096 } else { rustix::param::page_size() }
}

#[cfg(not(miri))]
pub(crate) mod system {
    use std::ffi::c_void;
    use std::io;
    use std::ptr::{self, NonNull};

    use rustix::mm::{
        Advice, MapFlags, MremapFlags, ProtFlags, madvise, mlock, mmap_anonymous, mremap, munmap,
    };

    /// Maps `bytes` (whole pages) of zeroed private memory. The kernel aligns it to a page.
    pub(super) fn take(bytes: usize, _page: usize) -> io::Result<NonNull<u8>> {
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)?
        };
        NonNull::new(start.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Does the same as [`take`], on reserved huge pages of 2 MiB. `bytes` is whole huge pages.
    pub(super) fn take_huge(bytes: usize) -> io::Result<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        // SAFETY: as in `take`.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        NonNull::new(start.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Locks whole pages of a mapping of this module into memory.
    pub(super) fn lock(start: NonNull<u8>, bytes: usize) -> io::Result<()> {
        // SAFETY: the call changes no content; an address that is not mapped is an error.
        Ok(unsafe { mlock(start.as_ptr().cast::<c_void>(), bytes) }?)
    }

    /// Does the same as [`take`], without a reservation of memory.
    pub(super) fn reserve(bytes: usize, _page: usize) -> io::Result<NonNull<u8>> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: as in `take`.
        let start =
            unsafe { mmap_anonymous(ptr::null_mut(), bytes, ProtFlags::READ | ProtFlags::WRITE, flags)? };
        NonNull::new(start.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Extends a mapping of this module from `old` to `bytes` bytes, by zeroes. It may move.
    ///
    /// # Safety
    /// The mapping belongs to the caller, and no reference to it is in use. On success, it ends at `start`.
    pub(super) unsafe fn extend(
        start: NonNull<u8>,
        old: usize,
        bytes: usize,
        _page: usize,
    ) -> io::Result<NonNull<u8>> {
        // SAFETY: the caller's promise.
        let start = unsafe { mremap(start.as_ptr().cast::<c_void>(), old, bytes, MremapFlags::MAYMOVE)? };
        NonNull::new(start.cast::<u8>()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    /// Replaces whole pages by zeroes that take no memory. False: the kernel refuses, and nothing has changed.
    ///
    /// # Safety
    /// The range is part of a mapping of this module, and no reference to it is in use.
    pub(super) unsafe fn release_pages(start: *mut u8, bytes: usize) -> bool {
        // SAFETY: the caller's promise. A private anonymous page that was released reads as zeroes.
        unsafe { madvise(start.cast::<c_void>(), bytes, Advice::LinuxDontNeed) }.is_ok()
    }

    /// A kernel without huge pages refuses the advice, and the region keeps its small pages.
    ///
    /// # Safety
    /// The range is mapped and belongs to the caller.
    pub(crate) unsafe fn advise_huge(start: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise, and this advice changes no content.
        let _ = unsafe { madvise(start.cast::<c_void>(), bytes, Advice::LinuxHugepage) };
    }

    /// Keeps the kernel from using huge pages. A kernel without huge pages refuses the advice.
    ///
    /// # Safety
    /// The range is mapped and belongs to the caller.
    pub(super) unsafe fn refuse_huge(start: *mut u8, bytes: usize) {
        // SAFETY: the caller's promise, and this advice changes no content.
        let _ = unsafe { madvise(start.cast::<c_void>(), bytes, Advice::LinuxNoHugepage) };
    }

    /// # Safety
    /// `start` and `bytes` come from one `take`, are released once, and no reference to the region remains.
    pub(super) unsafe fn release(start: NonNull<u8>, bytes: usize) {
        // SAFETY: the caller's promise.
        let result = unsafe { munmap(start.as_ptr().cast::<c_void>(), bytes) };
        debug_assert!(result.is_ok(), "munmap of our own mapping: {result:?}");
    }
}

/// The allocator's memory, for Miri, which runs no system call by number.
#[cfg(miri)]
pub(crate) mod system {
    use std::alloc::{Layout, alloc_zeroed, dealloc};
    use std::io;
    use std::ptr::NonNull;

    pub(super) fn take(bytes: usize, page: usize) -> io::Result<NonNull<u8>> {
        let layout = Layout::from_size_align(bytes, page).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: `bytes` is at least one page, so the layout is not empty.
        NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }

    pub(super) fn reserve(bytes: usize, page: usize) -> io::Result<NonNull<u8>> {
        take(bytes, page)
    }

    pub(super) fn take_huge(_bytes: usize) -> io::Result<NonNull<u8>> {
        Err(io::ErrorKind::OutOfMemory.into())
    }

    /// # Safety
    /// The region comes from one `take` of `old` bytes, and no reference to it is in use. On success, it is released.
    pub(super) unsafe fn extend(
        start: NonNull<u8>,
        old: usize,
        bytes: usize,
        page: usize,
    ) -> io::Result<NonNull<u8>> {
        let longer = take(bytes, page)?;
        // SAFETY: both regions have at least `old` bytes and are distinct; the caller's promise.
        unsafe {
            std::ptr::copy_nonoverlapping(start.as_ptr(), longer.as_ptr(), old);
            release(start, old);
        }
        Ok(longer)
    }

    pub(super) fn lock(_start: NonNull<u8>, _bytes: usize) -> io::Result<()> {
        Ok(())
    }

    /// # Safety
    /// There are no conditions: the function does nothing.
    pub(super) unsafe fn release_pages(_start: *mut u8, _bytes: usize) -> bool {
        false
    }

    /// # Safety
    /// There are no conditions: the function does nothing.
    pub(crate) unsafe fn advise_huge(_start: *mut u8, _bytes: usize) {}

    /// # Safety
    /// There are no conditions: the function does nothing.
    pub(super) unsafe fn refuse_huge(_start: *mut u8, _bytes: usize) {}

    /// # Safety
    /// `start` and `bytes` come from one `take`, are released once, and no reference to the region remains.
    pub(super) unsafe fn release(start: NonNull<u8>, bytes: usize) {
        // SAFETY: `take` made this layout from the same numbers.
        let layout = unsafe { Layout::from_size_align_unchecked(bytes, super::page_bytes()) };
        // SAFETY: the caller's promise.
        unsafe { dealloc(start.as_ptr(), layout) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_on_a_page_and_holds_zeroes() {
        for len in [1, 511, 4096, 4097, if cfg!(miri) { 20_000 } else { 3 << 20 }] {
            let buf = AlignedBuf::new(len).unwrap();
            assert_eq!(buf.len(), len);
            assert_eq!(buf.start().as_ptr() as usize % page_bytes(), 0);
            assert!(buf.iter().all(|&byte| byte == 0), "{len} bytes");
        }
    }

    #[test]
    fn keeps_written_bytes_and_crosses_threads() {
        let mut buf = AlignedBuf::new(10_000).unwrap();
        buf[0] = 1;
        buf[9_999] = 2;
        let buf = std::thread::spawn(move || buf).join().unwrap();
        assert_eq!((buf[0], buf[9_998], buf[9_999]), (1, 0, 2));
    }

    #[test]
    fn added_bytes_are_zeroes_and_earlier_ones_stay() {
        let mut buf = AlignedBuf::new(3000).unwrap();
        buf.fill(7);
        for (len, kept) in [(1000, 1000), (page_bytes(), 1000), (500, 500), (5 * page_bytes() + 1, 500)] {
            buf.resize(len).unwrap();
            assert!(buf.len() == len && buf[..kept].iter().all(|&byte| byte == 7), "{len}");
            assert!(buf[kept..].iter().all(|&byte| byte == 0), "{len}");
        }
        buf.resize(usize::MAX).unwrap_err();
        assert!(buf.len() == 5 * page_bytes() + 1 && buf[499] == 7);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_region_for_transfers_ends_on_a_huge_page_unless_little_is_left() {
        let taken = |kib: usize| AlignedBuf::for_transfers(kib << 10).unwrap().taken >> 10;
        let taken: Vec<usize> = [4, 252, 256, 1024, 2048, 2100, 2560].into_iter().map(taken).collect();
        assert_eq!(taken, [4, 252, 2048, 2048, 2048, 2100, 4096]);
        let mut buf = AlignedBuf::for_transfers(1 << 20).unwrap();
        buf.fill(1);
        assert_eq!(buf.len(), 1 << 20);
        let error = AlignedBuf::for_transfers(usize::MAX).unwrap_err();
        assert_eq!(error.bytes, usize::MAX);
    }

    #[test]
    #[cfg(not(miri))]
    fn a_sparse_region_exceeds_the_memory_and_reads_zeroes_after_a_clear() {
        const LEN: usize = 1 << 44;
        let Ok(mut buf) = AlignedBuf::sparse(LEN) else {
            eprintln!("skipped: the system does not reserve more addresses than memory");
            return;
        };
        for at in [0, LEN / 2, LEN - 10_000] {
            buf[at..at + 10_000].fill(7);
        }
        buf.clear(LEN / 2 + 5000..LEN - 5000);
        assert!(buf[LEN / 2..LEN / 2 + 5000].iter().all(|&byte| byte == 7));
        assert!(buf[LEN / 2 + 5000..LEN / 2 + 10_000].iter().all(|&byte| byte == 0));
        assert!(buf[LEN - 10_000..LEN - 5000].iter().all(|&byte| byte == 0));
        assert!(buf[LEN - 5000..].iter().all(|&byte| byte == 7));
    }

    #[test]
    fn a_length_of_zero_is_valid() {
        let buf = AlignedBuf::new(0).unwrap();
        assert!(buf.is_empty());
        assert_eq!(&buf[..], &[] as &[u8]);
    }

    #[test]
    fn too_much_is_an_error_that_names_the_size() {
        for bytes in [isize::MAX as usize, usize::MAX] {
            let error = AlignedBuf::new(bytes).unwrap_err();
            assert_eq!(error.bytes, bytes);
            assert!(error.to_string().contains(&bytes.to_string()), "{error}");
        }
    }
}
