//! The ranges that writers of a volume lock, so that a write of a part of a block, which reads, changes and writes the
//! block, undoes no other write. Does not wait: a driver waits with a [`Ticket`], and tries again when it is woken.
//!
//! ```text
//!   try_lock ──▶ locked ─────────────────────────────▶ unlock ──▶ Wake: every waiter tries again
//!      └─ blocked: wait ──▶ Ticket ──▶ try_waiting ──▲
//! ```

use crate::debug;
use std::fmt;
use std::ops::Range;

/// A lock on a range, by the writes that it excludes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// A write in progress. It excludes all others, and ends without the help of the program.
    Write,
    /// A write of a batch, until the program reaps it. It excludes all others.
    Kept,
    /// A write of whole blocks by another path. It excludes all but others of its kind.
    Whole,
}

/// The place of a writer that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Whether writers wait that may lock their ranges now: the driver wakes all of them.
#[must_use = "a writer that is not woken waits forever"]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wake {
    /// Nobody has to be woken.
    None,
    /// Each waiter calls [`RangeLocks::try_waiting`] again.
    All,
}

/// The locked ranges of a volume, in bytes.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct RangeLocks {
    held: Vec<(LockKind, Range<u64>)>,
    /// In the order of their calls.
    waiting: Vec<(Ticket, LockKind, Range<u64>)>,
    next: u64,
}

impl fmt::Debug for RangeLocks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RangeLocks")
            .field("held", &debug::List(&self.held))
            .field("waiting", &debug::List(&self.waiting))
            .finish_non_exhaustive()
    }
}

impl RangeLocks {
    /// Locks a range, unless that must wait. Whole blocks overtake no writer that waits.
    pub fn try_lock(&mut self, kind: LockKind, range: &Range<u64>) -> bool {
        let is_blocked = match kind {
            LockKind::Write | LockKind::Kept => self.is_blocked(range, Ticket(self.next)),
            LockKind::Whole => {
                let waiting = self.waiting.iter().map(|(_, _, other)| other);
                let is_excluded =
                    |(of, other): &(LockKind, Range<u64>)| *of != LockKind::Whole && overlaps(other, range);
                self.held.iter().any(is_excluded) || waiting.into_iter().any(|other| overlaps(other, range))
            }
        };
        if !is_blocked {
            self.held.push((kind, range.clone()));
        }
        !is_blocked
    }

    /// A writer waits for a range that [`RangeLocks::try_lock`] did not lock.
    ///
    /// # Panics
    /// If it locks whole blocks, which does not wait: a bug of the caller.
    pub fn wait(&mut self, kind: LockKind, range: Range<u64>) -> Ticket {
        assert!(kind != LockKind::Whole, "a write of whole blocks waits for {range:?}");
        let ticket = Ticket(self.next);
        self.next += 1;
        self.waiting.push((ticket, kind, range));
        ticket
    }

    /// Locks the range of a writer that waits, if that is possible now. Other waiters may continue then: see [`Wake`].
    ///
    /// # Panics
    /// If the writer does not wait: a bug of the caller.
    pub fn try_waiting(&mut self, ticket: Ticket) -> Option<Wake> {
        let place = self.waiting.iter().position(|(other, ..)| *other == ticket);
        let place = place.expect("the writer waits");
        let (_, kind, range) = self.waiting[place].clone();
        if self.is_blocked(&range, ticket) {
            return None;
        }
        self.waiting.remove(place);
        self.held.push((kind, range));
        // A writer behind one that waits for this range need not wait any more, if a batch keeps the range.
        Some(if kind == LockKind::Kept { self.wake() } else { Wake::None })
    }

    /// Unlocks a range.
    ///
    /// # Panics
    /// If it is not locked in this way: a bug of the caller.
    pub fn unlock(&mut self, kind: LockKind, range: &Range<u64>) -> Wake {
        let place = self.held.iter().position(|(of, other)| *of == kind && other == range);
        self.held.swap_remove(place.expect("a locked range is listed"));
        self.wake()
    }

    /// Whether no range is locked, and no writer waits.
    pub fn is_idle(&self) -> bool {
        self.held.is_empty() && self.waiting.is_empty()
    }

    /// The number of writers that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether a writer must not lock `range` now.
    ///
    /// It also waits for overlapping ranges of writers that have waited longer, which would otherwise starve. But not
    /// while these wait for the write of a batch: the program may reap that only after this writer has its range.
    fn is_blocked(&self, range: &Range<u64>, ticket: Ticket) -> bool {
        let mut earlier = self.waiting.iter().take_while(|(other, ..)| *other < ticket);
        self.held.iter().any(|(_, other)| overlaps(other, range))
            || earlier.any(|(_, _, other)| overlaps(other, range) && !self.is_kept(other))
    }

    /// Whether the end of a lock in this range may depend on the program.
    fn is_kept(&self, range: &Range<u64>) -> bool {
        self.held.iter().any(|(kind, other)| *kind != LockKind::Write && overlaps(other, range))
    }

    fn wake(&self) -> Wake {
        if self.waiting.is_empty() { Wake::None } else { Wake::All }
    }
}

fn overlaps(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn later_writes_do_not_overtake_a_waiting_one() {
        let mut locks = RangeLocks::default();
        assert!(locks.try_lock(LockKind::Write, &(0..1)));
        assert!(!locks.try_lock(LockKind::Write, &(0..3)));
        let wide = locks.wait(LockKind::Write, 0..3);
        assert!(!locks.try_lock(LockKind::Kept, &(2..3)), "a batch overtakes the waiting write");
        assert!(!locks.try_lock(LockKind::Write, &(1..2)));
        let narrow = locks.wait(LockKind::Write, 1..2);
        assert!(locks.try_lock(LockKind::Kept, &(3..4)), "no write to this range waits");
        assert_eq!((locks.try_waiting(narrow), locks.try_waiting(wide)), (None, None));
        assert_eq!(locks.unlock(LockKind::Write, &(0..1)), Wake::All);
        assert_eq!(locks.try_waiting(narrow), None, "behind the wide one");
        assert_eq!(locks.try_waiting(wide), Some(Wake::None));
        assert_eq!(locks.try_waiting(narrow), None);
        assert_eq!(locks.unlock(LockKind::Write, &(0..3)), Wake::All);
        assert_eq!(locks.try_waiting(narrow), Some(Wake::None));
        assert_eq!(locks.unlock(LockKind::Write, &(1..2)), Wake::None);
        assert_eq!(locks.waiting(), 0);
    }

    #[test]
    fn a_write_that_waits_for_a_batch_holds_up_no_other_write() {
        let mut locks = RangeLocks::default();
        assert!(locks.try_lock(LockKind::Kept, &(0..1)));
        let wide = locks.wait(LockKind::Write, 0..3);
        // The thread of the batch may write elsewhere before it reaps.
        assert!(locks.try_lock(LockKind::Write, &(2..3)) && locks.try_lock(LockKind::Kept, &(1..2)));
        for (kind, range) in [(LockKind::Write, 2..3), (LockKind::Kept, 1..2), (LockKind::Kept, 0..1)] {
            assert_eq!(locks.try_waiting(wide), None);
            assert_eq!(locks.unlock(kind, &range), Wake::All);
        }
        assert_eq!(locks.try_waiting(wide), Some(Wake::None));
    }

    #[test]
    fn a_batch_that_gets_its_range_after_a_wait_wakes_those_behind_other_waiters() {
        let mut locks = RangeLocks::default();
        assert!(locks.try_lock(LockKind::Write, &(0..1)) && locks.try_lock(LockKind::Write, &(2..3)));
        let batch = locks.wait(LockKind::Kept, 0..1);
        let wide = locks.wait(LockKind::Write, 0..3);
        let behind = locks.wait(LockKind::Write, 1..2);
        assert_eq!(locks.unlock(LockKind::Write, &(0..1)), Wake::All);
        assert_eq!((locks.try_waiting(behind), locks.try_waiting(wide)), (None, None));
        assert_eq!(locks.try_waiting(batch), Some(Wake::All));
        assert_eq!(locks.try_waiting(behind), Some(Wake::None));
    }

    #[test]
    fn writes_of_whole_blocks_exclude_all_others_and_not_each_other() {
        let mut locks = RangeLocks::default();
        assert!(locks.try_lock(LockKind::Whole, &(0..8)));
        assert!(locks.try_lock(LockKind::Whole, &(4..12)), "neither changes a part of a block");
        assert!(!locks.try_lock(LockKind::Kept, &(7..8)), "a batch that changes a part of a block");
        assert_eq!(locks.unlock(LockKind::Whole, &(0..8)), Wake::None);
        assert!(locks.try_lock(LockKind::Whole, &(0..4)));
        let part = locks.wait(LockKind::Write, 8..9);
        assert!(!locks.try_lock(LockKind::Whole, &(8..16)), "overtakes the writer that waits");
        assert_eq!(locks.unlock(LockKind::Whole, &(4..12)), Wake::All);
        assert_eq!(locks.try_waiting(part), Some(Wake::None));
        assert!(!locks.try_lock(LockKind::Whole, &(8..16)), "the part is being changed");
        assert_eq!(locks.unlock(LockKind::Write, &(8..9)), Wake::None);
        assert!(locks.try_lock(LockKind::Whole, &(8..16)));
    }

    /// A writer with two locks, one after the other.
    #[derive(Debug, Clone, PartialEq, Eq, Hash)]
    struct Writer {
        plan: [(LockKind, Range<u64>); 2],
        /// The locks that it has released.
        done: usize,
        state: State,
    }

    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    enum State {
        Out,
        Waiting(Ticket),
        /// It was woken and has not tried yet.
        Woken(Ticket),
        Locked,
    }

    type World = (RangeLocks, Vec<Writer>);

    fn step((locks, writers): &World, number: usize) -> Option<World> {
        let (mut locks, mut writers) = (locks.clone(), writers.clone());
        let writer = &mut writers[number];
        let (kind, range) = writer.plan.get(writer.done)?.clone();
        let mut wake = Wake::None;
        writer.state = match writer.state {
            State::Out if locks.try_lock(kind, &range) => State::Locked,
            // Whole blocks are tried again later: the driver of such writes polls.
            State::Out if kind == LockKind::Whole => return None,
            State::Out => State::Waiting(locks.wait(kind, range)),
            State::Waiting(_) => return None,
            State::Woken(ticket) => match locks.try_waiting(ticket) {
                Some(woken) => {
                    wake = woken;
                    State::Locked
                }
                None => State::Waiting(ticket),
            },
            State::Locked => {
                wake = locks.unlock(kind, &range);
                writer.done += 1;
                State::Out
            }
        };
        if wake == Wake::All {
            for other in &mut writers {
                if let State::Waiting(ticket) = other.state {
                    other.state = State::Woken(ticket);
                }
            }
        }
        Some((locks, writers))
    }

    fn check((locks, writers): &World) {
        let held: Vec<_> = writers
            .iter()
            .filter(|writer| writer.state == State::Locked)
            .map(|writer| &writer.plan[writer.done])
            .collect();
        assert_eq!(held.len(), locks.held.len());
        for (place, (kind, range)) in held.iter().enumerate() {
            for (of, other) in &held[..place] {
                let both_whole = *kind == LockKind::Whole && *of == LockKind::Whole;
                assert!(both_whole || !overlaps(range, other), "{writers:?}");
            }
        }
    }

    /// Executes every interleaving of three writers with two locks each: locks that exclude each other do not overlap,
    /// and no writer waits forever.
    #[test]
    fn every_interleaving_of_three_writers_ends() {
        let kinds = [LockKind::Write, LockKind::Kept, LockKind::Whole];
        let ranges = [0..1, 0..2, 1..3];
        let plans: Vec<_> =
            kinds.iter().flat_map(|kind| ranges.iter().map(|range| (*kind, range.clone()))).collect();
        let mut worlds = 0;
        for first in &plans {
            for second in &plans {
                for third in &plans {
                    let plan = |one: &(_, _), other: &(_, _)| [one.clone(), other.clone()];
                    let plans = [plan(first, second), plan(second, third), plan(third, first)];
                    let writer = |plan| Writer { plan, done: 0, state: State::Out };
                    let start: World = (RangeLocks::default(), plans.map(writer).to_vec());
                    let (mut seen, mut open) = (HashSet::from([start.clone()]), vec![start]);
                    while let Some(world) = open.pop() {
                        check(&world);
                        let next: Vec<_> = (0..3).filter_map(|number| step(&world, number)).collect();
                        let is_over = world.1.iter().all(|writer| writer.done == 2);
                        assert!(is_over || !next.is_empty(), "nobody can continue: {world:?}");
                        open.extend(next.into_iter().filter(|next| seen.insert(next.clone())));
                    }
                    worlds += seen.len();
                }
            }
        }
        assert!(worlds > 10_000, "{worlds}");
    }
}
