//! Counters of file accesses: the second level of a log, above a page cache. Bios and requests are in `join.rs`.

use super::histogram::Histogram;
use super::report::{AccessCounts, FileAccess};
use super::slots::{Budget, Slots, UNKNOWN};
use crate::names::op_name;
use iopath_core::log::Event;
use iopath_core::{Op, Record};

/// The operations of accesses.
const OPS: [Op; 5] = [Op::Read, Op::Write, Op::Flush, Op::Discard, Op::WriteZeroes];

/// Accesses in flight of one caller: the start of the access in each slot.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    begun: Slots<Begun>,
    /// Whether the caller has logged an access.
    pub(super) is_used: bool,
}

#[derive(Debug, Clone, Copy)]
struct Begun(u64);

impl Default for Begun {
    fn default() -> Self {
        Self(UNKNOWN)
    }
}

/// Counters over all callers.
#[derive(Debug, Default)]
pub(super) struct Accesses {
    ops: [Option<Box<OpTally>>; OPS.len()],
    unjoined: u64,
}

#[derive(Debug)]
struct OpTally {
    begun: u64,
    bytes: u64,
    failed: u64,
    latencies: Histogram,
}

impl InFlight {
    /// Records are missing.
    pub(super) fn forget(&mut self) {
        self.begun.forget();
    }

    /// Follows a step of an access.
    pub(super) fn follow(
        &mut self,
        event: Event,
        record: Record,
        now: u64,
        budget: &mut Budget,
        accesses: &mut Accesses,
    ) {
        self.is_used = true;
        let Some(op) = record.op() else { return };
        let tally = accesses.of(op);
        if event == Event::Access {
            tally.begun += 1;
            let (_, bytes) = record.access_range();
            tally.bytes += bytes;
            self.begun.set(record.tag(), Begun(now), budget);
            return;
        }
        tally.failed += u64::from(record.other() != 0);
        let begun = self.begun.find(record.tag()).map(std::mem::take).unwrap_or_default();
        if begun.0 == UNKNOWN {
            accesses.unjoined += 1;
        } else {
            tally.latencies.add(now.saturating_sub(begun.0));
        }
    }
}

impl Accesses {
    fn of(&mut self, op: Op) -> &mut OpTally {
        let index = OPS.iter().position(|known| *known == op).unwrap_or(0);
        self.ops[index].get_or_insert_with(|| {
            let latencies = Histogram::new(Histogram::FINE_BITS);
            Box::new(OpTally { begun: 0, bytes: 0, failed: 0, latencies })
        })
    }

    /// The accesses by operation; none of a log without accesses.
    pub(super) fn report(&self) -> Option<FileAccess> {
        let counts = |(op, tally): (&Op, &Option<Box<OpTally>>)| {
            let OpTally { begun, bytes, failed, ref latencies } = **tally.as_ref()?;
            Some(AccessCounts {
                op: op_name(*op),
                accesses: begun,
                bytes,
                failed,
                completed: latencies.count(),
                mean_ns: latencies.mean(),
                p50_ns: latencies.quantile(0.5),
                p99_ns: latencies.quantile(0.99),
                max_ns: latencies.max(),
            })
        };
        let ops: Vec<AccessCounts> = OPS.iter().zip(&self.ops).filter_map(counts).collect();
        (!ops.is_empty()).then_some(FileAccess { ops, unjoined: self.unjoined })
    }
}
