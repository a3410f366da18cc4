//! Readahead, and reads whose page was not found without the lock.

use super::{BufferedPath, Frames};
use crate::file::cache::{Frame, Lookup};
use crate::file::page::PageRange;
use crate::file::readahead::Window;
use crate::time::Instant;

/// The next step of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadStep {
    /// The first page of the range is in this frame, which is pinned for the caller.
    Pinned(Frame),
    /// [`BufferedPath::poll_ready`] names the waiter later: `Pinned`, `Failed`, or `Retry` to call again.
    Wait {
        /// The page starts a read without readahead. The caller may perform it: see [`BufferedPath::take_inline_read`].
        is_single: bool,
    },
    /// The volume ends before the range.
    End,
}

impl<F: Frames> BufferedPath<F> {
    /// Reads the first page of `range`; the caller continues to the end of the range.
    pub fn read(&mut self, range: PageRange, waiter: u64, now: Instant) -> ReadStep {
        let page = range.start();
        if page >= self.geometry.end() {
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
