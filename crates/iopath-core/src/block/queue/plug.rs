//! The plug: holds requests back for a short time, so that the next bios can merge with them. It finds adjacent
//! requests; the conditions for a merge are in `merge.rs`.

use crate::block::merge::Side;
use crate::block::request::Tag;
use crate::sector::{Extent, Sector};

/// The plugged requests, newest last.
#[derive(Debug)]
pub(crate) struct Plug {
    tags: Vec<Tag>,
    /// The extent of each request in `tags`, contiguous for a fast search.
    extents: Vec<Extent>,
    /// Filters of the first sectors of `extents`, and of the sectors after their ends. Most bios are adjacent to no
    /// plugged request; the filters detect this without a search.
    starts: Filter,
    ends: Filter,
    requests_max: usize,
    /// The nesting of plugs.
    depth: u32,
}

impl Plug {
    pub(crate) fn new(requests_max: usize) -> Self {
        let (tags, extents) = (Vec::with_capacity(requests_max), Vec::with_capacity(requests_max));
        Self { tags, extents, starts: Filter::EMPTY, ends: Filter::EMPTY, requests_max, depth: 0 }
    }

    pub(crate) fn plug(&mut self) {
        self.depth += 1;
    }

    /// Ends one plug; returns whether it was the outermost.
    pub(crate) fn unplug(&mut self) -> bool {
        assert!(self.depth > 0, "unplug without plug");
        self.depth -= 1;
        self.depth == 0
    }

    pub(crate) const fn is_on(&self) -> bool {
        self.depth > 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.tags.len() >= self.requests_max
    }

    pub(crate) fn len(&self) -> usize {
        self.tags.len()
    }

    pub(crate) fn push(&mut self, tag: Tag, extent: Extent) {
        self.tags.push(tag);
        self.extents.push(extent);
        self.announce(extent);
    }

    /// The newest request below index `below` that is adjacent to `extent`: its index, its tag, and its side at which
    /// `extent` lies.
    #[inline]
    pub(crate) fn adjacent(&self, extent: Extent, below: usize) -> Option<(usize, Tag, Side)> {
        // Most bios have no neighbour, and two bits tell that without a search.
        if !(self.ends.may_contain(extent.start()) || self.starts.may_contain(extent.end())) {
            return None;
        }
        self.search(extent, below)
    }

    fn search(&self, extent: Extent, below: usize) -> Option<(usize, Tag, Side)> {
        let is_adjacent = |held: &Extent| held.is_followed_by(extent) | extent.is_followed_by(*held);
        let index = self.extents[..below].iter().rposition(is_adjacent)?;
        let side = if self.extents[index].is_followed_by(extent) { Side::Back } else { Side::Front };
        Some((index, self.tags[index], side))
    }

    /// Sets the extent of the request at `index`.
    pub(crate) fn resize(&mut self, index: usize, extent: Extent) {
        self.extents[index] = extent;
        self.announce(extent);
    }

    pub(crate) fn remove(&mut self, index: usize) {
        // The filters keep the sectors of the request: they may claim too much, but never too little.
        self.tags.remove(index);
        self.extents.remove(index);
    }

    /// Removes all requests, oldest first. [`Plug::restore`] returns the memory of the list for reuse.
    pub(crate) fn take(&mut self) -> Vec<Tag> {
        self.extents.clear();
        (self.starts, self.ends) = (Filter::EMPTY, Filter::EMPTY);
        std::mem::take(&mut self.tags)
    }

    pub(crate) fn restore(&mut self, mut tags: Vec<Tag>) {
        tags.clear();
        self.tags = tags;
    }

    #[inline]
    fn announce(&mut self, extent: Extent) {
        self.starts.add(extent.start());
        self.ends.add(extent.end());
    }
}

/// An approximate set of sectors: one bit for each value of a hash. It may return true for a sector that was not added.
#[derive(Debug, Clone, Copy)]
struct Filter([u64; 8]);

impl Filter {
    const EMPTY: Self = Self([0; 8]);

    #[inline]
    const fn add(&mut self, sector: Sector) {
        let (word, bit) = Self::place(sector);
        self.0[word] |= bit;
    }

    #[inline]
    const fn may_contain(&self, sector: Sector) -> bool {
        let (word, bit) = Self::place(sector);
        self.0[word] & bit != 0
    }

    /// The word of a sector, and its bit there. Multiplicative hashing (Knuth, The Art of Computer Programming, volume
    /// 3, section 6.4), with 2^64 divided by the golden ratio.
    const fn place(sector: Sector) -> (usize, u64) {
        let hash = sector.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 55;
        ((hash >> 6) as usize, 1 << (hash & 63))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sector::Sector;

    #[test]
    fn finds_the_newest_adjacent_request_then_older_ones() {
        let extent = |start| Extent::new(Sector(start), 8).unwrap();
        let mut plug = Plug::new(4);
        for (bits, start) in [(0, 0), (1, 16), (2, 100)] {
            plug.push(Tag::from_bits(bits), extent(start));
        }
        assert_eq!(plug.adjacent(extent(8), 3), Some((1, Tag::from_bits(1), Side::Front)));
        assert_eq!(plug.adjacent(extent(8), 1), Some((0, Tag::from_bits(0), Side::Back)));
        assert_eq!(plug.adjacent(extent(8), 0), None);
        assert_eq!(plug.adjacent(extent(50), 3), None);
    }

    #[test]
    fn finds_every_adjacent_request_of_a_plug_that_changes() {
        let extent = |start, sectors| Extent::new(Sector(start), sectors).unwrap();
        let mut plug = Plug::new(64);
        for round in 0..2 {
            let starts = (0..64).map(|place| 1000 * (round + place));
            starts.clone().for_each(|start| plug.push(Tag::from_bits(start as u32), extent(start, 8)));
            for start in starts.clone() {
                let found = plug.adjacent(extent(start + 8, 1), 64).map(|(_, tag, side)| (tag, side));
                assert_eq!(found, Some((Tag::from_bits(start as u32), Side::Back)));
            }
            plug.resize(5, extent(77, 3));
            assert_eq!(plug.adjacent(extent(80, 1), 64).map(|(index, ..)| index), Some(5));
            plug.remove(5);
            assert_eq!(plug.adjacent(extent(80, 1), 63), None);
            let tags = plug.take();
            plug.restore(tags);
            assert!(starts.clone().all(|start| plug.adjacent(extent(start + 8, 1), 0).is_none()));
        }
    }

    #[test]
    fn the_filter_rules_out_most_sectors() {
        let mut filter = Filter::EMPTY;
        (0..32).for_each(|block| filter.add(Sector(8 * 977 * block)));
        let claimed = (0..1000).filter(|block| filter.may_contain(Sector(8 * 31 * block + 4))).count();
        assert!(claimed < 125, "{claimed} of 1000");
    }
}
