//! Readahead: decides which pages to read before they are requested. Policy only: its input is misses and markers that
//! a reader has reached, its output is a [`Window`]. It does no I/O. A callback returns which pages are cached.
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
//! Every chunk (the device's best request, aligned) has a marker M on the first of its pages that the reader touches.
//! Reaching a marker restores the distance: one chunk was used, one chunk is requested. So the device always has the
//! same number of requests of the same size. The caller calls readahead once per chunk, not once per page.
//!
//! - *Ramp-up.* The first window is a small multiple of the first request, later ones are two or four times the last,
//!   as in Linux `mm/readahead.c`, until the distance is reached. When a reader stops early, the device has read at
//!   most about twice the reader's bytes.
//! - *The distance follows the device* (`readahead/window_tuner.rs`): it doubles while that raises the measured
//!   throughput. Active streams share the distance. Each gets at least two chunks, within the budget.
//! - *Streams are distinguished by position* (`readahead/streams.rs`, `readahead/recent.rs`): forward, backward and
//!   strided, up to `streams_max` interleaved. Callers pass no handle.
//! - *Context.* Cached pages just before a miss indicate a stream whose state was replaced.
//! - *Thrashing.* The window of a stream is halved when a page read ahead was evicted before use.
//! - *Credit* (`readahead/credit.rs`) limits the cost of wrong guesses: under uniform random reads, less than 1% of
//!   the bytes.
//!
//! # Why the block size causes no dip
//!
//! A measurement of sequential reads through a remote target was published in 2009 (dd, 16 KiB–64 MiB a call, Linux,
//! readahead 128 and 512 KiB). At block sizes of 512 KiB–4 MiB, the reads lost 60% of their throughput: 79 MiB/s at 2
//! MiB, compared with 151 at 256 KiB and 204 at 64 MiB. No cause was found. The windows of Linux (`readahead/linux.rs`)
//! alone are not the cause: from the maximum window on, they are the same at every block size. A model of the lab has
//! such a dip if calls do not overlap and the target idles between its threads. Then each call drains the device:
//! `docs/experiments.md`.
//!
//! Here the device is not drained between calls. A call larger than the distance is served chunk by chunk as its pages
//! are copied, with the same markers as small calls. It starts no window of its own. The distance extends past the end
//! of the call, and is never less than two requests. So at every block size the device gets the same requests at the
//! same depth. The tests sweep 4 KiB–64 MiB over devices of several delays.

mod credit;
mod linux;
mod recent;
mod stream;
mod streams;
#[cfg(test)]
mod tests;
mod window_tuner;

use crate::file::page::{Page, PageRange};
use crate::time::{Duration, Instant};
use credit::Credit;
use linux::Linux;
use recent::Recent;
use std::fmt;
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
    /// The maximum bytes read ahead and not yet used, of all streams together. A part of the page cache.
    pub budget_bytes: u64,
    /// The maximum number of interleaved streams.
    pub streams_max: u16,
    /// The rule for the size and the position of windows.
    pub policy: WindowPolicy,
}

/// The rule for the size and the position of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WindowPolicy {
    /// The policy of this library: requests of the device, at a distance that follows its throughput.
    #[default]
    Adaptive,
    /// The policy of the Linux kernel (`mm/readahead.c`), with windows of at most `budget_bytes`. A volume has one
    /// state for all readers, as an open file has in the kernel.
    Linux,
    /// The policy of Linux 2.6.23 to 2.6.30: without windows by context, and with one state for each open file. See
    /// [`Readahead::select_file`].
    LinuxByFile,
}

impl Default for ReadaheadConfig {
    fn default() -> Self {
        Self {
            page_bytes: 4096,
            request_bytes: 512 << 10,
            budget_bytes: 64 << 20,
            streams_max: 128,
            policy: WindowPolicy::Adaptive,
        }
    }
}

/// The access pattern that the caller has announced (`posix_fadvise`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pattern {
    /// Unknown: readahead detects patterns.
    #[default]
    Normal,
    /// Sequential: the first miss starts a full window.
    Sequential,
    /// Random: no page is read ahead.
    Random,
}

/// Statistics of readahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ReadaheadStats {
    /// Streams detected.
    pub streams: u64,
    /// Streams detected by the cached pages before a miss.
    pub by_context: u64,
    /// Windows with pages that had not been requested.
    pub windows: u64,
    /// Pages in windows that had not been requested.
    pub async_pages: u64,
    /// Windows halved because pages were evicted before use.
    pub shrinks: u64,
}

/// The policy for one file or device.
pub struct Readahead {
    config: ReadaheadConfig,
    /// The page after the last.
    end: Page,
    pattern: Pattern,
    streams: Streams,
    recent: Recent,
    window_tuner: WindowTuner,
    credit: Credit,
    /// The states of [`WindowPolicy::Linux`] and [`WindowPolicy::LinuxByFile`], by open file.
    linux: Vec<Linux>,
    /// The index of the open file that is read.
    file: usize,
    stats: ReadaheadStats,
}

impl fmt::Debug for Readahead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readahead")
            .field("config", &self.config)
            .field("pattern", &self.pattern)
            .field("stats", &self.stats)
            .finish_non_exhaustive()
    }
}

impl Readahead {
    /// A stream without a miss or marker for this time loses its share of the distance.
    const ACTIVE: Duration = Duration::from_secs(2);

    /// For a file or device of `end` pages. Allocates memory for all streams.
    ///
    /// # Panics
    /// If a page, a request or the budget has no bytes, or there are no streams: a bug of the caller.
    pub fn new(config: ReadaheadConfig, end: Page) -> Self {
        let ReadaheadConfig { page_bytes, request_bytes, budget_bytes, streams_max, policy } = config;
        assert!(page_bytes > 0 && request_bytes > 0 && budget_bytes > 0 && streams_max > 0, "{config:?}");
        let linux = match policy {
            WindowPolicy::Adaptive => Vec::new(),
            WindowPolicy::Linux | WindowPolicy::LinuxByFile => vec![Self::linux(&config)],
        };
        let window_tuner = WindowTuner::new(request_bytes.saturating_mul(2).min(budget_bytes), budget_bytes);
        Self {
            config,
            end,
            pattern: Pattern::Normal,
            streams: Streams::new(streams_max),
            recent: Recent::new(usize::from(streams_max) * 2),
            window_tuner,
            credit: Credit::new(),
            linux,
            file: 0,
            stats: ReadaheadStats::default(),
        }
    }

    fn linux(config: &ReadaheadConfig) -> Linux {
        let max = (config.budget_bytes / u64::from(config.page_bytes)).max(1);
        Linux::new(max, config.policy == WindowPolicy::Linux)
    }

    /// Sets the maximum number of bytes that are read ahead and not yet used. The policies of Linux keep their windows.
    pub fn set_budget(&mut self, bytes: u64) {
        self.config.budget_bytes = bytes.max(u64::from(self.config.page_bytes));
        self.window_tuner.set_max(self.config.budget_bytes);
    }

    /// Selects the open file of the reads that follow: its number, and the end of its last read. The other policies
    /// than [`WindowPolicy::LinuxByFile`] have one state, and ignore it.
    pub fn select_file(&mut self, file: usize, previous_end: Page) {
        if self.config.policy == WindowPolicy::LinuxByFile {
            let config = self.config;
            self.linux.resize_with(self.linux.len().max(file + 1), || Self::linux(&config));
            self.file = file;
            self.linux[file].set_previous_end(previous_end);
        }
    }

    /// Handles a miss: a read of `at` found its first page neither cached nor being read. Returns the pages to read: at
    /// least that page.
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
        if let Some(linux) = self.linux.get_mut(self.file) {
            let (window, is_first) = linux.on_miss(at, self.end, is_cached);
            self.stats.streams += u64::from(is_first);
            return self.count(window);
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

    /// Handles a read of `at` whose first page has a marker. Returns the pages to read now, if any.
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
        if let Some(linux) = self.linux.get_mut(self.file) {
            let window = linux.on_marker(at, self.end, is_cached)?;
            return Some(self.count(window));
        }
        let distance = self.distance(now);
        let index = match self.streams.reached_by(at) {
            Some(Reached::Alive(index)) => index,
            Some(Reached::Dead) => return None,
            None => self.restore(at, distance, is_cached, now)?,
        };
        self.credit.refund(self.streams.take_guessed(index));
        let window = self.streams.reach(index, at, distance, self.end, now)?;
        Some(self.count(window))
    }

    /// Handles the eviction of a page before use: halves the window of its stream, at most once until that stream is
    /// active again.
    pub fn on_evicted_unused(&mut self, page: Page) {
        self.stats.shrinks += u64::from(self.streams.shrink_at(page));
    }

    /// Counts a submitted read of `bytes` bytes. Call it only for reads that result from [`Window`]s.
    pub fn on_issued(&mut self, bytes: u64, now: Instant) {
        self.window_tuner.issued(bytes, now);
    }

    /// Counts a completed read of `bytes` bytes, of which `moved` were transferred.
    pub fn on_completed(&mut self, bytes: u64, moved: u64, now: Instant) {
        self.window_tuner.completed(bytes, moved, now);
    }

    /// Sets the end of the file or device: the page after the last.
    pub fn set_end(&mut self, end: Page) {
        self.end = end;
    }

    /// Sets the announced access pattern.
    pub fn set_pattern(&mut self, pattern: Pattern) {
        self.pattern = pattern;
    }

    /// Statistics of readahead.
    pub const fn stats(&self) -> &ReadaheadStats {
        &self.stats
    }

    /// The bytes to keep in flight, as measured so far. With the policies of Linux, the maximum of a window.
    pub fn distance_bytes(&self) -> u64 {
        match self.linux.first() {
            Some(linux) => linux.max().saturating_mul(self.config.page_bytes.into()),
            None => self.window_tuner.target(),
        }
    }

    /// The throughput measured at that distance, in bytes per second; 0 while it is unknown.
    pub const fn bytes_per_second(&self) -> u64 {
        self.window_tuner.rate()
    }

    /// The distance of one stream now.
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

    /// Detects a new stream to which a miss belongs.
    fn found_at(
        &mut self,
        at: PageRange,
        distance: Distance,
        is_cached: impl Fn(Page) -> bool,
    ) -> Option<Stream> {
        if self.pattern == Pattern::Sequential {
            return Some(Stream::announced(at, distance));
        }
        let guess = self.recent.observe(at).filter(|guess| {
            // Unless the stream is forward, the distance must have room for two such requests: otherwise no page could
            // be read ahead.
            guess.course == Course::Forward || at.pages() <= distance.pages / 2
        });
        let history = cached_before(at.start(), distance.pages, is_cached);
        let first = stream::first_size(at.pages(), distance.pages);
        let is_context = guess.is_none() && history > at.pages().max(3);
        let found = match guess {
            Some(guess) => self.guessed_stream(guess.course, at, first, guess.is_certain(), distance),
            None if is_context => {
                self.guessed_stream(Course::Forward, at, history.saturating_add(at.pages()), false, distance)
            }
            None if at.start() == Page(0) => self.guessed_stream(Course::Forward, at, first, false, distance),
            None => None,
        };
        self.stats.by_context += u64::from(is_context && found.is_some());
        // A request of several chunks is read chunk by chunk, but is no evidence of a stream.
        found.or_else(|| (at.pages() > distance.chunk).then(|| Stream::of_one_request(at, distance)))
    }

    /// A new stream that reads ahead as much of `size` as the credit allows; `None` if the credit is used up.
    fn guessed_stream(
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
        let guessed = self.credit.take(size.min(distance.pages).saturating_sub(at.pages()));
        let stream = Stream::new(course, at, at.pages().saturating_add(guessed), distance);
        (guessed > 0).then(|| stream.with_guessed(guessed))
    }

    /// Handles a marker whose stream was replaced: makes a new stream that continues at the next absent page.
    fn restore(
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

/// The number of consecutive cached pages before `page`, at most `max`.
fn cached_before(page: Page, max: u64, is_cached: impl Fn(Page) -> bool) -> u64 {
    let max = max.min(page.0);
    (1..=max).find(|back| !is_cached(page - *back)).map_or(max, |hole| hole - 1)
}
