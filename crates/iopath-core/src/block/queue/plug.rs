//! The plug: holds requests back for a moment so that the next bio can join them. Finds what touches;
//! whether it may be joined and in which order requests go are not decided here.

use crate::block::merge::Side;
use crate::block::request::Tag;
use crate::sector::Extent;

/// Requests that are not with the elevator yet, newest last.
#[derive(Debug)]
pub(crate) struct Plug {
    tags: Vec<Tag>,
    /// Where each of `tags` is, side by side for a quick search.
    extents: Vec<Extent>,
    requests_max: usize,
    /// How many plugs are on: they nest.
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

    /// Takes one plug off; whether it was the last.
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

    /// The newest request before place `below` that `extent` touches, its place, and on which side of it
    /// `extent` lies.
    pub(crate) fn touching(&self, extent: Extent, below: usize) -> Option<(usize, Tag, Side)> {
        let touches = |held: &Extent| held.is_followed_by(extent) | extent.is_followed_by(*held);
        let place = self.extents[..below].iter().rposition(touches)?;
        let side = if self.extents[place].is_followed_by(extent) { Side::Back } else { Side::Front };
        Some((place, self.tags[place], side))
    }

    /// The request at that place covers `extent` now.
    pub(crate) fn resize(&mut self, place: usize, extent: Extent) {
        self.extents[place] = extent;
    }

    pub(crate) fn remove(&mut self, place: usize) {
        self.tags.remove(place);
        self.extents.remove(place);
    }

    /// Takes all requests out, oldest first; give the list back with [`Plug::restore`] to use it again.
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
    fn finds_the_newest_that_touches_and_then_older_ones() {
        let extent = |start| Extent::new(Sector(start), 8).unwrap();
        let mut plug = Plug::new(4);
        for (bits, start) in [(0, 0), (1, 16), (2, 100)] {
            plug.push(Tag::from_bits(bits), extent(start));
        }
        assert_eq!(plug.touching(extent(8), 3), Some((1, Tag::from_bits(1), Side::Front)));
        assert_eq!(plug.touching(extent(8), 1), Some((0, Tag::from_bits(0), Side::Back)));
        assert_eq!(plug.touching(extent(8), 0), None);
        assert_eq!(plug.touching(extent(50), 3), None);
    }
}
