//! The coherency of direct I/O, and of truncation, with the page cache (rule 2 of the path). Decides which caller
//! waits, and when pages are written back and dropped. It neither submits the direct I/O nor accesses its bytes.
//!
//! ```text
//!   read              dirty pages are written back ──▶ Go
//!   write    register ──▶ writers leave ──▶ dirty pages are written back ──▶ drop ──▶ Go ──▶ end: drop, let writers in
//!   hold     register ──▶ writers leave ──▶ dirty pages are written back ──▶ Go ──▶ end: let writers in
//!   truncate register ──▶ writers leave ──▶ drop all ──▶ writes in flight complete ──▶ drop ──▶ Go ──▶ end: as above
//! ```
//!
//! While a write is registered, no buffered writer can enter a page of its range. So no page there becomes dirty, and
//! write-back cannot overwrite the bytes of the direct write with old bytes. Pages under a hold stay. A failed flush of
//! the device may make them dirty again; they are written after the end of the hold. Readers and readahead are never
//! blocked. Pages that they read between Go and the end may be old. These pages are dropped at the end, before the
//! completion is reported to any caller. The range is in whole pages: if the direct I/O covers a part of a page, the
//! rest of the page is on the device by then.
//!
//! The direct I/O never flushes the device. A forced write ends with [`PageCache::end_forced`] (`forced.rs`).
//!
//! A read waits for the pages that were dirty at its call, recorded by epoch as for a flush. A write waits for the
//! writers that were in its range at its call; no others can enter. Neither waits for a pin, or for another direct I/O.

use super::{Outcome, PageCache, Ready};
use crate::block::bio::Op;
use crate::error::IoError;
use crate::file::page::{Page, PageRange};
use slab::Slab;
use std::collections::VecDeque;

/// Identifies a direct I/O from [`DirectStep::Go`] to its completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectTag(u32);

impl DirectTag {
    /// The tag of every read: no caller waits for the end of a read.
    const READ: Self = Self(u32::MAX);
}

/// The next step of a direct I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectStep {
    /// Submit it now, then [`PageCache::end_direct`].
    Go(DirectTag),
    /// Wait until [`PageCache::poll_ready`] names the waiter. [`Outcome::Direct`] means go. [`Outcome::Failed`] means
    /// that the range could not be written back, and the direct I/O has not begun.
    Wait,
}

/// The direct I/Os that wait, and those for which writers wait.
#[derive(Debug)]
pub(super) struct Directs {
    open: Slab<Direct>,
    /// The number of them, without reads.
    registered: u32,
    /// Writers that wait, each with its page.
    blocked: Vec<(Page, u64)>,
    /// Direct I/Os whose write-back has completed, with its error.
    written: VecDeque<(usize, Option<IoError>)>,
}

#[derive(Debug, Clone, Copy)]
struct Direct {
    kind: Kind,
    range: PageRange,
    waiter: u64,
    stage: Stage,
    /// A truncation that has dropped dirty pages.
    dropped_dirty: bool,
    /// The number of failed device flushes when the direct I/O began.
    failures: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Hold,
    Truncate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Writers hold this many frames of its range.
    Writers(u32),
    /// Pages of its range are being written back.
    WriteBack,
    /// In flight.
    Going,
}

impl Default for Directs {
    fn default() -> Self {
        Self {
            open: Slab::with_capacity(64),
            registered: 0,
            blocked: Vec::with_capacity(64),
            written: VecDeque::with_capacity(64),
        }
    }
}

impl PageCache {
    /// Prepares a direct read, write, discard or write of zeroes; `range` is every page that it touches. Poll
    /// [`PageCache::poll_io`] and [`PageCache::poll_ready`] afterwards, as after [`PageCache::end_direct`].
    ///
    /// Submit a direct write without forced unit access: see [`PageCache::end_forced`].
    ///
    /// After [`DirectStep::Go`] the device holds all bytes that were written through the cache before. Until
    /// [`PageCache::end_direct`] no writer can enter a page of the range, unless the direct I/O is a read. A caller
    /// that holds pages of a write must not wait for the direct I/O, since the direct I/O waits for those pages.
    ///
    /// O(1) if no page is dirty (read) or cached (all others), else O(pages of the range).
    ///
    /// # Panics
    /// If `op` is a flush: a bug of the caller.
    pub fn begin_direct(&mut self, op: Op, range: PageRange, waiter: u64) -> DirectStep {
        assert!(op.is_write() || op == Op::Read, "a {op} has no range");
        if op.is_write() {
            return self.register(Kind::Write, range, waiter);
        }
        let owed = self.pages_owed(range);
        if owed == 0 {
            return DirectStep::Go(DirectTag::READ);
        }
        let direct = Direct {
            kind: Kind::Read,
            range,
            waiter,
            stage: Stage::WriteBack,
            failures: 0,
            dropped_dirty: false,
        };
        let key = self.directs.open.insert(direct);
        self.write_back_for(key, range, owed);
        DirectStep::Wait
    }

    /// Prepares a truncation of the volume to end before page `end`. Drops all pages from `end` on, including dirty
    /// pages. After [`DirectStep::Go`], no write of such a page is or will be in flight: truncate the volume, then call
    /// [`PageCache::end_direct`]. The preparation never fails.
    ///
    /// If the volume ends inside its last page, the caller zeroes the rest of that page by a write. If the volume
    /// cannot be truncated, call [`PageCache::fail_truncate`].
    pub fn begin_truncate(&mut self, end: Page, waiter: u64) -> DirectStep {
        let step = self.register(Kind::Truncate, PageRange::between(end, Page::MAX), waiter);
        self.advance_directs();
        step
    }

    /// Prepares a change of the file behind its last page, such as of its length, that changes no byte of `range`, but
    /// must not meet a write of its pages: as for a direct write, without dropping pages.
    pub fn begin_hold(&mut self, range: PageRange, waiter: u64) -> DirectStep {
        self.register(Kind::Hold, range, waiter)
    }

    /// Call this when a direct I/O has completed, successfully or not, before the completion is reported to any caller.
    /// A buffered read that starts afterwards sees the contents of the device.
    ///
    /// # Panics
    /// If the direct I/O has completed before or has not begun: a bug of the caller.
    pub fn end_direct(&mut self, tag: DirectTag) {
        if tag != DirectTag::READ {
            self.end_registered(tag);
        }
    }

    /// Does the same as [`PageCache::end_direct`], except for reads. Returns the number of failed device flushes when
    /// the direct I/O began.
    pub(super) fn end_registered(&mut self, tag: DirectTag) -> u64 {
        assert_ne!(tag, DirectTag::READ, "a direct read is not registered");
        let Direct { kind, range, stage, failures, .. } = self.directs.remove(tag.0 as usize);
        assert_eq!(stage, Stage::Going, "a direct I/O over {range} ends before it may go");
        if kind == Kind::Hold {
            // Pages that a failed device flush has made dirty again were not written meanwhile.
            for (page, frame) in self.dirty.range(range.start().0..range.end().0) {
                self.flushes.reopen(Page(page), self.frames[frame as usize].epoch);
            }
        } else {
            self.drop_for_direct(range);
            // A failing device flush may lose this write, like pages that have left the cache.
            let flushed_by = self.flushes.end_write();
            self.flushes.pages_leave(range, flushed_by);
        }
        self.unblock();
        failures
    }

    /// Ends a truncation that did not change the volume. Dirty pages that were dropped may be lost, so every flush
    /// fails with `error` until [`PageCache::forget_loss`].
    ///
    /// # Panics
    /// Panics like [`PageCache::end_direct`].
    pub fn fail_truncate(&mut self, tag: DirectTag, error: IoError) {
        if self.directs.open[tag.0 as usize].dropped_dirty {
            self.flushes.lose(error);
        }
        self.end_direct(tag);
    }

    /// Whether a writer must wait until direct I/O on `page` has completed. If so, `waiter` waits.
    pub(super) fn is_blocked(&mut self, page: Page, waiter: u64) -> bool {
        let is_blocked = self.directs.blocks(page);
        if is_blocked {
            self.directs.blocked.push((page, waiter));
        }
        is_blocked
    }

    /// A writer has left `page`.
    pub(super) fn writer_left(&mut self, page: Page) {
        let mut from = 0;
        while let Some(key) = self.directs.next_waiting_for_writers(from, page) {
            from = key + 1;
            let direct = &mut self.directs.open[key];
            let waiter = direct.waiter;
            let Stage::Writers(writers) = &mut direct.stage else { unreachable!("{direct:?}") };
            *writers -= 1;
            if *writers == 0 && self.write_back_or_go(key) {
                self.ready.push_back(Ready { waiter, outcome: Outcome::Direct(DirectTag(key as u32)) });
            }
        }
        self.advance_directs();
    }

    /// Starts direct I/Os whose write-back has completed, or fails them.
    pub(super) fn advance_directs(&mut self) {
        while let Some((key, error)) = self.directs.written.pop_front() {
            let Direct { kind, waiter, .. } = self.directs.open[key];
            let outcome = match (kind, error) {
                (Kind::Read, error) => {
                    self.directs.remove(key);
                    error.map_or(Outcome::Direct(DirectTag::READ), Outcome::Failed)
                }
                (Kind::Write | Kind::Hold, Some(error)) => {
                    self.directs.remove(key);
                    self.unblock();
                    Outcome::Failed(error)
                }
                // In a truncated range, pages that cannot be written are no loss.
                (Kind::Write | Kind::Hold, None) | (Kind::Truncate, _) => {
                    self.go(key);
                    Outcome::Direct(DirectTag(key as u32))
                }
            };
            self.ready.push_back(Ready { waiter, outcome });
        }
    }

    fn register(&mut self, kind: Kind, range: PageRange, waiter: u64) -> DirectStep {
        let is_in_range = |frame: &&u32| range.contains(self.frames[**frame as usize].page);
        let writers = self.held.iter().filter(is_in_range).count() as u32;
        let direct =
            Direct { kind, range, waiter, stage: Stage::Writers(writers), failures: 0, dropped_dirty: false };
        let key = self.directs.open.insert(direct);
        self.directs.registered += 1;
        if writers == 0 && self.write_back_or_go(key) {
            return DirectStep::Go(DirectTag(key as u32));
        }
        DirectStep::Wait
    }

    /// Continues a direct I/O when no writer is left in its range. Returns whether it may begin.
    fn write_back_or_go(&mut self, key: usize) -> bool {
        let Direct { kind, range, .. } = self.directs.open[key];
        if kind == Kind::Truncate {
            // A page in flight is dropped, too, and not written again if its write fails.
            self.directs.open[key].dropped_dirty = self.pages_owed(range) > 0;
            self.drop_range(range, true);
        }
        let owed = self.pages_owed(range);
        if owed == 0 {
            self.go(key);
            return true;
        }
        self.directs.open[key].stage = Stage::WriteBack;
        self.write_back_for(key, range, owed);
        false
    }

    fn go(&mut self, key: usize) {
        let Direct { kind, range, .. } = self.directs.open[key];
        if kind != Kind::Hold {
            self.drop_for_direct(range);
        }
        let failures = self.flushes.failures();
        let direct = &mut self.directs.open[key];
        (direct.stage, direct.failures) = (Stage::Going, failures);
    }

    fn drop_for_direct(&mut self, range: PageRange) {
        if self.is_empty() {
            return;
        }
        let dropped = self.drop_range(range, false);
        assert_eq!(dropped.kept, 0, "pages of {range} are dirty under direct I/O");
    }

    /// Whether no page is cached or being read.
    const fn is_empty(&self) -> bool {
        self.free.len() + self.orphans.len() == self.used_frames()
    }

    /// Makes writers that are no longer blocked retry.
    fn unblock(&mut self) {
        let mut blocked = std::mem::take(&mut self.directs.blocked);
        blocked.retain(|(page, waiter)| {
            let is_blocked = self.directs.blocks(*page);
            if !is_blocked {
                self.ready.push_back(Ready { waiter: *waiter, outcome: Outcome::Retry });
            }
            is_blocked
        });
        self.directs.blocked = blocked;
    }

    /// Whether a direct I/O on `page` has completed its write-back. Cached bytes are only a copy then, and must not
    /// become dirty even if the device lost bytes. A hold changes no byte.
    pub(super) fn is_under_direct(&self, page: Page) -> bool {
        let covers = |direct: &Direct| direct.kind != Kind::Hold && direct.range.contains(page);
        self.directs.registered().any(|(_, direct)| direct.is_cleared() && covers(direct))
    }
}

impl Direct {
    /// Whether no page of its range is dirty or can become dirty.
    const fn is_cleared(&self) -> bool {
        match self.stage {
            Stage::Writers(_) => false,
            Stage::WriteBack => matches!(self.kind, Kind::Truncate),
            Stage::Going => true,
        }
    }
}

impl Directs {
    /// Whether no direct I/O waits or is registered.
    pub(super) fn is_settled(&self) -> bool {
        self.open.is_empty() && self.blocked.is_empty() && self.written.is_empty()
    }

    /// The write-back that `key` waited for has completed.
    pub(super) fn written(&mut self, key: usize, error: Option<IoError>) {
        self.written.push_back((key, error));
    }

    /// Whether `page` is in a registered range.
    pub(super) fn blocks(&self, page: Page) -> bool {
        self.registered().any(|(_, direct)| direct.range.contains(page))
    }

    /// Whether a hold of `page` is in progress. The page may be dirty again after a failed device flush.
    pub(super) fn holds(&self, page: Page) -> bool {
        let is_going = |direct: &Direct| direct.kind == Kind::Hold && direct.stage == Stage::Going;
        self.registered().any(|(_, direct)| is_going(direct) && direct.range.contains(page))
    }

    /// Whether direct writes are in flight.
    pub(super) fn is_writing(&self) -> bool {
        self.registered().any(|(_, direct)| direct.stage == Stage::Going && direct.kind == Kind::Write)
    }

    /// All direct I/Os except reads.
    fn registered(&self) -> impl Iterator<Item = (usize, &Direct)> {
        let open = (self.registered > 0).then(|| self.open.iter());
        open.into_iter().flatten().filter(|(_, direct)| direct.kind != Kind::Read)
    }

    fn next_waiting_for_writers(&self, from: usize, page: Page) -> Option<usize> {
        let waits =
            |direct: &Direct| matches!(direct.stage, Stage::Writers(_)) && direct.range.contains(page);
        self.registered().find(|(key, direct)| *key >= from && waits(direct)).map(|(key, _)| key)
    }

    fn remove(&mut self, key: usize) -> Direct {
        let direct = self.open.remove(key);
        self.registered -= u32::from(direct.kind != Kind::Read);
        direct
    }
}
