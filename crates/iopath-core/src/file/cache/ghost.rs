//! Records the numbers of recently evicted pages. If a recorded page is requested, it was evicted too early.

use super::GOLDEN;
use crate::file::page::Page;
use prefetch_index::prefetch_index;

/// The last `capacity` evicted pages, approximately: a full bucket drops its oldest entry early.
///
/// Identifies a page by 32 bits of its hash, and mistakes one in 10^9 other pages for it. Fixed memory, O(1).
#[derive(Debug)]
pub(super) struct Ghost {
    /// [`Entry`] as bits. Empty until the first eviction: a cache that never fills needs no memory for them.
    buckets: Box<[[u64; Self::WAYS]]>,
    shift: u32,
    capacity: u32,
    /// The number of evictions.
    evictions: u32,
}

/// A recorded page.
#[derive(Debug, Clone, Copy)]
struct Entry {
    fingerprint: u32,
    /// The number of evictions when it was evicted; 0 for an empty entry.
    evictions: u32,
}

impl Entry {
    const EMPTY: u64 = 0;

    const fn of(bits: u64) -> Self {
        Self { fingerprint: bits as u32, evictions: (bits >> 32) as u32 }
    }

    const fn bits(self) -> u64 {
        self.fingerprint as u64 | (self.evictions as u64) << 32
    }
}

impl Ghost {
    const WAYS: usize = 8;

    pub(super) fn new(capacity: u32) -> Self {
        let buckets = (capacity as usize * 2).div_ceil(Self::WAYS).next_power_of_two().max(2);
        Self { buckets: Box::default(), shift: 64 - buckets.trailing_zeros(), capacity, evictions: 0 }
    }

    /// Sets the number of evicted pages that count as recent, which is at most that of the constructor.
    pub(super) const fn resize(&mut self, capacity: u32) {
        self.capacity = capacity;
    }

    pub(super) fn insert(&mut self, page: Page) {
        if self.buckets.is_empty() {
            self.buckets = vec![[Entry::EMPTY; Self::WAYS]; 1 << (64 - self.shift)].into();
        }
        // 0 marks empty entries, so the count skips it when it wraps.
        self.evictions = self.evictions.wrapping_add(1).max(1);
        let evictions = self.evictions;
        let (bucket, fingerprint) = self.bucket_mut(page);
        let oldest = bucket
            .iter_mut()
            .max_by_key(|entry| age(evictions, Entry::of(**entry)))
            .expect("a bucket has entries");
        *oldest = Entry { fingerprint, evictions }.bits();
    }

    /// Whether `page` is recorded; removes it.
    pub(super) fn take(&mut self, page: Page) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let (evictions, capacity) = (self.evictions, self.capacity);
        let (bucket, fingerprint) = self.bucket_mut(page);
        let is_of_page = |entry: Entry| entry.evictions != 0 && entry.fingerprint == fingerprint;
        let Some(entry) = bucket.iter_mut().find(|bits| is_of_page(Entry::of(**bits))) else { return false };
        let is_recent = age(evictions, Entry::of(*entry)) < capacity;
        *entry = Entry::EMPTY;
        is_recent
    }

    /// Makes the processor prefetch the bucket of `page`.
    pub(super) fn prefetch(&self, page: Page) {
        prefetch_index(&self.buckets, self.home(page).0);
    }

    fn bucket_mut(&mut self, page: Page) -> (&mut [u64; Self::WAYS], u32) {
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
