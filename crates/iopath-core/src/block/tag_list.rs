//! A list of requests for elevators in other crates: FIFO order, and any request can be removed in O(1). The elevators
//! of this crate use `collections/list.rs` and `collections/fifo.rs` directly.

use crate::block::request::Tag;
use crate::collections::list::{Links, List};
use std::fmt;

/// Requests in FIFO order, any of which can be removed in O(1).
pub struct TagList {
    links: Links<Tag>,
    list: List<Tag>,
}

impl fmt::Debug for TagList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagList").field("len", &self.list.len()).finish_non_exhaustive()
    }
}

impl TagList {
    /// A list for the tags of a queue with `requests_max` slots.
    pub fn new(requests_max: usize) -> Self {
        Self { links: Links::new(requests_max as u32), list: List::EMPTY }
    }

    /// The number of requests.
    pub const fn len(&self) -> usize {
        self.list.len() as usize
    }

    /// Whether the list is empty.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The oldest request.
    pub fn front(&self) -> Option<Tag> {
        self.list.front()
    }

    /// Adds a request as the newest.
    pub fn push_back(&mut self, tag: Tag) {
        self.links.push_back(&mut self.list, tag);
    }

    /// Removes and returns the oldest request.
    pub fn pop_front(&mut self) -> Option<Tag> {
        self.links.pop_front(&mut self.list)
    }

    /// Removes a request at any position.
    ///
    /// # Panics
    /// If the request is not in the list: a bug of the caller.
    pub fn remove(&mut self, tag: Tag) {
        self.links.remove(&mut self.list, tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_removed_request_does_not_change_the_order_of_the_others() {
        for removed in 0..4 {
            let mut list = TagList::new(4);
            (0..4).for_each(|bits| list.push_back(Tag::from_bits(bits)));
            list.remove(Tag::from_bits(removed));
            assert_eq!(list.len(), 3);
            let left: Vec<_> = std::iter::from_fn(|| list.pop_front()).map(Tag::to_bits).collect();
            assert_eq!(left, (0..4).filter(|bits| *bits != removed).collect::<Vec<_>>());
            assert!(list.is_empty());
        }
    }

    #[test]
    #[should_panic(expected = "is not in the list")]
    fn a_stale_tag_of_a_reused_slot_is_not_in_the_list() {
        let mut list = TagList::new(1);
        list.push_back(Tag::new(0, 1));
        list.remove(Tag::new(0, 0));
    }
}
