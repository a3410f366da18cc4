//! The window policy of Linux `mm/readahead.c` (2.6.23 to 2.6.38), as an alternative to that of this library: for
//! comparison, and for models of machines that run such a kernel. Policy only; it does not measure the device.
//!
//! ```text
//!        start                                   start + size
//!          ▼                                          ▼
//!   ───────┬──────────────────────┬───────────────────┐
//!          │                      │◀── async_size ───▶│
//!   ───────┴──────────────────────┴───────────────────┘
//!                                 ▲ marker: the reader that reaches it starts the next window
//! ```
//!
//! A file description of the kernel has one such state. A volume has one for all of its readers, so interleaved streams
//! continue by markers and context only. The context came with Linux 2.6.31.

use super::Window;
use super::stream::{first_size, next_size};
use crate::file::page::{Page, PageRange};

/// The state of the policy: the last window, and the end of the last two calls.
#[derive(Debug)]
pub(super) struct Linux {
    /// The maximum size of a window, in pages.
    max: u64,
    start: Page,
    size: u64,
    async_size: u64,
    /// The end of the call of the last miss or marker, and that of the call before.
    call_end: Page,
    previous_end: Page,
    /// Whether cached pages before a miss indicate a stream.
    has_context: bool,
}

impl Linux {
    /// Windows of at most `max` pages, except the first of a large request: see [`Linux::window`].
    pub(super) const fn new(max: u64, has_context: bool) -> Self {
        Self {
            max,
            start: Page(0),
            size: 0,
            async_size: 0,
            call_end: Page::MAX,
            previous_end: Page::MAX,
            has_context,
        }
    }

    /// Sets the end of the last read, also if that was neither a miss nor a marker.
    pub(super) const fn set_previous_end(&mut self, end: Page) {
        self.call_end = end;
    }

    /// The maximum size of a window, in pages.
    pub(super) const fn max(&self) -> u64 {
        self.max
    }

    /// Handles a miss of the first page of `at`: the rest of a call. Returns the window, and whether it is the first of
    /// a stream.
    pub(super) fn on_miss(
        &mut self,
        at: PageRange,
        end: Page,
        is_cached: impl Fn(Page) -> bool,
    ) -> (Window, bool) {
        self.observe(at);
        let offset = at.start();
        let asked = at.pages();
        if offset != Page(0) && self.size > 0 && offset == self.start + self.size {
            self.ramp(offset);
            return (self.window(at, end), false);
        }
        let is_adjacent = offset == self.previous_end || offset + 1 == self.previous_end;
        if offset == Page(0) || asked > self.max || is_adjacent {
            self.start = offset;
            self.size = first_size(asked, self.max);
            self.async_size = if self.size > asked { self.size - asked } else { self.size };
            return (self.window(at, end), true);
        }
        let history = if self.has_context { super::cached_before(offset, self.max, is_cached) } else { 0 };
        if history > asked {
            // History up to the start of the file indicates a long stream.
            let history = if history >= offset.0 { history.saturating_mul(2) } else { history };
            (self.start, self.async_size) = (offset, 1);
            self.size = history.saturating_add(asked).min(self.max);
            return (self.window(at, end), true);
        }
        (Window::run(at, 0), false)
    }

    /// Handles a marker on the first page of `at`. Returns the window, if pages are left.
    pub(super) fn on_marker(
        &mut self,
        at: PageRange,
        end: Page,
        is_cached: impl Fn(Page) -> bool,
    ) -> Option<Window> {
        self.observe(at);
        let offset = at.start();
        let marker = self.start + self.size.saturating_sub(self.async_size);
        if self.size > 0 && (offset == marker || offset == self.start + self.size) {
            self.ramp(self.start + self.size);
        } else {
            // The state belongs to another stream. The pages up to the next hole are the window of this stream.
            let ahead = (1..=self.max).find(|ahead| !is_cached(offset + *ahead))?;
            self.size = ahead;
            self.ramp(offset + ahead);
        }
        (self.start < end).then(|| self.window(at, end))
    }

    /// The next window of a stream begins at `start`.
    fn ramp(&mut self, start: Page) {
        self.start = start;
        self.size = next_size(self.size, self.max).min(self.max);
        self.async_size = self.size;
    }

    /// The window of the state. A reader at its own marker does not reach that marker again: the next window is joined
    /// to this window, which can become twice as large as the maximum.
    fn window(&mut self, at: PageRange, end: Page) -> Window {
        if at.start() == self.start && self.size == self.async_size {
            self.async_size = next_size(self.size, self.max).min(self.max);
            self.size += self.async_size;
        }
        let pages = PageRange::new(self.start, self.size);
        let pages = PageRange::between(self.start, pages.end().min(end.max(self.start)));
        let marker = self.start + (self.size - self.async_size);
        let window = Window::run(pages, pages.end().since(self.start.max(at.end())));
        // One marker: no second page is this far.
        if pages.contains(marker) { window.marked(marker, i64::MAX) } else { window }
    }

    fn observe(&mut self, at: PageRange) {
        if at.end() != self.call_end {
            (self.previous_end, self.call_end) = (self.call_end, at.end());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 128;
    const END: Page = Page(1 << 20);

    fn at(start: u64, pages: u64) -> PageRange {
        PageRange::new(Page(start), pages)
    }

    /// Reads pages in calls of `call` pages. Returns the windows: position of the reader, first page, pages, marker.
    fn windows(linux: &mut Linux, calls: u64, call: u64) -> Vec<(u64, u64, u64, Option<u64>)> {
        let mut cached = 0;
        let mut markers = Vec::new();
        let mut windows = Vec::new();
        for page in 0..calls * call {
            let rest = at(page, call - page % call);
            let window = if page >= cached {
                Some(linux.on_miss(rest, END, |page| page.0 < cached).0)
            } else if markers.contains(&page) {
                linux.on_marker(rest, END, |page| page.0 < cached)
            } else {
                None
            };
            let Some(window) = window else { continue };
            let range = window.ranges().next().unwrap();
            let marker = range.iter().find(|page| window.is_marked(*page)).map(|page| page.0);
            windows.push((page, range.start().0, range.pages(), marker));
            cached = cached.max(range.end().0);
            markers.extend(marker);
        }
        windows
    }

    #[test]
    fn windows_grow_from_four_requests_to_the_maximum_and_each_begins_at_a_marker() {
        // 16 KiB calls, 512 KiB windows.
        let seen = windows(&mut Linux::new(MAX, true), 200, 4);
        let first =
            [(0, 0, 16, Some(4)), (4, 16, 32, Some(16)), (16, 48, 64, Some(48)), (48, 112, 128, Some(112))];
        assert_eq!(seen[..4], first);
        assert_eq!(seen[4..6], [(112, 240, 128, Some(240)), (240, 368, 128, Some(368))]);
    }

    #[test]
    fn a_first_request_of_a_quarter_of_the_maximum_doubles_and_a_larger_one_is_the_maximum() {
        assert_eq!(windows(&mut Linux::new(MAX, true), 1, 32)[0], (0, 0, 64, Some(32)));
        assert_eq!(windows(&mut Linux::new(MAX, true), 1, 64)[0], (0, 0, 128, Some(64)));
    }

    #[test]
    fn a_request_of_the_maximum_or_more_starts_two_windows_then_one_at_each_marker() {
        for call in [MAX, 4 * MAX, 128 * MAX] {
            let seen = windows(&mut Linux::new(MAX, true), 512 * MAX / call, call);
            assert_eq!(seen[0], (0, 0, 256, Some(128)));
            let next = (1..).map(|n| (n * 128, (n + 1) * 128, 128, Some((n + 1) * 128)));
            assert!(seen[1..].iter().copied().eq(next.take(seen.len() - 1)), "calls of {call} pages");
        }
    }

    #[test]
    fn a_small_read_elsewhere_is_read_alone_and_keeps_the_state() {
        let mut linux = Linux::new(MAX, true);
        let nothing = |_| false;
        linux.on_miss(at(0, 4), END, nothing);
        let (alone, starts) = linux.on_miss(at(5000, 4), END, nothing);
        assert!(!starts && alone.pages() == 4 && alone.async_pages() == 0);
        let next = linux.on_marker(at(4, 4), END, nothing).unwrap();
        assert_eq!(next.ranges().next(), Some(at(16, 32)));
    }

    #[test]
    fn an_adjacent_read_and_a_cached_history_start_a_stream() {
        let mut linux = Linux::new(MAX, true);
        linux.on_miss(at(5000, 4), END, |_| false);
        let (window, starts) = linux.on_miss(at(5004, 4), END, |page| page >= Page(5000));
        assert!(starts && window.ranges().next() == Some(at(5004, 16)), "{window:?}");
        let mut linux = Linux::new(MAX, true);
        let (window, starts) =
            linux.on_miss(at(9000, 4), END, |page| page >= Page(8990) && page < Page(9000));
        assert!(starts && window.pages() == 14 && window.is_marked(Page(9013)), "{window:?}");
    }

    #[test]
    fn without_context_a_cached_history_starts_no_stream_and_the_end_of_the_last_read_does() {
        let is_cached = |page| page >= Page(8990) && page < Page(9000);
        let mut linux = Linux::new(MAX, false);
        let (alone, starts) = linux.on_miss(at(9000, 1), END, is_cached);
        assert!(!starts && alone.pages() == 1, "{alone:?}");
        let mut linux = Linux::new(MAX, false);
        linux.set_previous_end(Page(9000));
        let (window, starts) = linux.on_miss(at(9000, 1), END, is_cached);
        assert!(starts && window.ranges().next() == Some(at(9000, 4)), "{window:?}");
    }

    #[test]
    fn a_marker_of_another_stream_continues_at_the_next_hole() {
        let mut linux = Linux::new(MAX, true);
        linux.on_miss(at(0, 4), END, |_| false);
        let window = linux.on_marker(at(7000, 4), END, |page| page < Page(7020)).unwrap();
        assert_eq!(window.ranges().next(), Some(at(7020, 40)));
        assert!(linux.on_marker(at(7000, 4), END, |_| true).is_none(), "no hole within the maximum");
    }

    #[test]
    fn windows_end_at_the_end_of_the_volume() {
        let mut linux = Linux::new(MAX, true);
        let (window, _) = linux.on_miss(at(0, 100), Page(150), |_| false);
        assert_eq!(window.pages(), 128);
        let next = linux.on_marker(at(100, 50), Page(150), |_| false).unwrap();
        assert_eq!(next.ranges().next(), Some(at(128, 22)));
        assert!(linux.on_marker(at(128, 22), Page(150), |_| false).is_none());
    }
}
