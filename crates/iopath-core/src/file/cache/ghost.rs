//! Records which pages were evicted recently, without their bytes. A page that is requested while it is recorded was evicted
//! too early.

use super::GOLDEN;
use crate::file::page::Page;
use prefetch_index::prefetch_index;

/// The last `capacity` evicted pages, approximately: a full bucket drops its oldest entry early.
///
/// A page is identified by 32 bits of its hash; one in 10^9 other pages is mistaken for it. Fixed memory, O(1).
#[derive(Debug)]
pub(super) struct Ghost {
    buckets: Box<[[Entry; Self::WAYS]]>,
    shift: u32,
    capacity: u32,
    /// Counts evictions.
    turn: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    fingerprint: u32,
    /// When it was evicted; 0 for an empty entry.
    turn: u32,
}

impl Ghost {
    const WAYS: usize = 8;

    pub(super) fn new(capacity: u32) -> Self {
        let buckets = (capacity as usize * 2).div_ceil(Self::WAYS).next_power_of_two().max(2);
        Self {
            buckets: vec![[Entry::default(); Self::WAYS]; buckets].into(),
            shift: 64 - buckets.trailing_zeros(),
            capacity,
            turn: 0,
        }
    }

    pub(super) fn insert(&mut self, page: Page) {
        // 0 marks empty entries, so the count skips it when it wraps.
        self.turn = self.turn.wrapping_add(1).max(1);
        let turn = self.turn;
        let (bucket, fingerprint) = self.place(page);
        let oldest = bucket.iter_mut().max_by_key(|entry| age(turn, **entry)).expect("a bucket has entries");
        *oldest = Entry { fingerprint, turn };
    }

    /// Whether `page` is recorded; removes it.
    pub(super) fn take(&mut self, page: Page) -> bool {
        let (turn, capacity) = (self.turn, self.capacity);
        let (bucket, fingerprint) = self.place(page);
        let found = bucket.iter_mut().find(|entry| entry.turn != 0 && entry.fingerprint == fingerprint);
        let Some(entry) = found else { return false };
        let is_recent = age(turn, *entry) < capacity;
        *entry = Entry::default();
        is_recent
    }

    /// Makes the processor prefetch the bucket of `page`.
    pub(super) fn prefetch(&self, page: Page) {
        prefetch_index(&self.buckets, self.home(page).0);
    }

    fn place(&mut self, page: Page) -> (&mut [Entry; Self::WAYS], u32) {
        let (bucket, fingerprint) = self.home(page);
        (&mut self.buckets[bucket], fingerprint)
    }

    const fn home(&self, page: Page) -> (usize, u32) {
        let hash = page.0.wrapping_mul(GOLDEN);
        let hash = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((hash >> self.shift) as usize, hash as u32)
    }
}

/// How many evictions ago; an empty entry is older than any.
const fn age(turn: u32, entry: Entry) -> u32 {
    if entry.turn == 0 { u32::MAX } else { turn.wrapping_sub(entry.turn) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_its_capacity_and_no_more() {
        let mut ghost = Ghost::new(1000);
        (0..5000).for_each(|page| ghost.insert(Page(page * 7)));
        let known = (4000..5000).filter(|page| ghost.take(Page(page * 7))).count();
        assert!(known > 950, "{known} of 1000");
        assert!((0..4000).all(|page| !ghost.take(Page(page * 7))), "older ones are forgotten");
        assert!(!ghost.take(Page(4999 * 7)), "taken once");
    }
}
