//! The plug: holds requests back for a short time, so that the next bios can merge with them. It finds adjacent requests;
//! the conditions for a merge are in `merge.rs`.

use crate::block::merge::Side;
use crate::block::request::Tag;
use crate::sector::Extent;

/// The plugged requests, newest last.
#[derive(Debug)]
pub(crate) struct Plug {
    tags: Vec<Tag>,
    /// The extent of each request in `tags`, contiguous for a fast search.
    extents: Vec<Extent>,
    requests_max: usize,
    /// The nesting of plugs.
    depth: u32,
}

impl Plug {
    pub(crate) fn new(requests_max: usize) -> Self {
        let (tags, extents) = (Vec::with_capacity(requests_max), Vec::with_capacity(requests_max));
        Self { tags, extents, requests_max, depth: 0 }
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
    }

    /// The newest request below index `below` that is adjacent to `extent`: its index, its tag, and its side at which
    /// `extent` lies.
    pub(crate) fn adjacent(&self, extent: Extent, below: usize) -> Option<(usize, Tag, Side)> {
        let is_adjacent = |held: &Extent| held.is_followed_by(extent) | extent.is_followed_by(*held);
        let index = self.extents[..below].iter().rposition(is_adjacent)?;
        let side = if self.extents[index].is_followed_by(extent) { Side::Back } else { Side::Front };
        Some((index, self.tags[index], side))
    }

    /// Sets the extent of the request at `index`.
    pub(crate) fn resize(&mut self, index: usize, extent: Extent) {
        self.extents[index] = extent;
    }

    pub(crate) fn remove(&mut self, index: usize) {
        self.tags.remove(index);
        self.extents.remove(index);
    }

    /// Removes all requests, oldest first. [`Plug::restore`] returns the memory of the list for reuse.
    pub(crate) fn take(&mut self) -> Vec<Tag> {
        self.extents.clear();
        std::mem::take(&mut self.tags)
    }

    pub(crate) fn restore(&mut self, mut tags: Vec<Tag>) {
        tags.clear();
        self.tags = tags;
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
}
