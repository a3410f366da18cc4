//! Flushes and advice: the calls that are neither reads nor writes.

use std::ops::Range;

use iopath_core::buffered::Advice;
use iopath_core::cache::{Outcome, PageCache};
use iopath_core::{IoError, PageRange};

use super::state::State;
use super::wait::Locked;
use super::{Buffered, BufferedError, CacheShared};
use crate::clock;

impl Buffered {
    /// Makes every completed write durable.
    ///
    /// # Errors
    /// A page could not be written back, the device could not be flushed, or bytes were lost earlier.
    pub fn flush(&self) -> Result<(), BufferedError> {
        let mut state = self.shared.lock();
        let waiter = state.add_waiter();
        state.path.flush(waiter as u64);
        self.shared.wait_flushed(state, waiter)
    }

    /// Makes every completed write to the `bytes` bytes from `offset` on durable. Other pages may stay dirty.
    ///
    /// # Errors
    /// Returns the errors of [`Buffered::flush`].
    pub fn flush_range(&self, offset: u64, bytes: u64) -> Result<(), BufferedError> {
        let mut state = self.shared.lock();
        let waiter = state.add_waiter();
        state.path.flush_range(offset, bytes, waiter as u64);
        self.shared.wait_flushed(state, waiter)
    }

    /// Acknowledges the loss of bytes after a failed device flush, so that flushes can succeed again. Call it after
    /// handling the loss. Returns the device's error; `None` if no bytes were lost.
    pub fn accept_loss(&self) -> Option<IoError> {
        self.shared.lock().path.accept_loss()
    }

    /// The device has bytes of `unflushed` that were written before this cache was opened, and are not flushed. An
    /// earlier flush of them has failed with `lost`, if it is an error. Call it before any I/O.
    pub fn handle_earlier_writes(&self, unflushed: Range<u64>, lost: Option<IoError>) {
        self.shared.lock().path.handle_earlier_writes(unflushed, lost);
    }

    /// Writes all dirty pages back. On return the device has the bytes of every completed write, possibly in its write
    /// cache.
    ///
    /// # Errors
    /// A page could not be written back.
    pub fn write_back(&self) -> Result<(), BufferedError> {
        let mut state = self.shared.lock();
        let waiter = state.add_waiter();
        state.path.write_back(PageRange::ALL, waiter as u64);
        self.shared.wait_done(state, waiter)
    }

    /// The byte ranges in the cache, in ascending order: whole pages, up to the end of the volume. O(frames).
    pub fn cached_ranges(&self) -> Vec<Range<u64>> {
        self.ranges_of(PageCache::cached)
    }

    /// The byte ranges whose last write-back failed, in ascending order: whole pages, up to the end of the volume.
    /// O(frames).
    pub fn unwritable_ranges(&self) -> Vec<Range<u64>> {
        self.ranges_of(PageCache::unwritable_pages)
    }

    fn ranges_of(&self, pages_of: impl FnOnce(&PageCache) -> Vec<PageRange>) -> Vec<Range<u64>> {
        let state = self.shared.lock();
        state.ranges(&pages_of(state.path.cache()))
    }

    /// Applies advice to the `bytes` bytes from `offset` on. Access patterns apply to the whole volume.
    pub fn advise(&self, offset: u64, bytes: u64, advice: Advice) {
        let mut state = self.shared.lock();
        state.path.advise(offset, bytes, advice);
        state.advance(clock::now());
    }
}

impl State {
    /// The bytes of pages, up to the end of the volume.
    pub(super) fn ranges(&self, pages: &[PageRange]) -> Vec<Range<u64>> {
        let page_bytes = u64::from(self.path.cache().config().page_bytes);
        let size_bytes = self.path.geometry().size_bytes;
        let range = |pages: &PageRange| {
            pages.start().0 * page_bytes..(pages.end().0.saturating_mul(page_bytes)).min(size_bytes)
        };
        pages.iter().map(range).filter(|range| !range.is_empty()).collect()
    }
}

impl CacheShared {
    /// Waits for a flush, a write-back or a forced write.
    pub(super) fn wait_done(&self, mut state: Locked<'_>, waiter: usize) -> Result<(), BufferedError> {
        state.advance(clock::now());
        self.wait_outcome(state, waiter)
    }

    /// Does the same for a caller that may perform the flush itself.
    fn wait_flushed(&self, mut state: Locked<'_>, waiter: usize) -> Result<(), BufferedError> {
        state.waiters[waiter].is_flush = true;
        let state = self.flush_inline(state);
        self.wait_outcome(state, waiter)
    }

    fn wait_outcome(&self, state: Locked<'_>, waiter: usize) -> Result<(), BufferedError> {
        let (state, outcome) = self.wait(state, waiter)?;
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Failed(error) => {
                drop(self.report(state));
                Err(error.into())
            }
            other => unreachable!("the outcome of a flush is {other:?}"),
        }
    }
}
