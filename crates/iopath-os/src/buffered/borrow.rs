//! Borrowed pages: access to the cached bytes without a copy.

use iopath_core::buffered::{BufferedRead, ReadNext};
use iopath_core::cache::Frame;
use std::fmt;

use super::arena::Arena;
use super::{Buffered, BufferedError, CacheShared};

/// The maximum number of pages borrowed without an allocation.
const INLINE: usize = 8;

/// Borrowed bytes of the cache. They do not change until the guard is dropped: a writer to the range writes to another
/// copy of the page. Borrowed pages are never evicted, so the cache cannot reuse their memory.
pub struct PageGuard<'a> {
    shared: &'a CacheShared,
    frames: Frames,
    /// The position of the first byte in the first frame.
    from: usize,
    bytes: usize,
}

impl fmt::Debug for PageGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageGuard").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Frames: a few inline, more on the heap.
#[derive(Debug)]
pub(super) struct Frames {
    few: [Frame; INLINE],
    count: usize,
    more: Vec<Frame>,
}

impl Buffered {
    /// Borrows `bytes` bytes from byte `offset` on, or fewer at the end of the volume, as [`Buffered::read_at`].
    ///
    /// # Errors
    /// A page could not be read, or no frame is free for it.
    pub fn borrow(&self, offset: u64, bytes: usize) -> Result<PageGuard<'_>, BufferedError> {
        self.borrow_or(offset, bytes, |error| error)
    }

    /// Does the same as [`Buffered::borrow`], with errors of the caller's type. The guard is constructed in the
    /// caller's memory, since a move of it costs as much as a pin.
    ///
    /// # Errors
    /// Returns the errors of [`Buffered::borrow`].
    #[inline]
    pub fn borrow_or<E>(
        &self,
        offset: u64,
        bytes: usize,
        failed: impl FnOnce(BufferedError) -> E,
    ) -> Result<PageGuard<'_>, E> {
        let shared = &*self.shared;
        let mut read = BufferedRead::new(offset, bytes, shared);
        if let Some(piece) = read.next_piece().filter(|piece| read.is_last(piece))
            && let Some(pinned) = shared.try_pin(piece.page)
        {
            shared.borrowed_hits.add(1);
            if pinned.is_marked {
                shared.handle_marker(read.pages());
            }
            read.handle_copied(&piece);
            if let ReadNext::Done(bytes) = read.poll(shared) {
                return Ok(PageGuard { shared, frames: Frames::one(pinned.frame), from: piece.from, bytes });
            }
            shared.unpin(pinned.frame);
        }
        shared.borrow_pages(read).map_err(failed)
    }
}

impl CacheShared {
    /// Borrows bytes that are absent or not in one page.
    #[cold]
    fn borrow_pages(&self, mut read: BufferedRead) -> Result<PageGuard<'_>, BufferedError> {
        // Dropped on an error, which unpins the pages so far.
        let mut borrowed = PageGuard { shared: self, frames: Frames::NONE, from: 0, bytes: 0 };
        loop {
            let piece = match read.poll(self) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => {
                    borrowed = PageGuard { shared: self, frames: Frames::NONE, from: 0, bytes: 0 };
                    continue;
                }
                ReadNext::Done(bytes) => {
                    borrowed.bytes = bytes;
                    return Ok(borrowed);
                }
            };
            let frame = if let Some(pinned) = self.try_pin(piece.page) {
                self.borrowed_hits.add(1);
                if pinned.is_marked {
                    self.handle_marker(read.pages());
                }
                pinned.frame
            } else if let Some(frame) = self.fault(&mut read)? {
                frame
            } else {
                continue;
            };
            if piece.start == 0 {
                borrowed.from = piece.from;
            }
            borrowed.frames.push(frame);
            read.handle_copied(&piece);
        }
    }
}

impl PageGuard<'_> {
    /// The number of bytes.
    pub const fn len(&self) -> usize {
        self.bytes
    }

    /// Whether there are no bytes.
    pub const fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// All bytes, if they are contiguous: always within a page, and often across pages.
    pub fn as_slice(&self) -> Option<&[u8]> {
        let mut slices = self.slices();
        let first = slices.next().unwrap_or_default();
        slices.next().is_none().then_some(first)
    }

    /// The pieces in order. Pages that are adjacent in memory form one piece.
    #[inline]
    pub fn slices(&self) -> impl Iterator<Item = &[u8]> {
        // SAFETY: all frames are pinned until this is dropped.
        unsafe { self.frames.slices(&self.shared.arena, self.shared.page_bytes, self.from, self.bytes) }
    }

    /// Copies all bytes into `target`, which must have the same length.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn copy_to(&self, target: &mut [u8]) {
        assert_eq!(target.len(), self.bytes, "target and borrowed bytes differ in length");
        let mut done = 0;
        for slice in self.slices() {
            target[done..done + slice.len()].copy_from_slice(slice);
            done += slice.len();
        }
    }
}

impl Drop for PageGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        (0..self.frames.count).for_each(|number| self.shared.unpin(self.frames.get(number)));
    }
}

impl Frames {
    /// No frame.
    pub(super) const NONE: Self = Self { few: [Frame(0); INLINE], count: 0, more: Vec::new() };

    #[inline]
    const fn one(frame: Frame) -> Self {
        Self { few: [frame; INLINE], count: 1, more: Vec::new() }
    }

    pub(super) fn push(&mut self, frame: Frame) {
        match self.few.get_mut(self.count) {
            Some(place) => *place = frame,
            None => self.more.push(frame),
        }
        self.count += 1;
    }

    /// The number of frames.
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Frame {
        if number < INLINE { self.few[number] } else { self.more[number - INLINE] }
    }

    /// `bytes` bytes from position `from` of the first frame on, in order. Frames that are adjacent in memory form one
    /// piece.
    ///
    /// # Safety
    /// All frames are pinned as long as the slices exist.
    #[inline]
    pub(super) unsafe fn slices<'a>(
        &'a self,
        arena: &'a Arena,
        page_bytes: usize,
        from: usize,
        bytes: usize,
    ) -> impl Iterator<Item = &'a [u8]> {
        let mut next = 0;
        let mut from = from;
        let mut left = bytes;
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let first = self.get(next);
            let start = from;
            let mut bytes = left.min(page_bytes - start);
            next += 1;
            while bytes < left && Arena::is_followed_by(self.get(next - 1), self.get(next)) {
                bytes += (left - bytes).min(page_bytes);
                next += 1;
            }
            (from, left) = (0, left - bytes);
            // SAFETY: all of them are pinned, as the caller promises, and each is followed by the next.
            Some(unsafe { arena.run(first, start, bytes) })
        })
    }
}
