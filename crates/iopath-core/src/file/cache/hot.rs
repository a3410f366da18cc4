//! The data for a hit: the look-up from page to frame, and the state word of each frame. Both are atomic: any number of
//! threads look up and pin while one thread, which holds the lock of the state machine, changes them. It has neither
//! the memory nor the state of pages: the read of a page that is absent here may be in flight.
//!
//! ```text
//!   word   │ 31 VALID │ 30 MARKED │ 29 … 0 pins │
//! ```
//!
//! A reader finds the frame, adds a pin, and only then checks that the frame is valid and still has the page. If the
//! check fails, the reader removes the pin and takes the slow path. Eviction checks for pins and clears VALID in one
//! atomic step. So a frame that is pinned and valid does not change until it is unpinned. A look-up may miss a cached
//! page while its table entry is being moved; the slow path finds the page.
//!
//! A copying reader ([`Hot::visit`]) writes to no cache line of other threads, so that hits scale. It does not pin the
//! frame; it publishes the frame in its own [`Lane`], a hazard slot. A thread that retires a frame clears VALID first
//! and then checks all lanes; a reader writes its lane first and then checks VALID. All four steps are sequentially
//! consistent, so at least one of the two threads sees the other (hazard pointers: Michael, 2004).

use super::growing::{Entries, GrowingTable, SMALL};
use super::{Frame, NO_FRAME};
use crate::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::file::page::Page;
use std::fmt;

const VALID: u32 = 1 << 31;
const MARKED: u32 = 1 << 30;
const PINS: u32 = MARKED - 1;
/// Touches are counted up to this number.
const TOUCHES_MAX: u8 = 3;

/// A page cannot be pinned now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a thread may wait for the frame"]
pub struct Absent {
    /// Whether the look-up has pinned and unpinned the frame of another page while a thread waits for a frame. If so,
    /// call [`super::PageCache::handle_unpinned`], as after [`Hot::unpin`].
    pub frees_frame: bool,
}

/// The lock-free half of the page cache. Shared by all threads; changed only through the state machine.
pub struct Hot {
    table: GrowingTable,
    frames: Entries<HotFrame>,
    frames_max: u32,
    lanes: Box<[Lane]>,
    /// The lanes from this index on have never been used.
    lanes_end: AtomicUsize,
    /// A thread waits for a frame: the thread that removes the last pin of one reports it.
    is_starved: AtomicBool,
    is_clean: Alone<AtomicBool>,
}

impl fmt::Debug for Hot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hot")
            .field("frames_max", &self.frames_max)
            .field("lanes", &self.lanes.len())
            .finish_non_exhaustive()
    }
}

/// A value in cache lines of its own, since it changes while hits read other fields.
#[derive(Debug)]
#[repr(align(128))]
struct Alone<T>(T);

/// The hazard slot of a thread, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    /// The frame that its thread reads, or `NO_FRAME`.
    frame: AtomicU32,
    /// The number of visits. Only the thread in the lane changes it.
    visits: AtomicU64,
}

/// Zeroes before its first use, when no table entry leads to it.
#[derive(Debug, Default)]
#[cfg_attr(not(iopath_explore), derive(zerocopy::FromZeros, zerocopy::KnownLayout))]
struct HotFrame {
    page: AtomicU64,
    word: AtomicU32,
    touches: AtomicU8,
}

/// A page that stays cached until it is unpinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// The frame with its bytes.
    pub frame: Frame,
    /// The page had a readahead marker: report it to readahead. Set for one caller only.
    pub is_marked: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self { frame: AtomicU32::new(NO_FRAME), visits: AtomicU64::new(0) }
    }
}

/// Leaves the frame on drop, also during a panic.
struct Visit<'a>(&'a Lane);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.frame.store(NO_FRAME, Ordering::Release);
    }
}

impl Hot {
    /// The number of lanes. With more threads, threads share lanes. If the lane is in use, a thread pins the frame
    /// instead.
    pub const LANES: usize = 64;

    pub(super) fn new(frames_max: u32) -> Self {
        Self {
            table: GrowingTable::new(frames_max),
            frames: Entries::new(frames_max),
            frames_max,
            lanes: (0..Self::LANES).map(|_| Lane::default()).collect(),
            lanes_end: AtomicUsize::new(0),
            is_starved: AtomicBool::new(false),
            is_clean: Alone(AtomicBool::new(true)),
        }
    }

    /// Calls `act` on the frame of `page` if it is cached: a complete hit. Counts a touch. The frame does not change
    /// until `act` returns. `act` must return soon, since its end does not notify threads that wait for a frame.
    ///
    /// `lane` is the calling thread's number. `ahead` is called as soon as the frame is known, so that it can prefetch
    /// the bytes while this function loads the frame's state.
    ///
    /// No lock, no system call, no allocation. Writes to memory shared with other threads only for the first few
    /// touches of a page.
    #[inline]
    pub fn visit<R>(
        &self,
        lane: usize,
        page: Page,
        ahead: impl FnOnce(Frame),
        act: impl FnOnce(Pinned) -> R,
    ) -> Option<R> {
        let frame = self.find(page)?;
        ahead(Frame(frame));
        let lane = self.lane(lane);
        if lane.frame.compare_exchange(NO_FRAME, frame, Ordering::SeqCst, Ordering::Relaxed).is_err() {
            return self.visit_pinned(page, act);
        }
        let visit = Visit(lane);
        let hot = self.frames.get(frame);
        let word = hot.word.load(Ordering::SeqCst);
        if word & VALID == 0 || hot.page.load(Ordering::Relaxed) != page.0 {
            return None;
        }
        // Only the thread in the lane changes it: no atomic addition is needed.
        visit.0.visits.store(visit.0.visits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(act(hot.touched(frame, word)))
    }

    /// The number of pages found by [`Hot::visit`] so far.
    pub fn visits(&self) -> u64 {
        let used = &self.lanes[..self.lanes_end.load(Ordering::SeqCst)];
        used.iter().map(|lane| lane.visits.load(Ordering::Relaxed)).sum()
    }

    /// Pins `page` if it is cached. Counts a touch.
    ///
    /// No lock, no system call, no allocation; one atomic addition if the page was touched before.
    #[inline]
    pub fn try_pin(&self, page: Page) -> Result<Pinned, Absent> {
        let Some(frame) = self.find(page) else { return Err(Absent { frees_frame: false }) };
        let hot = self.frames.get(frame);
        let word = hot.word.fetch_add(1, Ordering::Acquire);
        if word & VALID == 0 || hot.page.load(Ordering::Relaxed) != page.0 {
            return Err(Absent { frees_frame: self.unpin(Frame(frame)) });
        }
        Ok(hot.touched(frame, word))
    }

    #[cold]
    fn visit_pinned<R>(&self, page: Page, act: impl FnOnce(Pinned) -> R) -> Option<R> {
        let pinned = self.try_pin(page).ok()?;
        let result = act(pinned);
        self.unpin(pinned.frame);
        Some(result)
    }

    #[inline]
    fn lane(&self, thread: usize) -> &Lane {
        let number = thread % Self::LANES;
        // Sequentially consistent: another thread may have increased it for this lane. A thread that checks all lanes
        // after this lane is written must see the increase.
        if number >= self.lanes_end.load(Ordering::SeqCst) {
            self.lanes_end.fetch_max(number + 1, Ordering::SeqCst);
        }
        &self.lanes[number]
    }

    /// Removes a pin. Returns whether a thread waits for a frame and this one may be free; then call
    /// [`super::PageCache::handle_unpinned`].
    #[inline]
    pub fn unpin(&self, frame: Frame) -> bool {
        let word = self.frames.get(frame.0).word.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(word & PINS > 0, "frame {} unpinned more often than pinned", frame.0);
        word & PINS == 1 && self.is_starved.load(Ordering::SeqCst)
    }

    /// Whether no page is dirty or being written. If so, a direct read needs no lock.
    ///
    /// A writer clears this flag before the page can be read and before its write returns. The flag is set after the
    /// last write-back has completed. Suppose that a direct read starts after a write has returned, or after a read has
    /// returned the bytes of the write. Then the direct read finds `false`, or the device has the bytes. A write that
    /// ends after this check was in progress when the direct read started, so the direct read may miss it.
    ///
    /// Direct writes always take the lock. Only a registered range keeps writers out while the direct write is in
    /// flight, and registration needs the lock.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.is_clean.0.load(Ordering::Acquire)
    }

    /// Writes only if the value changes, so that the cache line stays shared.
    pub(super) fn set_clean(&self, is_clean: bool) {
        if self.is_clean.0.load(Ordering::Relaxed) != is_clean {
            self.is_clean.0.store(is_clean, Ordering::Release);
        }
    }

    /// The frame of `page`, readable or not.
    #[inline]
    pub(super) fn find(&self, page: Page) -> Option<u32> {
        self.table.current().find(page, |frame| self.page_in(frame)).map(|Frame(frame)| frame)
    }

    /// Prefetches the memory for a look-up of `page`.
    pub(super) fn prefetch(&self, page: Page) {
        self.table.current().prefetch(page);
    }

    /// Makes room for `frame`, the next one that was never used. Allocates once in the life of a cache.
    pub(super) fn add_frame(&self, frame: u32) {
        if frame == SMALL {
            self.frames.grow(self.frames_max);
            self.table.grow(self.frames_max, |frame| self.page_in(frame));
        }
    }

    /// Inserts `page` in `frame`, not yet readable.
    pub(super) fn insert(&self, page: Page, frame: u32) {
        self.frames.get(frame).page.store(page.0, Ordering::Release);
        self.frames.get(frame).touches.store(0, Ordering::Relaxed);
        self.table.current().insert(page, Frame(frame));
    }

    /// Removes the page in `frame`.
    pub(super) fn remove(&self, frame: u32) {
        self.table.current().remove(Frame(frame), |frame| self.page_in(frame));
        self.frames.get(frame).page.store(Page::MAX.0, Ordering::Release);
    }

    /// Admits readers to the frame's page, with `pins` pins on it already.
    pub(super) fn publish(&self, frame: u32, pins: u32, is_marked: bool) {
        let mark = if is_marked { MARKED } else { 0 };
        let word = self.frames.get(frame).word.fetch_add(VALID + mark + pins, Ordering::Release);
        debug_assert!(word & (VALID | MARKED) == 0, "frame {frame} published twice");
    }

    /// Keeps new readers out of the frame.
    pub(super) fn revoke(&self, frame: u32) {
        self.frames.get(frame).word.fetch_and(!(VALID | MARKED), Ordering::SeqCst);
    }

    /// If the frame has no readers, keeps new readers out. Returns whether it did.
    pub(super) fn try_retire(&self, frame: u32) -> bool {
        let word = &self.frames.get(frame).word;
        let retire = |word: u32| (word & PINS == 0).then_some(word & !(VALID | MARKED));
        let Ok(before) = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, retire) else { return false };
        if self.is_visited(frame) {
            word.fetch_or(before & (VALID | MARKED), Ordering::Release);
            return false;
        }
        true
    }

    /// Whether a lane names the frame. Call it after VALID was cleared.
    fn is_visited(&self, frame: u32) -> bool {
        let lanes = &self.lanes[..self.lanes_end.load(Ordering::SeqCst)];
        lanes.iter().any(|lane| lane.frame.load(Ordering::SeqCst) == frame)
    }

    /// Pins a frame in any state; for the state machine.
    pub(super) fn pin(&self, frame: u32) {
        self.frames.get(frame).word.fetch_add(1, Ordering::Acquire);
    }

    /// Whether a reader is in a frame that new readers cannot enter.
    pub(super) fn is_pinned(&self, frame: u32) -> bool {
        self.frames.get(frame).word.load(Ordering::SeqCst) & PINS > 0 || self.is_visited(frame)
    }

    /// Whether readers can enter the frame.
    pub(super) fn is_valid(&self, frame: u32) -> bool {
        self.frames.get(frame).word.load(Ordering::Acquire) & VALID != 0
    }

    pub(super) fn touches(&self, frame: u32) -> u8 {
        self.frames.get(frame).touches.load(Ordering::Relaxed)
    }

    pub(super) fn set_touches(&self, frame: u32, touches: u8) {
        self.frames.get(frame).touches.store(touches, Ordering::Relaxed);
    }

    /// Sets whether a thread waits for a frame. If so, [`Hot::unpin`] reports the removal of a last pin.
    pub(super) fn set_starved(&self, is_starved: bool) {
        self.is_starved.store(is_starved, Ordering::SeqCst);
    }

    /// The page in the frame. Only the state machine changes it.
    #[inline]
    fn page_in(&self, Frame(frame): Frame) -> Page {
        Page(self.frames.get(frame).page.load(Ordering::Relaxed))
    }
}

impl HotFrame {
    /// Counts a touch, and removes the marker.
    #[inline]
    fn touched(&self, frame: u32, word: u32) -> Pinned {
        let touches = self.touches.load(Ordering::Relaxed);
        if touches < TOUCHES_MAX {
            // Two threads may count one touch together: the count is an estimate.
            self.touches.store(touches + 1, Ordering::Relaxed);
        }
        let is_marked = word & MARKED != 0 && self.word.fetch_and(!MARKED, Ordering::Relaxed) & MARKED != 0;
        Pinned { frame: Frame(frame), is_marked }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pinned_frame_is_not_retired_and_a_retired_one_not_pinned() {
        let hot = Hot::new(4);
        hot.insert(Page(7), 2);
        assert_eq!(hot.try_pin(Page(7)), Err(Absent { frees_frame: false }), "not published yet");
        hot.publish(2, 0, true);
        let pinned = hot.try_pin(Page(7)).unwrap();
        assert!(pinned.is_marked && pinned.frame == Frame(2));
        assert!(!hot.try_pin(Page(7)).unwrap().is_marked, "a mark is reported once");
        assert!(!hot.try_retire(2));
        hot.unpin(Frame(2));
        hot.unpin(Frame(2));
        assert!(hot.try_retire(2));
        assert_eq!(hot.try_pin(Page(7)), Err(Absent { frees_frame: false }));
    }

    /// During the pin, another thread may have failed to evict the frame.
    #[test]
    fn a_look_up_that_pins_the_wrong_frame_reports_the_release() {
        let hot = Hot::new(4);
        hot.insert(Page(7), 2);
        hot.set_starved(true);
        assert_eq!(hot.try_pin(Page(7)), Err(Absent { frees_frame: true }));
        assert_eq!(hot.try_pin(Page(8)), Err(Absent { frees_frame: false }), "no frame was pinned");
    }

    #[test]
    fn a_visited_frame_is_not_retired_and_lanes_are_released() {
        let hot = Hot::new(4);
        hot.insert(Page(7), 2);
        hot.publish(2, 0, true);
        let seen = hot.visit(
            5,
            Page(7),
            |_| (),
            |pinned| {
                assert!(pinned.is_marked && !hot.try_retire(2));
                // The lane is taken: another thread of that number pins.
                hot.visit(5 + Hot::LANES, Page(7), |_| (), |pinned| assert!(!pinned.is_marked)).unwrap();
                pinned.frame
            },
        );
        assert_eq!(seen, Some(Frame(2)));
        assert_eq!(hot.visits(), 1);
        assert!(hot.try_retire(2));
        assert_eq!(hot.visit(5, Page(7), |_| (), |_| ()), None);
        let panics = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            hot.publish(2, 0, false);
            hot.visit(5, Page(7), |_| (), |_| panic!("during a visit"));
        }));
        assert!(panics.is_err() && hot.try_retire(2));
    }
}
