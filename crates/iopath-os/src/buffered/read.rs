//! Reads: each page is a hit, or the thread waits for it.

use iopath_core::buffered::ReadStep;
use iopath_core::cache::{Absent, Frame, Outcome, Pinned};
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
        loop {
            let failed = self.shared.failed_resizes();
            let there = self.read_once(buffer, offset)?;
            if self.shared.failed_resizes() == failed {
                return Ok(there);
            }
        }
    }

    #[inline]
    fn read_once(&self, buffer: &mut [u8], offset: u64) -> Result<usize, BufferedError> {
        let shared = &*self.shared;
        let there = shared.before_end(offset, buffer.len());
        let buffer = &mut buffer[..there];
        let thread = thread_number();
        let mut done = 0;
        while done < there {
            let (page, from) = shared.locate(offset + done as u64);
            let bytes = (there - done).min(shared.page_bytes - from);
            let target = &mut buffer[done..done + bytes];
            let mut copy = |frame| {
                // SAFETY: the frame is visited or pinned until after the copy.
                target.copy_from_slice(unsafe { shared.arena.bytes(frame, from, bytes) });
            };
            let range = || shared.range(offset + done as u64, there - done);
            let ahead = |frame| shared.arena.fetch(frame, from);
            let visited = shared.hot.visit(thread, page, ahead, |pinned| {
                if pinned.is_marked {
                    shared.handle_marker(range());
                }
                copy(pinned.frame);
            });
            if visited.is_none() {
                let Some(frame) = shared.fault(range())? else { break };
                copy(frame);
                shared.unpin(frame);
            }
            done += bytes;
        }
        // If the end has moved meanwhile, bytes past it are zeroes of the last page.
        Ok(shared.before_end(offset, done))
    }
}

impl CacheShared {
    /// The page of byte `offset`, and the position of the byte in it.
    #[inline]
    pub(super) const fn locate(&self, offset: u64) -> (Page, usize) {
        let in_page = self.page_bytes as u64 - 1;
        (Page(offset >> self.page_bytes.trailing_zeros()), (offset & in_page) as usize)
    }

    /// The number of failed resizes. If it changes during a read, the read may have returned zeroes past the temporary
    /// end, and is repeated.
    #[inline]
    pub(super) fn failed_resizes(&self) -> u64 {
        self.failed_resizes.load(Ordering::Acquire)
    }

    /// The number of the `bytes` bytes from `offset` on that lie before the end of the volume.
    #[inline]
    pub(super) fn before_end(&self, offset: u64, bytes: usize) -> usize {
        self.size().saturating_sub(offset).min(bytes as u64) as usize
    }

    pub(super) fn range(&self, offset: u64, bytes: usize) -> PageRange {
        PageRange::touched_by(offset, bytes as u64, self.page_bytes as u32)
    }

    /// Pins the page of byte `offset`, the first of a read of `bytes` bytes. Returns its frame and whether the page was
    /// cached; `None` if the volume ends before it.
    #[inline]
    pub(super) fn pin(&self, offset: u64, bytes: usize) -> Result<Option<(Frame, bool)>, BufferedError> {
        let Some(pinned) = self.try_pin(self.locate(offset).0) else {
            return Ok(self.fault(self.range(offset, bytes))?.map(|frame| (frame, false)));
        };
        if pinned.is_marked {
            self.handle_marker(self.range(offset, bytes));
        }
        Ok(Some((pinned.frame, true)))
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

    /// Waits for the first page of `range`, which is not cached, and pins it; `None` if the volume ends before it.
    #[cold]
    fn fault(&self, range: PageRange) -> Result<Option<Frame>, BufferedError> {
        let mut state = self.lock();
        // Nobody polls: a completion that no thread has handled yet may have brought this page, or freed a frame.
        if state.needs_polling() {
            state.reap(clock::now());
        }
        loop {
            let now = clock::now();
            let waiter = state.add_waiter();
            match state.path.read(range, waiter as u64, now) {
                ReadStep::Pinned(frame) => {
                    state.waiters.remove(waiter);
                    state.advance(now);
                    return Ok(Some(frame));
                }
                ReadStep::End => {
                    state.waiters.remove(waiter);
                    return Ok(None);
                }
                ReadStep::Wait { is_single: true } => state = self.read_inline(state, range.start(), now),
                ReadStep::Wait { is_single: false } => state.advance(now),
            }
            let (locked, outcome) = self.wait(state, waiter)?;
            state = locked;
            match outcome {
                Outcome::Pinned(frame) => return Ok(Some(frame)),
                Outcome::Failed(error) => return Err(error.into()),
                // The page was dropped before this thread could pin it.
                Outcome::Retry => {}
                other => unreachable!("the outcome of a read is {other:?}"),
            }
        }
    }
}
