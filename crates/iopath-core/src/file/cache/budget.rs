//! The number of frames that may have memory. It can change while the cache is in use, so that the caches of many
//! volumes share one budget. Does not divide a budget among caches: the owner of the caches does.
//!
//! ```text
//!   never used ──▶ free, or with a page ──▶ vacating ─ poll_vacated ─▶ vacated
//!        │            ▲ used: at most the budget │ the driver releases       │
//!        │            │                          │ the frame's memory        │
//!        └────────────┴──────────────────────────┴───────────────────────────┘ a page needs a frame
//! ```
//!
//! A smaller budget evicts clean pages. Dirty, pinned and transferred pages keep their frames until they are clean and
//! unpinned. The number of used frames can exceed the budget meanwhile, since a caller never waits for the budget
//! alone.

use super::{Frame, Meta, PageCache};
use crate::collections::list::List;

/// Frames without memory, and the demand for more frames.
#[derive(Debug)]
pub(super) struct Budget {
    /// The maximum of the budget: the size of the tables.
    frames_max: u32,
    /// Frames whose memory is to be released.
    vacating: List,
    /// Frames without memory.
    vacated: List,
    /// See [`PageCache::pressure`].
    pressure: u32,
    /// All clean pages were pinned when one was to be evicted, and no page has become clean since. Saves a look at all
    /// of them for each I/O.
    is_stuck: bool,
}

impl Budget {
    pub(super) const fn new(frames_max: u32) -> Self {
        Self { frames_max, vacating: List::EMPTY, vacated: List::EMPTY, pressure: 0, is_stuck: false }
    }

    /// Whether a caller can get a frame above the budget.
    pub(super) const fn has_vacated(&self) -> bool {
        !(self.vacating.is_empty() && self.vacated.is_empty())
    }

    /// A page has become clean, or unpinned as far as known.
    pub(super) const fn free_up(&mut self) {
        self.is_stuck = false;
    }

    pub(super) const fn add_pressure(&mut self) {
        self.pressure = self.pressure.saturating_add(1);
    }
}

impl PageCache {
    /// Sets the number of frames that may have memory: at least one, and at most the frames of the configuration. The
    /// thresholds of write-back and eviction follow.
    ///
    /// If more frames are used, clean pages are evicted until no more are used than that, now and in later calls of
    /// [`PageCache::poll_io`].
    pub fn set_budget(&mut self, frames: u32) {
        self.config.frames = frames.clamp(1, self.budget.frames_max);
        self.throttle.resize(&self.config);
        self.room.resize(&self.config);
        self.replacement.resize(self.config.frames);
        self.budget.free_up();
        self.shrink();
        self.wake_starved();
        self.settle_room();
    }

    /// The number of frames that may have memory.
    pub const fn budget(&self) -> u32 {
        self.config.frames
    }

    /// The largest budget.
    pub const fn budget_max(&self) -> u32 {
        self.budget.frames_max
    }

    /// The number of frames that have memory, with or without a page.
    pub const fn used_frames(&self) -> u32 {
        self.frames.len() as u32 - self.budget.vacating.len() - self.budget.vacated.len()
    }

    /// The next frame whose memory the driver may release. Its bytes are of no use, and no one accesses them before the
    /// state machine uses the frame again.
    pub fn poll_vacated(&mut self) -> Option<Frame> {
        let frame = self.links.pop_front(&mut self.budget.vacating)?;
        self.links.push_back(&mut self.budget.vacated, frame);
        Some(Frame(frame))
    }

    /// Counts [`PageCache::pressure`] anew.
    pub const fn reset_pressure(&mut self) {
        self.budget.pressure = 0;
    }

    /// How often a page was evicted, or a writer slowed down, for lack of frames since the last
    /// [`PageCache::reset_pressure`]: whether a larger budget would be used.
    pub const fn pressure(&self) -> u32 {
        self.budget.pressure
    }

    /// Vacates frames while more are used than the budget allows.
    pub(super) fn shrink(&mut self) {
        while self.is_above_budget() && !self.budget.is_stuck {
            let free = self.links.pop_front(&mut self.free);
            match free.or_else(|| self.reap_orphan()).or_else(|| self.evict()) {
                Some(frame) => self.vacate(frame),
                None => self.budget.is_stuck = true,
            }
        }
    }

    pub(super) const fn is_above_budget(&self) -> bool {
        self.used_frames() > self.config.frames
    }

    /// Whether one more frame may have memory.
    pub(super) const fn has_budget(&self) -> bool {
        self.used_frames() < self.config.frames
    }

    /// A frame without memory: one that was vacated, or else one that has never been used. Prefers one whose memory is
    /// still there.
    pub(super) fn add_frame(&mut self) -> Option<u32> {
        let Self { links, budget, .. } = self;
        let vacated = links.pop_front(&mut budget.vacating).or_else(|| links.pop_front(&mut budget.vacated));
        if vacated.is_some() {
            return vacated;
        }
        let frame = self.frames.len() as u32;
        if frame == self.budget.frames_max {
            return None;
        }
        self.frames.push(Meta::FREE);
        self.links.add();
        self.hot.add_frame(frame);
        Some(frame)
    }

    /// Takes the memory of a frame that is in no list and has neither a page nor pins.
    pub(super) fn vacate(&mut self, frame: u32) {
        *self.meta(frame) = Meta::FREE;
        self.links.push_back(&mut self.budget.vacating, frame);
    }
}
