//! Bounds the frames that dirty pages may occupy, so that reads find a frame also while all write-back fails.
//! `throttle.rs` slows writers down long before the bound.
//!
//! ```text
//!   frames │ reserve: reads │           room: dirty pages, pages at the device, pages that writers fill            │
//!   begin_write ─ no room ─▶ wait ─┬─ a page is written or dropped ───────────────────────────────▶ Retry
//!                                  └─ failed pages occupy the room, and a write of one fails again ▶ Unwritable
//! ```
//!
//! A writer that finds the room occupied by failed pages does not wait for the time of their retry: one of them is
//! written at once (a probe). So the writer gets the present error of the device, or continues as soon as the device
//! accepts writes again. A device that fails costs one write for each call, not one for each dirty page.

use super::{CacheConfig, Outcome, PageCache, Ready, State};
use crate::error::IoError;
use crate::file::page::Page;

/// The pages that occupy the room, and the writers that wait for it.
#[derive(Debug)]
pub(super) struct Room {
    /// The maximum number of unsaved and pending pages.
    pages_max: u32,
    /// Pages that writers hold and that are not dirty yet.
    pending: u32,
    /// Dirty pages whose last write failed. They may be at the device again.
    failed: u32,
    /// Writers that wait.
    waiting: Vec<u64>,
    /// A failed page is to be written now.
    is_probe_due: bool,
    /// The error of a page write that has failed since the last [`PageCache::settle_room`].
    error: Option<IoError>,
}

impl Room {
    pub(super) fn new(config: &CacheConfig) -> Self {
        Self {
            pages_max: pages_max(config),
            pending: 0,
            failed: 0,
            waiting: Vec::with_capacity(64),
            is_probe_due: false,
            error: None,
        }
    }

    /// Sets the bound for the frames of `config`.
    pub(super) fn resize(&mut self, config: &CacheConfig) {
        self.pages_max = pages_max(config);
    }

    /// The number of dirty pages whose last write failed.
    pub(super) const fn failed(&self) -> u32 {
        self.failed
    }

    /// Whether no writer waits or holds a page, and no page has failed.
    pub(super) const fn is_settled(&self) -> bool {
        self.pending == 0 && self.failed == 0 && self.waiting.is_empty()
    }

    pub(super) const fn has_waiters(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) const fn is_probe_due(&self) -> bool {
        self.is_probe_due
    }

    /// A write of a failed page has begun: its outcome is that of the probe.
    pub(super) const fn begin_probe(&mut self) {
        self.is_probe_due = false;
    }

    pub(super) const fn fail(&mut self, error: IoError) {
        self.error = Some(error);
    }

    /// A writer holds a page that is not dirty.
    pub(super) const fn add_pending(&mut self) {
        self.pending += 1;
    }

    /// Such a page has become dirty, or its writer has left it unchanged.
    pub(super) const fn remove_pending(&mut self) {
        self.pending -= 1;
    }

    /// Whether no page becomes clean unless a write of a failed page succeeds.
    const fn is_unwritable(&self) -> bool {
        self.failed >= self.pages_max
    }
}

/// All frames but those that are reserved for reads.
fn pages_max(config: &CacheConfig) -> u32 {
    config.frames.saturating_sub(CacheConfig::scan_frames(config.frames)).max(1)
}

impl PageCache {
    /// Whether one more page may become dirty.
    pub(super) const fn has_room(&self) -> bool {
        self.unsaved + self.room.pending < self.room.pages_max
    }

    /// Whether a writer of `page` must wait until fewer pages are dirty. If so, `waiter` waits.
    pub(super) fn lacks_room(&mut self, page: Page, waiter: u64) -> bool {
        if self.has_room() || self.is_dirty(page) {
            return false;
        }
        self.budget.add_pressure();
        self.room.waiting.push(waiter);
        self.room.is_probe_due |= self.room.is_unwritable();
        true
    }

    /// Sets the outcomes of the writers that wait for room. Call it when pages may have become clean, and after a
    /// failed write.
    pub(super) fn settle_room(&mut self) {
        let error = self.room.error.take();
        if !self.room.has_waiters() {
            return;
        }
        let has_room = self.has_room();
        if !has_room && !self.room.is_unwritable() {
            return;
        }
        let failed = error.filter(|_| !has_room);
        if !has_room && failed.is_none() {
            // A write has succeeded, and there were more dirty pages than may be.
            self.room.is_probe_due = true;
            return;
        }
        self.room.is_probe_due = false;
        let pages = self.room.failed;
        // Also for writers whose own page is one of the failed pages. Before such a writer retries, the probe for
        // another writer can take its page to the device again: two of them would start each other's probes
        // without end.
        let outcome = failed.map_or(Outcome::Retry, |source| Outcome::Unwritable { pages, source });
        self.ready.extend(self.room.waiting.drain(..).map(|waiter| Ready { waiter, outcome }));
    }

    /// Records whether the last write of a dirty page failed.
    pub(super) fn set_failed(&mut self, frame: u32, is_failed: bool) {
        let was_failed = std::mem::replace(&mut self.meta(frame).is_failed, is_failed);
        self.room.failed = self.room.failed + u32::from(is_failed) - u32::from(was_failed);
    }

    /// Whether a write of `page` makes no further page dirty.
    fn is_dirty(&self, page: Page) -> bool {
        self.hot.find(page).is_some_and(|frame| self.frames[frame as usize].state == State::Dirty)
    }
}
