//! The memory of the page cache's frames: aligned, on huge pages if the kernel allows, and registered with `io_uring`.
//! `iopath_core::cache` assigns pages to frames and decides which thread may access a frame.

use std::ptr::NonNull;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use iopath_core::cache::Frame;

use crate::aligned::NoMemory;
use crate::memory::Segment;
use crate::pool::BufferPool;

/// One page of memory for each frame.
#[derive(Debug)]
pub(super) struct Arena {
    /// The first byte of frame 0. Frames lie one after another.
    start: Start,
    frames: u32,
    /// Bytes of a page, as a power of two.
    page_shift: u32,
    /// All its buffers are frames.
    pool: BufferPool,
    has_released: AtomicBool,
}

#[derive(Debug, Clone, Copy)]
struct Start(NonNull<u8>);

// SAFETY: a start gives no access by itself; every function that uses one states its conditions.
unsafe impl Send for Start {}
// SAFETY: as above.
unsafe impl Sync for Start {}

impl Arena {
    /// # Panics
    /// If the size of a page is not a power of two, or is less than the page size of the machine: a bug of the caller.
    ///
    /// `is_released`: the memory of frames can be released. No ring registers the arena then.
    pub(super) fn new(frames: u32, page_bytes: u32, is_released: bool) -> Result<Self, NoMemory> {
        let pool = if is_released {
            BufferPool::of_released_frames(frames, page_bytes as usize)?
        } else {
            BufferPool::of_frames(frames, page_bytes as usize)?
        };
        assert!(page_bytes.is_power_of_two() && pool.buffer_bytes() == page_bytes as usize, "{page_bytes}");
        let start = Start(pool.start());
        let has_released = AtomicBool::new(false);
        Ok(Self { start, frames, page_shift: page_bytes.trailing_zeros(), pool, has_released })
    }

    /// The number of frames.
    pub(super) const fn frames(&self) -> u32 {
        self.frames
    }

    /// Bytes of a page.
    pub(super) const fn page_bytes(&self) -> usize {
        1 << self.page_shift
    }

    /// The first byte of a frame.
    #[inline]
    fn start(&self, Frame(frame): Frame) -> NonNull<u8> {
        assert!(frame < self.frames, "there is no frame {frame}");
        // SAFETY: the pool has a buffer of this number, and its buffers lie one after another from `start` on.
        unsafe { self.start.0.add((frame as usize) << self.page_shift) }
    }

    /// Prefetches the first bytes of a frame from byte `from` on. The processor's own prefetcher fetches the following
    /// bytes when these are read.
    #[inline]
    pub(super) fn fetch(&self, frame: Frame, from: usize) {
        const LINES: usize = 4;
        const LINE_BYTES: usize = 64;
        #[cfg(target_arch = "x86_64")]
        for line in 0..LINES {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let address = self.start(frame).as_ptr().wrapping_add(from + line * LINE_BYTES);
            // SAFETY: a hint without visible effect, for which any address is valid.
            unsafe { _mm_prefetch(address.cast::<i8>(), _MM_HINT_T0) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (frame, from, LINES, LINE_BYTES);
    }

    /// The pool with all frames, for a ring to register.
    pub(super) const fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// Releases the memory of frames. Their bytes are unspecified then.
    ///
    /// # Safety
    /// No thread and no I/O accesses the frames. The arena was made for it.
    pub(super) unsafe fn release(&self, frames: &mut [Frame]) {
        if !frames.is_empty() && !self.has_released.swap(true, Relaxed) {
            self.pool.refuse_huge();
        }
        frames.sort_unstable_by_key(|frame| frame.0);
        for run in frames.chunk_by(|frame, next| Self::is_followed_by(*frame, *next)) {
            let (first, count) = (run[0].0, run.len() as u32);
            assert!(first + count <= self.frames, "there are no frames {first} to {}", first + count);
            // SAFETY: the caller's promise; the pool has these buffers.
            unsafe { self.pool.release(first, count) };
        }
    }

    /// The first `bytes` bytes of a frame as memory for a device.
    ///
    /// # Safety
    /// The conditions of [`Segment::new`] hold.
    pub(super) unsafe fn segment(&self, frame: Frame, bytes: usize) -> Segment {
        assert!(frame.0 < self.frames, "there is no frame {}", frame.0);
        // SAFETY: the caller's promise; the pool has a buffer of this number and lives as long as the arena.
        let whole = unsafe { self.pool.segment(frame.0) };
        iopath_core::Memory::slice(whole, 0, bytes as u64)
    }

    /// The bytes of a frame from byte `from` on.
    ///
    /// # Safety
    /// The frame stays pinned while the slice exists, so no thread writes to it.
    pub(super) unsafe fn bytes(&self, frame: Frame, from: usize, bytes: usize) -> &[u8] {
        assert!(from + bytes <= self.page_bytes(), "{bytes} bytes from {from} on are not in a page");
        // SAFETY: the caller's promise, and a run of one frame.
        unsafe { self.run(frame, from, bytes) }
    }

    /// Whether the bytes of `next` follow those of `frame` in memory.
    pub(super) const fn is_followed_by(frame: Frame, next: Frame) -> bool {
        next.0 == frame.0 + 1
    }

    /// Does the same as [`Arena::bytes`], over frames that follow one another in memory.
    ///
    /// # Safety
    /// The conditions of [`Arena::bytes`] hold, for every frame of the run. Each frame up to byte `from + bytes` is
    /// followed by the next.
    pub(super) unsafe fn run(&self, first: Frame, from: usize, bytes: usize) -> &[u8] {
        // SAFETY: the bytes were initialised when the pool was made, and the caller promises that no code writes to
        // them. The start is derived from the start of the whole memory, and the caller promises that the run stays
        // in it.
        unsafe { std::slice::from_raw_parts(self.start(first).as_ptr().add(from), bytes) }
    }

    /// Copies `source` into a frame, from byte `to` on.
    ///
    /// # Safety
    /// The caller holds the frame for writing, or no other thread accesses it.
    pub(super) unsafe fn copy_in(&self, frame: Frame, to: usize, source: &[u8]) {
        assert!(
            to + source.len() <= self.page_bytes(),
            "{} bytes from {to} on are not in a page",
            source.len()
        );
        // SAFETY: the caller's promise, and a run of one frame.
        unsafe { self.copy_into_run(frame, to, source) }
    }

    /// Does the same as [`Arena::copy_in`], into frames that follow one another in memory.
    ///
    /// # Safety
    /// The conditions of [`Arena::copy_in`] hold, for every frame of the run. Each frame up to byte `to + source.len()`
    /// is followed by the next.
    pub(super) unsafe fn copy_into_run(&self, first: Frame, to: usize, source: &[u8]) {
        // SAFETY: the start is derived from the start of the whole memory, and the caller promises that the run stays
        // in it.
        unsafe {
            std::ptr::copy_nonoverlapping(source.as_ptr(), self.start(first).as_ptr().add(to), source.len());
        }
    }

    /// Does the same as [`Arena::copy_into_run`], by non-temporal stores: for bytes that the device reads before the
    /// processor does. The processor's caches keep other data, and do not read the lines that are overwritten. If all
    /// frames fit in the caches, plain stores are faster and are used.
    ///
    /// # Safety
    /// The conditions of [`Arena::copy_into_run`] hold.
    pub(super) unsafe fn stream_into_run(&self, first: Frame, to: usize, source: &[u8]) {
        /// For fewer bytes, the fence at the end costs more than the non-temporal stores save.
        const BYTES_MIN: usize = 16 << 10;
        /// A cyclic stream over this many bytes stays in the caches (measured on a server processor).
        const FIT_BYTES_MAX: usize = 32 << 20;
        let is_far = self.pool.bytes() > FIT_BYTES_MAX;
        if is_far && source.len() >= BYTES_MIN && to.is_multiple_of(STREAM_ALIGN) {
            // SAFETY: as in `copy_into_run`; `to` keeps the alignment of the frame.
            unsafe { stream(source, self.start(first).as_ptr().add(to)) }
        } else {
            // SAFETY: the caller's promise.
            unsafe { self.copy_into_run(first, to, source) }
        }
    }

    /// Zeroes a frame from byte `from` on.
    ///
    /// # Safety
    /// The conditions of [`Arena::copy_in`] hold.
    pub(super) unsafe fn zero(&self, frame: Frame, from: usize) {
        assert!(from <= self.page_bytes(), "byte {from} is not in a page");
        // SAFETY: the range lies in the frame, which belongs to the caller alone.
        unsafe { self.start(frame).as_ptr().add(from).write_bytes(0, self.page_bytes() - from) }
    }
}

/// The alignment that [`stream`] needs: one store.
const STREAM_ALIGN: usize = 16;

/// Copies `source` to `target` by plain stores, since this processor has no non-temporal stores.
///
/// # Safety
/// `target` is valid for `source.len()` bytes, and does not overlap `source`.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(source: &[u8], target: *mut u8) {
    // SAFETY: the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(source.as_ptr(), target, source.len()) }
}

/// Copies `source` to `target` by non-temporal stores.
///
/// # Safety
/// `target` is valid for `source.len()` bytes, does not overlap `source`, and is aligned to [`STREAM_ALIGN`].
#[cfg(target_arch = "x86_64")]
#[expect(
    clippy::cast_ptr_alignment,
    reason = "the loads take any address, and `target` is promised to be aligned"
)]
unsafe fn stream(source: &[u8], target: *mut u8) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    /// A cache line: the processor writes it to memory as a whole if it is filled by adjacent stores.
    const LINE: usize = 4 * size_of::<__m128i>();
    let lines = source.chunks_exact(LINE);
    let rest = lines.remainder();
    for (number, line) in lines.enumerate() {
        let (from, to) =
            (line.as_ptr().cast::<__m128i>(), target.wrapping_add(number * LINE).cast::<__m128i>());
        // SAFETY: the loads read exactly one line of `source`. The stores write as many bytes of `target`, which is
        // valid for them by the caller's promise.
        unsafe {
            let first = (_mm_loadu_si128(from), _mm_loadu_si128(from.add(1)));
            let second = (_mm_loadu_si128(from.add(2)), _mm_loadu_si128(from.add(3)));
            _mm_stream_si128(to, first.0);
            _mm_stream_si128(to.add(1), first.1);
            _mm_stream_si128(to.add(2), second.0);
            _mm_stream_si128(to.add(3), second.1);
        }
    }
    // SAFETY: the rest of `source` fits in the rest of `target`, by the caller's promise.
    unsafe {
        let target = target.add(source.len() - rest.len());
        std::ptr::copy_nonoverlapping(rest.as_ptr(), target, rest.len());
    }
    // SAFETY: the fence has no conditions. It orders these stores before all later ones, so a thread that sees a later
    // store also sees the bytes.
    unsafe { _mm_sfence() };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_disjoint_and_adjacent_frames_form_a_run() {
        let arena = Arena::new(4, 8192, false).unwrap();
        let fill = vec![[1_u8; 8192], [2; 8192], [3; 8192], [4; 8192]];
        for (frame, bytes) in (0..).map(Frame).zip(&fill) {
            // SAFETY: no other thread has the arena.
            unsafe { arena.copy_in(frame, 0, bytes) };
        }
        // SAFETY: as above.
        unsafe {
            arena.zero(Frame(2), 8000);
            assert_eq!(arena.bytes(Frame(1), 100, 50), &[2; 50]);
            assert_eq!(arena.bytes(Frame(2), 7999, 2), &[3, 0]);
            assert!(Arena::is_followed_by(Frame(0), Frame(1)) && !Arena::is_followed_by(Frame(1), Frame(0)));
            assert_eq!(arena.run(Frame(0), 8191, 2), &[1, 2]);
        }
    }

    #[test]
    fn released_frames_are_zeroes_and_their_neighbours_stay() {
        // On small and on huge pages.
        const FRAMES: u32 = if cfg!(miri) { 6 } else { 5000 };
        let arena = Arena::new(FRAMES, 4096, true).unwrap();
        let is_released = |frame: u32| matches!(frame, 1 | 2 | 4 | 2000..2700 | 4000..4999);
        let mut released: Vec<_> = (0..FRAMES).rev().filter(|frame| is_released(*frame)).map(Frame).collect();
        // SAFETY: no other thread has the arena.
        unsafe {
            (0..FRAMES).for_each(|frame| arena.copy_in(Frame(frame), 0, &[1; 4096]));
            arena.release(&mut released);
            for frame in 0..FRAMES {
                let byte = u8::from(!is_released(frame));
                assert_eq!(arena.bytes(Frame(frame), 0, 4096), &[byte; 4096], "frame {frame}");
            }
        }
    }

    /// The kernel would fill released parts again.
    #[cfg(target_os = "linux")]
    #[cfg_attr(miri, ignore = "the memory is not that of the system")]
    #[test]
    fn an_arena_that_has_released_memory_gets_no_further_huge_pages() {
        let arena = Arena::new(8192, 4096, true).unwrap();
        let flags = || {
            let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let within = arena.start(Frame(5000)).as_ptr().addr();
            let holds = |line: &str| {
                let (start, end) = line.split_once(' ')?.0.split_once('-')?;
                let address = |text| usize::from_str_radix(text, 16).ok();
                Some((address(start)?..address(end)?).contains(&within))
            };
            let lines = smaps.lines().skip_while(|line| holds(line) != Some(true));
            let flags = lines.clone().find(|line| line.starts_with("VmFlags:")).unwrap_or_default();
            flags.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        let before = flags();
        if !before.iter().any(|flag| flag == "hg") {
            return eprintln!("skipped: the system has no huge pages: {before:?}");
        }
        // SAFETY: no other thread has the arena.
        unsafe { arena.release(&mut [Frame(7)]) };
        let after = flags();
        assert!(after.iter().any(|flag| flag == "nh") && !after.iter().any(|flag| flag == "hg"), "{after:?}");
    }

    #[test]
    fn streamed_bytes_arrive_as_copied_bytes_do() {
        // Too many for the caches.
        let arena = Arena::new(8193, 4096, false).unwrap();
        let source: Vec<u8> = (0..32_768_u32).map(|byte| (byte % 251) as u8).collect();
        for (to, from, bytes) in
            [(0, 0, 32_768), (0, 1, 32_767), (0, 3, 16_385), (16, 0, 20_000), (5, 0, 20_000), (0, 0, 100)]
        {
            // SAFETY: no other thread has the arena, whose first frames lie side by side.
            unsafe {
                (0..8).for_each(|frame| arena.zero(Frame(frame), 0));
                arena.stream_into_run(Frame(0), to, &source[from..from + bytes]);
                assert_eq!(arena.run(Frame(0), to, bytes), &source[from..from + bytes]);
                assert!(arena.run(Frame(0), 0, to).iter().all(|byte| *byte == 0));
                let end = to + bytes;
                assert!(arena.run(Frame(0), end, 32_768 - end).iter().all(|byte| *byte == 0), "{to} {bytes}");
            }
        }
    }
}
