//! What every row of `ELEVATORS` owes: each request comes out once, within the starvation bound it states, in
//! the order that its published definition gives. That the queue keeps its own promises over every elevator
//! (bytes, order of overlapping bios, flushes, limits) is checked by `tests/model`.

mod fairness;
mod merging;
mod oracle;
mod order;
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
