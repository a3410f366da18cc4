//! Conformance of every row of `ELEVATORS`: each request is dispatched once, within the stated starvation bound, in the
//! order of the published definition. The guarantees of the queue over every elevator (data, order of overlapping bios,
//! flushes, limits) are tested in `tests/model`.

mod fairness;
mod merging;
mod oracle;
mod order;
mod seek;
mod starvation;
mod switching;
mod tunables;

use iopath_core::elevator::{ELEVATORS, ElevatorSpec, Outline};
use iopath_core::{Extent, Op, Priority, Sector, Stream};

/// A read of 8 sectors by stream 0.
fn read(start: u64) -> Outline {
    let extent = Extent::new(Sector(start), 8).expect("within the address space");
    Outline { op: Op::Read, extent, stream: Stream(0), priority: Priority::BestEffort, segments: 1 }
}

fn write(start: u64) -> Outline {
    Outline { op: Op::Write, ..read(start) }
}

fn spec(text: &str) -> ElevatorSpec {
    text.parse().unwrap_or_else(|wrong| panic!("{wrong}"))
}

fn every_elevator() -> impl Iterator<Item = ElevatorSpec> {
    ELEVATORS.iter().map(|kind| ElevatorSpec::new(*kind))
}
