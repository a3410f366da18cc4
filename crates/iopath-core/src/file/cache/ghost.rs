//! Records the numbers of recently evicted pages. If a recorded page is requested, it was evicted too early.

use super::GOLDEN;
use crate::file::page::Page;
use prefetch_index::prefetch_index;

/// The last `capacity` evicted pages, approximately: a full bucket drops its oldest entry early.
///
/// Identifies a page by 32 bits of its hash, and mistakes one in 10^9 other pages for it. Fixed memory, O(1).
#[derive(Debug)]
pub(super) struct Ghost {
    buckets: Box<[[Entry; Self::WAYS]]>,
    shift: u32,
    capacity: u32,
    /// The number of evictions.
    evictions: u32,
}

#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    fingerprint: u32,
    /// The number of evictions when it was evicted; 0 for an empty entry.
    evictions: u32,
}

impl Ghost {
    const WAYS: usize = 8;

    pub(super) fn new(capacity: u32) -> Self {
        let buckets = (capacity as usize * 2).div_ceil(Self::WAYS).next_power_of_two().max(2);
        Self {
            buckets: vec![[Entry::default(); Self::WAYS]; buckets].into(),
            shift: 64 - buckets.trailing_zeros(),
            capacity,
            evictions: 0,
        }
    }

    pub(super) fn insert(&mut self, page: Page) {
        // 0 marks empty entries, so the count skips it when it wraps.
        self.evictions = self.evictions.wrapping_add(1).max(1);
        let evictions = self.evictions;
        let (bucket, fingerprint) = self.bucket_mut(page);
        let oldest =
            bucket.iter_mut().max_by_key(|entry| age(evictions, **entry)).expect("a bucket has entries");
        *oldest = Entry { fingerprint, evictions };
    }

    /// Whether `page` is recorded; removes it.
    pub(super) fn take(&mut self, page: Page) -> bool {
        let (evictions, capacity) = (self.evictions, self.capacity);
        let (bucket, fingerprint) = self.bucket_mut(page);
        let found = bucket.iter_mut().find(|entry| entry.evictions != 0 && entry.fingerprint == fingerprint);
        let Some(entry) = found else { return false };
        let is_recent = age(evictions, *entry) < capacity;
        *entry = Entry::default();
        is_recent
    }

    /// Makes the processor prefetch the bucket of `page`.
    pub(super) fn prefetch(&self, page: Page) {
        prefetch_index(&self.buckets, self.home(page).0);
    }

    fn bucket_mut(&mut self, page: Page) -> (&mut [Entry; Self::WAYS], u32) {
        let (bucket, fingerprint) = self.home(page);
        (&mut self.buckets[bucket], fingerprint)
    }

    const fn home(&self, page: Page) -> (usize, u32) {
        let hash = page.0.wrapping_mul(GOLDEN);
        let hash = (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        ((hash >> self.shift) as usize, hash as u32)
    }
}

/// The number of evictions since; an empty entry is older than any.
const fn age(evictions: u32, entry: Entry) -> u32 {
    if entry.evictions == 0 { u32::MAX } else { evictions.wrapping_sub(entry.evictions) }
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
        assert!((0..4000).all(|page| !ghost.take(Page(page * 7))), "older pages are not recorded");
        assert!(!ghost.take(Page(4999 * 7)), "taken once");
    }
}
