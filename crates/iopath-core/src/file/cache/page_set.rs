//! A set of pages in bounded memory. It may contain more pages than were inserted, never fewer.

use crate::file::page::{Page, PageRange};

/// Up to [`PageSet::RANGES_MAX`] ranges of pages. A further range extends the nearest one, with the pages between the
/// two.
#[derive(Debug)]
pub(super) struct PageSet {
    ranges: Vec<PageRange>,
}

impl Default for PageSet {
    fn default() -> Self {
        Self { ranges: Vec::with_capacity(Self::RANGES_MAX) }
    }
}

impl PageSet {
    const RANGES_MAX: usize = 64;

    /// Inserts the pages of a range. Does not allocate. O(1) for a range that continues the latest one.
    pub(super) fn insert(&mut self, range: PageRange) {
        if range.is_empty() {
            return;
        }
        let near = self.ranges.iter_mut().rev().find(|other| gap(**other, range) == 0);
        if let Some(near) = near {
            *near = hull(*near, range);
        } else if self.ranges.len() < Self::RANGES_MAX {
            self.ranges.push(range);
        } else if let Some(nearest) = self.ranges.iter_mut().min_by_key(|other| gap(**other, range)) {
            *nearest = hull(*nearest, range);
        }
    }

    /// Moves all pages of `other` to this set.
    pub(super) fn take_all(&mut self, other: &mut Self) {
        other.ranges.drain(..).for_each(|range| self.insert(range));
    }

    pub(super) fn contains(&self, page: Page) -> bool {
        self.ranges.iter().any(|range| range.contains(page))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ranges.clear();
    }
}

/// The pages between two ranges; zero if they overlap or adjoin.
fn gap(a: PageRange, b: PageRange) -> u64 {
    a.start().since(b.end()).max(b.start().since(a.end()))
}

/// The smallest range that contains both.
fn hull(a: PageRange, b: PageRange) -> PageRange {
    PageRange::between(a.start().min(b.start()), a.end().max(b.end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ranges_are_exact() {
        let mut set = PageSet::default();
        for start in (0..PageSet::RANGES_MAX as u64).rev() {
            set.insert(PageRange::new(Page(start * 10), 2));
            set.insert(PageRange::new(Page(start * 10 + 2), 1));
        }
        set.insert(PageRange::new(Page(5), 0));
        let pages = (0..1000).filter(|page| set.contains(Page(*page)));
        let expected = (0..640).filter(|page| page % 10 < 3);
        assert!(pages.eq(expected));
        set.clear();
        assert!(set.is_empty() && !set.contains(Page(0)));
    }

    #[test]
    fn many_ranges_take_no_memory_and_lose_no_page() {
        let mut set = PageSet::default();
        let capacity = set.ranges.capacity();
        let page = |nth: u64| Page(nth.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20);
        for nth in 0..10_000 {
            set.insert(PageRange::new(page(nth), 1));
        }
        assert!((0..10_000).all(|nth| set.contains(page(nth))));
        assert_eq!(set.ranges.capacity(), capacity);
    }

    #[test]
    fn a_range_beyond_the_bound_extends_the_nearest() {
        let mut set = PageSet::default();
        for start in 0..PageSet::RANGES_MAX as u64 {
            set.insert(PageRange::new(Page(start * 100), 1));
        }
        set.insert(PageRange::new(Page(304), 1));
        assert!((300..305).all(|page| set.contains(Page(page))));
        assert!(!set.contains(Page(305)) && !set.contains(Page(299)) && !set.contains(Page(1)));
    }
}
