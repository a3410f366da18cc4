//! Chooses the clean page to evict: S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP
//! 2023). Its queues have clean frames only: frames that are dirty, being read or written, or held by a writer are in
//! none.
//!
//! ```text
//!   new ──▶ [ small: an eighth ] ── not touched again ──▶ evicted, recorded as a ghost
//!                  │ touched again
//!   ghost ──▶ [ main: the rest ] ── not touched ──▶ evicted
//!                  ▲     │ touched: to the back of the queue, one touch less
//!                  └─────┘
//! ```
//!
//! A scan passes through `small` and leaves `main` as it is. A hit moves no entry, it only counts a touch, so it needs
//! no lock. docs/cache.md has measured hit ratios, compared with LRU and CLOCK.

use super::CacheConfig;
use super::ghost::Ghost;
use crate::collections::list::{Links, List};
use crate::file::page::Page;

/// The queues of clean frames.
#[derive(Debug)]
pub(super) struct Replacement {
    small: List,
    main: List,
    ghost: Ghost,
    small_max: u32,
}

/// The access of eviction to the frames in its queues.
pub(super) trait Residents {
    /// Retires a frame if it has no readers and was touched less than `enough` times.
    fn judge(&mut self, frame: u32, enough: u8) -> Verdict;

    /// The frame moves to `main`.
    fn promote(&mut self, frame: u32);

    /// The page in a frame.
    fn page(&self, frame: u32) -> Page;
}

/// The decision on a frame that eviction checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The page was touched often enough to stay.
    Touched,
    /// The page is pinned and must not be evicted.
    Pinned,
    /// The page may be evicted: no reader can pin it any more.
    Retired,
}

impl Replacement {
    /// The number of touches in `small` that move a page to `main`.
    const PROMOTE_TOUCHES: u8 = 1;

    pub(super) fn new(frames: u32) -> Self {
        Self {
            small: List::EMPTY,
            main: List::EMPTY,
            ghost: Ghost::new(frames),
            small_max: CacheConfig::scan_frames(frames),
        }
    }

    /// Sets the number of frames, which is at most that of the constructor.
    pub(super) fn resize(&mut self, frames: u32) {
        self.small_max = CacheConfig::scan_frames(frames);
        self.ghost.resize(frames);
    }

    /// Whether `page`, which is being read, enters `main` directly.
    pub(super) fn is_known(&mut self, page: Page) -> bool {
        self.ghost.take(page)
    }

    /// Prefetches the memory for [`Replacement::is_known`].
    pub(super) fn prefetch(&self, page: Page) {
        self.ghost.prefetch(page);
    }

    /// The frame that is checked next in `small`.
    pub(super) fn next(&self) -> Option<u32> {
        self.small.front()
    }

    pub(super) fn insert(&mut self, frame: u32, in_main: bool, links: &mut Links) {
        links.push_back(if in_main { &mut self.main } else { &mut self.small }, frame);
    }

    /// Moves the oldest frame of `small` to `main` if `small` has more than its share.
    pub(super) fn overflow(&mut self, links: &mut Links) -> Option<u32> {
        let is_over = self.small.len() > self.small_max;
        let frame = is_over.then(|| links.pop_front(&mut self.small)).flatten()?;
        links.push_back(&mut self.main, frame);
        Some(frame)
    }

    pub(super) fn remove(&mut self, frame: u32, in_main: bool, links: &mut Links) {
        links.remove(if in_main { &mut self.main } else { &mut self.small }, frame);
    }

    /// Frames in both queues.
    pub(super) const fn len(&self) -> u32 {
        self.small.len() + self.main.len()
    }

    /// Chooses the frame to evict and removes it from its queue. Ends after four checks of each frame, even if all are
    /// pinned. If all frames of one queue are pinned, evicts a frame of the other.
    pub(super) fn evict(&mut self, links: &mut Links, residents: &mut impl Residents) -> Option<u32> {
        let (mut small_pinned, mut main_pinned) = (0, 0);
        for _ in 0..self.len() * 4 {
            let is_small = main_pinned >= self.main.len()
                || (self.small.len() >= self.small_max && small_pinned < self.small.len());
            let (queue, enough, pinned) = if is_small {
                (&mut self.small, Self::PROMOTE_TOUCHES, &mut small_pinned)
            } else {
                (&mut self.main, 1, &mut main_pinned)
            };
            let frame = links.pop_front(queue)?;
            match residents.judge(frame, enough) {
                Verdict::Retired => {
                    if is_small {
                        self.ghost.insert(residents.page(frame));
                    }
                    return Some(frame);
                }
                Verdict::Touched if is_small => {
                    residents.promote(frame);
                    links.push_back(&mut self.main, frame);
                    main_pinned = 0;
                }
                Verdict::Touched => {
                    links.push_back(queue, frame);
                    // It can be evicted when its touches are used up: `main` has a frame that is not pinned.
                    *pinned = 0;
                }
                Verdict::Pinned => {
                    links.push_back(queue, frame);
                    *pinned += 1;
                }
            }
        }
        None
    }
}
