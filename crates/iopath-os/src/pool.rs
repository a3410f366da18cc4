//! Buffers for direct I/O, in memory of the pool or of the program: aligned, of one size, and registered with
//! `io_uring`. Registration saves the look-up and pinning of pages at each I/O. The pool is not a page cache.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use crate::aligned::{AlignedBuf, HUGE_PAGE_BYTES, NoMemory, page_bytes};
use crate::memory::Segment;

/// The maximum bytes of a registered buffer (`io_uring_register(2)`).
const REGISTERED_BYTES_MAX: usize = 1 << 30;

/// The usual maximum bytes of a registered buffer that the kernel populates while an I/O waits for it: some
/// milliseconds.
const REGISTERED_BYTES: usize = 16 << 20;

/// The first registered buffer of a pool that is registered on first use is this part of the pool: from
/// [`FIRST_BYTES_MIN`] to a huge page.
const FIRST_PIECES: usize = 16;

/// The least bytes of the first registered buffer: a window of readahead.
const FIRST_BYTES_MIN: usize = 128 << 10;

/// The maximum number of registered buffers of a pool: half as many as a ring takes.
const REGISTERED_MAX: usize = 8192;

/// Buffers in memory of the program start at multiples of this: no device has a larger alignment of memory
/// (`stx_dio_mem_align`).
const MEMORY_ALIGN_BYTES: usize = 4096;

const BUFFER_BYTES_RULE: &str = "a buffer has 1 byte to 1 GiB, the limit of registration";

/// A fixed number of aligned buffers of one size, in one region of memory that the ring of a batch registers. Clones
/// share them, so batches of several threads and volumes can transfer the buffers of one pool. Each ring registers the
/// memory for itself.
#[derive(Clone)]
pub struct BufferPool {
    shared: Arc<Shared>,
}

impl fmt::Debug for BufferPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferPool")
            .field("bytes", &self.bytes())
            .field("buffer_bytes", &self.buffer_bytes())
            .finish_non_exhaustive()
    }
}

struct Shared {
    /// The buffers, one after another.
    memory: PoolMemory,
    buffer_bytes: usize,
    pieces: Pieces,
    registration: Registration,
    /// The numbers of the free buffers.
    free: Mutex<Vec<u32>>,
}

/// The memory of a pool. Its bytes are initialised.
enum PoolMemory {
    Own(AlignedBuf),
    Program(ProgramMemory),
}

/// Memory of the program: see [`BufferPool::of_memory`].
struct ProgramMemory {
    start: NonNull<u8>,
    bytes: usize,
    /// Keeps the memory.
    _owner: Box<dyn Send>,
}

// SAFETY: the caller of `BufferPool::of_memory` promises that any thread may access the memory; the owner is `Send`.
unsafe impl Send for ProgramMemory {}
// SAFETY: as above. A shared reference gives an address and a length only.
unsafe impl Sync for ProgramMemory {}

impl PoolMemory {
    fn start(&self) -> NonNull<u8> {
        match self {
            Self::Own(memory) => memory.start(),
            Self::Program(memory) => memory.start,
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Own(memory) => memory.len(),
            Self::Program(memory) => memory.bytes,
        }
    }

    /// The memory of a page cache, which is never of the program.
    fn own(&self) -> &AlignedBuf {
        match self {
            Self::Own(memory) => memory,
            Self::Program(_) => unreachable!("a page cache has memory of its own"),
        }
    }
}

/// The time at which a ring registers the memory of a pool. The kernel then populates the memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registration {
    /// When the ring is made.
    AtOnce,
    /// Piece by piece, when the first I/O uses a piece.
    OnFirstUse,
    /// Never: the memory of parts is released while rings are open, and a ring would keep the old memory.
    Never,
}

/// The division of a pool into registered buffers. A ring registers a piece as a whole.
///
/// The first two pieces have the same size. Each further piece is as long as all pieces before it, up to a maximum.
/// So a pool of which a part is used populates at most twice that part, and few neighbours lie in different pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Pieces {
    /// Buffers of the first piece, as a power of two.
    first_shift: u32,
    /// The number of times that the size doubles.
    doublings: u32,
}

impl Pieces {
    fn new(count: u32, buffer_bytes: usize, registration: Registration) -> Self {
        let shift_of = |bytes: usize| (bytes / buffer_bytes).max(1).ilog2();
        let total_bytes = buffer_bytes.saturating_mul(count as usize);
        let most = (total_bytes / REGISTERED_MAX).next_power_of_two().max(REGISTERED_BYTES);
        let first_bytes = match registration {
            Registration::AtOnce => HUGE_PAGE_BYTES,
            // A small cache is populated in small pieces, so that thousands of volumes take little memory.
            Registration::OnFirstUse | Registration::Never => {
                (total_bytes / FIRST_PIECES).clamp(FIRST_BYTES_MIN, HUGE_PAGE_BYTES)
            }
        };
        let first_shift = shift_of(first_bytes);
        Self { first_shift, doublings: shift_of(most.min(REGISTERED_BYTES_MAX)) - first_shift }
    }

    /// The piece of a buffer.
    #[inline]
    const fn of(self, buffer: u32) -> u32 {
        let unit = buffer >> self.first_shift;
        match unit >> self.doublings {
            0 => u32::BITS - unit.leading_zeros(),
            whole => self.doublings + whole,
        }
    }

    /// The first buffer of a piece.
    const fn start(self, piece: u32) -> u64 {
        let unit = match piece {
            0 => 0,
            _ if piece <= self.doublings => 1 << (piece - 1),
            _ => ((piece - self.doublings) as u64) << self.doublings,
        };
        unit << self.first_shift
    }
}

impl BufferPool {
    /// `count` zeroed buffers of `bytes` bytes each, rounded up so that each starts on a page.
    ///
    /// # Errors
    /// [`NoMemory`] if the system lacks the memory, or a buffer is larger than 1 GiB, the limit of registration.
    pub fn new(count: u32, bytes: usize) -> Result<Self, NoMemory> {
        Self::with(count, bytes, Registration::AtOnce, (0..count).rev())
    }

    /// Does the same as [`BufferPool::new`], for the buffer pool of a database. Memory is populated when it is first
    /// used, and each ring registers it piece by piece then: a part of 128 KiB to 16 MiB with the first I/O in it. If
    /// the process may not lock that many bytes of memory (`RLIMIT_MEMLOCK`), no ring registers the pool.
    ///
    /// # Errors
    /// Returns the errors of [`BufferPool::new`].
    pub fn on_first_use(count: u32, bytes: usize) -> Result<Self, NoMemory> {
        Self::with(count, bytes, Registration::OnFirstUse, (0..count).rev())
    }

    /// A pool of `count` buffers of `bytes` bytes each in memory of the program: a database with a buffer pool of its
    /// own, for example on huge pages (`MAP_HUGETLB`). Rings register it as a pool of
    /// [`BufferPool::on_first_use`]. `owner` keeps the memory: the last buffer, batch or ring with the pool drops it.
    /// It is `()` for memory that lives as long as the process. Buffer 0 starts at `memory`, and each
    /// [`PoolBuf::number`] is the place of a buffer in it. The first ones that [`BufferPool::take`] returns are at its
    /// start.
    ///
    /// ```
    /// use iopath_os::{AlignedBuf, BufferPool};
    ///
    /// let frames = AlignedBuf::new(16 * 8192)?;
    /// let memory = frames.start();
    /// // SAFETY: the region has 16 frames, and the pool, which owns it, is its only user.
    /// let pool = unsafe { BufferPool::of_memory(memory, 16, 8192, frames) }?;
    /// assert_eq!(pool.take().map(|frame| (frame.number(), frame.len())), Some((0, 8192)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A kernel refuses to register some memory, such as a shared mapping of a file: its I/O works without, at a higher
    /// CPU cost.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`] if `memory` or `bytes` is not a multiple of 4,096 bytes, which every device
    /// accepts, `bytes` is 0 or more than 1 GiB, or the buffers have more than `isize::MAX` bytes.
    ///
    /// # Safety
    /// From this call until `owner` is dropped, also in an error:
    /// - the `count * bytes` bytes from `memory` on are one allocation or mapping, initialised (a new mapping is), and
    ///   any thread may read and write them; `memory` is a pointer with permission for all of them;
    /// - nothing accesses the bytes except through this pool and its buffers, and the device, also in other processes
    ///   ([`SharedMemory`](crate::SharedMemory) is for those). No reference to them exists, and `owner` is no `Box` of
    ///   them: its move invalidates `memory`;
    /// - nothing replaces, discards or protects the pages (`munmap`, `mremap`, `mprotect`, `MADV_DONTNEED`,
    ///   `MADV_FREE`), and nothing shortens, punches or writes the file of a mapping: a ring would transfer the old
    ///   pages, or an access would fail.
    pub unsafe fn of_memory(
        memory: NonNull<u8>,
        count: u32,
        bytes: usize,
        owner: impl Send + 'static,
    ) -> io::Result<Self> {
        let all_bytes = bytes.saturating_mul(count as usize);
        let refused = |rule: &'static str| Err(io::Error::new(io::ErrorKind::InvalidInput, rule));
        if bytes == 0 || bytes > REGISTERED_BYTES_MAX {
            return refused(BUFFER_BYTES_RULE);
        }
        let is_aligned = |place: usize| place.is_multiple_of(MEMORY_ALIGN_BYTES);
        if !is_aligned(bytes) || !is_aligned(memory.as_ptr().addr()) {
            return refused("the memory and the size of a buffer must be multiples of 4096 bytes");
        }
        if isize::try_from(all_bytes).is_err() {
            return refused("the buffers are larger than an address space");
        }
        let memory = ProgramMemory { start: memory, bytes: all_bytes, _owner: Box::new(owner) };
        let free = (0..count).rev().collect();
        Ok(Self::in_memory(PoolMemory::Program(memory), count, bytes, Registration::OnFirstUse, free))
    }

    /// A pool whose buffers all belong to the caller, for a page cache. Memory is populated when it is first used.
    pub(crate) fn of_frames(count: u32, bytes: usize) -> Result<Self, NoMemory> {
        Self::with(count, bytes, Registration::OnFirstUse, 0..0)
    }

    /// Does the same as [`BufferPool::of_frames`], for a page cache that releases the memory of frames
    /// ([`BufferPool::release`]). No ring registers the pool.
    pub(crate) fn of_released_frames(count: u32, bytes: usize) -> Result<Self, NoMemory> {
        Self::with(count, bytes, Registration::Never, 0..0)
    }

    fn with(
        count: u32,
        bytes: usize,
        registration: Registration,
        free: impl Iterator<Item = u32>,
    ) -> Result<Self, NoMemory> {
        if bytes > REGISTERED_BYTES_MAX {
            let source = io::Error::new(io::ErrorKind::InvalidInput, BUFFER_BYTES_RULE);
            return Err(NoMemory { bytes, source });
        }
        let buffer_bytes = bytes.max(1).next_multiple_of(page_bytes());
        let bytes = buffer_bytes.saturating_mul(count as usize);
        let memory = match registration {
            // The first use of a huge page populates it.
            Registration::OnFirstUse if bytes < HUGE_PAGE_BYTES => AlignedBuf::new(bytes)?,
            Registration::Never => AlignedBuf::sparse_in_parts(bytes)?,
            _ => AlignedBuf::for_transfers(bytes)?,
        };
        // After the memory, which the system refuses if it is too much: the list of such a count is long, too.
        let free = free.collect();
        Ok(Self::in_memory(PoolMemory::Own(memory), count, buffer_bytes, registration, free))
    }

    fn in_memory(
        memory: PoolMemory,
        count: u32,
        buffer_bytes: usize,
        registration: Registration,
        free: Vec<u32>,
    ) -> Self {
        let (pieces, free) = (Pieces::new(count, buffer_bytes, registration), Mutex::new(free));
        Self { shared: Arc::new(Shared { memory, buffer_bytes, pieces, registration, free }) }
    }

    /// A buffer, if one is free, with its last content.
    pub fn take(&self) -> Option<PoolBuf> {
        let number = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        Some(PoolBuf { pool: self.clone(), number })
    }

    /// The size of a buffer in bytes.
    pub fn buffer_bytes(&self) -> usize {
        self.shared.buffer_bytes
    }

    /// Bytes of all buffers.
    pub(crate) fn bytes(&self) -> usize {
        self.shared.memory.len()
    }

    /// The first byte of all buffers, without a reference to the bytes; valid as long as the pool lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        self.shared.memory.start()
    }

    pub(crate) fn registration(&self) -> Registration {
        self.shared.registration
    }

    /// The addresses of each registered buffer, in the order of their numbers. Valid as long as the pool or a clone
    /// of it lives.
    pub(crate) fn registered(&self) -> impl Iterator<Item = Range<usize>> {
        let Shared { memory, buffer_bytes, pieces, .. } = &*self.shared;
        let place = |piece| (pieces.start(piece) as usize).saturating_mul(*buffer_bytes).min(memory.len());
        let start = memory.start().as_ptr().addr();
        (0..)
            .map(move |piece| start + place(piece)..start + place(piece + 1))
            .take_while(|piece| !piece.is_empty())
    }

    /// Releases the memory of `count` buffers from `first` on. Their bytes are zeroes, or as before if the system
    /// refuses.
    ///
    /// # Safety
    /// There are buffers of these numbers, no reference to their bytes exists, and no I/O uses them.
    pub(crate) unsafe fn release(&self, first: u32, count: u32) {
        assert_eq!(self.registration(), Registration::Never, "a ring would keep the old memory");
        // SAFETY: the caller's promises. No ring has registered the memory.
        unsafe {
            self.shared.memory.own().release_part(self.start_of(first), count as usize * self.buffer_bytes());
        }
    }

    /// No further part of the pool gets huge pages.
    pub(crate) fn refuse_huge(&self) {
        self.shared.memory.own().refuse_huge();
    }

    /// A whole buffer as memory for a device.
    ///
    /// # Safety
    /// As [`PoolBuf::segment`]. There is a buffer of this number.
    pub(crate) unsafe fn segment(&self, number: u32) -> Segment {
        // SAFETY: the caller promises that there is a buffer of this number.
        let start = unsafe { self.start_of(number) };
        // SAFETY: the caller's promise; the memory lives as long as the pool.
        let segment = unsafe { Segment::new(start, self.buffer_bytes()) };
        segment.in_registered_buffer(self.shared.pieces.of(number) as u16)
    }

    /// The first byte of a buffer, without a reference to the bytes; valid as long as the pool lives.
    ///
    /// # Safety
    /// There is a buffer of this number.
    #[inline]
    unsafe fn start_of(&self, number: u32) -> NonNull<u8> {
        // SAFETY: the memory holds all buffers, and the caller promises that this is one of them.
        unsafe { self.start().add(number as usize * self.buffer_bytes()) }
    }
}

/// A buffer of a [`BufferPool`]. Drop returns it to the pool.
pub struct PoolBuf {
    pool: BufferPool,
    number: u32,
}

impl fmt::Debug for PoolBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PoolBuf")
            .field("number", &self.number)
            .field("bytes", &self.len())
            .finish_non_exhaustive()
    }
}

impl PoolBuf {
    /// The first byte, without a reference to the bytes; valid as long as the pool lives.
    pub(crate) fn start(&self) -> NonNull<u8> {
        // SAFETY: the pool numbers only buffers that its memory holds.
        unsafe { self.pool.start_of(self.number) }
    }

    /// The number of the buffer in its pool, from 0 on.
    pub const fn number(&self) -> u32 {
        self.number
    }

    /// The number of its registered buffer.
    #[inline]
    pub(crate) fn piece(&self) -> u16 {
        self.pool.shared.pieces.of(self.number) as u16
    }

    /// The whole buffer as memory for a device; use `slice` for a part.
    ///
    /// # Safety
    /// The conditions of [`Segment::new`] hold: until the I/O has completed, the buffer is neither dropped nor written,
    /// and not read if the I/O reads into it.
    pub unsafe fn segment(&self) -> Segment {
        // SAFETY: the caller's promise, and the pool numbers only buffers that its memory holds.
        unsafe { self.pool.segment(self.number) }
    }
}

impl Deref for PoolBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: initialised when the memory was mapped, or by the promise of `of_memory`. It is this buffer's alone
        // as long as it has the number.
        unsafe { std::slice::from_raw_parts(self.start().as_ptr(), self.pool.shared.buffer_bytes) }
    }
}

impl DerefMut for PoolBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe { std::slice::from_raw_parts_mut(self.start().as_ptr(), self.pool.shared.buffer_bytes) }
    }
}

impl AsRef<[u8]> for PoolBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl AsMut<[u8]> for PoolBuf {
    fn as_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl Drop for PoolBuf {
    fn drop(&mut self) {
        self.pool.shared.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Memory;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn each_buffer_is_taken_once_and_returns_to_the_pool() {
        let pool = BufferPool::new(3, 1000).unwrap();
        let mut taken: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        for (number, buffer) in taken.iter_mut().enumerate() {
            buffer.fill(number as u8);
        }
        for (number, buffer) in taken.iter().enumerate() {
            assert_eq!(buffer.as_ptr() as usize % page_bytes(), 0);
            assert!(buffer.iter().all(|&byte| byte == number as u8), "buffer {number} overlaps another");
        }
        taken.pop();
        assert!(pool.take().is_some());
    }

    #[test]
    fn a_buffer_outlives_the_pools_handle() {
        let mut buffer = BufferPool::new(1, 4096).unwrap().take().unwrap();
        buffer[4095] = 1;
        assert_eq!(buffer.iter().map(|&byte| u32::from(byte)).sum::<u32>(), 1);
    }

    /// Counts its drops.
    struct Owner(AlignedBuf, Arc<AtomicU32>);

    impl Drop for Owner {
        fn drop(&mut self) {
            self.1.fetch_add(1, Relaxed);
        }
    }

    fn of_memory(start: usize, count: u32, bytes: usize, drops: &Arc<AtomicU32>) -> io::Result<BufferPool> {
        let owner = Owner(AlignedBuf::new(1 << 16).unwrap(), drops.clone());
        // SAFETY: the pool lies in the region, which only its owner has. A refused pool accesses nothing.
        unsafe { BufferPool::of_memory(owner.0.start().add(start), count, bytes, owner) }
    }

    #[test]
    fn memory_of_the_program_is_divided_in_order_and_kept_until_the_last_buffer_is_dropped() {
        let drops = Arc::new(AtomicU32::new(0));
        let pool = of_memory(4096, 7, 8192, &drops).unwrap();
        let start = pool.start().as_ptr().addr();
        let mut taken: Vec<PoolBuf> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 7);
        for (place, buffer) in taken.iter_mut().enumerate() {
            assert_eq!((buffer.number() as usize, buffer.len()), (place, 8192));
            assert_eq!(buffer.as_ptr().addr(), start + place * 8192);
            assert!(buffer.iter().all(|&byte| byte == 0), "buffer {place} overlaps another");
            buffer.fill(1);
        }
        let pieces: Vec<Range<usize>> = pool.registered().collect();
        let ends = pieces.first().map(|first| first.start).zip(pieces.last().map(|last| last.end));
        assert_eq!(ends, Some((start, start + 7 * 8192)));
        let last = taken.pop().unwrap();
        drop((pool, taken));
        assert_eq!((drops.load(Relaxed), last[8191]), (0, 1));
        drop(last);
        assert_eq!(drops.load(Relaxed), 1);
    }

    #[test]
    fn memory_of_the_program_that_a_device_or_a_ring_may_refuse_is_refused() {
        let drops = Arc::new(AtomicU32::new(0));
        for (start, count, bytes) in [(512, 1, 4096), (0, 1, 4608), (0, 1, 0), (0, 1, (1 << 30) + 4096)] {
            let error = of_memory(start, count, bytes, &drops).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
        }
        assert!(of_memory(0, 0, 4096, &drops).unwrap().take().is_none());
        assert_eq!(drops.load(Relaxed), 5);
    }

    #[test]
    fn neighbours_join_in_their_registered_buffer() {
        let pool = BufferPool::new(2, 4096).unwrap();
        let (a, b) = (pool.take().unwrap(), pool.take().unwrap());
        // SAFETY: no device gets them.
        let (a, b) = unsafe { (a.segment(), b.segment()) };
        assert_eq!(a.join(b).map(|both| (both.bytes(), both.registered())), Some((8192, Some(0))));
    }

    #[test]
    fn pieces_cover_a_pool_without_a_gap_and_no_buffer_lies_in_two() {
        for (count, buffer_bytes) in [
            (1, 4096),
            (512, 4096),
            (513, 4096),
            (65_536, 4096),
            (1 << 30, 4096),
            (100, 3 << 20),
            (3, 1 << 30),
        ] {
            for registration in [Registration::AtOnce, Registration::OnFirstUse] {
                let pieces = Pieces::new(count, buffer_bytes, registration);
                let last = pieces.of(count - 1);
                assert!(last as usize <= REGISTERED_MAX + 16, "{last} pieces for {count} of {buffer_bytes}");
                assert_eq!(pieces.start(0), 0);
                for piece in 0..=last {
                    let (start, end) = (pieces.start(piece), pieces.start(piece + 1));
                    assert!((end - start) * buffer_bytes as u64 <= REGISTERED_BYTES_MAX as u64);
                    for buffer in [start, end - 1] {
                        assert_eq!(
                            pieces.of(buffer as u32),
                            piece,
                            "buffer {buffer} of {buffer_bytes} bytes"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_pool_populates_at_most_twice_the_part_that_is_used_in_order() {
        let pool = BufferPool::of_frames(16_384, 4096).unwrap();
        let sizes: Vec<usize> = pool.registered().map(|piece| piece.len() >> 20).collect();
        assert_eq!(sizes, [2, 2, 4, 8, 16, 16, 16]);
        assert_eq!(sizes.iter().sum::<usize>() << 20, pool.bytes());
        let small = BufferPool::of_frames(256, 4096).unwrap();
        let sizes: Vec<usize> = small.registered().map(|piece| piece.len() >> 10).collect();
        assert_eq!(sizes, [128, 128, 256, 512]);
    }
}
