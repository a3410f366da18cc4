//! Looks ahead: finds the leaves of keys that are to come, asks for their memory before it is read, and keeps the
//! places, so that the operations need no descent of their own. Changes no entry.

use super::arena::Arena;
use super::node::{Inner, Leaf};
use super::{Entry, Finger, SortedSet};

/// The most that is looked for at a time: more than a processor waits for at once.
pub(super) const FORESEEN_MAX: usize = 32;

/// How many operations ahead a leaf is asked for: so many that it is there in time, and so few that the leaves come
/// while the processor works on those before them, rather than all at once while it waits.
const AHEAD: usize = 6;

/// The places that were found ahead last and not asked for yet, in the order in which they will be.
#[derive(Debug)]
pub(super) struct Prefetchn {
    fingers: [Finger; FORESEEN_MAX],
    next: usize,
    end: usize,
}

impl Prefetchn {
    pub(super) const NONE: Self = Self { fingers: [Finger::NOWHERE; FORESEEN_MAX], next: 0, end: 0 };

    /// The place of `key`, if it was announced and what is there has not changed since. What was announced before it
    /// will not come any more. Always inlined, for the reason given at [`SortedSet::locate`].
    #[expect(clippy::inline_always, reason = "the optimiser's own choice costs a wait for memory")]
    #[inline(always)]
    pub(super) fn take(&mut self, key: u64, leaves: &Arena<Leaf>) -> Option<Finger> {
        let left = &self.fingers[self.next..self.end];
        let passed = left.iter().position(|finger| finger.covers(key))?;
        let found = left[passed];
        self.next += passed + 1;
        let far = self.fingers[self.next..self.end].get(AHEAD - 1);
        if let Some(far) = far.and_then(|far| leaves.get(far.leaf)) {
            far.prefetch();
        }
        Some(found)
    }

    /// Lifts the fingers from a leaf whose bounds change.
    pub(super) fn forget(&mut self, leaf: u32) {
        for finger in &mut self.fingers[self.next..self.end] {
            if finger.leaf == leaf {
                *finger = Finger::NOWHERE;
            }
        }
    }
}

impl SortedSet {
    /// Says that inserts or look-ups of neighbours at `keys` come next, in this order: asks for the memory that
    /// they will touch, for all at once rather than one after another. A hint; of more than 32 keys the rest is
    /// ignored, and so are those at the places of the last inserts.
    pub fn prefetch_inserts(&mut self, keys: impl IntoIterator<Item = u64>) {
        let near = self.near;
        let keys = keys.into_iter().filter(|&key| !near.iter().any(|near| near.covers(key)));
        prefetch(
            (&self.leaves, &self.inners),
            (self.root, self.height),
            keys.map(|key| (key, 0)),
            &mut self.coming,
        );
    }

    /// The same for removals of `entries`.
    pub fn prefetch_removals(&mut self, entries: impl IntoIterator<Item = Entry>) {
        prefetch(
            (&self.leaves, &self.inners),
            (self.root, self.height),
            entries.into_iter(),
            &mut self.going,
        );
    }
}

/// Goes down level by level: within a level no step depends on another, so the processor waits for all of
/// them at once. It would not by itself look far enough ahead for that: so each line of a node is asked for, for all
/// keys, before it is read for any.
fn prefetch(
    (leaves, inners): (&Arena<Leaf>, &Arena<Inner>),
    (root, height): (u32, usize),
    entries: impl Iterator<Item = Entry>,
    prefetched: &mut Prefetchn,
) {
    let (mut batch, mut len) = ([(0, 0); FORESEEN_MAX], 0);
    for (place, entry) in batch.iter_mut().zip(entries) {
        *place = entry;
        len += 1;
    }
    let fingers = &mut prefetched.fingers[..len];
    fingers.fill(Finger { leaf: root, low: 0, high: u64::MAX });
    let mut blocks = [0_u8; FORESEEN_MAX];
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
