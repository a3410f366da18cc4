//! Drops ranges of pages from the cache, for discards, advice, direct I/O and truncation (`direct.rs`).

use super::{Meta, Outcome, PageCache, State};
use crate::file::page::PageRange;

/// The effect on the pages of a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Dropped {
    /// The number of pages that left the cache.
    pub dropped: u64,
    /// Pages that stay: dirty, or held by a writer.
    pub kept: u64,
}

impl PageCache {
    /// Drops the clean pages of `range`, so that later reads see the device. Borrowed pages stay readable for their
    /// borrowers. Pages being read are dropped when the read completes.
    pub fn invalidate(&mut self, range: PageRange) -> Dropped {
        let dropped = self.drop_range(range, false);
        self.advance_directs();
        dropped
    }

    /// Drops the pages of `range`, including dirty pages and their errors. A page that a writer holds stays: use
    /// [`PageCache::begin_truncate`] for a volume that shrinks.
    pub fn discard(&mut self, range: PageRange) -> Dropped {
        let dropped = self.drop_range(range, true);
        self.advance_directs();
        dropped
    }

    pub(super) fn drop_range(&mut self, range: PageRange, and_dirty: bool) -> Dropped {
        let mut dropped = Dropped::default();
        let mut drop = |cache: &mut Self, frame: u32| {
            let is_dropped = cache.drop_frame(frame, and_dirty);
            dropped.dropped += u64::from(is_dropped);
            dropped.kept += u64::from(!is_dropped);
        };
        if range.pages() < self.frames.len() as u64 {
            for page in range.iter() {
                if let Some(frame) = self.hot.find(page) {
                    drop(self, frame);
                }
            }
        } else {
            for frame in 0..self.frames.len() as u32 {
                let Meta { page, state, is_orphan, .. } = *self.meta(frame);
                if range.contains(page) && state != State::Free && !is_orphan {
                    drop(self, frame);
                }
            }
        }
        self.hot.set_clean(self.unsaved == 0);
        self.wake_starved();
        self.settle_room();
        dropped
    }

    /// Drops the page of a frame. Returns whether it did.
    pub(super) fn drop_frame(&mut self, frame: u32, and_dirty: bool) -> bool {
        let old = *self.meta(frame);
        if old.is_held || (old.is_unsaved() && !and_dirty) {
            return false;
        }
        self.hot.revoke(frame);
        self.leave(frame);
        self.hot.remove(frame);
        self.dismiss(frame, Outcome::Retry);
        match old.state {
            State::Reading => self.meta(frame).is_orphan = true,
            State::Writing => self.orphan_write(frame),
            State::ToRead => {
                self.links.remove(&mut self.to_read, frame);
                self.release(frame);
            }
            State::Dirty => {
                self.dequeue_dirty(frame);
                self.unsaved -= 1;
                self.release(frame);
            }
            _ => {
                self.replacement.remove(frame, old.in_main, &mut self.links);
                self.release(frame);
            }
        }
        if old.state == State::Dirty {
            self.page_done(old.page, old.epoch, None);
        }
        true
    }
}
