//! Reads of any bytes, page by page: the order of the pages, the end of the volume, readahead. Copies no bytes.
//!
//! ```text
//!   poll ──▶ Copy: the page is cached ──────────────────▶ copy ──▶ handle_copied ──▶ poll
//!     │        └─ it is not: BufferedPath::read ──▶ Pinned ──▶ copy, unpin ──▲
//!     │                          │    ▲
//!     │                          ▼    └─ no frame ──┐
//!     │                        Wait: outcome ──▶ Outcome::pinned ──▶ frame: copy, unpin
//!     ├─▶ Again: discard the bytes ──▶ poll
//!     └─▶ Done
//! ```
//!
//! A page that is cached needs no lock. [`BufferedRead::poll`] reads only [`VolumeEnd`], which may change meanwhile.

use super::{BufferedPath, Frames, Geometry};
use crate::error::IoError;
use crate::file::cache::{Frame, Lookup, Outcome};
use crate::file::page::{Page, PageRange};
use crate::file::readahead::Window;
use crate::time::Instant;

/// The end of a volume, as a read sees it. It may move at any time.
pub trait VolumeEnd {
    /// Bytes of a page.
    fn page_bytes(&self) -> u32;

    /// The size of the volume in bytes.
    fn size_bytes(&self) -> u64;

    /// The number of resizes that moved the end down and up again, because the file kept its size. Changes before the
    /// size moves up.
    fn failed_resizes(&self) -> u64;
}

/// A read in progress.
#[derive(Debug, Clone)]
pub struct BufferedRead {
    offset: u64,
    bytes: usize,
    page_bytes: u32,
    /// The number of bytes before the end of the volume, when the read began.
    available: usize,
    done: usize,
    /// [`VolumeEnd::failed_resizes`] when the read began.
    failed_resizes: u64,
}

/// A part of the bytes, and the page that contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadPiece {
    /// The page.
    pub page: Page,
    /// The position of the bytes in the page.
    pub from: usize,
    /// The position of the bytes in the read.
    pub start: usize,
    /// The end of the bytes in the read.
    pub end: usize,
}

/// The next action of a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadNext {
    /// Copy this piece, then call [`BufferedRead::handle_copied`].
    Copy(ReadPiece),
    /// The read begins again: discard the copied bytes.
    Again,
    /// The read is complete: the number of its bytes before the end of the volume.
    Done(usize),
}

/// The next action of a reader whose page was not found without the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStep {
    /// The page of the next piece is in this frame, which is pinned for the caller.
    Pinned(Frame),
    /// Wait until [`BufferedPath::poll_ready`] names the waiter. [`Outcome::pinned`] returns the frame.
    Wait {
        /// The page starts a read without readahead. The caller may perform it: see [`BufferedPath::take_inline_read`].
        is_single: bool,
    },
    /// The volume ends before the page. [`BufferedRead::poll`] completes the read.
    End,
}

impl BufferedRead {
    /// A read of `bytes` bytes from byte `offset` on, or of fewer at the end of the volume.
    #[inline]
    pub fn new(offset: u64, bytes: usize, volume: &impl VolumeEnd) -> Self {
        let failed_resizes = volume.failed_resizes();
        let available = before_end(volume.size_bytes(), offset, bytes);
        Self { offset, bytes, page_bytes: volume.page_bytes(), available, done: 0, failed_resizes }
    }

    /// The next action.
    #[inline]
    pub fn poll(&mut self, volume: &impl VolumeEnd) -> ReadNext {
        if let Some(piece) = self.next_piece() {
            return ReadNext::Copy(piece);
        }
        // If the end has moved down meanwhile, bytes past it are zeroes of the last page. They are valid if the end
        // moves up later, but not if the resize fails. The size is loaded first: a failed resize is counted before the
        // size moves up.
        let bytes = before_end(volume.size_bytes(), self.offset, self.done);
        if volume.failed_resizes() == self.failed_resizes {
            return ReadNext::Done(bytes);
        }
        *self = Self::new(self.offset, self.bytes, volume);
        ReadNext::Again
    }

    /// The piece that is copied next; `None` if there is none left.
    #[inline]
    pub fn next_piece(&self) -> Option<ReadPiece> {
        let Self { page_bytes, available, done, .. } = *self;
        if done == available {
            return None;
        }
        let (page, from) = Geometry::locate_in(page_bytes, self.offset + done as u64);
        let bytes = (available - done).min(page_bytes as usize - from);
        Some(ReadPiece { page, from, start: done, end: done + bytes })
    }

    /// The bytes of the read that were before the end of the volume when it began.
    #[inline]
    pub const fn available(&self) -> usize {
        self.available
    }

    /// Whether the read has no piece after this one.
    #[inline]
    pub const fn is_last(&self, piece: &ReadPiece) -> bool {
        piece.end == self.available
    }

    /// The pages of the bytes that are left, for readahead.
    #[inline]
    pub fn pages(&self) -> PageRange {
        let Self { offset, page_bytes, available, done, .. } = *self;
        PageRange::touched_by(offset + done as u64, (available - done) as u64, page_bytes)
    }

    /// The next piece has been copied.
    #[inline]
    pub const fn handle_copied(&mut self, piece: &ReadPiece) {
        self.done = piece.end;
    }
}

impl ReadPiece {
    /// The number of bytes.
    #[inline]
    pub const fn bytes(&self) -> usize {
        self.end - self.start
    }
}

/// The number of the `bytes` bytes from `offset` on that lie before the end of the volume.
#[inline]
fn before_end(size_bytes: u64, offset: u64, bytes: usize) -> usize {
    size_bytes.saturating_sub(offset).min(bytes as u64) as usize
}

impl Outcome {
    /// The outcome of [`ReadStep::Wait`]: the frame of the page, which is pinned for the caller. `None`: call
    /// [`BufferedPath::read`] again, since the page was dropped.
    ///
    /// # Errors
    /// The page could not be read.
    ///
    /// # Panics
    /// If it is the outcome of another kind of call: a bug of the caller.
    pub fn pinned(self) -> Result<Option<Frame>, IoError> {
        match self {
            Self::Pinned(frame) => Ok(Some(frame)),
            Self::Retry => Ok(None),
            Self::Failed(error) => Err(error),
            other => unreachable!("the outcome of a read is {other:?}"),
        }
    }
}

impl<F: Frames> VolumeEnd for BufferedPath<F> {
    fn page_bytes(&self) -> u32 {
        self.geometry.page_bytes
    }

    fn size_bytes(&self) -> u64 {
        self.geometry.size_bytes
    }

    fn failed_resizes(&self) -> u64 {
        self.failed_resizes
    }
}

impl<F: Frames> BufferedPath<F> {
    /// Pins the page of the next piece, or starts to read it.
    pub fn read(&mut self, read: &mut BufferedRead, waiter: u64, now: Instant) -> ReadStep {
        let range = read.pages();
        let page = range.start();
        if page >= self.geometry.end() {
            read.available = read.done;
            return ReadStep::End;
        }
        let was_started = self.cache.is_cached(page);
        if let Lookup::Hit(pinned) = self.cache.read(page, waiter) {
            if pinned.is_marked {
                self.handle_marker(range, now);
            }
            return ReadStep::Pinned(pinned.frame);
        }
        if was_started {
            if self.cache.take_mark(page) {
                self.handle_marker(range, now);
            }
            return ReadStep::Wait { is_single: false };
        }
        let Self { cache, readahead, .. } = self;
        let window = readahead.on_miss(range, |page| cache.is_cached(page), now);
        self.read_ahead(&window);
        ReadStep::Wait { is_single: window.async_pages() == 0 }
    }

    /// A read has reached a page with a readahead marker, the first of `range`: the next window is due.
    pub fn handle_marker(&mut self, range: PageRange, now: Instant) {
        let Self { cache, readahead, .. } = self;
        if let Some(window) = readahead.on_marker(range, |page| cache.is_cached(page), now) {
            self.read_ahead(&window);
        }
    }

    fn read_ahead(&mut self, window: &Window) {
        for range in window.ranges() {
            self.cache.read_ahead(range, |page| window.is_marked(page));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const PAGE: u32 = 4;

    /// A volume whose end another thread moves between two loads of the reader.
    #[derive(Default)]
    struct Moving {
        size_bytes: Cell<u64>,
        failed_resizes: Cell<u64>,
        /// The resize fails after this many loads.
        fails_after: Cell<Option<u32>>,
        kept_bytes: u64,
    }

    impl Moving {
        fn of(size_bytes: u64) -> Self {
            Self { size_bytes: Cell::new(size_bytes), kept_bytes: size_bytes, ..Self::default() }
        }

        fn load<T: Copy>(&self, value: &Cell<T>) -> T {
            let loaded = value.get();
            match self.fails_after.get() {
                Some(0) => {
                    self.failed_resizes.set(self.failed_resizes.get() + 1);
                    self.size_bytes.set(self.kept_bytes);
                    self.fails_after.set(None);
                }
                left => self.fails_after.set(left.map(|left| left - 1)),
            }
            loaded
        }
    }

    impl VolumeEnd for Moving {
        fn page_bytes(&self) -> u32 {
            PAGE
        }

        fn size_bytes(&self) -> u64 {
            self.load(&self.size_bytes)
        }

        fn failed_resizes(&self) -> u64 {
            self.load(&self.failed_resizes)
        }
    }

    /// Reads, and returns the pieces that count. `between` is called before each piece.
    fn pieces(
        read: &mut BufferedRead,
        volume: &Moving,
        mut between: impl FnMut(&ReadPiece),
    ) -> (Vec<ReadPiece>, usize) {
        let mut pieces = Vec::new();
        loop {
            match read.poll(volume) {
                ReadNext::Copy(piece) => {
                    assert_eq!(read.pages().start(), piece.page);
                    assert_eq!(read.is_last(&piece), read.pages().pages() == 1, "{read:?}");
                    between(&piece);
                    pieces.push(piece);
                    read.handle_copied(&piece);
                }
                ReadNext::Again => pieces.clear(),
                ReadNext::Done(bytes) => return (pieces, bytes),
            }
        }
    }

    #[test]
    fn the_pieces_of_a_read_are_its_bytes_before_the_end_each_in_one_page() {
        let first_pages = [0, u64::MAX - 15];
        for (base, size) in
            first_pages.into_iter().flat_map(|base| (0..=15).map(move |size| (base, base + size)))
        {
            for offset in base..=base + 15 {
                for bytes in (0..14).chain([usize::MAX]) {
                    let volume = Moving::of(size);
                    let mut read = BufferedRead::new(offset, bytes, &volume);
                    let (pieces, done) = pieces(&mut read, &volume, |_| ());
                    assert_eq!(done as u64, size.saturating_sub(offset).min(bytes as u64));
                    let mut next = 0;
                    for piece in &pieces {
                        let first = u64::from(PAGE) * piece.page.0 + piece.from as u64;
                        assert_eq!((piece.start, first), (next, offset + next as u64), "{piece:?}");
                        assert!(piece.bytes() > 0 && piece.from + piece.bytes() <= PAGE as usize);
                        next = piece.end;
                    }
                    assert_eq!(next, done, "size {size}, offset {offset}, bytes {bytes}");
                    // Each page is needed once.
                    assert!(pieces.windows(2).all(|pair| pair[0].page < pair[1].page));
                }
            }
        }
    }

    #[test]
    fn a_read_over_an_end_that_moves_returns_no_byte_past_the_old_and_the_new_end() {
        for (old, new, moved_at) in
            (0..13).flat_map(|old| (0..13).flat_map(move |new| (0..3).map(move |at| (old, new, at))))
        {
            let volume = Moving::of(old);
            let mut read = BufferedRead::new(1, 11, &volume);
            let mut seen = 0;
            let (pieces, done) = pieces(&mut read, &volume, |_| {
                if seen == moved_at {
                    volume.size_bytes.set(new);
                }
                seen += 1;
            });
            let of = |size: u64| size.saturating_sub(1).min(11) as usize;
            let end = if pieces.len() > moved_at { of(old).min(of(new)) } else { of(old) };
            assert_eq!(done, end, "{old} to {new} before piece {moved_at}");
        }
    }

    /// While the end is lower, reads return zeroes past it. They do not count if the file has kept its size.
    #[test]
    fn a_read_over_a_resize_that_fails_is_short_or_begins_again() {
        for (cut, fails_after) in (0..12).flat_map(|cut| (0..9).map(move |after| (cut, after))) {
            let volume = Moving::of(12);
            let mut read = BufferedRead::new(0, 12, &volume);
            volume.size_bytes.set(cut);
            volume.fails_after.set(Some(fails_after));
            let mut failed_before = 0;
            let (pieces, done) = pieces(&mut read, &volume, |piece| {
                if piece.start == 0 {
                    failed_before = volume.failed_resizes.get();
                }
            });
            let is_whole = done == 12 && pieces.len() == 3 && failed_before == 1;
            assert!(is_whole || done as u64 == cut, "cut at {cut}, {fails_after} loads: {done} bytes");
        }
    }

    #[test]
    fn the_outcome_of_a_wait_is_a_frame_another_try_or_an_error() {
        assert_eq!(Outcome::Pinned(Frame(3)).pinned(), Ok(Some(Frame(3))));
        assert_eq!(Outcome::Retry.pinned(), Ok(None));
        assert_eq!(Outcome::Failed(IoError::Media).pinned(), Err(IoError::Media));
    }
}
