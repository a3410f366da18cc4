//! Prefetching: finds the leaves of announced keys, prefetches their memory, and stores the leaves, so that the
//! operations need no descent. It changes no entry.

use super::arena::Arena;
use super::node::{Inner, Leaf};
use super::{Entry, Finger, SortedSet};

/// The maximum number of announced keys: more than the cache misses that a processor can have outstanding.
pub(super) const PREFETCH_MAX: usize = 32;

/// How many operations ahead a leaf is prefetched: early enough to arrive in time, and late enough that the transfers
/// overlap with work on earlier leaves.
const AHEAD: usize = 6;

/// The leaves of announced operations that are not yet used, in order.
#[derive(Debug)]
pub(super) struct Prefetched {
    fingers: [Finger; PREFETCH_MAX],
    next: usize,
    end: usize,
}

impl Prefetched {
    pub(super) const NONE: Self = Self { fingers: [Finger::NOWHERE; PREFETCH_MAX], next: 0, end: 0 };

    /// The leaf of `key`, if `key` was announced and the leaf's bounds are unchanged. Drops the leaves announced before
    /// it. Always inlined, for the reason given at [`SortedSet::locate`].
    #[expect(clippy::inline_always, reason = "a call would stall on memory")]
    #[inline(always)]
    pub(super) fn take(&mut self, key: u64, leaves: &Arena<Leaf>) -> Option<Finger> {
        let left = &self.fingers[self.next..self.end];
        let skipped = left.iter().position(|finger| finger.covers(key))?;
        let found = left[skipped];
        self.next += skipped + 1;
        let far = self.fingers[self.next..self.end].get(AHEAD - 1);
        if let Some(far) = far.and_then(|far| leaves.get(far.leaf)) {
            far.prefetch();
        }
        Some(found)
    }

    /// Drops the fingers at a leaf whose bounds change.
    pub(super) fn forget(&mut self, leaf: u32) {
        for finger in &mut self.fingers[self.next..self.end] {
            if finger.leaf == leaf {
                *finger = Finger::NOWHERE;
            }
        }
    }
}

impl SortedSet {
    /// Announces inserts or look-ups of neighbours at `keys`, in this order, and prefetches the memory for all of them
    /// at once. A hint: it ignores keys after the first 32, and keys that belong to the leaves of the last inserts.
    pub fn prefetch_inserts(&mut self, keys: impl IntoIterator<Item = u64>) {
        let near = self.near;
        let keys = keys.into_iter().filter(|&key| !near.iter().any(|near| near.covers(key)));
        prefetch(
            (&self.leaves, &self.inners),
            (self.root, self.height),
            keys.map(|key| (key, 0)),
            &mut self.inserts_ahead,
        );
    }

    /// Announces removals of `entries` in the same way.
    pub fn prefetch_removals(&mut self, entries: impl IntoIterator<Item = Entry>) {
        prefetch(
            (&self.leaves, &self.inners),
            (self.root, self.height),
            entries.into_iter(),
            &mut self.removals_ahead,
        );
    }
}

/// Descends level by level with all keys. Within a level, no step depends on another, so the cache misses overlap. The
/// instruction window of the processor is too short to overlap them without prefetches. So each level is prefetched for
/// all keys before it is read for any key.
fn prefetch(
    (leaves, inners): (&Arena<Leaf>, &Arena<Inner>),
    (root, height): (u32, usize),
    entries: impl Iterator<Item = Entry>,
    prefetched: &mut Prefetched,
) {
    let mut batch = [(0, 0); PREFETCH_MAX];
    let mut len = 0;
    for (slot, entry) in batch.iter_mut().zip(entries) {
        *slot = entry;
        len += 1;
    }
    let fingers = &mut prefetched.fingers[..len];
    fingers.fill(Finger { leaf: root, low: 0, high: u64::MAX });
    let mut blocks = [0_u8; PREFETCH_MAX];
    for levels_left in (0..height).rev() {
        for ((finger, entry), block) in fingers.iter().zip(&batch).zip(&mut blocks) {
            let inner = &inners[finger.leaf];
            let line = inner.block(entry.0);
            inner.prefetch_block(line);
            *block = line as u8;
        }
        for ((finger, entry), block) in fingers.iter_mut().zip(&batch).zip(&blocks) {
            let inner = &inners[finger.leaf];
            let slot = inner.find_in(usize::from(*block), *entry);
            (finger.low, finger.high) = inner.bounds(slot, finger.high);
            finger.leaf = inner.child(slot);
            if levels_left > 0 {
                inners[finger.leaf].prefetch();
            }
        }
    }
    for finger in fingers.iter().take(AHEAD) {
        leaves[finger.leaf].prefetch();
    }
    (prefetched.next, prefetched.end) = (0, len);
}
