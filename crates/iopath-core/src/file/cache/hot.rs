//! What a hit touches: the look-up from page to frame, and each frame's state word. Both are atomic, so that any
//! number of threads look up and pin while one, which holds the state machine, changes them. Not the memory, and
//! not the state of pages: a page that is not found here may still be on its way.
//!
//! ```text
//!   word   │ 31 VALID │ 30 MARKED │ 29 … 0 pins │
//! ```
//!
//! A reader finds the frame, adds a pin, and only then looks whether the frame is valid and still holds the page; if
//! not, it takes the pin back and goes the slow way. Eviction clears VALID in the same step in which it sees that
//! there are no pins. So a frame that is pinned and valid stays what it is until the pin is gone. A look-up that
//! meets a table entry on the move may miss a page that is there; the slow way finds it.
//!
//! Who only copies a page ([`Hot::visit`]) writes nothing that other threads write, so that hits scale: rather than
//! pin the frame it says on its own [`Lane`] which frame it is in. Who takes a frame from its readers clears VALID
//! first and then looks at all lanes; the reader first writes its lane and then looks at VALID. Both steps of both are
//! sequentially consistent, so at least one of the two sees the other (hazard pointers: Michael, 2004).

use super::table::Table;
use super::{Frame, NO_FRAME};
use crate::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::file::page::Page;

const VALID: u32 = 1 << 31;
const MARKED: u32 = 1 << 30;
const PINS: u32 = MARKED - 1;
/// More touches say nothing more.
const TOUCHES_MAX: u8 = 3;

/// A page is not there to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a thread may wait for the frame"]
pub struct Absent {
    /// The look-up has held the frame of another page for a moment, and a thread waits for a frame: as for
    /// [`Hot::unpin`], call [`super::PageCache::handle_unpinned`].
    pub frees_frame: bool,
}

/// The lock-free half of the page cache. Shared by all threads; changed only through the state machine.
#[derive(Debug)]
pub struct Hot {
    table: Table,
    frames: Box<[HotFrame]>,
    lanes: Box<[Lane]>,
    /// Lanes from this one on were never used.
    lanes_end: AtomicUsize,
    /// Somebody waits for a frame: who takes the last pin off one says so.
    is_starved: AtomicBool,
    is_clean: Alone<AtomicBool>,
}

/// In cache lines of its own: it changes while hits read what is beside it.
#[derive(Debug)]
#[repr(align(128))]
struct Alone<T>(T);

/// A thread's own, in cache lines of its own.
#[derive(Debug)]
#[repr(align(128))]
struct Lane {
    /// The frame that its thread is in, or `NO_FRAME`.
    frame: AtomicU32,
    /// Visits. Changed only by who is in a frame.
    visits: AtomicU64,
}

#[derive(Debug)]
struct HotFrame {
    page: AtomicU64,
    word: AtomicU32,
    touches: AtomicU8,
}

/// A page that is there and stays until it is unpinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// Where its bytes are.
    pub frame: Frame,
    /// Readahead wants to know that it has been reached; said once.
    pub is_marked: bool,
}

impl Default for Lane {
    fn default() -> Self {
        Self { frame: AtomicU32::new(NO_FRAME), visits: AtomicU64::new(0) }
    }
}

/// Leaves the frame whatever happens in it.
struct Visit<'a>(&'a Lane);

impl Drop for Visit<'_> {
    fn drop(&mut self) {
        self.0.frame.store(NO_FRAME, Ordering::Release);
    }
}

impl Hot {
    /// More threads than this share lanes: while one is in a frame, another with the same lane pins instead.
    pub const LANES: usize = 64;

    pub(super) fn new(frames: u32) -> Self {
        let frame = |_| HotFrame {
            page: AtomicU64::new(Page::MAX.0),
            word: AtomicU32::new(0),
            touches: AtomicU8::new(0),
        };
        Self {
            table: Table::new(frames),
            frames: (0..frames).map(frame).collect(),
            lanes: (0..Self::LANES).map(|_| Lane::default()).collect(),
            lanes_end: AtomicUsize::new(0),
            is_starved: AtomicBool::new(false),
            is_clean: Alone(AtomicBool::new(true)),
        }
    }

    /// Lets `act` look at `page` if it is there to be read: the whole of a hit. Counts a touch. The frame stays what it
    /// is until `act` returns, which should be soon: it is not told when somebody waits for a frame.
    ///
    /// `lane` is the calling thread's number. `ahead` is told the frame as soon as it is known: to have its bytes
    /// fetched into the processor's cache while this waits for the frame's state to come from memory.
    ///
    /// No lock, no system call, no allocation, and no write to what other threads write unless the page was hardly
    /// touched before.
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
        let hot = &self.frames[frame as usize];
        let word = hot.word.load(Ordering::SeqCst);
        if word & VALID == 0 || hot.page.load(Ordering::Relaxed) != page.0 {
            return None;
        }
        // Changed by who is in the lane alone: no addition that other processors would have to hear of.
        visit.0.visits.store(visit.0.visits.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Some(act(hot.touched(frame, word)))
    }

    /// Pages found by [`Hot::visit`] so far.
    pub fn visits(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.visits.load(Ordering::Relaxed)).sum()
    }

    /// Pins `page` if it is there to be read. Counts a touch.
    ///
    /// No lock, no system call, no allocation; one atomic addition if the page was touched before.
    #[inline]
    pub fn try_pin(&self, page: Page) -> Result<Pinned, Absent> {
        let Some(frame) = self.find(page) else { return Err(Absent { frees_frame: false }) };
        let hot = &self.frames[frame as usize];
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
        // Sequentially consistent: another thread of this number may have raised it, and who looks at all lanes after
        // this one has been written is to see that.
        if number >= self.lanes_end.load(Ordering::SeqCst) {
            self.lanes_end.fetch_max(number + 1, Ordering::SeqCst);
        }
        &self.lanes[number]
    }

    /// Takes a pin off. Whether somebody waits for a frame, and this may be one: then the state machine must be told
    /// with [`super::PageCache::handle_unpinned`].
    #[inline]
    pub fn unpin(&self, frame: Frame) -> bool {
        let word = self.frames[frame.0 as usize].word.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(word & PINS > 0, "frame {} unpinned more often than pinned", frame.0);
        word & PINS == 1 && self.is_starved.load(Ordering::SeqCst)
    }

    /// Whether no page is dirty, or on its way to the device: then a direct read may go without the lock.
    ///
    /// Whoever ends a write says so before the page can be read and before the write returns; that all is clean is said
    /// after the last write-back completed. So one who starts a direct read after a write returned, or after a read
    /// returned its bytes, either finds `false` here, or the bytes are at the device. A write that ends after this has
    /// looked was not over when the direct read started, and need not be seen by it.
    ///
    /// There is no such thing for direct writes: that nothing is cached now does not keep a writer out while the direct
    /// write is at the device, so it has to be registered, and that takes the lock.
    #[inline]
    pub fn is_clean(&self) -> bool {
        self.is_clean.0.load(Ordering::Acquire)
    }

    /// Changes nothing where nothing has changed, so that the line stays with those who read it.
    pub(super) fn set_clean(&self, is_clean: bool) {
        if self.is_clean.0.load(Ordering::Relaxed) != is_clean {
            self.is_clean.0.store(is_clean, Ordering::Release);
        }
    }

    /// The frame of `page`, there to be read or not.
    #[inline]
    pub(super) fn find(&self, page: Page) -> Option<u32> {
        self.table.find(page, |frame| self.page_in(frame)).map(|Frame(frame)| frame)
    }

    /// Has the processor fetch what a look-up of `page` will need.
    pub(super) fn prefetch(&self, page: Page) {
        self.table.prefetch(page);
    }

    /// Makes `page` findable in `frame`, not yet to be read.
    pub(super) fn insert(&self, page: Page, frame: u32) {
        self.frames[frame as usize].page.store(page.0, Ordering::Release);
        self.frames[frame as usize].touches.store(0, Ordering::Relaxed);
        self.table.insert(page, Frame(frame));
    }

    /// Makes the page in `frame` unfindable.
    pub(super) fn remove(&self, frame: u32) {
        self.table.remove(Frame(frame), |frame| self.page_in(frame));
        self.frames[frame as usize].page.store(Page::MAX.0, Ordering::Release);
    }

    /// Lets readers at the frame's page, with `pins` on it already.
    pub(super) fn publish(&self, frame: u32, pins: u32, is_marked: bool) {
        let mark = if is_marked { MARKED } else { 0 };
        let word = self.frames[frame as usize].word.fetch_add(VALID + mark + pins, Ordering::Release);
        debug_assert!(word & (VALID | MARKED) == 0, "frame {frame} published twice");
    }

    /// Takes the frame from new readers.
    pub(super) fn revoke(&self, frame: u32) {
        self.frames[frame as usize].word.fetch_and(!(VALID | MARKED), Ordering::SeqCst);
    }

    /// Takes the frame from readers if it has none; whether it is taken.
    pub(super) fn try_retire(&self, frame: u32) -> bool {
        let word = &self.frames[frame as usize].word;
        let retire = |word: u32| (word & PINS == 0).then_some(word & !(VALID | MARKED));
        let Ok(before) = word.fetch_update(Ordering::SeqCst, Ordering::Relaxed, retire) else { return false };
        if self.is_visited(frame) {
            word.fetch_or(before & (VALID | MARKED), Ordering::Release);
            return false;
        }
        true
    }

    /// Whether a reader says that it is in the frame. To be asked after VALID was cleared.
    fn is_visited(&self, frame: u32) -> bool {
        let lanes = &self.lanes[..self.lanes_end.load(Ordering::SeqCst)];
        lanes.iter().any(|lane| lane.frame.load(Ordering::SeqCst) == frame)
    }

    /// Pins a frame whether or not it may be read: for the state machine.
    pub(super) fn pin(&self, frame: u32) {
        self.frames[frame as usize].word.fetch_add(1, Ordering::Acquire);
    }

    /// Whether a reader is in a frame that new ones are not let at.
    pub(super) fn is_pinned(&self, frame: u32) -> bool {
        self.frames[frame as usize].word.load(Ordering::SeqCst) & PINS > 0 || self.is_visited(frame)
    }

    /// Whether readers are let at the frame.
    pub(super) fn is_valid(&self, frame: u32) -> bool {
        self.frames[frame as usize].word.load(Ordering::Acquire) & VALID != 0
    }

    pub(super) fn touches(&self, frame: u32) -> u8 {
        self.frames[frame as usize].touches.load(Ordering::Relaxed)
    }

    pub(super) fn set_touches(&self, frame: u32, touches: u8) {
        self.frames[frame as usize].touches.store(touches, Ordering::Relaxed);
    }

    /// Whether the last pin off a frame is to be told.
    pub(super) fn set_starved(&self, is_starved: bool) {
        self.is_starved.store(is_starved, Ordering::SeqCst);
    }

    /// What the frame's record says, which only the state machine changes.
    #[inline]
    fn page_in(&self, Frame(frame): Frame) -> Page {
        Page(self.frames[frame as usize].page.load(Ordering::Relaxed))
    }
}

impl HotFrame {
    /// A reader is let in: counts the touch, and takes the mark.
    #[inline]
    fn touched(&self, frame: u32, word: u32) -> Pinned {
        let touches = self.touches.load(Ordering::Relaxed);
        if touches < TOUCHES_MAX {
            // Two threads may count one touch together: good enough for a guess at what is used.
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
        assert!(!hot.try_pin(Page(7)).unwrap().is_marked, "a mark is told once");
        assert!(!hot.try_retire(2));
        hot.unpin(Frame(2));
        hot.unpin(Frame(2));
        assert!(hot.try_retire(2));
        assert_eq!(hot.try_pin(Page(7)), Err(Absent { frees_frame: false }));
    }

    /// The pin keeps the frame from eviction for a moment: nobody else may have tried in vain meanwhile.
    #[test]
    fn a_look_up_that_pins_in_vain_reports_the_frame_it_releases() {
        let hot = Hot::new(4);
        hot.insert(Page(7), 2);
        hot.set_starved(true);
        assert_eq!(hot.try_pin(Page(7)), Err(Absent { frees_frame: true }));
        assert_eq!(hot.try_pin(Page(8)), Err(Absent { frees_frame: false }), "no frame was pinned");
    }

    #[test]
    fn a_visited_frame_is_not_retired_and_no_lane_stays_taken() {
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
            hot.visit(5, Page(7), |_| (), |_| panic!("in the frame"));
        }));
        assert!(panics.is_err() && hot.try_retire(2));
    }
}
