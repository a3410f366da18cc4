//! Writes into pages. `io.rs` decides when they are written back, and `flush.rs` which flush covers them.

use super::{Frame, Meta, Outcome, PageCache, State};
use crate::file::page::Page;
use crate::time::{Duration, Instant};

/// The part of a page that a write replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The whole page: it need not be read.
    Whole,
    /// A part of the page: the rest must be cached.
    Some,
}

/// The next action of a writer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteStep {
    /// Copy into this frame, then call [`PageCache::end_write`]. No other caller reads or writes the frame.
    Into(Frame),
    /// The page is pinned or being written: copy the whole page from `from` to `to`, unpin `from`, then continue as for
    /// `Into(to)`.
    Copy {
        /// The frame with the page's bytes, pinned for the writer.
        from: Frame,
        /// The new frame of the page.
        to: Frame,
    },
    /// Wait until [`PageCache::poll_ready`] names the waiter, then call again.
    Wait,
}

impl PageCache {
    /// Begins a write of `part` of `page`. A caller that holds pages of a write must release them before it waits.
    pub fn begin_write(&mut self, page: Page, part: Part, waiter: u64) -> WriteStep {
        if self.is_blocked(page, waiter) || self.lacks_room(page, waiter) {
            return WriteStep::Wait;
        }
        let Some(frame) = self.hot.find(page) else { return self.begin_absent(page, part, waiter) };
        let Meta { state, is_held, .. } = *self.meta(frame);
        if is_held || matches!(state, State::ToRead | State::Reading | State::Filling) {
            self.wait_for_page(page, waiter, false);
            return WriteStep::Wait;
        }
        // A frame that is being written must not change either, since a filesystem or array may compute its checksum.
        let step = if state != State::Writing && self.hot.try_retire(frame) {
            self.hold(frame);
            WriteStep::Into(Frame(frame))
        } else {
            self.move_page(frame, part, waiter)
        };
        if let (Part::Whole, WriteStep::Into(Frame(frame))) = (part, step) {
            // The write replaces the bytes that could not be written back.
            self.set_failed(frame, false);
            self.meta(frame).is_alone = false;
        }
        step
    }

    /// Whether a write of `page` continues a stream of pages that were not cached before. If so, the device reads the
    /// bytes next, not the processor.
    pub fn is_streamed(&self, page: Page) -> bool {
        self.behind.is_next(page) && !self.is_cached(page)
    }

    /// Ends a write whose bytes the device has as well: the page is clean, unless it was dirty before, or an earlier
    /// write of it is in flight. The next device flush covers it.
    ///
    /// # Panics
    /// If no write into the frame has begun: a bug of the caller.
    pub fn end_saved_write(&mut self, frame: Frame, now: Instant) {
        let flushed_by = self.flushes.end_write();
        let meta = self.unhold(frame);
        meta.is_ahead = false;
        meta.flushed_by = flushed_by;
        self.stats.appended += 1;
        self.release_unchanged(frame, now);
    }

    /// The writer leaves the frame unchanged. A page that was not cached before is absent again.
    ///
    /// # Panics
    /// If no write into the frame has begun: a bug of the caller.
    pub fn cancel_write(&mut self, frame: Frame, now: Instant) {
        let is_new = self.unhold(frame).state == State::Filling;
        if is_new {
            // No reader can enter: the frame is not published.
            self.room.remove_pending();
            let page = self.meta(frame.0).page;
            self.dismiss(frame.0, Outcome::Retry);
            self.hot.remove(frame.0);
            self.release(frame.0);
            self.writer_left(page);
            self.wake_starved();
            self.settle_room();
        } else {
            self.release_unchanged(frame, now);
        }
    }

    /// Ends a write: the bytes are in the frame. Returns the pause of the writer before its next write.
    ///
    /// # Panics
    /// If no write into the frame has begun: a bug of the caller.
    pub fn end_write(&mut self, frame: Frame, now: Instant) -> Duration {
        let meta = self.unhold(frame);
        meta.is_ahead = false;
        let Frame(frame) = frame;
        let page = meta.page;
        // Neither cached before nor evicted recently.
        let is_new = meta.state == State::Filling && !meta.in_main;
        match meta.state {
            State::Filling | State::Clean => {
                self.room.remove_pending();
                self.become_dirty(frame, now);
            }
            State::Dirty => self.enqueue_dirty(frame),
            state => unreachable!("a writer in a frame that is {state:?}"),
        }
        // Before any reader can see the bytes: a caller that has seen them and then reads by direct I/O must see them
        // again.
        self.hot.set_clean(self.unsaved == 0);
        self.publish(frame);
        self.writer_left(page);
        if is_new {
            self.behind.follow(page);
        }
        // A pause gives the device time, and failed pages need none.
        let pause = self.throttle.pause(self.unsaved.saturating_sub(self.room.failed()));
        if !pause.is_zero() {
            self.budget.add_pressure();
        }
        pause
    }

    /// The writer of [`Outcome::Writable`](super::Outcome::Writable) leaves the frame unchanged, and retries later. The
    /// page stays pinned until then, so that it is not evicted. The writer unpins it when it retries.
    ///
    /// # Panics
    /// If no writer holds the frame: a bug of the caller.
    pub fn abandon_write(&mut self, frame: Frame, now: Instant) {
        self.unhold(frame);
        self.hot.pin(frame.0);
        self.release_unchanged(frame, now);
    }

    /// The writer of a frame no longer holds it.
    fn unhold(&mut self, frame: Frame) -> &mut Meta {
        let Frame(frame) = frame;
        let index = self.held.iter().position(|held| *held == frame);
        let index = index.unwrap_or_else(|| panic!("no write into frame {frame} has begun"));
        self.held.swap_remove(index);
        let meta = self.meta(frame);
        meta.is_held = false;
        meta
    }

    /// Releases a frame that its writer no longer holds, with the bytes that it had before, or that the device has.
    fn release_unchanged(&mut self, frame: Frame, now: Instant) {
        let Frame(frame) = frame;
        let Meta { page, state, .. } = *self.meta(frame);
        match state {
            State::Filling | State::Clean => {
                self.room.remove_pending();
                if self.writeback.is_writing_moved(page, &self.ios) {
                    // The page moved here from the frame whose write is in flight. If that fails, only this frame has
                    // the bytes.
                    self.become_dirty(frame, now);
                } else {
                    self.meta(frame).state = State::Clean;
                    self.enqueue_clean(frame);
                }
            }
            // It was dirty before the write, or a flush of the device has failed since.
            State::Dirty => self.enqueue_dirty(frame),
            state => unreachable!("a writer in a frame that is {state:?}"),
        }
        self.hot.set_clean(self.unsaved == 0);
        self.publish(frame);
        self.writer_left(page);
        self.settle_room();
    }

    fn begin_absent(&mut self, page: Page, part: Part, waiter: u64) -> WriteStep {
        if part == Part::Some {
            self.wait_for_page(page, waiter, false);
            return WriteStep::Wait;
        }
        let Some(frame) = self.take_frame(page, State::Filling) else {
            self.wait_for_frame(waiter);
            return WriteStep::Wait;
        };
        self.hold(frame);
        WriteStep::Into(Frame(frame))
    }

    /// Marks a frame as held by a writer.
    pub(super) fn hold(&mut self, frame: u32) {
        let Meta { page, state, in_main, .. } = *self.meta(frame);
        self.meta(frame).is_held = true;
        self.held.push(frame);
        match state {
            State::Clean => {
                self.room.add_pending();
                self.replacement.remove(frame, in_main, &mut self.links);
            }
            State::Dirty => {
                self.dirty.remove(page.0, frame);
            }
            _ => self.room.add_pending(),
        }
    }

    /// Moves a page that is pinned or at the device to another frame, held for the writer.
    fn move_page(&mut self, from: u32, part: Part, waiter: u64) -> WriteStep {
        // The last reader may have left, and the page must not be evicted to get a frame for itself.
        self.hot.pin(from);
        let spare = self.take_spare();
        if part == Part::Whole || spare.is_none() {
            self.hot.unpin(Frame(from));
        }
        let Some(to) = spare else {
            self.wait_for_frame(waiter);
            return WriteStep::Wait;
        };
        assert_ne!(from, to, "a page moves to another frame");
        self.stats.moved += 1;
        let old = *self.meta(from);
        self.hot.revoke(from);
        self.hot.remove(from);
        // If the page is being written, the bytes of `to` count as written until the writer changes them.
        let is_dirty = old.state == State::Dirty;
        let state = if is_dirty { State::Dirty } else { State::Clean };
        *self.meta(to) = Meta { state, is_held: true, is_marked: false, is_failed: false, ..old };
        if is_dirty {
            self.set_failed(to, old.is_failed);
        } else {
            self.room.add_pending();
        }
        self.hot.insert(old.page, to);
        self.held.push(to);
        if is_dirty {
            // The page stays as old as it is.
            self.links.insert_before(&mut self.aged, from, to);
        }
        match old.state {
            State::Writing => self.orphan_write(from),
            State::Dirty => {
                self.dequeue_dirty(from);
                self.release(from);
            }
            _ => {
                self.replacement.remove(from, old.in_main, &mut self.links);
                self.release(from);
            }
        }
        // `from` is free unless it is pinned or being written.
        self.wake_starved();
        match part {
            Part::Some => WriteStep::Copy { from: Frame(from), to: Frame(to) },
            Part::Whole => WriteStep::Into(Frame(to)),
        }
    }

    /// Makes a frame dirty.
    pub(super) fn become_dirty(&mut self, frame: u32, now: Instant) {
        let epoch = self.epoch;
        let meta = self.meta(frame);
        meta.state = State::Dirty;
        meta.epoch = epoch;
        meta.since = now;
        self.unsaved += 1;
        self.links.push_back(&mut self.aged, frame);
        if self.meta(frame).is_held {
            self.room.remove_pending();
        } else {
            self.enqueue_dirty(frame);
        }
    }

    /// Adds a frame that became dirty earlier to the frames by age. They stay in the order of `since`, because
    /// write-back by age starts when the first of them is old.
    pub(super) fn restore_age(&mut self, frame: u32) {
        let since = self.meta(frame).since;
        let younger = self.links.iter(&self.aged).find(|other| self.frames[*other as usize].since > since);
        match younger {
            Some(younger) => self.links.insert_before(&mut self.aged, younger, frame),
            None => self.links.push_back(&mut self.aged, frame),
        }
    }

    /// Adds a dirty frame to the index of write-back.
    pub(super) fn enqueue_dirty(&mut self, frame: u32) {
        let Meta { page, epoch, .. } = *self.meta(frame);
        self.dirty.insert(page.0, frame);
        self.flushes.reopen(page, epoch);
    }

    /// Removes a dirty frame that is not held from the index of write-back.
    pub(super) fn dequeue_dirty(&mut self, frame: u32) {
        let page = self.meta(frame).page;
        let was_indexed = self.dirty.remove(page.0, frame);
        assert!(was_indexed, "a dirty frame is not in the index of write-back");
        self.links.remove(&mut self.aged, frame);
    }
}
