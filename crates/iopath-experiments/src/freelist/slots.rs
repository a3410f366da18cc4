//! Two allocators of request slots that count their steps: a table that is scanned for a free slot, and a list of free
//! slots. They are those of Linux 2.4.0-test2 before and after its change of June 2000. The queue of the library has an
//! allocator of its own.

/// The number of slots that writes may use at the same time: two thirds of `slots`, with either allocator.
pub(super) const fn for_writes(slots: usize) -> usize {
    slots * 2 / 3
}

/// Allocates numbered slots.
pub(super) trait Slots {
    /// Takes a free slot; none if all slots that this operation may use are taken.
    fn take(&mut self, is_write: bool) -> Option<usize>;

    /// Returns a slot.
    fn release(&mut self, slot: usize);

    /// Slots examined so far.
    fn steps(&self) -> u64;
}

/// One table for all queues. A search begins after the slot found last, goes downwards and wraps around. Writes use the
/// lower two thirds only.
#[derive(Debug)]
pub(super) struct ScannedTable {
    taken: Vec<bool>,
    /// The slot found last, for reads and for writes.
    last: [usize; 2],
    steps: u64,
}

impl ScannedTable {
    pub(super) fn new(slots: usize) -> Self {
        Self { taken: vec![false; slots], last: [0; 2], steps: 0 }
    }
}

impl Slots for ScannedTable {
    fn take(&mut self, is_write: bool) -> Option<usize> {
        let limit = if is_write { for_writes(self.taken.len()) } else { self.taken.len() };
        let last = self.last[usize::from(is_write)];
        for distance in 1..=limit {
            self.steps += 1;
            let slot = (last + limit - distance) % limit;
            if !self.taken[slot] {
                self.taken[slot] = true;
                self.last[usize::from(is_write)] = slot;
                return Some(slot);
            }
        }
        None
    }

    fn release(&mut self, slot: usize) {
        self.taken[slot] = false;
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}

/// A list of the free slots of one queue. A write gets no slot while two thirds of the slots are taken.
#[derive(Debug)]
pub(super) struct FreeList {
    slots: usize,
    free: Vec<usize>,
    steps: u64,
}

impl FreeList {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, free: (0..slots).rev().collect(), steps: 0 }
    }
}

impl Slots for FreeList {
    fn take(&mut self, is_write: bool) -> Option<usize> {
        self.steps += 1;
        let is_refused = is_write && self.slots - self.free.len() >= for_writes(self.slots);
        if is_refused { None } else { self.free.pop() }
    }

    fn release(&mut self, slot: usize) {
        self.free.push(slot);
    }

    fn steps(&self) -> u64 {
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_examines_all_slots_before_it_fails_and_a_list_one() {
        let (mut table, mut list) = (ScannedTable::new(6), FreeList::new(6));
        for _ in 0..4 {
            assert!(table.take(true).is_some() && list.take(true).is_some());
        }
        let before = (table.steps(), list.steps());
        assert_eq!((table.take(true), list.take(true)), (None, None));
        assert_eq!((table.steps() - before.0, list.steps() - before.1), (4, 1));
    }

    #[test]
    fn writes_leave_a_third_of_the_slots_to_reads() {
        for (slots, expected) in [
            (&mut ScannedTable::new(256) as &mut dyn Slots, (170, 86)),
            (&mut FreeList::new(512), (341, 171)),
        ] {
            let writes = std::iter::from_fn(|| slots.take(true)).count();
            let reads = std::iter::from_fn(|| slots.take(false)).count();
            assert_eq!((writes, reads), expected);
        }
    }

    #[test]
    fn a_released_slot_is_found_again() {
        for slots in [&mut ScannedTable::new(3) as &mut dyn Slots, &mut FreeList::new(3)] {
            let taken: Vec<_> = std::iter::from_fn(|| slots.take(false)).collect();
            assert_eq!(taken.len(), 3);
            slots.release(taken[1]);
            assert_eq!(slots.take(false), Some(taken[1]));
        }
    }
}
