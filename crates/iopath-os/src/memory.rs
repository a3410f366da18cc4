//! The memory handle of real devices: an address and a length. It does not own the memory.

use std::ops::Range;
use std::ptr::NonNull;

use iopath_core::{Memory, SECTOR_BYTES};

const SECTOR: usize = SECTOR_BYTES as usize;

/// Contiguous memory that a real device reads into or writes from.
///
/// The caller of [`Segment::new`] guarantees its conditions; all other functions are safe.
#[derive(Debug, Clone, Copy)]
pub struct Segment {
    start: NonNull<u8>,
    bytes: usize,
    registered: Option<u16>,
    /// Whether it may lie in several adjacent allocations.
    is_joined: bool,
}

// SAFETY: a segment gives no access by itself; the promise made to `new` covers access from any thread.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// The `bytes` bytes from `start` on, in one allocation.
    ///
    /// # Safety
    /// From the first submission of this segment, a copy or a part of it to a device, until every bio and request with
    /// it has completed or the device has been dropped:
    /// - the memory stays allocated, and any thread may access it;
    /// - for a read: no other code reads or writes it, and `start` permits writes;
    /// - for a write: it is initialised, and no code writes to it.
    ///
    /// No copy is submitted after the memory has been freed.
    pub unsafe fn new(start: NonNull<u8>, bytes: usize) -> Self {
        // Segments are joined by address, so devices that copy bytes use addresses, too.
        start.as_ptr().expose_provenance();
        Self { start, bytes, registered: None, is_joined: false }
    }

    /// The memory of an [`Segment::iovec`] that is not null. It may be of a joined segment.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for that segment holds.
    pub(crate) unsafe fn of_iovec(iovec: libc::iovec) -> Option<Self> {
        let start = NonNull::new(iovec.iov_base.cast())?;
        Some(Self { start, bytes: iovec.iov_len, registered: None, is_joined: true })
    }

    /// Marks the segment as part of the registered buffer of that number: see [`BufferPool`](crate::BufferPool). A
    /// device without that buffer treats the segment like any other memory.
    #[must_use]
    pub const fn in_registered_buffer(mut self, number: u16) -> Self {
        self.registered = Some(number);
        self
    }

    /// The address of the first byte.
    pub fn address(self) -> usize {
        self.start.as_ptr().addr()
    }

    /// The number of its registered buffer.
    pub const fn registered(self) -> Option<u16> {
        self.registered
    }

    pub(crate) const fn len(self) -> usize {
        self.bytes
    }

    pub(crate) fn iovec(self) -> libc::iovec {
        libc::iovec { iov_base: self.start.as_ptr().cast(), iov_len: self.bytes }
    }

    /// Copies from `source`, which has the same length.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is read into holds now.
    pub(crate) unsafe fn fill_from(self, source: &[u8]) {
        assert_eq!(source.len(), self.bytes, "source and segment differ in length");
        // SAFETY: passed on.
        unsafe { self.fill_at(0, source) }
    }

    /// Copies `source` to the bytes from `at` on.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is read into holds now.
    pub(crate) unsafe fn fill_at(self, at: usize, source: &[u8]) {
        assert!(at <= self.bytes && source.len() <= self.bytes - at, "the source reaches past the segment");
        for (piece, range) in self.pieces(at, source.len()) {
            let from = &source[range];
            // SAFETY: a piece is memory of the segment in one allocation, which may be written now.
            unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), piece, from.len()) }
        }
    }

    /// Appends the bytes from `from` to `to` to `target`.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is written from holds now.
    pub(crate) unsafe fn append_to(self, from: usize, to: usize, target: &mut Vec<u8>) {
        assert!(from <= to && to <= self.bytes, "the range reaches past the segment");
        for (piece, range) in self.pieces(from, to - from) {
            target.reserve(range.len());
            // SAFETY: a piece is memory of the segment in one allocation, initialised, and copied by its address, since
            // other processes may share it. The target has that much room, which the copy initialises.
            unsafe {
                let end = target.as_mut_ptr().add(target.len());
                std::ptr::copy_nonoverlapping(piece, end, range.len());
                target.set_len(target.len() + range.len());
            }
        }
    }

    /// Copies to `target`, which has the same length.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is written from holds now.
    pub(crate) unsafe fn copy_to(self, target: &mut [u8]) {
        assert_eq!(target.len(), self.bytes, "target and segment differ in length");
        // SAFETY: passed on.
        unsafe { self.copy_at(0, target) }
    }

    /// Copies the bytes from `at` on to `target`.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is written from holds now.
    pub(crate) unsafe fn copy_at(self, at: usize, target: &mut [u8]) {
        assert!(at <= self.bytes && target.len() <= self.bytes - at, "the target reaches past the segment");
        for (piece, range) in self.pieces(at, target.len()) {
            let to = &mut target[range];
            // SAFETY: a piece is memory of the segment in one allocation, which may be read now.
            unsafe { std::ptr::copy_nonoverlapping(piece, to.as_mut_ptr(), to.len()) }
        }
    }

    /// Writes zeroes from byte `from` to the end.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is read into holds now.
    pub(crate) unsafe fn zero_from(self, from: usize) {
        // SAFETY: passed on.
        unsafe { self.zero(from, self.bytes) }
    }

    /// Writes zeroes from byte `from` to byte `end`, which lies in the segment.
    ///
    /// # Safety
    /// The promise of [`Segment::new`] for memory that is read into holds now.
    pub(crate) unsafe fn zero(self, from: usize, end: usize) {
        assert!(end <= self.bytes, "zeroes reach past the segment");
        for (piece, range) in self.pieces(from, end.saturating_sub(from)) {
            // SAFETY: a piece is memory of the segment in one allocation, which may be written now.
            unsafe { piece.write_bytes(0, range.len()) }
        }
    }

    /// `bytes` bytes from byte `from` on, in pieces that lie in one allocation each: whole, or sectors of a joined
    /// segment. Returns the address of each, and its place among the `bytes`. The caller checks that they lie in the
    /// segment.
    fn pieces(self, from: usize, bytes: usize) -> impl Iterator<Item = (*mut u8, Range<usize>)> {
        let mut done = 0;
        std::iter::from_fn(move || {
            if done == bytes {
                return None;
            }
            let (start, at) = (done, from + done);
            let piece = if self.is_joined {
                done += (bytes - done).min(SECTOR - at % SECTOR);
                // `start` may point to another allocation.
                std::ptr::with_exposed_provenance_mut(self.address() + at)
            } else {
                done = bytes;
                self.start.as_ptr().wrapping_add(at)
            };
            Some((piece, start..done))
        })
    }
}

impl Memory for Segment {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    /// # Panics
    /// If the part is not inside the segment, or does not start at a whole sector: a bug of the caller.
    fn slice(self, offset: u64, bytes: u64) -> Self {
        let whole = self.bytes as u64;
        assert!(
            offset <= whole && bytes <= whole - offset && offset.is_multiple_of(SECTOR_BYTES),
            "{bytes} bytes from {offset} on are no part of {whole} bytes cut at a sector"
        );
        let start = self.start.map_addr(|address| address.saturating_add(offset as usize));
        Self { start, bytes: bytes as usize, ..self }
    }

    /// Joins adjacent segments in the same registered buffer, or in none. Two allocations may be adjacent by chance and
    /// be joined. The kernel accepts that. Devices that copy do so by sectors, and each sector lies in one allocation:
    /// see `pieces`.
    fn join(self, next: Self) -> Option<Self> {
        let touches = self.address() + self.bytes == next.address();
        let joins = touches && self.registered == next.registered && self.bytes.is_multiple_of(SECTOR);
        joins.then_some(Self { bytes: self.bytes + next.bytes, is_joined: true, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(memory: &mut [u8]) -> Segment {
        // SAFETY: the tests keep the memory while they use the segment, and access it only afterwards.
        unsafe { Segment::new(NonNull::from(&mut *memory).cast(), memory.len()) }
    }

    #[test]
    fn joins_adjacent_segments_only() {
        let mut memory = vec![0; 4 * SECTOR];
        let whole = segment(&mut memory);
        let (a, b, c) = (whole.slice(0, 512), whole.slice(512, 512), whole.slice(1536, 512));
        assert_eq!(a.join(b).map(|both| (both.address(), both.bytes())), Some((whole.address(), 1024)));
        assert!(b.join(a).is_none());
        assert!(b.join(c).is_none());
        assert!(a.join(b.in_registered_buffer(0)).is_none());
        assert!(a.in_registered_buffer(1).join(b.in_registered_buffer(1)).is_some());
    }

    #[test]
    fn copies_through_joined_parts_that_came_from_separate_borrows() {
        let mut memory: Vec<u8> = (0..4 * SECTOR).map(|i| (i / 7) as u8).collect();
        let before = memory.clone();
        let (left, right) = memory.split_at_mut(2 * SECTOR);
        let both = segment(left).join(segment(right)).unwrap();
        let mut copy = vec![0; both.len()];
        // SAFETY: nothing else touches the memory before both are done.
        unsafe {
            both.copy_to(&mut copy);
            copy.reverse();
            both.fill_from(&copy);
        }
        assert!(before.iter().rev().eq(memory.iter()));
    }

    #[test]
    fn zeroes_the_tail_and_only_that() {
        let mut memory = vec![7; 3 * SECTOR];
        // SAFETY: nothing else touches the memory before it is done.
        unsafe { segment(&mut memory).zero_from(700) };
        assert!(memory[..700].iter().all(|&byte| byte == 7));
        assert!(memory[700..].iter().all(|&byte| byte == 0));
    }

    #[test]
    #[should_panic(expected = "no part of 512 bytes")]
    fn a_slice_stays_inside() {
        let _ = segment(&mut [0; 512]).slice(512, 1);
    }
}
