//! How many bios came in and requests went out, by operation and by size.

use super::report::{OpCounts, SizeClass};
use crate::names::op_name;
use iopath_core::{Op, Record, SECTOR_BYTES};

const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// Counts by operation, and by size in powers of two sectors (class 0: none).
#[derive(Debug, Default)]
pub(super) struct Sizes {
    bios: [Count; 8],
    requests: [Count; 8],
    bio_classes: [u64; 32],
    request_classes: [u64; 32],
}

#[derive(Debug, Clone, Copy, Default)]
struct Count {
    count: u64,
    sectors: u64,
}

impl Sizes {
    #[inline]
    pub(super) fn add_bio(&mut self, record: Record) {
        self.bios[op_place(record)].add(record.sectors());
        self.bio_classes[class(record)] += 1;
    }

    #[inline]
    pub(super) fn add_request(&mut self, record: Record) {
        self.requests[op_place(record)].add(record.sectors());
        self.request_classes[class(record)] += 1;
    }

    /// The device gave it back.
    pub(super) fn remove_request(&mut self, record: Record) {
        self.requests[op_place(record)].remove(record.sectors());
        let class = &mut self.request_classes[class(record)];
        *class = class.saturating_sub(1);
    }

    pub(super) fn ops(&self) -> Vec<OpCounts> {
        let counts = |op: Op| {
            let (bios, requests) = (self.bios[op as usize], self.requests[op as usize]);
            OpCounts {
                op: op_name(op),
                bios: bios.count,
                bio_bytes: bios.sectors * SECTOR_BYTES,
                requests: requests.count,
                request_bytes: requests.sectors * SECTOR_BYTES,
            }
        };
        OPS.into_iter().map(counts).filter(|counts| counts.bios + counts.requests > 0).collect()
    }

    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let counts = self.bio_classes.iter().zip(&self.request_classes).skip(1);
        let classes = counts.enumerate().map(|(class, (bios, requests))| SizeClass {
            from_bytes: SECTOR_BYTES << class,
            bios: *bios,
            requests: *requests,
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
}

/// Unknown operations go beyond the known.
fn op_place(record: Record) -> usize {
    record.op().map_or(7, |op| op as usize)
}

/// One more than the power of two; lengths have 24 bits.
fn class(record: Record) -> usize {
    (u64::BITS - record.sectors().leading_zeros()) as usize
}
