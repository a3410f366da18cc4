//! The faults of a disk: a plan, the loss of its write cache, and the state of the whole disk. It can be full, thin
//! (fewer sectors than it promises), detached, or shorter than it was.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use iopath_core::{Damage, Extent, FaultPlan, FaultSource, IoError, Op, Outcome};

/// The faults of one disk, shared by its ports.
pub(crate) type Faults = Rc<RefCell<DiskFaults>>;

/// A plan of faults, and the state of the disk.
#[derive(Debug)]
pub(crate) struct DiskFaults {
    pub(crate) plan: FaultPlan,
    /// A failed flush loses the bytes of the write cache.
    pub(crate) flush_loses: bool,
    /// A flush has failed, and the write cache has not lost its bytes yet.
    pub(crate) is_cache_lost: bool,
    pub(crate) space: Space,
    /// It was detached: all I/O fails.
    pub(crate) is_gone: bool,
    /// It was truncated: it has no sectors from this one on.
    pub(crate) end: Option<u64>,
    /// The number of requests that failed because it was detached or truncated.
    pub(crate) failed: u64,
}

/// The space of a disk.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// It refuses all writes.
    pub(crate) is_full: bool,
    /// The sectors that it has for places which were never written, or were discarded since; all if not set.
    pub(crate) left: Option<u64>,
    allocated: BTreeSet<u64>,
    /// The number of writes that it has refused.
    pub(crate) refused: u64,
}

impl Space {
    /// Takes space for a write. Returns the bytes before the first sector that gets none.
    fn take(&mut self, op: Op, extent: Extent) -> Option<u64> {
        if self.is_full && op == Op::Write {
            return Some(0);
        }
        let left = self.left.as_mut()?;
        let sectors = extent.start().0..extent.end().0;
        match op {
            Op::Discard => {
                *left += sectors.filter(|sector| self.allocated.remove(sector)).count() as u64;
                None
            }
            Op::Write | Op::WriteZeroes => {
                let without = |sector: &u64| {
                    if self.allocated.contains(sector) {
                        return false;
                    }
                    let Some(rest) = left.checked_sub(1) else { return true };
                    *left = rest;
                    self.allocated.insert(*sector);
                    false
                };
                sectors.clone().find(without).map(|sector| (sector - sectors.start) * 512)
            }
            Op::Read | Op::Flush => None,
        }
    }
}

impl DiskFaults {
    pub(crate) fn new(plan: FaultPlan, flush_loses: bool, space: Option<u64>) -> Self {
        let space = Space { left: space, ..Space::default() };
        Self { plan, flush_loses, is_cache_lost: false, space, is_gone: false, end: None, failed: 0 }
    }

    /// The disk works again.
    pub(crate) fn stop(&mut self) {
        self.plan.stop();
        (self.space.is_full, self.space.left) = (false, None);
        (self.is_gone, self.end) = (false, None);
    }

    /// The bytes of a request before the end of the disk, if it extends past it.
    fn before_end(&self, op: Op, extent: Extent) -> Option<u64> {
        let end = self.end.filter(|end| op != Op::Flush && extent.end().0 > *end)?;
        Some(end.saturating_sub(extent.start().0) * 512)
    }
}

impl FaultSource for DiskFaults {
    fn draw(&mut self, op: Op, extent: Extent, block_bytes: u64, moved_min: u64) -> Outcome {
        if self.is_gone {
            self.failed += 1;
            return Outcome::Error { moved: 0, error: IoError::Gone };
        }
        if let Some(moved) = self.before_end(op, extent) {
            self.failed += 1;
            return Outcome::Error { moved, error: IoError::EndOfDevice };
        }
        if let Some(moved) = self.space.take(op, extent) {
            self.space.refused += 1;
            return Outcome::Error { moved, error: IoError::NoSpace };
        }
        self.plan.draw(op, extent, block_bytes, moved_min)
    }

    fn is_shuffled(&self) -> bool {
        self.plan.is_shuffled()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.plan.below(bound)
    }

    fn releases(&self) -> u64 {
        self.plan.releases()
    }

    fn on_failed_flush(&mut self) {
        self.is_cache_lost |= self.flush_loses;
    }

    fn on_damage(&mut self, damage: Damage) {
        self.plan.on_damage(damage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::Sector;

    #[test]
    fn a_thin_disk_has_space_again_after_a_discard() {
        let mut space = Space { left: Some(10), ..Space::default() };
        let extent = |start, sectors| Extent::new(Sector(start), sectors).unwrap();
        assert_eq!(space.take(Op::Write, extent(0, 8)), None);
        assert_eq!(space.take(Op::Write, extent(4, 8)), Some(6 * 512), "sectors 4 to 9 have space");
        assert_eq!(space.take(Op::Write, extent(0, 8)), None, "an overwrite needs none");
        assert_eq!(space.take(Op::Read, extent(0, 100)), None);
        assert_eq!(space.take(Op::Discard, extent(0, 2)), None);
        assert_eq!(space.take(Op::Write, extent(10, 3)), Some(2 * 512));
    }
}
