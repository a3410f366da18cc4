//! Lists from whose middle a member leaves in O(1), all over one array of links. Allocates once.

use crate::block::table::Tag;
use prefetch_index::prefetch_index;
use std::marker::PhantomData;

const NIL: u32 = u32::MAX;

/// What can be in a list: a small number with an index below the number of links.
pub(crate) trait Member: Copy {
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
    fn index(self) -> usize;
}

impl Member for Tag {
    fn bits(self) -> u32 {
        self.to_bits()
    }

    fn from_bits(bits: u32) -> Self {
        Self::from_bits(bits)
    }

    fn index(self) -> usize {
        self.index()
    }
}

/// The links of all members, each of which is in at most one list.
#[derive(Debug)]
pub(crate) struct Links<T> {
    links: Box<[Link]>,
    of: PhantomData<T>,
}

#[derive(Debug, Clone, Copy)]
struct Link {
    /// The member itself; [`NIL`] in no list.
    member: u32,
    before: u32,
    after: u32,
}

/// The ends of one list. Its members are in the [`Links`] that every call names.
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<T> {
    front: u32,
    back: u32,
    len: u32,
    of: PhantomData<T>,
}

impl<T: Member> Links<T> {
    /// For members with indices below `members_max`.
    pub(crate) fn new(members_max: usize) -> Self {
        let unlinked = Link { member: NIL, before: NIL, after: NIL };
        Self { links: vec![unlinked; members_max].into(), of: PhantomData }
    }
}

impl<T: Member> List<T> {
    pub(crate) const EMPTY: Self = Self { front: NIL, back: NIL, len: 0, of: PhantomData };

    pub(crate) const fn len(&self) -> usize {
        self.len as usize
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The member that has been in the list for longest.
    pub(crate) fn front(&self, links: &Links<T>) -> Option<T> {
        links.links.get(self.front as usize).map(|link| T::from_bits(link.member))
    }

    /// The members, that which has been in the list for longest first. Asks for each link's memory a step ahead.
    #[inline]
    pub(crate) fn iter<'a>(&self, links: &'a Links<T>) -> impl Iterator<Item = T> + use<'a, T> {
        let mut next = self.front;
        std::iter::from_fn(move || {
            let link = links.links.get(next as usize)?;
            next = link.after;
            if next != NIL {
                prefetch_index(&links.links, next as usize);
            }
            Some(T::from_bits(link.member))
        })
    }

    /// Adds a member as the newest.
    pub(crate) fn push_back(&mut self, links: &mut Links<T>, member: T) {
        let index = member.index() as u32;
        links.links[member.index()] = Link { member: member.bits(), before: self.back, after: NIL };
        match links.links.get_mut(self.back as usize) {
            Some(newest) => newest.after = index,
            None => self.front = index,
        }
        self.back = index;
        self.len += 1;
    }

    /// Takes out the member that has been in the list for longest.
    pub(crate) fn pop_front(&mut self, links: &mut Links<T>) -> Option<T> {
        let member = self.front(links)?;
        self.remove(links, member);
        Some(member)
    }

    /// Takes out a member, wherever it is. It must be in this list.
    pub(crate) fn remove(&mut self, links: &mut Links<T>, member: T) {
        let link = links.links[member.index()];
        assert!(link.member == member.bits(), "member {:#x} is not in the list", member.bits());
        self.join(links, link.before, link.after);
        links.links[member.index()].member = NIL;
        self.len -= 1;
    }

    /// Links two neighbours to each other, or an end of the list to what is left.
    fn join(&mut self, links: &mut Links<T>, before: u32, after: u32) {
        match links.links.get_mut(before as usize) {
            Some(link) => link.after = after,
            None => self.front = after,
        }
        match links.links.get_mut(after as usize) {
            Some(link) => link.before = before,
            None => self.back = before,
        }
    }
}

/// Requests in order of arrival: first in, first out, but any can be removed. For elevators.
#[derive(Debug)]
pub struct TagList {
    links: Links<Tag>,
    list: List<Tag>,
}

impl TagList {
    /// For tags of `requests_max` slots.
    pub fn new(requests_max: usize) -> Self {
        Self { links: Links::new(requests_max), list: List::EMPTY }
    }

    /// How many requests are in the list.
    pub const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is none.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The one that has been in the list for longest.
    pub fn front(&self) -> Option<Tag> {
        self.list.front(&self.links)
    }

    /// Adds a request as the newest.
    pub fn push_back(&mut self, tag: Tag) {
        self.list.push_back(&mut self.links, tag);
    }

    /// Takes out the one that has been in the list for longest.
    pub fn pop_front(&mut self) -> Option<Tag> {
        self.list.pop_front(&mut self.links)
    }

    /// Takes out a request, wherever it is.
    ///
    /// # Panics
    /// If it is not in the list: a bug of the caller.
    pub fn remove(&mut self, tag: Tag) {
        self.list.remove(&mut self.links, tag);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(links: &mut Links<Tag>, bits: impl Iterator<Item = u32>) -> List<Tag> {
        let mut list = List::EMPTY;
        bits.for_each(|bits| list.push_back(links, Tag::from_bits(bits)));
        list
    }

    fn drain(mut list: List<Tag>, links: &mut Links<Tag>) -> Vec<u32> {
        let count = list.len();
        let members: Vec<_> = std::iter::from_fn(|| list.pop_front(links)).map(Tag::to_bits).collect();
        assert_eq!((members.len(), list.is_empty()), (count, true));
        members
    }

    #[test]
    fn comes_out_in_order_of_arrival_whoever_left() {
        for leaver in 0..4 {
            let mut list = TagList::new(4);
            (0..4).for_each(|bits| list.push_back(Tag::from_bits(bits)));
            list.remove(Tag::from_bits(leaver));
            assert_eq!(list.len(), 3);
            let left: Vec<_> = std::iter::from_fn(|| list.pop_front()).map(Tag::to_bits).collect();
            assert_eq!(left, (0..4).filter(|bits| *bits != leaver).collect::<Vec<_>>());
            assert!(list.is_empty());
        }
    }

    #[test]
    fn lists_over_the_same_links_do_not_mix() {
        let mut links = Links::new(6);
        let even = list_of(&mut links, [0, 2, 4].into_iter());
        let odd = list_of(&mut links, [1, 3, 5].into_iter());
        assert_eq!(drain(even, &mut links), [0, 2, 4]);
        assert_eq!(drain(odd, &mut links), [1, 3, 5]);
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
