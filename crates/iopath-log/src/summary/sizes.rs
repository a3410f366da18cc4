//! Bios queued and requests dispatched, by operation and by size.

use super::report::{OpCounts, SizeClass};
use crate::names::op_name;
use iopath_core::{Op, Record, SECTOR_BYTES};

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// The index of operations that this version does not define.
const UNKNOWN_OP: usize = 7;

/// Counts by operation, and by size in powers of two sectors (class 0: no sectors).
#[derive(Debug, Default)]
pub(super) struct Sizes {
    bios: [Count; 8],
    requests: [Count; 8],
    bio_classes: [Count; 32],
    request_classes: [Count; 32],
}

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    pub(super) count: u64,
    pub(super) sectors: u64,
}

impl Sizes {
    #[inline]
    pub(super) fn add_bio(&mut self, record: Record) {
        self.bios[op_index(record)].add(record.sectors());
        self.bio_classes[class(record)].add(record.sectors());
    }

    #[inline]
    pub(super) fn add_request(&mut self, record: Record) {
        self.requests[op_index(record)].add(record.sectors());
        self.request_classes[class(record)].add(record.sectors());
    }

    /// The device has refused a request that is already counted.
    pub(super) fn remove_request(&mut self, record: Record) {
        self.requests[op_index(record)].remove(record.sectors());
        self.request_classes[class(record)].remove(record.sectors());
    }

    pub(super) fn bios(&self, op: Op) -> u64 {
        self.bios[op as usize].count
    }

    /// The bios of all operations.
    pub(super) fn all_bios(&self) -> Count {
        let add =
            |sum: Count, of: &Count| Count { count: sum.count + of.count, sectors: sum.sectors + of.sectors };
        self.bios.iter().fold(Count::default(), add)
    }

    pub(super) fn ops(&self) -> Vec<OpCounts> {
        let counts = |(op, index): (&'static str, usize)| {
            let (bios, requests) = (self.bios[index], self.requests[index]);
            OpCounts {
                op,
                bios: bios.count,
                bio_bytes: bios.bytes(),
                requests: requests.count,
                request_bytes: requests.bytes(),
            }
        };
        let ops = OPS.into_iter().map(|op| (op_name(op), op as usize));
        let ops = ops.chain([("unknown", UNKNOWN_OP)]);
        ops.map(counts).filter(|counts| counts.bios + counts.requests > 0).collect()
    }

    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let counts = self.bio_classes.iter().zip(&self.request_classes);
        let classes = counts.enumerate().map(|(class, (bios, requests))| SizeClass {
            from_bytes: if class == 0 { 0 } else { SECTOR_BYTES << (class - 1) },
            bios: bios.count,
            bio_bytes: bios.bytes(),
            requests: requests.count,
            request_bytes: requests.bytes(),
        });
        classes.filter(|class| class.bios + class.requests > 0).collect()
    }
}

impl Count {
    fn add(&mut self, sectors: u64) {
        self.count += 1;
        self.sectors += sectors;
    }

    fn remove(&mut self, sectors: u64) {
        self.count = self.count.saturating_sub(1);
        self.sectors = self.sectors.saturating_sub(sectors);
    }

    const fn bytes(self) -> u64 {
        self.sectors * SECTOR_BYTES
    }
}

fn op_index(record: Record) -> usize {
    record.op().map_or(UNKNOWN_OP, |op| op as usize)
}

/// One more than the power of two; lengths have 24 bits.
fn class(record: Record) -> usize {
    (u64::BITS - record.sectors().leading_zeros()) as usize
}
