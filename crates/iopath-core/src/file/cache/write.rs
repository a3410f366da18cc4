//! Writes into pages. When and how they reach the device is decided in `io.rs`; which flush covers them, in `flush.rs`.

use super::{Frame, Meta, PageCache, State};
use crate::file::page::Page;
use crate::time::{Duration, Instant};

/// How much of a page a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it: the page need not be read.
    Whole,
    /// Some of it: the rest must be cached.
    Some,
}

/// What a writer does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStep {
    /// Copy into this frame, then [`PageCache::end_write`]. No other caller reads or writes it.
    Into(Frame),
    /// The page is pinned or being written: copy the whole page from `from` to `to`, unpin `from`, then as for
    /// `Into(to)`.
    Copy {
        /// Where the page's bytes are; pinned for the writer.
        from: Frame,
        /// Where the page is from now on.
        to: Frame,
    },
    /// [`PageCache::poll_ready`] will name the waiter; then call again.
    Wait,
}

impl PageCache {
    /// A write of `part` of `page` begins. A caller that holds pages of a write must release them before it waits.
    pub fn begin_write(&mut self, page: Page, part: Part, waiter: u64) -> WriteStep {
        if self.is_blocked(page, waiter) {
            return WriteStep::Wait;
        }
        let Some(frame) = self.hot.find(page) else { return self.begin_absent(page, part, waiter) };
        let Meta { state, is_held, .. } = *self.meta(frame);
        if is_held || matches!(state, State::ToRead | State::Reading | State::Filling) {
            self.wait_for_page(page, waiter, false);
            return WriteStep::Wait;
        }
        // A frame that is being written does not change either: a filesystem or array may compute a checksum of it.
        let step = if state != State::Writing && self.hot.try_retire(frame) {
            self.hold(frame);
            WriteStep::Into(Frame(frame))
        } else {
            self.move_page(frame, part, waiter)
        };
        if let (Part::Whole, WriteStep::Into(Frame(frame))) = (part, step) {
            // The bytes that could not be written are overwritten.
            self.meta(frame).is_failed = false;
            self.meta(frame).is_alone = false;
        }
        step
    }

    /// Whether a write of `page` continues a stream of pages that were not cached before: the device reads its bytes next, and
    /// not the processor.
    pub fn is_streamed(&self, page: Page) -> bool {
        self.behind.is_next(page) && !self.is_cached(page)
    }

    /// The bytes are in the frame. Returns the pause of the writer before its next write.
    ///
    /// # Panics
    /// If no write into the frame has begun: a bug of the caller.
    pub fn end_write(&mut self, frame: Frame, now: Instant) -> Duration {
        let Frame(frame) = frame;
        let place = self.held.iter().position(|held| *held == frame);
        let place = place.unwrap_or_else(|| panic!("no write into frame {frame} has begun"));
        self.held.swap_remove(place);
        let meta = self.meta(frame);
        meta.is_held = false;
        meta.is_ahead = false;
        let page = meta.page;
        // Neither cached before nor evicted recently.
        let is_new = meta.state == State::Filling && !meta.in_main;
        match meta.state {
            State::Filling | State::Clean => self.become_dirty(frame, now),
            State::Dirty => self.file_dirty(frame),
            state => unreachable!("a writer in a frame that is {state:?}"),
        }
        // Before any reader can see it: a caller that has seen it and then reads by direct I/O must see it again.
        self.hot.set_clean(self.unsaved == 0);
        self.publish(frame);
        self.writer_left(page);
        if is_new {
            self.behind.follow(page);
        }
        self.throttle.pause(self.unsaved)
    }

    fn begin_absent(&mut self, page: Page, part: Part, waiter: u64) -> WriteStep {
        if part == Part::Some {
            self.wait_for_page(page, waiter, false);
            return WriteStep::Wait;
        }
        let Some(frame) = self.take_frame(page, State::Filling) else {
            self.starve(waiter);
            return WriteStep::Wait;
        };
        self.hold(frame);
        WriteStep::Into(Frame(frame))
    }

    /// Gives a frame to a writer.
    pub(super) fn hold(&mut self, frame: u32) {
        let Meta { page, state, in_main, .. } = *self.meta(frame);
        self.meta(frame).is_held = true;
        self.held.push(frame);
        match state {
            State::Clean => self.replacement.remove(frame, in_main, &mut self.links),
            State::Dirty => {
                self.dirty.remove(page.0, frame);
            }
            _ => {}
        }
    }

    /// Moves a page that is pinned or at the device to another frame, held for the writer.
    fn move_page(&mut self, from: u32, part: Part, waiter: u64) -> WriteStep {
        // A reader may have left it: it must not be evicted to make room for itself.
        self.hot.pin(from);
        let spare = self.take_spare();
        if part == Part::Whole || spare.is_none() {
            self.hot.unpin(Frame(from));
        }
        let Some(to) = spare else {
            self.starve(waiter);
            return WriteStep::Wait;
        };
        assert_ne!(from, to, "a page moved to where it is");
        self.stats.moved += 1;
        let old = *self.meta(from);
        self.hot.revoke(from);
        self.hot.remove(from);
        // If the page is being written, the bytes of `to` count as written until the writer changes them.
        let is_dirty = old.state == State::Dirty;
        let state = if is_dirty { State::Dirty } else { State::Clean };
        *self.meta(to) = Meta { state, is_held: true, is_marked: false, ..old };
        self.hot.insert(old.page, to);
        self.held.push(to);
        if is_dirty {
            self.links.push_back(&mut self.aged, to);
        }
        match old.state {
            State::Writing => self.orphan_write(from),
            State::Dirty => {
                self.unfile_dirty(from);
                self.release(from);
            }
            _ => {
                self.replacement.remove(from, old.in_main, &mut self.links);
                self.release(from);
            }
        }
        // `from` is free unless it is pinned or being written.
        self.feed_starved();
        match part {
            Part::Some => WriteStep::Copy { from: Frame(from), to: Frame(to) },
            Part::Whole => WriteStep::Into(Frame(to)),
        }
    }

    /// The device lacks the frame's bytes from now on.
    pub(super) fn become_dirty(&mut self, frame: u32, now: Instant) {
        let epoch = self.epoch;
        let meta = self.meta(frame);
        meta.state = State::Dirty;
        meta.epoch = epoch;
        meta.since = now;
        self.unsaved += 1;
        self.links.push_back(&mut self.aged, frame);
        if !self.meta(frame).is_held {
            self.file_dirty(frame);
        }
    }

    /// Puts a dirty frame where write-back finds it.
    pub(super) fn file_dirty(&mut self, frame: u32) {
        let Meta { page, epoch, .. } = *self.meta(frame);
        self.dirty.insert(page.0, frame);
        self.flushes.reopen(page, epoch);
    }

    /// Takes a dirty frame that is not held from where write-back finds it.
    pub(super) fn unfile_dirty(&mut self, frame: u32) {
        let page = self.meta(frame).page;
        let was_there = self.dirty.remove(page.0, frame);
        assert!(was_there, "a dirty frame that write-back does not find");
        self.links.remove(&mut self.aged, frame);
    }
}
