//! Readahead: which pages to read before they are requested. Policy only: its input is misses and marked pages that were
//! reached, its output a [`Window`]. It reads nothing, and asks the caller which pages are cached.
//!
//! The window of a forward stream. The reader copies from left to right:
//!
//! ```text
//!            reader                        edge
//!              ▼                             ▼
//!   ───────────┬─────────┬─────────┬─────────┐ ─ ─ ─ ─ ┐
//!     read     │ chunk   │ chunk   │ chunk   │  next
//!   ───────────┴─────────┴─────────┴─────────┘ ─ ─ ─ ─ ┘
//!              M         M         M           ▲ requested when the reader reaches M
//!              ├──────── distance ───────────┤
//! ```
//!
//! Every chunk (the device's best request, aligned) has a marker M on the first of its pages that the reader
//! touches. Reaching a marker restores the distance: one chunk was used, one chunk is requested. So the device always has
//! the same number of requests of the same size, and a call here is made once per chunk, not once per page.
//!
//! - *Ramp-up.* The first window is a small multiple of the first request, later ones are two or four times the
//!   last, as in Linux `mm/readahead.c`, until the distance is reached. A reader that stops early has caused reads of
//!   at most about twice its bytes.
//! - *The distance follows the device* (`readahead/window_tuner.rs`): it doubles while that raises the measured
//!   throughput. Streams active at once share it, each with two chunks at least, within the budget.
//! - *Streams are distinguished by position* (`readahead/streams.rs`, `readahead/recent.rs`): forward, backward and
//!   strided, up to `streams_max` interleaved. Callers pass no handle.
//! - *Context.* Cached pages just before a miss are the trace of a stream whose state was replaced.
//! - *Thrash.* A page that was evicted before use, or is absent although it was read ahead, halves the stream's window.
//! - *Credit* (`readahead/credit.rs`) limits the cost of wrong guesses: under uniform random reads, less than 1% of
//!   the bytes.
//!
//! # Why the block size causes no dip
//!
//! A buffered read through Linux, published in 2009 (dd, 16 KiB–64 MiB a call, remote disk, readahead 128 and
//! 512 KiB), lost 60% of its throughput at block sizes of 512 KiB–4 MiB: 79 MiB/s at 2 MiB between 151 at
//! 256 KiB and 204 at 64 MiB. No cause was found. The table shows two things. The dip depends on the size of requests at
//! the same readahead: with requests of 64 KiB instead of 512 KiB a window is eight requests, not one, and the lowest
//! value is 138 MiB/s. And early unplugging changes it little. So disk and link had too little work *at the same time*,
//! and in that kernel the caller's block size affects that: a call larger than the window starts a window of its own, and
//! the position of the end of a call relative to markers decides whether the next window is requested while the last is
//! still in flight or after it.
//!
//! Here the block size has no effect. A call larger than the distance is served chunk by chunk as its pages are copied, by
//! the same markers as small calls. It neither starts a window nor waits for its own end, the distance reaches past the
//! end of the call, and it is never less than two requests. So at every block size the device gets the same requests at
//! the same depth. The tests sweep 4 KiB–64 MiB over devices of several delays.

mod credit;
mod recent;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod window_tuner;

use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use credit::Credit;
use recent::Recent;
use stream::{Distance, Stream};
use streams::{Reached, Streams};
use window_tuner::WindowTuner;

pub use stream::{Course, Window};

/// The limits of readahead, and the properties of the device that it needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadaheadConfig {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// The size of the device's best request: windows consist of these.
    pub request_bytes: u64,
    /// The most bytes that are read ahead and not yet used, of all streams together. A part of the page cache.
    pub budget_bytes: u64,
    /// How many interleaved streams are distinguished.
    pub streams_max: u16,
}

impl Default for ReadaheadConfig {
    fn default() -> Self {
        Self { page_bytes: 4096, request_bytes: 512 << 10, budget_bytes: 64 << 20, streams_max: 128 }
    }
}

/// How the caller will read (`posix_fadvise`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Unknown: patterns are detected.
    #[default]
    Normal,
    /// Sequentially: the first miss starts a full window.
    Sequential,
    /// At random: nothing is read ahead.
    Random,
}

/// Statistics of readahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadaheadStats {
    /// Streams detected.
    pub streams: u64,
    /// Of those, by the pages that were cached before a miss.
    pub by_context: u64,
    /// Windows with pages that had not been requested.
    pub windows: u64,
    /// Such pages.
    pub async_pages: u64,
    /// Windows halved because pages were evicted before use.
    pub shrinks: u64,
}

/// The policy for one file or device.
#[derive(Debug)]
pub struct Readahead {
    config: ReadaheadConfig,
    /// The page after the last.
    end: Page,
    pattern: Pattern,
    streams: Streams,
    recent: Recent,
    window_tuner: WindowTuner,
    credit: Credit,
    stats: ReadaheadStats,
}

impl Readahead {
    /// A stream without a miss or marker for this long has no share of the distance any more.
    const ACTIVE: Duration = Duration::from_secs(2);

    /// For a file or device of `end` pages. Allocates memory for all streams.
    ///
    /// # Panics
    /// If a page, a request or the budget has no bytes, or there are no streams: a bug of the caller.
    pub fn new(config: ReadaheadConfig, end: Page) -> Self {
        let ReadaheadConfig { page_bytes, request_bytes, budget_bytes, streams_max } = config;
        assert!(page_bytes > 0 && request_bytes > 0 && budget_bytes > 0 && streams_max > 0, "{config:?}");
        let window_tuner = WindowTuner::new(request_bytes.saturating_mul(2).min(budget_bytes), budget_bytes);
        Self {
            config,
            end,
            pattern: Pattern::Normal,
            streams: Streams::new(streams_max),
            recent: Recent::new(usize::from(streams_max) * 2),
            window_tuner,
            credit: Credit::new(),
            stats: ReadaheadStats::default(),
        }
    }

    /// A read finds its page `at.start()` neither cached nor being read; it continues to `at.end()`. Returns the pages to
    /// read: at least the first of `at`.
    ///
    /// `is_cached` returns whether a page is cached or being read.
    ///
    /// # Panics
    /// If `at` is empty: a bug of the caller.
    pub fn on_miss(&mut self, at: PageRange, is_cached: impl Fn(Page) -> bool, now: Instant) -> Window {
        assert!(!at.is_empty(), "a miss of no page");
        self.credit.earn(at.pages());
        let distance = self.distance(now);
        if self.pattern == Pattern::Random {
            return Window::only(at, distance);
        }
        if let Some(index) = self.streams.missed_by(at) {
            let (window, shrinks) = self.streams.miss(index, at, distance, self.end, now);
            self.stats.shrinks += u64::from(shrinks);
            return self.count(window);
        }
        match self.found_at(at, distance, is_cached) {
            Some(stream) => {
                self.stats.streams += 1;
                let index = self.streams.insert(stream, now);
                let (window, _) = self.streams.miss(index, at, distance, self.end, now);
                self.count(window)
            }
            None => Window::only(at, distance),
        }
    }

    /// A read reaches a marked page, `at.start()`, and continues to `at.end()`. Returns the pages to read now, if any.
    ///
    /// `is_cached` returns whether a page is cached or being read.
    pub fn on_marker(
        &mut self,
        at: PageRange,
        is_cached: impl Fn(Page) -> bool,
        now: Instant,
    ) -> Option<Window> {
        if self.pattern == Pattern::Random {
            return None;
        }
        let distance = self.distance(now);
        let index = match self.streams.reached_by(at) {
            Some(Reached::Alive(index)) => index,
            Some(Reached::Dead) => return None,
            None => self.adopt(at, distance, is_cached, now)?,
        };
        self.credit.refund(self.streams.take_stake(index));
        let window = self.streams.reach(index, at, distance, self.end, now)?;
        Some(self.count(window))
    }

    /// A page that was read ahead has been evicted before use: halves the window of its stream, once until that stream is
    /// active again.
    pub fn on_evicted_unused(&mut self, page: Page) {
        self.stats.shrinks += u64::from(self.streams.shrink_at(page));
    }

    /// A read of `bytes` bytes was submitted. Called for reads that result from [`Window`]s, not for other I/O.
    pub fn on_issued(&mut self, bytes: u64, now: Instant) {
        self.window_tuner.issued(bytes, now);
    }

    /// A read of `bytes` bytes has completed, of which `moved` were transferred.
    pub fn on_completed(&mut self, bytes: u64, moved: u64, now: Instant) {
        self.window_tuner.completed(bytes, moved, now);
    }

    /// The file or device ends before page `end` from now on.
    pub fn set_end(&mut self, end: Page) {
        self.end = end;
    }

    /// Sets how the caller will read.
    pub fn set_pattern(&mut self, pattern: Pattern) {
        self.pattern = pattern;
    }

    /// Statistics of readahead.
    pub const fn stats(&self) -> &ReadaheadStats {
        &self.stats
    }

    /// The bytes that are kept in flight, as determined so far.
    pub const fn distance_bytes(&self) -> u64 {
        self.window_tuner.target()
    }

    /// The throughput measured at that distance, in bytes per second; 0 while it is unknown.
    pub const fn bytes_per_second(&self) -> u64 {
        self.window_tuner.rate()
    }

    /// How far one stream may read ahead now.
    fn distance(&self, now: Instant) -> Distance {
        let active = self.streams.active_since(now, Self::ACTIVE).max(1);
        let request = self.config.request_bytes;
        let share = (self.window_tuner.target() / active)
            .max(request.saturating_mul(2))
            .min(self.config.budget_bytes / active);
        let whole_requests = if share < request { share } else { share - share % request };
        let pages = |bytes: u64| (bytes / u64::from(self.config.page_bytes)).max(1);
        Distance::new(pages(whole_requests), pages(request))
    }

    /// A new stream that a miss belongs to.
    fn found_at(
        &mut self,
        at: PageRange,
        distance: Distance,
        is_cached: impl Fn(Page) -> bool,
    ) -> Option<Stream> {
        if self.pattern == Pattern::Sequential {
            return Some(Stream::trusted(at, distance));
        }
        let guess = self.recent.observe(at).filter(|guess| {
            // A distance of less than two such requests has no room for anything but them.
            guess.course == Course::Forward || at.pages() <= distance.pages / 2
        });
        let history = cached_before(at.start(), distance.pages, is_cached);
        let first = stream::first_size(at.pages(), distance);
        let is_context = guess.is_none() && history > at.pages().max(3);
        let found = match guess {
            Some(guess) => self.bet(guess.course, at, first, guess.is_certain(), distance),
            None if is_context => {
                self.bet(Course::Forward, at, history.saturating_add(at.pages()), false, distance)
            }
            None if at.start() == Page(0) => self.bet(Course::Forward, at, first, false, distance),
            None => None,
        };
        self.stats.by_context += u64::from(is_context && found.is_some());
        // A request of several chunks is read chunk by chunk, but it is no evidence for pages beyond it.
        found.or_else(|| (at.pages() > distance.chunk).then(|| Stream::of_one_request(at, distance)))
    }

    /// A stream that reads ahead as much of `size` as the credit allows; `None` if that is nothing.
    fn bet(
        &mut self,
        course: Course,
        at: PageRange,
        size: u64,
        is_certain: bool,
        distance: Distance,
    ) -> Option<Stream> {
        if is_certain {
            return Some(Stream::new(course, at, size, distance));
        }
        let stake = self.credit.stake(size.min(distance.pages).saturating_sub(at.pages()));
        let stream = Stream::new(course, at, at.pages().saturating_add(stake), distance);
        (stake > 0).then(|| stream.with_stake(stake))
    }

    /// A marked page without a stream, whose state was replaced. Continues at the next page that is absent.
    fn adopt(
        &mut self,
        at: PageRange,
        distance: Distance,
        is_cached: impl Fn(Page) -> bool,
        now: Instant,
    ) -> Option<usize> {
        let ahead = (1..=distance.pages).find(|ahead| !is_cached(at.start() + *ahead))?;
        let stream = Stream::new(
            Course::Forward,
            PageRange::new(at.start(), ahead),
            ahead.saturating_mul(2),
            distance,
        );
        self.stats.streams += 1;
        Some(self.streams.insert(stream.issued_to(at.start() + ahead), now))
    }

    fn count(&mut self, window: Window) -> Window {
        self.stats.windows += u64::from(window.async_pages() > 0);
        self.stats.async_pages = self.stats.async_pages.saturating_add(window.async_pages());
        window
    }
}

/// How many pages in a row are cached before `page`, counted up to `max`.
fn cached_before(page: Page, max: u64, is_cached: impl Fn(Page) -> bool) -> u64 {
    let max = max.min(page.0);
    (1..=max).find(|back| !is_cached(page - *back)).map_or(max, |hole| hole - 1)
}
