//! Reads: a hit for each page, or the wait for it.

use iopath_core::cache::{Absent, Frame, Lookup, Outcome, Pinned};
use iopath_core::{Page, PageRange};

use super::{Buffered, BufferedError, Shared};
use crate::clock;
use crate::sync::atomic::Ordering;
use crate::thread_number;

impl Buffered {
    /// Copies what is there from byte `offset` on into `buffer`, up to the end of the volume; how many bytes. Beside a
    /// [`Buffered::resize`] that is up to the old end or the new one.
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
                    shared.reach_marker(range());
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
        // Bytes past an end that has moved meanwhile are zeroes of the last page.
        Ok(shared.before_end(offset, done))
    }
}

impl Shared {
    /// The page of byte `offset`, and where in it the byte is.
    #[inline]
    pub(super) const fn locate(&self, offset: u64) -> (Page, usize) {
        let in_page = self.page_bytes as u64 - 1;
        (Page(offset >> self.page_bytes.trailing_zeros()), (offset & in_page) as usize)
    }

    /// Counts cuts that failed. A read during which this changes may have seen zeroes past the end that was withdrawn; it
    /// is repeated.
    #[inline]
    pub(super) fn failed_resizes(&self) -> u64 {
        self.failed_resizes.load(Ordering::Acquire)
    }

    /// How many of `bytes` bytes from `offset` on lie before the end of the volume.
    #[inline]
    pub(super) fn before_end(&self, offset: u64, bytes: usize) -> usize {
        self.size().saturating_sub(offset).min(bytes as u64) as usize
    }

    pub(super) fn range(&self, offset: u64, bytes: usize) -> PageRange {
        PageRange::touched_by(offset, bytes as u64, self.page_bytes as u32)
    }

    /// Pins the page of byte `offset`, the first of a read of `bytes` bytes. Its frame, and whether it was there; `None`
    /// if the volume ends before it.
    #[inline]
    pub(super) fn pin(&self, offset: u64, bytes: usize) -> Result<Option<(Frame, bool)>, BufferedError> {
        let Some(pinned) = self.try_pin(self.locate(offset).0) else {
            return Ok(self.fault(self.range(offset, bytes))?.map(|frame| (frame, false)));
        };
        if pinned.is_marked {
            self.reach_marker(self.range(offset, bytes));
        }
        Ok(Some((pinned.frame, true)))
    }

    /// Pins `page` if it is there.
    #[inline]
    pub(super) fn try_pin(&self, page: Page) -> Option<Pinned> {
        let pinned = self.hot.try_pin(page);
        if let Err(Absent { frees_frame: true }) = pinned {
            self.feed_starved();
        }
        pinned.ok()
    }

    #[inline]
    pub(super) fn unpin(&self, frame: Frame) {
        if self.hot.unpin(frame) {
            self.feed_starved();
        }
    }

    #[cold]
    fn feed_starved(&self) {
        let mut state = self.lock();
        state.cache.handle_unpinned();
        state.settle();
    }

    /// Readahead goes on while the reader copies.
    #[cold]
    pub(super) fn reach_marker(&self, range: PageRange) {
        let mut state = self.lock();
        state.now = clock::now();
        state.on_marker(range);
        state.come_by();
    }

    /// Waits for the first page of `range`, which is not there, and pins it; `None` if the volume ends before it.
    #[cold]
    fn fault(&self, range: PageRange) -> Result<Option<Frame>, BufferedError> {
        let page = range.start();
        let mut state = self.lock();
        if state.needs_polling() {
            state.collect();
        }
        while page < state.place.end() {
            state.now = clock::now();
            let is_on_its_way = state.cache.is_cached(page);
            let waiter = state.enlist();
            if let Lookup::Hit(pinned) = state.cache.read(page, waiter as u64) {
                state.waiters.remove(waiter);
                if pinned.is_marked {
                    state.on_marker(range);
                    state.settle();
                }
                return Ok(Some(pinned.frame));
            }
            let mut is_alone = false;
            if !is_on_its_way {
                is_alone = state.on_miss(range);
            } else if state.cache.take_mark(page) {
                state.on_marker(range);
            }
            if is_alone {
                state = self.read_alone(state, page);
            } else {
                state.settle();
            }
            let (locked, outcome) = self.wait(state, waiter)?;
            state = locked;
            match outcome {
                Outcome::Pinned(frame) => return Ok(Some(frame)),
                Outcome::Failed(error) => return Err(error.into()),
                Outcome::Retry => {}
                other => unreachable!("a reader is told {other:?}"),
            }
        }
        Ok(None)
    }
}
