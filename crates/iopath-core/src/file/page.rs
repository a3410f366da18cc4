//! Pages of a file or device by number, and runs of pages: the unit of page cache and readahead. Independent of the
//! size of a page and of frames.

use std::fmt;
use std::ops::{Add, Sub};

/// A page by its number: a position in units of the cache's page size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Page(pub u64);

impl Page {
    /// The highest page number. No range contains it.
    pub const MAX: Self = Self(u64::MAX);

    /// The number of pages from `earlier` to this one; zero if this one is earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<u64> for Page {
    type Output = Self;

    /// Stops at [`Page::MAX`].
    fn add(self, pages: u64) -> Self {
        Self(self.0.saturating_add(pages))
    }
}

impl Sub<u64> for Page {
    type Output = Self;

    /// Stops at page 0.
    fn sub(self, pages: u64) -> Self {
        Self(self.0.saturating_sub(pages))
    }
}

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A run of pages: from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct PageRange {
    start: Page,
    end: Page,
}

impl PageRange {
    /// The empty range, at the highest page number.
    pub const EMPTY: Self = Self { start: Page::MAX, end: Page::MAX };

    /// Every page.
    pub const ALL: Self = Self { start: Page(0), end: Page::MAX };

    /// `pages` pages from `start` on, up to the highest page number.
    pub fn new(start: Page, pages: u64) -> Self {
        Self { start, end: start + pages }
    }

    /// From `start` to before `end`; empty if `end` is before `start`.
    pub fn between(start: Page, end: Page) -> Self {
        Self { start, end: end.max(start) }
    }

    /// The pages that `bytes` bytes at byte `offset` touch, up to the highest offset; empty for no bytes.
    ///
    /// # Panics
    /// If `page_bytes` is zero: a bug of the caller.
    pub fn touched_by(offset: u64, bytes: u64, page_bytes: u32) -> Self {
        let page_bytes = u64::from(page_bytes);
        let start = Page(offset / page_bytes);
        if bytes == 0 {
            return Self { start, end: start };
        }
        Self::between(start, Page(offset.saturating_add(bytes).div_ceil(page_bytes)))
    }

    /// The pages that lie completely in the `bytes` bytes at byte `offset`, except the page that ends at the highest
    /// offset.
    ///
    /// # Panics
    /// If `page_bytes` is zero: a bug of the caller.
    pub fn inside(offset: u64, bytes: u64, page_bytes: u32) -> Self {
        let page_bytes = u64::from(page_bytes);
        Self::between(Page(offset.div_ceil(page_bytes)), Page(offset.saturating_add(bytes) / page_bytes))
    }

    /// The first page.
    pub const fn start(self) -> Page {
        self.start
    }

    /// The page after the last.
    pub const fn end(self) -> Page {
        self.end
    }

    /// The number of pages.
    pub const fn pages(self) -> u64 {
        self.end.0 - self.start.0
    }

    /// Whether the range has no page.
    pub const fn is_empty(self) -> bool {
        self.start.0 == self.end.0
    }

    /// Whether the range has `page`.
    pub const fn contains(self, page: Page) -> bool {
        self.start.0 <= page.0 && page.0 < self.end.0
    }

    /// The pages in both ranges.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::between(self.start.max(other.start), self.end.min(other.end))
    }

    /// The pages in ascending order.
    pub fn iter(self) -> impl DoubleEndedIterator<Item = Page> {
        (self.start.0..self.end.0).map(Page)
    }
}

impl fmt::Display for PageRange {
    /// First page and count: `16 + 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}", self.start, self.pages())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_touch_the_pages_they_lie_in() {
        let touched = |offset, bytes| PageRange::touched_by(offset, bytes, 4096);
        assert_eq!(touched(0, 4096), PageRange::new(Page(0), 1));
        assert_eq!(touched(4095, 2), PageRange::new(Page(0), 2));
        assert!([0, 1, 8192, 8193, u64::MAX].into_iter().all(|offset| touched(offset, 0).is_empty()));
        assert_eq!(touched(u64::MAX - 1, 4096).pages(), 1, "the end of the address space is an end");
    }

    #[test]
    fn pages_inside_lie_whole_in_the_bytes() {
        let inside = |offset, bytes| PageRange::inside(offset, bytes, 4096);
        assert_eq!(inside(0, 8192), PageRange::new(Page(0), 2));
        assert_eq!(inside(1, 8192), PageRange::new(Page(1), 1));
        assert!(inside(1, 8190).is_empty() && inside(4096, 0).is_empty());
        assert_eq!(inside(0, u64::MAX).end(), Page(u64::MAX / 4096));
        assert!(inside(u64::MAX, u64::MAX).is_empty());
    }

    #[test]
    fn the_intersection_is_empty_where_ranges_do_not_meet() {
        let (a, b) = (PageRange::new(Page(2), 4), PageRange::new(Page(4), 4));
        assert_eq!(a.and(b), PageRange::new(Page(4), 2));
        assert!(a.and(PageRange::new(Page(6), 1)).is_empty());
        assert!(a.contains(Page(5)) && !a.contains(Page(6)));
    }
}
