//! An I/O scheduler (elevator) in another crate, registered beside those of iopath: newest first, every eighth time the
//! oldest.
//!
//! `cargo run -p iopath-core --example own_elevator -- newest`

use iopath_core::elevator::{ELEVATORS, Elevator, ElevatorKind, ElevatorSpec, StarvationBound};
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue, RequestTable, Tag,
};
use std::collections::VecDeque;
use std::process::ExitCode;

/// Last in, first out; every eighth dispatch takes the oldest.
///
/// Starvation bound: eight dispatches for each queued request.
#[derive(Debug)]
struct Newest {
    stack: VecDeque<Tag>,
    dispatched: u64,
}

static NEWEST: ElevatorKind = ElevatorKind {
    name: "newest",
    about: "newest first, every eighth time the oldest",
    build: |requests_max| Box::new(Newest { stack: VecDeque::with_capacity(requests_max), dispatched: 0 }),
};

impl Elevator for Newest {
    fn name(&self) -> &'static str {
        NEWEST.name
    }

    fn insert(&mut self, tag: Tag, _requests: &RequestTable, _now: Instant) {
        self.stack.push_back(tag);
    }

    fn dispatch(&mut self, _requests: &RequestTable, _now: Instant) -> Option<Tag> {
        self.dispatched += 1;
        if self.dispatched.is_multiple_of(8) { self.stack.pop_front() } else { self.stack.pop_back() }
    }

    fn len(&self) -> usize {
        self.stack.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(8 * queued_max as u64)
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, _requests: &RequestTable) {
        self.stack.retain(|queued| *queued != tag);
    }

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.stack.pop_back()
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("own_elevator: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| NEWEST.name.to_owned());
    let elevator = ElevatorSpec::parse_among(&name, &[ELEVATORS, &[NEWEST]].concat())?;
    let config = QueueConfig { elevator, ..QueueConfig::default() };
    let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &config);
    for block in [5, 3, 8, 1] {
        let extent = Extent::from_bytes(block * 8192, 4096).ok_or("not whole sectors")?;
        queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), block), Instant::ZERO)?;
    }
    print!("{} dispatches", queue.elevator());
    while let Some(io) = queue.poll_dispatch(Instant::ZERO) {
        print!("  {}", io.extent);
    }
    println!();
    Ok(())
}
