//! Doubly linked lists that share one array of links: a member is in at most one list and can be removed from any
//! position in O(1). The array is allocated once, and touched from its start on. Members have no data: `fifo.rs` is a
//! list with a stamp per member.

use prefetch_index::prefetch_index;
use std::marker::PhantomData;

/// Marks an end of a list. No member has these bits.
const NIL: u32 = u32::MAX;

/// A member of a list: a 32-bit number with an index below the number of links.
pub(crate) trait Member: Copy {
    fn bits(self) -> u32;
    fn from_bits(bits: u32) -> Self;
    fn index(self) -> usize;
}

/// A plain index, such as the number of a cache frame.
impl Member for u32 {
    fn bits(self) -> u32 {
        self
    }

    fn from_bits(bits: u32) -> Self {
        bits
    }

    fn index(self) -> usize {
        self as usize
    }
}

/// The links of all members.
#[derive(Debug)]
pub(crate) struct Links<T = u32> {
    links: Vec<Link>,
    of: PhantomData<T>,
}

/// The bits of the neighbours in the list.
#[derive(Debug, Clone, Copy)]
struct Link {
    before: u32,
    after: u32,
}

/// One list: its ends and its length. The links between its members are in [`Links`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct List<T = u32> {
    front: u32,
    back: u32,
    len: u32,
    of: PhantomData<T>,
}

impl<T: Member> List<T> {
    pub(crate) const EMPTY: Self = Self { front: NIL, back: NIL, len: 0, of: PhantomData };

    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The oldest member.
    pub(crate) fn front(&self) -> Option<T> {
        member(self.front)
    }
}

impl<T: Member> Links<T> {
    /// Links for members with indices below `members_max`.
    pub(crate) fn new(members_max: u32) -> Self {
        let mut links = Self::with_capacity(members_max);
        (0..members_max).for_each(|_| links.add());
        links
    }

    /// Space for the links of members with indices below `members_max`, which [`Links::add`] adds in order. Space
    /// without a link is not touched.
    pub(crate) fn with_capacity(members_max: u32) -> Self {
        Self { links: Vec::with_capacity(members_max as usize), of: PhantomData }
    }

    /// Adds the link of the member with the next index.
    pub(crate) fn add(&mut self) {
        self.links.push(Link { before: NIL, after: NIL });
    }

    /// Adds a member as the newest. It must be in no list.
    #[inline]
    pub(crate) fn push_back(&mut self, list: &mut List<T>, member: T) {
        self.links[member.index()] = Link { before: list.back, after: NIL };
        match self.link(list.back) {
            Some(newest) => newest.after = member.bits(),
            None => list.front = member.bits(),
        }
        list.back = member.bits();
        list.len += 1;
    }

    /// Adds a member directly before `next`, which is in `list`. The member must be in no list.
    pub(crate) fn insert_before(&mut self, list: &mut List<T>, next: T, member: T) {
        let Link { before, .. } = self.links[next.index()];
        self.links[member.index()] = Link { before, after: next.bits() };
        self.links[next.index()].before = member.bits();
        match self.link(before) {
            Some(before) => before.after = member.bits(),
            None => list.front = member.bits(),
        }
        list.len += 1;
    }

    /// Removes and returns the oldest member.
    #[inline]
    pub(crate) fn pop_front(&mut self, list: &mut List<T>) -> Option<T> {
        let member = list.front()?;
        self.remove(list, member);
        Some(member)
    }

    /// Removes a member from `list`.
    ///
    /// # Panics
    /// If no list has the member: a bug of the caller.
    #[inline]
    pub(crate) fn remove(&mut self, list: &mut List<T>, member: T) {
        let Link { before, after } = self.links[member.index()];
        // A removed member keeps its links, but none of them leads back to it.
        let to_member = match self.link(before) {
            Some(before) => std::mem::replace(&mut before.after, after),
            None => std::mem::replace(&mut list.front, after),
        };
        assert!(to_member == member.bits(), "member {:#x} is not in the list", member.bits());
        match self.link(after) {
            Some(after) => after.before = before,
            None => list.back = before,
        }
        list.len -= 1;
    }

    /// The members of a list, oldest first. Prefetches each link one step ahead.
    #[inline]
    pub(crate) fn iter<'a>(&'a self, list: &List<T>) -> impl Iterator<Item = T> + use<'a, T> {
        let mut next = list.front;
        std::iter::from_fn(move || {
            let current = member::<T>(next)?;
            next = self.links[current.index()].after;
            if let Some(next) = member::<T>(next) {
                prefetch_index(&self.links, next.index());
            }
            Some(current)
        })
    }

    fn link(&mut self, bits: u32) -> Option<&mut Link> {
        member::<T>(bits).map(|member| &mut self.links[member.index()])
    }
}

fn member<T: Member>(bits: u32) -> Option<T> {
    (bits != NIL).then(|| T::from_bits(bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list_of(links: &mut Links, members: impl Iterator<Item = u32>) -> List {
        let mut list = List::EMPTY;
        members.for_each(|member| links.push_back(&mut list, member));
        list
    }

    fn drain(mut list: List, links: &mut Links) -> Vec<u32> {
        let count = list.len() as usize;
        let members: Vec<_> = std::iter::from_fn(|| links.pop_front(&mut list)).collect();
        assert_eq!((members.len(), list.is_empty()), (count, true));
        members
    }

    #[test]
    fn lists_over_the_same_links_do_not_mix() {
        let mut links = Links::new(6);
        let even = list_of(&mut links, [0, 2, 4].into_iter());
        let odd = list_of(&mut links, [1, 3, 5].into_iter());
        assert_eq!(links.iter(&even).collect::<Vec<_>>(), [0, 2, 4]);
        assert_eq!(drain(even, &mut links), [0, 2, 4]);
        assert_eq!(drain(odd, &mut links), [1, 3, 5]);
    }

    #[test]
    fn removal_at_any_position_keeps_the_order_of_the_others() {
        for removed in 0..4 {
            let mut links = Links::new(4);
            let mut list = list_of(&mut links, 0..4);
            links.remove(&mut list, removed);
            links.push_back(&mut list, removed);
            let expected: Vec<_> = (0..4).filter(|member| *member != removed).chain([removed]).collect();
            assert_eq!(drain(list, &mut links), expected);
        }
    }

    /// Each position a member can be removed from, and each state of the list afterwards.
    #[test]
    fn a_second_removal_panics() {
        for removed in 0..3 {
            for also_removed in (0..3).filter(|other| *other != removed) {
                let second_removal = std::panic::catch_unwind(|| {
                    let mut links = Links::new(3);
                    let mut list = list_of(&mut links, 0..3);
                    links.remove(&mut list, removed);
                    links.remove(&mut list, also_removed);
                    links.remove(&mut list, removed);
                });
                assert!(second_removal.is_err(), "removed {removed}, {also_removed}, {removed}");
            }
        }
    }

    #[test]
    #[should_panic(expected = "is not in the list")]
    fn a_member_that_was_never_added_is_not_in_the_list() {
        let mut links = Links::new(2);
        let mut list = list_of(&mut links, 0..1);
        links.remove(&mut list, 1);
    }
}
