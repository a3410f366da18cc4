//! The page cache as a state machine. It records the page in each frame, decides which frames are read, written back
//! and evicted, and keeps the callers that wait. It moves no bytes and has no memory: a [`Frame`] is a number, and the
//! driver owns the arena.
//!
//! ```text
//!             read, prefetch                        evict
//!   absent ──────────────────▶ reading ───▶ clean ────────▶ absent
//!     │                                      │ ▲
//!     │ write, whole page        begin_write │ │ written
//!     ▼                            end_write ▼ │
//!   filling ────────────────────────────▶ dirty ───▶ writing ── error ──▶ dirty (failed)
//! ```
//!
//! Events are method calls. [`PageCache::poll_io`] returns I/O: runs of pages to read, or to write in sector order, and
//! flushes of the device. [`PageCache::poll_ready`] returns the outcomes of callers that wait. Dirty and pinned pages
//! are never evicted, and dirty pages never occupy all frames. A page that many callers miss is read once.
//!
//! [`BufferedPath`](crate::buffered::BufferedPath) drives it, together with readahead and the I/O in flight.
//!
//! # Threads
//!
//! The driver protects the state machine with one lock. A hit needs no lock: [`PageCache::hot`] returns the [`Hot`]
//! half, which any thread may use. `Buffered` in `iopath-os` does
//!
//! ```text
//!   copy:   hot.visit(page) ──▶ copy the frame's bytes        (is_marked: lock, report to readahead)
//!   borrow: hot.try_pin(page) ──▶ borrow the frame's bytes ──▶ hot.unpin(frame)
//!             │ absent
//!             ▼
//!           lock: cache.read(page, waiter) ──▶ poll_io ──▶ queue, device ──▶ handle_completion ──▶ poll_ready
//! ```
//!
//! A guard of a borrowed page is a pin. The bytes of the page never change, because no writer enters a pinned frame:
//! [`PageCache::begin_write`] moves the page to another frame instead, and the last unpin frees the old frame. The same
//! holds for a frame that is being written to the device. A page has one write in flight at a time. The new bytes are
//! written after the earlier write has completed. Bytes of a frame change only between `begin_write` and `end_write`
//! and while the page is being read, and no reader can pin the frame at those times.
//!
//! # Direct I/O (rule 2 of the path)
//!
//! [`PageCache::begin_direct`] writes back and drops the pages of its range, and keeps writers out of it until
//! [`PageCache::end_direct`]; [`PageCache::begin_truncate`] does so for a volume that shrinks. See `cache/direct.rs`.
//!
//! # Errors (rule 6 of the path)
//!
//! A failed write-back leaves its pages dirty. Every flush that covers them writes them again, and fails until a write
//! succeeds or the pages are dropped by [`PageCache::discard`] or a truncation. A failed flush of the device makes the
//! pages dirty again that it should have covered. If some of these pages have left the cache, or were written by direct
//! I/O, every later flush fails until [`PageCache::forget_loss`]. Only the cache flushes its device, also for direct
//! writes ([`PageCache::end_forced`]). So when a flush succeeds, the outcome of every earlier flush is known.

mod budget;
mod direct;
mod flush;
mod forced;
mod ghost;
mod growing;
mod hot;
mod io;
mod page_set;
mod range;
mod read;
mod replace;
mod room;
mod stats;
mod table;
mod throttle;
mod write;
mod write_behind;

use crate::collections::list::{Links, List};
use crate::collections::sorted::SortedSet;
use crate::error::IoError;
use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use budget::Budget;
use direct::Directs;
use flush::Flushes;
use io::{IoSlot, Writeback};
use replace::{Replacement, Residents, Verdict};
use room::Room;
use slab::Slab;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use throttle::Throttle;
use write_behind::WriteBehind;

pub use direct::{DirectStep, DirectTag};
pub use forced::Forced;
pub use hot::{Absent, Hot, Pinned};
pub use io::{IoTag, PageIo};
pub use range::Dropped;
pub use stats::CacheStats;
pub use write::{Part, WriteStep};

/// The location of a page's bytes: the number of a page-sized piece of the driver's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Frame(pub u32);

/// Not the number of a frame.
const NO_FRAME: u32 = u32::MAX;

/// 2^64 over the golden ratio, made odd: the high bits of a product with it spread runs of numbers evenly (Knuth, The
/// Art of Computer Programming, volume 3, section 6.4).
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// The size of a page cache, and its thresholds for write-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// The number of frames: the budget at first, and its maximum.
    pub frames: u32,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The maximum pages of one read or write: the device's best request.
    pub io_pages_max: u32,
    /// The maximum number of reads in flight.
    pub reads_max: u32,
    /// The maximum number of writes in flight.
    pub writes_max: u32,
    /// Write-back begins when more than this share of the frames, in percent, is dirty.
    pub background_percent: u8,
    /// Between `background_percent` and this share, writers pause for longer and longer.
    pub limit_percent: u8,
    /// Write-back begins when a page has been dirty for this long.
    pub expire: Duration,
}

impl CacheConfig {
    /// One part in this many of the frames is for pages that were requested once. Pages that are read ahead should fit
    /// into that part; otherwise they may be evicted before use.
    pub const SCAN_PARTS: u32 = 8;

    /// The size of that part of so many frames: at least one.
    pub(super) const fn scan_frames(frames: u32) -> u32 {
        let part = frames / Self::SCAN_PARTS;
        if part > 0 { part } else { 1 }
    }
}

impl Default for CacheConfig {
    /// 256 MiB of 4 KiB pages. Write-back begins at 10% dirty pages or after 5 s; the limit is 40%.
    fn default() -> Self {
        Self {
            frames: 65_536,
            page_bytes: 4096,
            io_pages_max: 128,
            reads_max: 64,
            writes_max: 16,
            background_percent: 10,
            limit_percent: 40,
            expire: Duration::from_secs(5),
        }
    }
}

/// A waiter and its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number that the caller passed as `waiter`.
    pub waiter: u64,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The page is cached and pinned. The waiter must unpin it.
    Pinned(Frame),
    /// The page is cached, and the waiting writer holds it: as [`WriteStep::Into`].
    Writable(Frame),
    /// The reason for the wait no longer exists: call again.
    Retry,
    /// The flush or write-back has completed, or the forced write is on the medium.
    Done,
    /// The direct I/O may begin: as [`DirectStep::Go`].
    Direct(DirectTag),
    /// The page could not be read, or a page or the device could not be flushed. The direct I/O has not begun.
    Failed(IoError),
    /// The page cannot be written: dirty pages that cannot be written back occupy all frames that dirty pages may have.
    Unwritable {
        /// The number of pages whose write-back failed.
        pages: u32,
        /// The error of the last of their writes.
        source: IoError,
    },
}

/// The result of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lookup {
    /// The page is cached and pinned. The caller must unpin it.
    Hit(Pinned),
    /// [`PageCache::poll_ready`] will name the waiter.
    Wait,
}

/// The state of a frame. The flags change independently of one another.
#[allow(clippy::struct_excessive_bools)]
#[derive(Debug, Clone, Copy)]
struct Meta {
    page: Page,
    state: State,
    /// A writer is copying into it: no reader can enter, and write-back skips it.
    is_held: bool,
    /// In flight, but its page is in another frame or was dropped. Free when the I/O has completed and the frame is
    /// unpinned.
    is_orphan: bool,
    /// Its last write-back failed.
    is_failed: bool,
    /// Written in a run of its own, since a longer run that included it failed.
    is_alone: bool,
    /// Read ahead, and not yet used as far as known.
    is_ahead: bool,
    is_marked: bool,
    in_main: bool,
    /// The epoch in which it became dirty.
    epoch: u64,
    /// The time at which it became dirty.
    since: Instant,
    /// The flush of the device that covers its last write-back.
    flushed_by: u64,
    /// The error of a device flush that failed while the frame was being written: the device may have lost its bytes.
    flush_error: Option<IoError>,
    /// The first caller that waits for it.
    waiters: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Free,
    /// To be read.
    ToRead,
    /// Being read from the device.
    Reading,
    /// Allocated for a page that a writer fills whole.
    Filling,
    Clean,
    Dirty,
    /// Being written to the device.
    Writing,
}

impl Meta {
    const FREE: Self = Self {
        page: Page::MAX,
        state: State::Free,
        is_held: false,
        is_orphan: false,
        is_failed: false,
        is_alone: false,
        is_ahead: false,
        is_marked: false,
        in_main: false,
        epoch: 0,
        since: Instant::ZERO,
        flushed_by: 0,
        flush_error: None,
        waiters: NO_WAITER,
    };

    /// Whether a writer holds it, and its earlier bytes count as written.
    const fn is_held_clean(&self) -> bool {
        self.is_held && matches!(self.state, State::Clean)
    }

    /// Whether the device lacks its bytes.
    const fn is_unsaved(&self) -> bool {
        matches!(self.state, State::Dirty | State::Writing)
    }
}

const NO_WAITER: u32 = u32::MAX;

/// A caller that waits for a page.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    token: u64,
    /// Whether the caller waits for a pin. Otherwise it calls again.
    wants_pin: bool,
    next: u32,
}

/// The page cache's state machine. The module's documentation describes its use by several threads.
pub struct PageCache {
    config: CacheConfig,
    hot: Arc<Hot>,
    /// The frames that have been used so far.
    frames: Vec<Meta>,
    links: Links,
    /// Used frames without a page.
    free: List,
    /// Frames without a page that still have pins.
    orphans: List,
    budget: Budget,
    /// Frames that writers copy into.
    held: Vec<u32>,
    /// Frames to be read, in the order of their requests.
    to_read: List,
    replacement: Replacement,
    /// Dirty frames by page, except held frames.
    dirty: SortedSet,
    /// Dirty frames, including held frames; those dirty for longest come first.
    aged: List,
    /// Frames with bytes that the device lacks, including held frames and frames being written.
    unsaved: u32,
    /// Counts flushes: a flush covers the pages that were dirty before it.
    epoch: u64,
    waiting: Slab<Waiting>,
    /// Callers that wait for any frame.
    starved: VecDeque<u64>,
    ready: VecDeque<Ready>,
    ios: Slab<IoSlot>,
    writeback: Writeback,
    flushes: Flushes,
    directs: Directs,
    throttle: Throttle,
    room: Room,
    behind: WriteBehind,
    /// Pages that were read ahead and evicted unused, for readahead.
    evicted_unused: VecDeque<Page>,
    keeps_nothing: bool,
    stats: CacheStats,
}

impl fmt::Debug for PageCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageCache")
            .field("config", &self.config)
            .field("dirty", &self.dirty.len())
            .field("unsaved", &self.unsaved)
            .field("waiting", &self.waiting.len())
            .field("ready", &self.ready.len())
            .field("ios", &self.ios.len())
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}

impl PageCache {
    /// An empty cache. Its tables take about 160 bytes per frame in use, and once more than 1,024 were in use, up to 24
    /// bytes for each other frame.
    ///
    /// # Panics
    /// If there are no frames, or an I/O may have no pages: a bug of the caller.
    pub fn new(config: CacheConfig) -> Self {
        let CacheConfig { frames, io_pages_max, reads_max, writes_max, .. } = config;
        assert!(frames > 0 && frames < NO_WAITER, "a cache of {frames} frames");
        assert!(io_pages_max > 0 && reads_max > 0 && writes_max > 0, "{config:?}");
        // Each I/O has at least one frame of its own, except a flush.
        let ios_max = reads_max.saturating_add(writes_max).min(frames.saturating_add(1)) as usize;
        Self {
            hot: Arc::new(Hot::new(frames)),
            frames: Vec::with_capacity(frames as usize),
            links: Links::with_capacity(frames),
            free: List::EMPTY,
            orphans: List::EMPTY,
            budget: Budget::new(frames),
            held: Vec::with_capacity(64),
            to_read: List::EMPTY,
            replacement: Replacement::new(frames),
            dirty: SortedSet::with_capacity(frames as usize),
            aged: List::EMPTY,
            unsaved: 0,
            epoch: 1,
            waiting: Slab::with_capacity(64),
            starved: VecDeque::with_capacity(64),
            ready: VecDeque::with_capacity(64),
            ios: Slab::with_capacity(ios_max),
            writeback: Writeback::default(),
            flushes: Flushes::default(),
            directs: Directs::default(),
            throttle: Throttle::new(&config),
            room: Room::new(&config),
            behind: WriteBehind::new(io_pages_max),
            evicted_unused: VecDeque::with_capacity(Self::EVICTED_UNUSED_MAX),
            keeps_nothing: false,
            stats: CacheStats::default(),
            config,
        }
    }

    /// The maximum number of pages evicted unused that are recorded between two calls.
    const EVICTED_UNUSED_MAX: usize = 64;

    /// The half that serves hits without the lock.
    pub const fn hot(&self) -> &Arc<Hot> {
        &self.hot
    }

    /// The configuration, with the present budget.
    pub const fn config(&self) -> &CacheConfig {
        &self.config
    }

    /// The next waiter whose outcome is known.
    pub fn poll_ready(&mut self) -> Option<Ready> {
        self.ready.pop_front()
    }

    /// Whether every cached page has the bytes that are on the medium, and no caller or I/O uses the cache.
    pub fn is_settled(&self) -> bool {
        let has_callers = !(self.waiting.is_empty() && self.starved.is_empty() && self.ready.is_empty());
        let has_io = !(self.ios.is_empty() && self.to_read.is_empty());
        !has_callers && !has_io && self.is_flushed()
    }

    /// Whether every write that has ended is on the medium, and none is in progress.
    pub fn is_flushed(&self) -> bool {
        let is_written = self.unsaved == 0 && self.held.is_empty() && self.room.is_settled();
        is_written && self.flushes.is_settled() && self.directs.is_settled()
    }

    /// The next page that was read ahead and evicted unused, for [`crate::file::readahead::Readahead`]. If there are
    /// many, some are not reported.
    pub fn poll_evicted_unused(&mut self) -> Option<Page> {
        self.evicted_unused.pop_front()
    }

    /// Whether pages are kept: `false` for reads whose pages will not be read again.
    pub fn set_keep(&mut self, keep: bool) {
        self.keeps_nothing = !keep;
    }

    /// Prefetches the table entries for a look-up or insertion of `page`. Useful if other work comes in between.
    pub fn prefetch(&self, page: Page) {
        self.hot.prefetch(page);
        self.replacement.prefetch(page);
    }

    fn meta(&mut self, frame: u32) -> &mut Meta {
        &mut self.frames[frame as usize]
    }

    /// Allocates a frame for `page`, so that look-ups find it. `None` if all frames are dirty, pinned or in flight.
    fn take_frame(&mut self, page: Page, state: State) -> Option<u32> {
        let frame = self.take_spare()?;
        self.place(page, state, frame);
        Some(frame)
    }

    /// Puts `page` into a frame without a page.
    fn place(&mut self, page: Page, state: State, frame: u32) {
        let in_main = self.replacement.is_known(page);
        *self.meta(frame) = Meta { page, state, in_main, ..Meta::FREE };
        self.hot.insert(page, frame);
    }

    /// A frame in no list and without a page, for a caller. Exceeds the budget before it makes the caller wait.
    fn take_spare(&mut self) -> Option<u32> {
        self.spare_in_budget().or_else(|| self.add_frame())
    }

    /// The same, within the budget.
    fn spare_in_budget(&mut self) -> Option<u32> {
        let free = self.links.pop_front(&mut self.free);
        let free = free.or_else(|| if self.has_budget() { self.add_frame() } else { None });
        if free.is_some() {
            return free;
        }
        self.budget.add_pressure();
        self.reap_orphan().or_else(|| self.evict())
    }

    /// The number of frames without a page and without pins.
    const fn free_frames(&self) -> u32 {
        self.config.frames.saturating_sub(self.used_frames()) + self.free.len()
    }

    fn reap_orphan(&mut self) -> Option<u32> {
        let frame = self.links.iter(&self.orphans).find(|frame| !self.hot.is_pinned(*frame))?;
        self.links.remove(&mut self.orphans, frame);
        Some(frame)
    }

    /// Evicts a clean page and returns its frame.
    fn evict(&mut self) -> Option<u32> {
        let Self { replacement, links, hot, frames, keeps_nothing, .. } = self;
        let frame = replacement.evict(links, &mut View { hot, frames, keeps_nothing: *keeps_nothing })?;
        self.hot.remove(frame);
        self.leave(frame);
        self.stats.evicted += 1;
        // Most likely the next to be evicted.
        if let Some(next) = self.replacement.next() {
            self.prefetch(self.frames[next as usize].page);
        }
        Some(frame)
    }

    /// Adds a clean frame to the queues of eviction.
    fn enqueue_clean(&mut self, frame: u32) {
        let in_main = self.meta(frame).in_main;
        self.replacement.insert(frame, in_main, &mut self.links);
        self.budget.free_up();
        // While frames are free, pages that leave the small queue stay in the main queue. A scan larger than the cache
        // then cycles through the small queue. Its first pages stay in the cache, and they serve the next scan better
        // than its last pages.
        if self.free_frames() > 0
            && let Some(frame) = self.replacement.overflow(&mut self.links)
        {
            self.meta(frame).in_main = true;
        }
    }

    /// Records statistics and pending flushes of a page that leaves the cache.
    fn leave(&mut self, frame: u32) {
        let Meta { page, state, is_ahead, flushed_by, .. } = *self.meta(frame);
        self.flushes.pages_leave(PageRange::new(page, 1), flushed_by);
        if !is_ahead || state != State::Clean {
            return;
        }
        if self.hot.touches(frame) > 0 {
            self.stats.readahead_used += 1;
            return;
        }
        self.stats.readahead_wasted += 1;
        if self.evicted_unused.len() < Self::EVICTED_UNUSED_MAX {
            self.evicted_unused.push_back(page);
        }
    }

    /// Frees a frame that is in no list and has no page, now or with its last unpin.
    fn release(&mut self, frame: u32) {
        self.set_failed(frame, false);
        *self.meta(frame) = Meta::FREE;
        if self.hot.is_pinned(frame) {
            self.links.push_back(&mut self.orphans, frame);
        } else if self.is_above_budget() {
            self.vacate(frame);
        } else {
            self.links.push_back(&mut self.free, frame);
        }
    }
}

/// The frames, as eviction needs them.
struct View<'a> {
    hot: &'a Hot,
    frames: &'a mut [Meta],
    keeps_nothing: bool,
}

impl Residents for View<'_> {
    fn judge(&mut self, frame: u32, enough: u8) -> Verdict {
        let touches = self.hot.touches(frame);
        // The first touch of a page that was read ahead is the read that it was prefetched for.
        let first = u8::from(self.frames[frame as usize].is_ahead);
        if touches.saturating_sub(first) >= enough && !self.keeps_nothing {
            self.hot.set_touches(frame, touches - 1);
            Verdict::Touched
        } else if self.hot.try_retire(frame) {
            Verdict::Retired
        } else {
            Verdict::Pinned
        }
    }

    fn promote(&mut self, frame: u32) {
        let meta = &mut self.frames[frame as usize];
        meta.in_main = true;
        self.hot.set_touches(frame, u8::from(meta.is_ahead));
    }

    fn page(&self, frame: u32) -> Page {
        self.frames[frame as usize].page
    }
}
