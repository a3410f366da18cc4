//! Flushes of the cache: the pages that a flush covers, the flush of the device for it, and its outcome.
//!
//! A flush covers the pages that were dirty at its call, recorded by epoch. Every flush begins a new epoch, and a page
//! keeps the epoch in which it became dirty until it is written. So a page that becomes dirty later costs a flush only
//! one check during its sweep over the sectors.
//!
//! Only this file flushes the device, one flush at a time. Forced direct writes request such a flush (`forced.rs`). So
//! when a flush ends, the outcome of every earlier device flush is known. No flush reports success after an earlier one
//! has lost its bytes.

use super::io::{IoSlot, NextWrite};
use super::page_set::PageSet;
use super::{Meta, Outcome, PageCache, Ready, State};
use crate::block::bio::Op;
use crate::error::IoError;
use crate::file::page::{Page, PageRange};
use crate::time::Instant;
use slab::Slab;

/// All flushes and write-backs of ranges in progress.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    open: Slab<Flush>,
    /// Waiters whose pages are written: those for the next device flush (`waiting`), and those for the running one
    /// (`covered`).
    waiting: Vec<ForDevice>,
    covered: Vec<ForDevice>,
    is_running: bool,
    /// Numbers of device flushes: the last begun, the last that succeeded, and the last that forced writes need.
    begun: u64,
    good: u64,
    wanted: u64,
    /// The device flush that covers the last write.
    written: u64,
    /// The number of failed device flushes, and the error of the last.
    failures: u64,
    failure: Option<IoError>,
    /// Pages without a record of their last write, which this device flush covers: the page has left the cache since,
    /// or direct I/O wrote it. Index 0: the running flush; index 1: the next one. Pages stay here until a device flush
    /// that covers them succeeds.
    gone: [PageSet; 2],
    /// The error that lost bytes already reported as written back.
    lost: Option<IoError>,
}

/// A waiter for a flush of the device.
#[derive(Debug, Clone, Copy)]
struct ForDevice {
    waiter: u64,
    /// Whether an earlier loss makes it fail. A forced write reports on its own bytes only.
    fails_by_loss: bool,
}

#[derive(Debug)]
struct Flush {
    then: AfterPages,
    range: PageRange,
    /// Covers pages that became dirty in this epoch or before.
    epoch: u64,
    /// The number of pages still to be written.
    pages_left: u64,
    /// Covered pages still to be submitted lie at this page or above.
    cursor: Page,
    error: Option<IoError>,
}

/// The next step after the pages of a flush are written.
#[derive(Debug, Clone, Copy)]
enum AfterPages {
    /// Flush the device, then set the waiter's outcome.
    FlushDevice { waiter: u64 },
    /// Set the waiter's outcome.
    Complete { waiter: u64 },
    /// Continue the direct I/O with this key.
    Direct { key: usize },
}

impl Flush {
    fn covers(&self, page: Page, epoch: u64) -> bool {
        epoch <= self.epoch && self.range.contains(page)
    }
}

impl PageCache {
    /// Brings every write that ended before to the medium. The outcome of `waiter` is [`Outcome::Done`] or
    /// [`Outcome::Failed`].
    pub fn flush(&mut self, waiter: u64) {
        self.flush_range(PageRange::ALL, waiter);
    }

    /// Does the same as [`PageCache::flush`] for the writes to pages of `range`.
    pub fn flush_range(&mut self, range: PageRange, waiter: u64) {
        self.start_flush(range, AfterPages::FlushDevice { waiter });
    }

    /// Writes the dirty pages of `range` to the device, not necessarily to the medium.
    pub fn write_back(&mut self, range: PageRange, waiter: u64) {
        self.start_flush(range, AfterPages::Complete { waiter });
    }

    /// The error that lost bytes which no flush can restore. While there is one, every flush fails.
    pub const fn loss(&self) -> Option<IoError> {
        self.flushes.lost
    }

    /// The error of the last failed device flush.
    pub const fn flush_failure(&self) -> Option<IoError> {
        self.flushes.failure
    }

    /// Clears the loss after the caller has handled it, so that flushes can succeed again. Until a device flush
    /// succeeds, a further failed one is a new loss: the device may have lost the bytes only then.
    pub fn forget_loss(&mut self) {
        self.flushes.lost = None;
    }

    /// The device has bytes of `unflushed` that were written before this cache existed, and are not flushed. An earlier
    /// flush of them has failed with `lost`, if it is an error.
    pub fn handle_earlier_writes(&mut self, unflushed: PageRange, lost: Option<IoError>) {
        if !unflushed.is_empty() {
            let flushed_by = self.flushes.end_write();
            self.flushes.pages_leave(unflushed, flushed_by);
        }
        if let Some(error) = lost {
            self.flushes.lose(error);
        }
    }

    /// Does the same as [`PageCache::write_back`], for a direct I/O whose range has `pages_owed` pages to write.
    pub(super) fn write_back_for(&mut self, direct: usize, range: PageRange, pages_owed: u64) {
        assert!(pages_owed > 0, "no page of {range} is to be written back");
        self.open_flush(range, pages_owed, AfterPages::Direct { key: direct });
    }

    fn start_flush(&mut self, range: PageRange, then: AfterPages) {
        let pages_left = self.pages_owed(range);
        let key = self.open_flush(range, pages_left, then);
        if pages_left == 0 {
            self.end_pages(key);
        }
    }

    fn open_flush(&mut self, range: PageRange, pages_left: u64, then: AfterPages) -> usize {
        let epoch = self.epoch;
        self.epoch += 1;
        let flush = Flush { then, range, epoch, pages_left, cursor: range.start(), error: None };
        self.flushes.open.insert(flush)
    }

    /// The number of page writes that must complete until the device has all bytes of `range` that are dirty now.
    pub(super) fn pages_owed(&self, range: PageRange) -> u64 {
        if self.unsaved == 0 {
            return 0;
        }
        let filed = self.dirty.range(range.start().0..range.end().0).count();
        let is_held_dirty = |meta: &Meta| meta.state == State::Dirty && range.contains(meta.page);
        let held = self.held.iter().filter(|frame| is_held_dirty(&self.frames[**frame as usize])).count();
        filed as u64 + held as u64 + self.pages_at_device(range)
    }

    /// Pages in `range` that are being written.
    fn pages_at_device(&self, range: PageRange) -> u64 {
        let is_write = |io: &IoSlot| io.op == Op::Write && !io.pages.and(range).is_empty();
        let writes = self.ios.iter().filter(|(_, io)| is_write(io));
        let frames = writes.flat_map(|(_, io)| self.links.iter(&io.list));
        frames.filter(|frame| range.contains(self.frames[*frame as usize].page)).count() as u64
    }

    /// The next dirty frame that an open flush covers. A flush skips a page whose write may not begin; the completion
    /// of the earlier write, or the end of the hold, moves the flush back ([`Flushes::reopen`]).
    pub(super) fn next_for_flush(&mut self) -> Option<NextWrite> {
        let Self { flushes, dirty, frames, writeback, ios, directs, .. } = self;
        for (_, flush) in &mut flushes.open {
            let end = flush.range.end();
            let is_covered = |frame: u32| frames[frame as usize].epoch <= flush.epoch;
            let mut ahead = dirty.range(flush.cursor.0..end.0);
            let next = ahead
                .find(|(page, frame)| is_covered(*frame) && !writeback.holds_back(Page(*page), ios, directs));
            flush.cursor = next.map_or(end, |(page, _)| Page(page) + 1);
            if let Some((page, frame)) = next {
                return Some(NextWrite { page: Page(page), frame, epoch: flush.epoch, end });
            }
        }
        None
    }

    /// Processes a page that became dirty in `epoch` and was written or dropped, or cannot be written.
    pub(super) fn page_done(&mut self, page: Page, epoch: u64, error: Option<IoError>) {
        let mut key = 0;
        while let Some(next) = self.flushes.next_covering(key, page, epoch) {
            let flush = &mut self.flushes.open[next];
            flush.error = flush.error.or(error);
            flush.pages_left -= 1;
            if flush.pages_left == 0 {
                self.end_pages(next);
            }
            key = next + 1;
        }
    }

    /// Processes the end of the page writes of a flush.
    fn end_pages(&mut self, key: usize) {
        let Flush { then, error, .. } = self.flushes.open.remove(key);
        match (then, error) {
            (AfterPages::Direct { key }, error) => self.directs.written(key, error),
            (AfterPages::FlushDevice { waiter }, None) => {
                self.flushes.waiting.push(ForDevice { waiter, fails_by_loss: true });
            }
            (AfterPages::FlushDevice { waiter } | AfterPages::Complete { waiter }, error) => {
                let outcome = error.map_or(Outcome::Done, Outcome::Failed);
                self.ready.push_back(Ready { waiter, outcome });
            }
        }
    }

    /// Processes a failed device flush: bytes written since the last good flush may be lost. All flushes in flight
    /// fail.
    fn lose_unflushed(&mut self, error: IoError, now: Instant) {
        self.flushes.failures += 1;
        self.flushes.failure = Some(error);
        // Every forced write that waits for a later flush fails with this one.
        self.flushes.wanted = self.flushes.begun;
        let has_left = self.flushes.gone.iter().any(|pages| !pages.is_empty());
        if has_left || self.directs.is_writing() {
            self.flushes.lose(error);
        }
        self.dirty_again(error, now);
        // The device may still have these bytes, and lose them in its next failed flush, after this loss is forgotten.
        let [running, next] = &mut self.flushes.gone;
        next.take_all(running);
        self.flushes.fail_all(error);
        let failed = |at: ForDevice| Ready { waiter: at.waiter, outcome: Outcome::Failed(error) };
        self.ready.extend(self.flushes.waiting.drain(..).map(failed));
    }

    /// Processes the end of a device flush.
    pub(super) fn end_device_flush(&mut self, result: Result<(), IoError>, now: Instant) {
        self.flushes.is_running = false;
        match result {
            Ok(()) => {
                self.flushes.good = self.flushes.begun;
                self.flushes.gone[0].clear();
            }
            Err(error) => self.lose_unflushed(error, now),
        }
        let failed = result.err();
        let lost = self.flushes.lost;
        let ready = |ForDevice { waiter, fails_by_loss }| {
            let error = failed.or_else(|| lost.filter(|_| fails_by_loss));
            Ready { waiter, outcome: error.map_or(Outcome::Done, Outcome::Failed) }
        };
        self.ready.extend(self.flushes.covered.drain(..).map(ready));
    }

    /// Makes pages dirty again after a failed device flush. The device may have lost all bytes written since its last
    /// good flush, including bytes written during the failed flush. Pages that left the cache and were read again have
    /// no record of their write, but `gone` contains them. Such pages that are being read are read again, since their
    /// bytes may be from before the loss. Pages being written are written again. All other pages stay clean: a page
    /// that was only read is not written, because a write would allocate space for the holes of a file.
    fn dirty_again(&mut self, error: IoError, now: Instant) {
        for frame in 0..self.frames.len() as u32 {
            let Meta { page, state, flushed_by, in_main, is_held, is_orphan, .. } = *self.meta(frame);
            let is_gone = self.flushes.gone.iter().any(|pages| pages.contains(page));
            match state {
                State::Writing => self.meta(frame).flush_error = Some(error),
                State::Reading if is_gone && !is_orphan => {
                    self.drop_frame(frame, false);
                    continue;
                }
                _ => {}
            }
            let is_lost = flushed_by > self.flushes.good;
            let is_due = is_lost || (is_gone && state == State::Clean);
            if !is_due {
                continue;
            }
            if state == State::Clean && self.is_under_direct(page) {
                self.drop_frame(frame, false);
                continue;
            }
            self.meta(frame).flushed_by = 0;
            if state == State::Clean {
                if !is_held {
                    self.replacement.remove(frame, in_main, &mut self.links);
                }
                self.become_dirty(frame, now);
            }
        }
    }
}

impl Flushes {
    /// Whether a device flush must begin now. If so, counts it as begun.
    pub(super) fn begin_device_flush(&mut self) -> bool {
        let is_needed = !self.waiting.is_empty() || self.wanted > self.begun;
        if self.is_running || !is_needed {
            return false;
        }
        // Waiters and pages that leave the cache from now on belong to the next flush: this one may not cover them.
        std::mem::swap(&mut self.waiting, &mut self.covered);
        self.is_running = true;
        self.begun += 1;
        debug_assert!(self.gone[0].is_empty(), "the end of a device flush removes its pages");
        self.gone.swap(0, 1);
        true
    }

    /// A write ends now. Returns the number of the device flush that covers it.
    pub(super) const fn end_write(&mut self) -> u64 {
        self.written = self.next_number();
        self.written
    }

    const fn next_number(&self) -> u64 {
        self.begun + 1
    }

    /// Whether every write so far is on the medium, and no flush is in progress.
    pub(super) fn is_settled(&self) -> bool {
        let is_idle = self.open.is_empty() && self.waiting.is_empty() && self.covered.is_empty();
        is_idle
            && !self.is_running
            && self.lost.is_none()
            && self.written <= self.good
            && self.wanted <= self.good
    }

    /// Records a loss of bytes: every later flush fails.
    pub(super) fn lose(&mut self, error: IoError) {
        self.lost.get_or_insert(error);
    }

    /// The number of failed device flushes so far.
    pub(super) const fn failures(&self) -> u64 {
        self.failures
    }

    /// Requests the next device flush. Returns its number.
    pub(super) fn want_next(&mut self) -> u64 {
        self.wanted = self.next_number();
        self.wanted
    }

    /// The outcome of device flush `number` for a write that began after `failures` failures.
    pub(super) fn outcome_of(&self, number: u64, failures: u64) -> Option<Result<(), IoError>> {
        match self.failure {
            Some(error) if self.failures != failures => Some(Err(error)),
            _ => (self.good >= number).then_some(Ok(())),
        }
    }

    /// Adds a waiter for device flush `number`, which is the running or the next one.
    pub(super) fn join(&mut self, number: u64, waiter: u64) {
        let is_next = number > self.begun;
        assert!(is_next || self.is_running, "flush {number} has completed");
        let at = ForDevice { waiter, fails_by_loss: false };
        if is_next { self.waiting.push(at) } else { self.covered.push(at) }
    }

    /// Records that pages leave the cache. Device flush `flushed_by` covers their last write.
    pub(super) fn pages_leave(&mut self, pages: PageRange, flushed_by: u64) {
        if flushed_by > self.good {
            let is_next = flushed_by > self.begun;
            self.gone[usize::from(is_next)].insert(pages);
        }
    }

    /// Fails all flushes: pages that they counted as written may be lost. These pages are dirty again, in a later
    /// epoch.
    fn fail_all(&mut self, error: IoError) {
        for (_, flush) in &mut self.open {
            flush.error.get_or_insert(error);
        }
    }

    /// Moves the sweeps of flushes back to a page of that epoch, which waits to be written.
    pub(super) fn reopen(&mut self, page: Page, epoch: u64) {
        for (_, flush) in &mut self.open {
            if flush.covers(page, epoch) {
                flush.cursor = flush.cursor.min(page);
            }
        }
    }

    /// The first flush with key `from` or greater that covers the page.
    fn next_covering(&self, from: usize, page: Page, epoch: u64) -> Option<usize> {
        self.open.iter().find(|(key, flush)| *key >= from && flush.covers(page, epoch)).map(|(key, _)| key)
    }
}
