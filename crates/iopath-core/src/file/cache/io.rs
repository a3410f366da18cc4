//! I/O of the cache: chooses runs of pages to read and to write back, and processes completions.
//! `buffered/in_flight.rs` makes bios of them.

use super::direct::Directs;
use super::{CacheConfig, Frame, Meta, Outcome, PageCache, State};
use crate::block::bio::Op;
use crate::collections::list::List;
use crate::error::IoError;
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use slab::Slab;

/// Identifies an I/O until it completes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IoTag(pub u32);

/// One read or write of a run of pages, or a flush of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageIo {
    /// The tag for [`PageCache::handle_completion`].
    pub tag: IoTag,
    /// [`Op::Read`], [`Op::Write`] or [`Op::Flush`].
    pub op: Op,
    /// The pages; none for a flush. [`PageCache::frames_of`] returns their frames.
    pub pages: PageRange,
}

/// An I/O at the device.
#[derive(Debug)]
pub(super) struct IoSlot {
    pub(super) op: Op,
    pub(super) pages: PageRange,
    /// Its frames, in the order of their pages.
    pub(super) list: List,
}

/// The page to write next, with its successors before `end` that became dirty in `epoch` or before.
#[derive(Debug, Clone, Copy)]
pub(super) struct NextWrite {
    pub(super) page: Page,
    pub(super) frame: u32,
    pub(super) epoch: u64,
    pub(super) end: Page,
}

/// The state of write-back.
#[derive(Debug, Default)]
pub(super) struct Writeback {
    reads: u32,
    writes: u32,
    /// The number of frames being written whose page is in another frame or was dropped.
    orphans: u32,
    /// The position at which the sweep over the sectors continues.
    sweep: u64,
    /// The share of dirty pages has exceeded the threshold and has not yet fallen to half of it.
    is_on: bool,
    /// The error of the last page that could not be written.
    error: Option<IoError>,
}

impl Writeback {
    /// Whether no write of `page` may begin: an earlier one is in flight, or the page is held. A page has one write in
    /// flight at a time. So older bytes never overwrite newer ones, even if the device or the path to it reorders
    /// writes.
    pub(super) fn holds_back(&self, page: Page, ios: &Slab<IoSlot>, directs: &Directs) -> bool {
        self.is_writing_moved(page, ios) || directs.holds(page)
    }

    /// Whether a write of `page` from an earlier frame is in flight. The page itself is not being written.
    pub(super) fn is_writing_moved(&self, page: Page, ios: &Slab<IoSlot>) -> bool {
        // Without orphans, each page being written is in the frame of that write and in no other frame.
        self.orphans > 0 && ios.iter().any(|(_, io)| io.op == Op::Write && io.pages.contains(page))
    }
}

impl PageCache {
    /// The next I/O, unless the maximum is in flight. Reads go first, then flushes, then writes.
    pub fn poll_io(&mut self, now: Instant) -> Option<PageIo> {
        let CacheConfig { reads_max, writes_max, .. } = self.config;
        // Pages may have become clean, or unpinned, since the budget became smaller.
        self.shrink();
        // Callers wait for reads, and for a flush after its pages are written. Few wait for a write.
        if self.writeback.reads < reads_max && !self.to_read.is_empty() {
            return Some(self.start_read());
        }
        if self.flushes.begin_device_flush() {
            return Some(self.start_io(Op::Flush, Page(0), List::EMPTY));
        }
        if self.writeback.writes < writes_max { self.start_write(now) } else { None }
    }

    /// The frames of an I/O, in the order of its pages.
    ///
    /// # Panics
    /// If the I/O has completed: a bug of the caller.
    pub fn frames_of(&self, tag: IoTag) -> impl Iterator<Item = Frame> {
        self.links.iter(&self.ios[tag.0 as usize].list).map(Frame)
    }

    /// The time at which [`PageCache::poll_io`] has an I/O without a completion: a page has been dirty for `expire`, or
    /// a failed page is due for a retry.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.writeback.writes == self.config.writes_max {
            return None;
        }
        if self.starved.is_empty() && !self.room.has_waiters() {
            return Some(self.writable_by_age().next()?.since + self.config.expire);
        }
        // Pages that have not failed are written at once. Failed pages are in no order of time.
        self.writable_by_age()
            .map(|meta| if meta.is_failed { meta.since + self.retry_after() } else { meta.since })
            .min()
    }

    /// The delay before a failed page is written again, to avoid a hot loop. Shorter while a caller waits for a frame.
    fn retry_after(&self) -> Duration {
        if self.starved.is_empty() { self.config.expire } else { self.config.expire / 100 }
    }

    /// The number of pages whose last write failed, and the last error.
    pub fn unwritable(&self) -> Option<(u32, IoError)> {
        let pages = self.room.failed();
        self.writeback.error.filter(|_| pages > 0).map(|error| (pages, error))
    }

    /// An I/O has completed.
    ///
    /// # Panics
    /// If the I/O has completed before: a bug of the caller.
    pub fn handle_completion(&mut self, tag: IoTag, result: Result<(), IoError>, now: Instant) {
        let IoSlot { op, mut list, .. } = self.ios.remove(tag.0 as usize);
        let pages = list.len();
        if op == Op::Flush {
            self.end_device_flush(result, now);
        } else if op == Op::Read {
            self.writeback.reads -= 1;
        } else {
            self.writeback.writes -= 1;
            let bytes = u64::from(pages) * u64::from(self.config.page_bytes);
            self.throttle.completed(bytes, result.is_ok(), now);
        }
        while let Some(frame) = self.links.pop_front(&mut list) {
            match (op, result, self.frames[frame as usize].flush_error) {
                (Op::Read, Ok(()), _) => self.end_read(frame),
                (Op::Read, Err(error), _) => self.fail_read(frame, error, pages > 1),
                (_, Ok(()), None) => self.end_page_write(frame),
                (_, Ok(()), Some(error)) => self.write_again(frame, error, false, now),
                (_, Err(error), _) if pages > 1 => self.write_again(frame, error, true, now),
                (_, Err(error), _) => self.fail_write(frame, error, now),
            }
        }
        self.hot.set_clean(self.unsaved == 0);
        self.advance_directs();
        self.wake_starved();
        self.settle_room();
    }

    /// Completes a read that failed at the end of a volume that shrank meanwhile. Its pages become absent, and their
    /// waiters retry.
    ///
    /// # Panics
    /// If the I/O has completed before, or is no read: a bug of the caller.
    pub fn handle_cut_off(&mut self, tag: IoTag) {
        let IoSlot { op, mut list, .. } = self.ios.remove(tag.0 as usize);
        assert_eq!(op, Op::Read, "only a read is cut off");
        self.writeback.reads -= 1;
        while let Some(frame) = self.links.pop_front(&mut list) {
            if !self.meta(frame).is_orphan {
                self.dismiss(frame, Outcome::Retry);
                self.hot.remove(frame);
            }
            self.release(frame);
        }
        self.wake_starved();
    }

    fn start_io(&mut self, op: Op, first: Page, list: List) -> PageIo {
        let pages = PageRange::new(first, u64::from(list.len()));
        let tag = IoTag(self.ios.insert(IoSlot { op, pages, list }) as u32);
        PageIo { tag, op, pages }
    }

    /// Starts a read of the page that was requested first, and of its successors if these were requested next.
    fn start_read(&mut self) -> PageIo {
        let mut list = List::EMPTY;
        let mut first = Page(0);
        while let Some(frame) = self.to_read.front().filter(|_| list.len() < self.config.io_pages_max) {
            let Meta { page, is_alone, .. } = *self.meta(frame);
            let goes_on = page == first + u64::from(list.len()) && !is_alone;
            if !list.is_empty() && !goes_on {
                break;
            }
            if list.is_empty() {
                first = page;
            }
            self.links.remove(&mut self.to_read, frame);
            self.links.push_back(&mut list, frame);
            self.meta(frame).state = State::Reading;
            if is_alone {
                break;
            }
        }
        self.writeback.reads += 1;
        self.stats.pages_read += u64::from(list.len());
        self.start_io(Op::Read, first, list)
    }

    /// Starts a write of a run of dirty pages. Flushes go first, then write-behind of streams unless a page has been
    /// dirty for `expire`, then pages by age or by their share of the frames.
    fn start_write(&mut self, now: Instant) -> Option<PageIo> {
        let next = self.next_for_flush();
        let next = if self.has_old(now) { next } else { next.or_else(|| self.next_passed()) };
        let next = next.or_else(|| self.next_for_background(now)).or_else(|| self.next_passed())?;
        let NextWrite { page: first, frame, epoch, end } = next;
        let mut list = List::EMPTY;
        let mut next = Some(frame);
        while let Some(frame) = next {
            self.dequeue_dirty(frame);
            self.links.push_back(&mut list, frame);
            if self.meta(frame).is_failed {
                self.room.begin_probe();
            }
            let meta = self.meta(frame);
            meta.state = State::Writing;
            // A device flush that fails from now on marks the frame again, since it may lose these bytes.
            meta.flush_error = None;
            if meta.is_alone || list.len() == self.config.io_pages_max {
                break;
            }
            let page = first + u64::from(list.len());
            let (_, there) = self.dirty.around(page.0);
            let follower = there.filter(|(other, _)| *other == page.0 && page < end);
            let joins = |frame: &u32| {
                let meta = &self.frames[*frame as usize];
                !meta.is_alone && meta.epoch <= epoch && !self.is_held_back(*frame)
            };
            next = follower.map(|(_, frame)| frame).filter(joins);
        }
        self.writeback.writes += 1;
        let bytes = u64::from(list.len()) * u64::from(self.config.page_bytes);
        self.throttle.issued(bytes, now);
        Some(self.start_io(Op::Write, first, list))
    }

    /// The next dirty frame that a stream has passed. Skips failed pages, to avoid a hot loop: they are written by age.
    fn next_passed(&mut self) -> Option<NextWrite> {
        loop {
            let range = self.behind.next()?;
            let mut there = self.dirty.range(range.start().0..range.end().0);
            let may_go = |frame: u32| !self.frames[frame as usize].is_failed && !self.is_held_back(frame);
            if let Some((page, frame)) = there.find(|(_, frame)| may_go(*frame)) {
                self.behind.take(Page(page) + 1);
                return Some(NextWrite { page: Page(page), frame, epoch: u64::MAX, end: range.end() });
            }
            self.behind.take(range.end());
        }
    }

    /// The next dirty frame on the one-way sweep over the sectors, if write-back is due.
    fn next_for_background(&mut self, now: Instant) -> Option<NextWrite> {
        let dirty = self.dirty.len() as u32;
        let start = self.throttle.background();
        self.writeback.is_on = dirty > if self.writeback.is_on { start / 2 } else { start };
        let has_old = self.has_old(now);
        let is_awaited = !self.starved.is_empty() || self.room.has_waiters();
        let takes_any = self.writeback.is_on || is_awaited;
        if !takes_any && !has_old {
            return None;
        }
        let wait = self.retry_after();
        let is_due = |frame: &u32| {
            let meta = &self.frames[*frame as usize];
            (!meta.is_failed || meta.since + wait <= now) && !self.is_held_back(*frame)
        };
        // A stream ahead of the sweep must not keep the sweep from old pages.
        let is_old = |frame: &u32| {
            let since = self.frames[*frame as usize].since;
            since + self.config.expire <= now && !self.is_held_back(*frame)
        };
        let sweep =
            || self.dirty.range(self.writeback.sweep..).chain(self.dirty.range(..self.writeback.sweep));
        let old = if has_old { sweep().find(|(_, frame)| is_old(frame)) } else { None };
        let next = old.or_else(|| sweep().find(|(_, frame)| takes_any && is_due(frame)));
        let next = next.or_else(|| self.next_probe())?;
        self.writeback.sweep = next.0 + 1;
        Some(NextWrite { page: Page(next.0), frame: next.1, epoch: u64::MAX, end: Page::MAX })
    }

    /// The failed page to write before its time, with its frame: the one that failed first, so that all take turns.
    fn next_probe(&self) -> Option<(u64, u32)> {
        let failed = |frame: &u32| self.frames[*frame as usize].is_failed;
        let frame = self.room.is_probe_due().then(|| self.writable_frames().find(failed))??;
        Some((self.frames[frame as usize].page.0, frame))
    }

    /// Dirty frames whose write can begin, oldest first.
    fn writable_frames(&self) -> impl Iterator<Item = u32> {
        let may_go = |frame: &u32| !self.frames[*frame as usize].is_held && !self.is_held_back(*frame);
        self.links.iter(&self.aged).filter(may_go)
    }

    fn writable_by_age(&self) -> impl Iterator<Item = &Meta> {
        self.writable_frames().map(|frame| &self.frames[frame as usize])
    }

    /// Whether a page that can be written has been dirty for `expire`: the condition of [`PageCache::poll_timeout`], so
    /// that no driver wakes up for nothing.
    fn has_old(&self, now: Instant) -> bool {
        self.writable_by_age().next().is_some_and(|meta| meta.since + self.config.expire <= now)
    }

    /// Whether no write of the frame's page may begin: [`Writeback::holds_back`].
    fn is_held_back(&self, frame: u32) -> bool {
        self.writeback.holds_back(self.frames[frame as usize].page, &self.ios, &self.directs)
    }

    /// Takes the page from a frame that is being written: it was moved or dropped.
    pub(super) fn orphan_write(&mut self, frame: u32) {
        self.set_failed(frame, false);
        self.meta(frame).is_orphan = true;
        self.writeback.orphans += 1;
    }

    /// Processes the completed write of an orphan: a newer write of its page may begin.
    fn end_orphan_write(&mut self, frame: u32) {
        let page = self.meta(frame).page;
        self.writeback.orphans -= 1;
        self.release(frame);
        if let Some(next) = self.hot.find(page).map(|next| self.frames[next as usize])
            && next.state == State::Dirty
        {
            self.flushes.reopen(page, next.epoch);
        }
    }

    fn end_read(&mut self, frame: u32) {
        if self.meta(frame).is_orphan {
            self.release(frame);
            return;
        }
        let meta = self.meta(frame);
        meta.state = State::Clean;
        meta.is_alone = false;
        self.enqueue_clean(frame);
        if !self.assign_to_writer(frame) {
            self.publish(frame);
        }
    }

    /// Processes a failed read of a page. If it was read with others and a caller waits for it, reads it again alone.
    fn fail_read(&mut self, frame: u32, error: IoError, was_with_others: bool) {
        let Meta { is_orphan, waiters, .. } = *self.meta(frame);
        if is_orphan {
            self.release(frame);
        } else if was_with_others && waiters != super::NO_WAITER {
            self.meta(frame).state = State::ToRead;
            self.meta(frame).is_alone = true;
            self.links.push_back(&mut self.to_read, frame);
        } else {
            self.dismiss(frame, Outcome::Failed(error));
            self.hot.remove(frame);
            self.release(frame);
        }
    }

    fn end_page_write(&mut self, frame: u32) {
        self.stats.pages_written += 1;
        let flushed_by = self.flushes.end_write();
        let old = *self.meta(frame);
        self.set_failed(frame, false);
        let meta = self.meta(frame);
        meta.is_alone = false;
        meta.flushed_by = flushed_by;
        if old.is_orphan {
            self.unsaved -= 1;
            // The page is on the device and may be read from there, also if it was dropped from the cache.
            self.flushes.pages_leave(PageRange::new(old.page, 1), flushed_by);
            self.end_orphan_write(frame);
        } else {
            meta.state = State::Clean;
            self.unsaved -= 1;
            self.enqueue_clean(frame);
        }
        self.page_done(old.page, old.epoch, None);
    }

    /// Writes a page again. Either its run failed; then each page of the run is written alone, since the neighbour of a
    /// bad sector is not bad. Or the run succeeded, and a device flush failed meanwhile.
    fn write_again(&mut self, frame: u32, error: IoError, is_alone: bool, now: Instant) {
        let old = *self.meta(frame);
        if old.is_orphan {
            // Not written again: its page is in another frame or was dropped.
            self.fail_write(frame, error, now);
            return;
        }
        let meta = self.meta(frame);
        meta.state = State::Dirty;
        meta.is_alone |= is_alone;
        self.restore_age(frame);
        self.enqueue_dirty(frame);
    }

    /// Processes a page that cannot be written. It stays dirty, and the flushes that cover it fail.
    fn fail_write(&mut self, frame: u32, error: IoError, now: Instant) {
        self.stats.writes_failed += 1;
        self.writeback.error = Some(error);
        self.room.fail(error);
        let old = *self.meta(frame);
        self.unsaved -= 1;
        // A page that was dropped meanwhile is no loss. A page that was moved is a loss: its bytes are in the new
        // frame, which counted as written.
        let moved_to = if old.is_orphan { self.hot.find(old.page) } else { None };
        let is_lost = !old.is_orphan || moved_to.is_some();
        if old.is_orphan {
            self.end_orphan_write(frame);
            if let Some(next) = moved_to.filter(|next| self.frames[*next as usize].is_held_clean()) {
                self.become_dirty(next, now);
            }
        } else {
            self.set_failed(frame, true);
            self.become_dirty(frame, now);
        }
        self.page_done(old.page, old.epoch, is_lost.then_some(error));
    }
}
