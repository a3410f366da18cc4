//! Keeps overlapping bios in the order of submission (rule 1 of the path). A bio is held here, before it is split or
//! merged, until every earlier bio that conflicts with it has completed. Two bios conflict if they overlap and at least
//! one is a write.
//!
//! A bio waits for *one* other, the latest that conflicts; when that completes, the search is repeated. So a bio needs
//! one link for any number of conflicts. Reads are indexed only when a write arrives, since reads do not conflict with
//! each other: a queue of reads costs one bit each and no search.

use crate::block::request::NONE;
use crate::collections::number_set::NumberSet;
use crate::collections::sorted::SortedSet;
use crate::sector::Extent;
use prefetch_index::prefetch_index;

/// The bits of a key below the size class.
const START_BITS: u32 = 55;

/// The bios between submission and completion, and the bio that each held one waits for.
#[derive(Debug)]
pub(crate) struct Order {
    nodes: Box<[Node]>,
    /// Bios by size class and start, so that a search goes back only by the longest extent of a class.
    index: SortedSet,
    /// The number of bios of each size class in `index`.
    class_counts: [u32; 64],
    /// Reads not in `index`.
    unindexed: NumberSet,
    /// Writes between submission and completion.
    writes: usize,
    /// The first bio that was held and may continue.
    released: u32,
    /// Counts submissions.
    sequence: u64,
}

/// On one cache line.
#[derive(Debug, Clone, Copy)]
#[repr(align(64))]
struct Node {
    extent: Extent,
    sequence: u64,
    /// The first bio that waits for this one.
    waiters: u32,
    /// The next bio that waits for the same one, or the next released.
    next: u32,
    is_write: bool,
    is_indexed: bool,
}

impl Order {
    pub(crate) fn new(bios_max: usize) -> Self {
        let node = Node {
            extent: Extent::EMPTY,
            sequence: 0,
            waiters: NONE,
            next: NONE,
            is_write: false,
            is_indexed: false,
        };
        Self {
            nodes: vec![node; bios_max].into(),
            index: SortedSet::with_capacity(bios_max),
            class_counts: [0; 64],
            unindexed: NumberSet::new(bios_max),
            writes: 0,
            released: NONE,
            sequence: 0,
        }
    }

    /// Prefetches the memory of a bio that will soon complete.
    #[inline]
    pub(crate) fn prefetch(&self, slot: u32) {
        prefetch_index(&self.nodes, slot as usize);
    }

    /// Adds a bio. Returns whether it may continue now; if not, [`Order::poll_released`] returns it later.
    #[inline]
    pub(crate) fn admit(&mut self, slot: u32, extent: Extent, is_write: bool) -> bool {
        self.sequence += 1;
        self.nodes[slot as usize] =
            Node { extent, sequence: self.sequence, waiters: NONE, next: NONE, is_write, is_indexed: false };
        if is_write {
            return self.admit_write(slot);
        }
        let may_continue = self.writes == 0 || !self.wait_for_earlier(slot);
        self.unindexed.insert(slot);
        may_continue
    }

    fn admit_write(&mut self, slot: u32) -> bool {
        // From here on the reads in progress must be found: by this write, and by those after it.
        self.index_reads();
        self.writes += 1;
        let may_continue = !self.wait_for_earlier(slot);
        self.index(slot);
        may_continue
    }

    /// Removes a completed bio. Those that waited for it search again.
    pub(crate) fn complete(&mut self, slot: u32) {
        let Node { extent, waiters, is_write, is_indexed, .. } = self.nodes[slot as usize];
        if is_indexed {
            self.index.remove(key(class(extent), extent.start().0), slot);
            self.class_counts[class(extent) as usize] -= 1;
        } else {
            let was_in = self.unindexed.remove(slot);
            debug_assert!(was_in, "slot {slot} was completed twice");
        }
        self.writes -= usize::from(is_write);
        if waiters != NONE {
            self.search_again(waiters);
        }
    }

    /// Lets each bio of the list search for another one to wait for, and releases those that find none.
    fn search_again(&mut self, mut waiter: u32) {
        while waiter != NONE {
            let next = self.nodes[waiter as usize].next;
            if !self.wait_for_earlier(waiter) {
                self.nodes[waiter as usize].next = self.released;
                self.released = waiter;
            }
            waiter = next;
        }
    }

    /// Whether [`Order::poll_released`] would return a bio.
    pub(crate) const fn has_released(&self) -> bool {
        self.released != NONE
    }

    /// The next bio that was held and may continue now.
    pub(crate) fn poll_released(&mut self) -> Option<u32> {
        if self.released == NONE {
            return None;
        }
        let slot = self.released;
        self.released = self.nodes[slot as usize].next;
        Some(slot)
    }

    /// Makes `slot` wait for the latest earlier bio that conflicts. Returns whether there is one.
    fn wait_for_earlier(&mut self, slot: u32) -> bool {
        let Some(blocker) = self.latest_conflict(slot) else { return false };
        self.nodes[slot as usize].next = self.nodes[blocker as usize].waiters;
        self.nodes[blocker as usize].waiters = slot;
        true
    }

    fn latest_conflict(&self, slot: u32) -> Option<u32> {
        let Node { extent, sequence, is_write, .. } = self.nodes[slot as usize];
        let mut latest = None;
        for class in (0..64).filter(|class| self.class_counts[*class as usize] > 0) {
            // An extent of this class that starts below `from` ends before this one starts.
            let longest = (2 << class) - 1;
            let from = key(class, extent.start().0.saturating_sub(longest));
            for (_, other) in self.index.range(from..key(class, extent.end().0)) {
                let node = &self.nodes[other as usize];
                let may_conflict = (is_write || node.is_write) && node.sequence < sequence;
                if may_conflict && node.extent.overlaps(extent) {
                    latest = latest.max(Some((node.sequence, other)));
                }
            }
        }
        latest.map(|(_, other)| other)
    }

    fn index(&mut self, slot: u32) {
        let extent = self.nodes[slot as usize].extent;
        self.index.insert(key(class(extent), extent.start().0), slot);
        self.class_counts[class(extent) as usize] += 1;
        self.nodes[slot as usize].is_indexed = true;
    }

    /// Moves every read to the index. Each read moves at most once.
    fn index_reads(&mut self) {
        while let Some(slot) = self.unindexed.pop_first() {
            self.index(slot);
        }
    }
}

/// The size class of an extent: 2^class to 2^(class + 1) - 1 sectors.
fn class(extent: Extent) -> u32 {
    extent.sectors().ilog2()
}

fn key(class: u32, start: u64) -> u64 {
    u64::from(class) << START_BITS | start
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sector::Sector;

    struct Bios {
        order: Order,
        next: u32,
    }

    impl Bios {
        fn new() -> Self {
            Self { order: Order::new(16), next: 0 }
        }

        fn submit(&mut self, start: u64, sectors: u64, is_write: bool) -> (u32, bool) {
            let slot = self.next;
            self.next += 1;
            let extent = Extent::new(Sector(start), sectors).unwrap();
            (slot, self.order.admit(slot, extent, is_write))
        }

        fn complete(&mut self, slot: u32) -> Vec<u32> {
            self.order.complete(slot);
            let mut released: Vec<u32> = std::iter::from_fn(|| self.order.poll_released()).collect();
            released.sort_unstable();
            released
        }
    }

    #[test]
    fn reads_never_wait_for_reads() {
        let mut bios = Bios::new();
        assert_eq!(bios.submit(0, 8, false), (0, true));
        assert_eq!(bios.submit(0, 8, false), (1, true));
    }

    #[test]
    fn a_write_waits_for_a_read_it_overlaps_and_holds_later_reads() {
        let mut bios = Bios::new();
        let (read, _) = bios.submit(0, 8, false);
        let (write, may_continue) = bios.submit(7, 8, true);
        assert!(!may_continue);
        let (later, may_continue) = bios.submit(14, 1, false);
        assert!(!may_continue);
        let (_, may_continue) = bios.submit(15, 8, false);
        assert!(may_continue, "adjacent is not overlapping");
        assert_eq!(bios.complete(read), [write]);
        assert_eq!(bios.complete(write), [later]);
    }

    #[test]
    fn a_bio_with_several_conflicts_continues_after_the_last_of_them() {
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
            let mut bios = Bios::new();
            for start in [0, 8, 16] {
                assert!(bios.submit(start, 8, true).1);
            }
            let (waiter, may_continue) = bios.submit(0, 24, true);
            assert!(!may_continue);
            assert!(bios.complete(order[0]).is_empty());
            assert!(bios.complete(order[1]).is_empty());
            assert_eq!(bios.complete(order[2]), [waiter]);
        }
    }

    #[test]
    fn a_conflict_at_the_end_of_a_long_bio_is_found() {
        let mut bios = Bios::new();
        let (long, _) = bios.submit(0, 1 << 40, true);
        let (short, may_continue) = bios.submit((1 << 40) - 1, 1, false);
        assert!(!may_continue);
        assert_eq!(bios.complete(long), [short]);
    }

    #[test]
    fn a_conflict_at_the_last_sector_is_found() {
        let mut bios = Bios::new();
        let (first, _) = bios.submit(Sector::MAX.0 - 1, 1, true);
        let (second, may_continue) = bios.submit(Sector::MAX.0 - 1, 1, true);
        assert!(!may_continue);
        assert_eq!(bios.complete(first), [second]);
    }
}
