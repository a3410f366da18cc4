//! Reads: each page is a hit, or the thread waits for it. `iopath_core::buffered` decides which bytes are copied.

use iopath_core::buffered::{BufferedRead, ReadNext, ReadPiece, ReadStep, VolumeEnd};
use iopath_core::cache::{Absent, Frame, Pinned};
use iopath_core::{Page, PageRange};

use super::{Buffered, BufferedError, CacheShared};
use crate::clock;
use crate::sync::atomic::Ordering;
use crate::thread_number;

impl Buffered {
    /// Copies bytes from byte `offset` on into `buffer`, up to the end of the volume, and returns their number. During
    /// a [`Buffered::resize`], the end is the old or the new one.
    ///
    /// # Errors
    /// A page could not be read, or no frame is free for it.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize, BufferedError> {
        let shared = &*self.shared;
        let thread = thread_number();
        let mut read = BufferedRead::new(offset, buffer.len(), shared);
        loop {
            let piece = match read.poll(shared) {
                ReadNext::Copy(piece) => piece,
                ReadNext::Again => continue,
                ReadNext::Done(bytes) => return Ok(bytes),
            };
            let target = &mut buffer[piece.start..piece.end];
            let mut copy = |frame| {
                // SAFETY: the frame is visited or pinned until after the copy.
                target.copy_from_slice(unsafe { shared.arena.bytes(frame, piece.from, piece.bytes()) });
            };
            if !shared.visit(thread, &read, &piece, &mut copy) {
                let Some(frame) = shared.fault(&mut read)? else { continue };
                copy(frame);
                shared.unpin(frame);
            }
            read.handle_copied(&piece);
        }
    }
}

impl VolumeEnd for CacheShared {
    #[inline]
    fn page_bytes(&self) -> u32 {
        self.page_bytes as u32
    }

    #[inline]
    fn size_bytes(&self) -> u64 {
        self.size()
    }

    #[inline]
    fn failed_resizes(&self) -> u64 {
        self.failed_resizes.load(Ordering::Acquire)
    }
}

impl CacheShared {
    /// Calls `copy` on the frame of a piece if its page is cached. Returns whether it is.
    #[inline]
    pub(super) fn visit(
        &self,
        thread: usize,
        read: &BufferedRead,
        piece: &ReadPiece,
        copy: impl FnOnce(Frame),
    ) -> bool {
        let ahead = |frame| self.arena.fetch(frame, piece.from);
        let visited = self.hot.visit(thread, piece.page, ahead, |pinned| {
            if pinned.is_marked {
                self.handle_marker(read.pages());
            }
            copy(pinned.frame);
        });
        visited.is_some()
    }

    /// Pins `page` if it is cached.
    #[inline]
    pub(super) fn try_pin(&self, page: Page) -> Option<Pinned> {
        let pinned = self.hot.try_pin(page);
        if let Err(Absent { frees_frame: true }) = pinned {
            self.handle_unpinned();
        }
        pinned.ok()
    }

    #[inline]
    pub(super) fn unpin(&self, frame: Frame) {
        if self.hot.unpin(frame) {
            self.handle_unpinned();
        }
    }

    /// Reports to the state machine that a frame may be free for a thread that waits for one.
    #[cold]
    fn handle_unpinned(&self) {
        let mut state = self.lock();
        state.path.handle_unpinned();
        state.advance(clock::now());
    }

    /// Submits the next window of readahead before the reader copies, so that both run at the same time.
    #[cold]
    pub(super) fn handle_marker(&self, range: PageRange) {
        let mut state = self.lock();
        let now = clock::now();
        state.path.handle_marker(range, now);
        state.poll(now);
    }

    /// Waits for the page of the next piece, which is not cached, and pins it; `None` if the volume ends before it.
    #[cold]
    pub(super) fn fault(&self, read: &mut BufferedRead) -> Result<Option<Frame>, BufferedError> {
        let mut state = self.lock();
        // Nobody polls: a completion that no thread has handled yet may have brought this page, or freed a frame.
        if state.needs_polling() {
            state.reap(clock::now());
        }
        loop {
            let now = clock::now();
            let waiter = state.add_waiter();
            match state.path.read(read, waiter as u64, now) {
                ReadStep::Pinned(frame) => {
                    state.waiters.remove(waiter);
                    state.advance(now);
                    return Ok(Some(frame));
                }
                ReadStep::End => {
                    state.waiters.remove(waiter);
                    return Ok(None);
                }
                ReadStep::Wait { is_single: true } => {
                    state = self.read_inline(state, read.pages().start(), now);
                }
                ReadStep::Wait { is_single: false } => state.advance(now),
            }
            let (locked, outcome) = self.wait(state, waiter)?;
            state = locked;
            if let Some(frame) = outcome.pinned()? {
                return Ok(Some(frame));
            }
        }
    }
}
