//! Bios and requests in flight: numbered slots, and an index that finds a slot by a sector.

use crate::number_map::NumberMap;

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Values in numbered slots. Numbers of freed slots are used again.
#[derive(Debug)]
pub(super) struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(super) fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = value;
            return slot;
        }
        self.slots.push(value);
        self.slots.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The value in a slot that may have been freed.
    pub(super) fn get(&self, slot: u32) -> Option<&T> {
        self.slots.get(slot as usize)
    }

    /// The number of values.
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn clear(&mut self) {
        self.slots.clear();
        self.free.clear();
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;

    fn index(&self, slot: u32) -> &T {
        &self.slots[slot as usize]
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    fn index_mut(&mut self, slot: u32) -> &mut T {
        &mut self.slots[slot as usize]
    }
}

/// Slots by sector, first in, first out for slots of one sector.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The first and the last slot of each sector.
    ends: NumberMap<u64, (u32, u32)>,
    /// The next slot of the same sector, by slot.
    next: Vec<u32>,
    len: usize,
}

impl Index {
    pub(super) fn insert(&mut self, sector: u64, slot: u32) {
        if self.next.len() <= slot as usize {
            self.next.resize(slot as usize + 1, NONE);
        }
        self.next[slot as usize] = NONE;
        self.len += 1;
        let (_, last) = self.ends.entry(sector).or_insert((slot, slot));
        let before = std::mem::replace(last, slot);
        if before != slot {
            self.next[before as usize] = slot;
        }
    }

    /// The slots of a sector, the oldest first.
    pub(super) fn of(&self, sector: u64) -> impl Iterator<Item = u32> {
        let first = self.ends.get(&sector).map(|(first, _)| *first);
        std::iter::successors(first, |slot| Some(self.next[*slot as usize]).filter(|next| *next != NONE))
    }

    /// Removes a slot, which must be in the index with that sector.
    pub(super) fn remove(&mut self, sector: u64, slot: u32) {
        let Some((first, last)) = self.ends.get_mut(&sector) else { return };
        let after = self.next[slot as usize];
        if *first == slot {
            self.len -= 1;
            *first = after;
            if after == NONE {
                self.ends.remove(&sector);
            }
            return;
        }
        let mut before = *first;
        while self.next[before as usize] != slot {
            before = self.next[before as usize];
            if before == NONE {
                return;
            }
        }
        self.len -= 1;
        self.next[before as usize] = after;
        if *last == slot {
            *last = before;
        }
    }

    /// The number of slots.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) fn clear(&mut self) {
        self.ends.clear();
        self.len = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_of_one_sector_are_in_order_of_insertion() {
        let mut index = Index::default();
        for slot in [4, 0, 7] {
            index.insert(100, slot);
        }
        index.insert(200, 5);
        index.remove(100, 0);
        index.insert(100, 0);
        assert_eq!(index.of(100).collect::<Vec<_>>(), [4, 7, 0]);
        index.remove(100, 0);
        index.insert(100, 9);
        index.remove(100, 4);
        assert_eq!((index.of(100).collect::<Vec<_>>(), index.len()), (vec![7, 9], 3));
        index.remove(100, 7);
        index.remove(100, 9);
        assert_eq!((index.of(100).count(), index.of(200).count()), (0, 1));
    }
}
