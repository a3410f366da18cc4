//! Write-behind: detects sequential writers, and returns the pages that they have passed, one request at a time, for
//! immediate write-back (`io.rs`). Excludes pages that were cached when they were written, or shortly before. Such
//! pages are likely to be written again, so they are written back by age and share.
//!
//! ```text
//!   end_write ─▶ follow ─▶ stream ▒▒▒▒▒▒▒▒ ─ a request full ─▶ passed ─▶ next ─▶ at the device ─▶ take
//! ```

use crate::file::page::{Page, PageRange};
use std::collections::VecDeque;

/// The streams, and the pages that they have passed.
#[derive(Debug)]
pub(super) struct WriteBehind {
    streams: [PageRange; Self::STREAMS],
    /// The stream of the last page.
    last: usize,
    request_pages: u64,
    /// Passed ranges that are not yet being written. Some of their pages may have been written back for other reasons.
    passed: VecDeque<PageRange>,
}

impl WriteBehind {
    /// The number of interleaved writers that are detected. A page of no stream is compared with all of them, so they
    /// fit two cache lines.
    const STREAMS: usize = 8;
    /// The maximum number of ranges that wait for the device; pages of further ranges are written back by age and
    /// share. Equals the default depth of a queue (`QueueConfig::depth`): more ranges would only wait.
    const PASSED_MAX: usize = 64;

    /// `request_pages` is the device's best request.
    pub(super) fn new(request_pages: u32) -> Self {
        Self {
            streams: [PageRange::new(Page::MAX, 0); Self::STREAMS],
            last: 0,
            request_pages: u64::from(request_pages),
            passed: VecDeque::with_capacity(Self::PASSED_MAX),
        }
    }

    /// Whether `page` continues a stream.
    pub(super) fn is_next(&self, page: Page) -> bool {
        self.stream_at(page).is_some()
    }

    /// Records a whole write of a page that was not cached before.
    pub(super) fn follow(&mut self, page: Page) {
        let number = self.stream_at(page).unwrap_or_else(|| {
            // Replaces approximately the stream that was continued longest ago.
            let number = (self.last + Self::STREAMS - 1) % Self::STREAMS;
            self.streams[number] = PageRange::new(page, 0);
            number
        });
        self.last = number;
        let stream = &mut self.streams[number];
        *stream = PageRange::between(stream.start(), page + 1);
        if stream.pages() < self.request_pages {
            return;
        }
        if self.passed.len() < Self::PASSED_MAX {
            self.passed.push_back(*stream);
        }
        *stream = PageRange::new(stream.end(), 0);
    }

    /// The next range to be written.
    pub(super) fn next(&self) -> Option<PageRange> {
        self.passed.front().copied()
    }

    /// Removes the pages of [`WriteBehind::next`] up to `end`: they are being written, or need not be.
    pub(super) fn take(&mut self, end: Page) {
        let Some(range) = self.passed.front_mut() else { return };
        *range = PageRange::between(end, range.end());
        if range.is_empty() {
            self.passed.pop_front();
        }
    }

    fn stream_at(&self, page: Page) -> Option<usize> {
        let mut order = (0..Self::STREAMS).map(|number| (self.last + number) % Self::STREAMS);
        order.find(|number| self.streams[*number].end() == page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(behind: &mut WriteBehind) -> Vec<PageRange> {
        let next = |behind: &mut WriteBehind| {
            let range = behind.next()?;
            behind.take(range.end());
            Some(range)
        };
        std::iter::from_fn(|| next(behind)).collect()
    }

    #[test]
    fn interleaved_streams_yield_whole_requests_and_scattered_pages_none() {
        let mut behind = WriteBehind::new(4);
        let starts = (0..WriteBehind::STREAMS as u64).map(|stream| stream * 1000);
        for step in 0..4 {
            assert_eq!(passed(&mut behind), [], "not before a request is full");
            starts.clone().for_each(|start| behind.follow(Page(start + step)));
        }
        let whole: Vec<_> = starts.map(|start| PageRange::new(Page(start), 4)).collect();
        assert_eq!(passed(&mut behind), whole);
        assert!(behind.is_next(Page(4)) && !behind.is_next(Page(5)));
        (0..1000).for_each(|number| behind.follow(Page(number * 7 % 1000 + 100_000)));
        assert_eq!(passed(&mut behind), []);
    }

    #[test]
    fn ranges_beyond_the_limit_are_omitted() {
        let mut behind = WriteBehind::new(2);
        (0..1000).for_each(|page| behind.follow(Page(page)));
        let passed = passed(&mut behind);
        assert_eq!(passed.len(), WriteBehind::PASSED_MAX);
        assert_eq!(passed[1], PageRange::new(Page(2), 2));
    }
}
