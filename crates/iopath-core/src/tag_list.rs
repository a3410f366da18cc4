//! A list of requests in order of arrival, from whose middle a request leaves in O(1). Allocates once.

use crate::table::Tag;

const NIL: u32 = u32::MAX;

/// First in, first out, but any member can be removed: links by tag, no allocation after construction.
///
/// A request is in at most one place of one list; each list has its own links.
#[derive(Debug)]
pub struct TagList {
    links: Box<[Link]>,
    front: u32,
    back: u32,
    len: usize,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    /// The member itself: its bits, generation and all.
    tag: u32,
    before: u32,
    after: u32,
}

impl TagList {
    /// For tags of `requests_max` slots.
    pub fn new(requests_max: usize) -> Self {
        let unlinked = Link { tag: NIL, before: NIL, after: NIL };
        Self { links: vec![unlinked; requests_max].into(), front: NIL, back: NIL, len: 0 }
    }

    /// How many requests are in the list.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The one that has been in the list for longest.
    pub fn front(&self) -> Option<Tag> {
        self.links.get(self.front as usize).map(|link| Tag::from_bits(link.tag))
    }

    /// Adds a request as the newest.
    pub fn push_back(&mut self, tag: Tag) {
        let index = tag.index() as u32;
        self.links[tag.index()] = Link { tag: tag.to_bits(), before: self.back, after: NIL };
        match self.links.get_mut(self.back as usize) {
            Some(newest) => newest.after = index,
            None => self.front = index,
        }
        self.back = index;
        self.len += 1;
    }

    /// Takes out the one that has been in the list for longest.
    pub fn pop_front(&mut self) -> Option<Tag> {
        let tag = self.front()?;
        self.remove(tag);
        Some(tag)
    }

    /// Takes out a request, wherever it is.
    ///
    /// # Panics
    /// If it is not in the list: a bug of the caller.
    pub fn remove(&mut self, tag: Tag) {
        let link = self.links[tag.index()];
        assert!(link.tag == tag.to_bits(), "{tag:?} is not in the list");
        match self.links.get_mut(link.before as usize) {
            Some(before) => before.after = link.after,
            None => self.front = link.after,
        }
        match self.links.get_mut(link.after as usize) {
            Some(after) => after.before = link.before,
            None => self.back = link.before,
        }
        self.links[tag.index()].tag = NIL;
        self.len -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(list: &mut TagList) -> Vec<u32> {
        std::iter::from_fn(|| list.pop_front()).map(Tag::to_bits).collect()
    }

    #[test]
    fn comes_out_in_order_of_arrival_whoever_left() {
        for leaver in 0..4 {
            let mut list = TagList::new(4);
            (0..4).for_each(|bits| list.push_back(Tag::from_bits(bits)));
            list.remove(Tag::from_bits(leaver));
            assert_eq!(list.len(), 3);
            assert_eq!(tags(&mut list), (0..4).filter(|bits| *bits != leaver).collect::<Vec<_>>());
            assert!(list.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "is not in the list")]
    fn a_request_leaves_once() {
        let mut list = TagList::new(1);
        list.push_back(Tag::from_bits(0));
        list.remove(Tag::from_bits(0));
        list.remove(Tag::from_bits(0));
    }
}
