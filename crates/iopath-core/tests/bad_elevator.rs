//! Elevators of other crates that break their contract: the queue stops before a request is twice at the device, or
//! merges into a request that is there.

use iopath_core::elevator::{Elevator, ElevatorKind, ElevatorSpec, Neighbours, Outline, StarvationBound};
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue, RequestTable, Sector,
    Tag,
};

/// Keeps each request that it was given, also after its dispatch.
#[derive(Debug, Default)]
struct Keeps {
    tags: Vec<Tag>,
    /// Whether it names the last request as the neighbour of each new one.
    merges: bool,
}

impl Elevator for Keeps {
    fn name(&self) -> &'static str {
        "keeps"
    }

    fn insert(&mut self, tag: Tag, _requests: &RequestTable, _now: Instant) {
        self.tags.push(tag);
    }

    fn dispatch(&mut self, _requests: &RequestTable, _now: Instant) -> Option<Tag> {
        self.tags.last().copied()
    }

    fn neighbours(&mut self, _arrival: &Outline, _requests: &RequestTable) -> Neighbours {
        Neighbours { before: self.tags.last().copied().filter(|_| self.merges), after: None }
    }

    fn len(&self) -> usize {
        self.tags.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(queued_max as u64)
    }

    fn absorb(&mut self, _tag: Tag, _into: Tag, _requests: &RequestTable) {}

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.tags.pop()
    }
}

const KEEPS: ElevatorKind =
    ElevatorKind { name: "keeps", about: "returns a request again", build: |_| Box::<Keeps>::default() };

const MERGES: ElevatorKind = ElevatorKind {
    name: "merges",
    about: "merges with a request at the device",
    build: |_| Box::new(Keeps { merges: true, ..Keeps::default() }),
};

fn queue(kind: ElevatorKind) -> RequestQueue<LengthOnly> {
    let config = QueueConfig { depth: 8, elevator: ElevatorSpec::new(kind), ..QueueConfig::default() };
    let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &config);
    read(&mut queue, 0);
    queue.poll_dispatch(Instant::ZERO).expect("a request is queued");
    queue
}

fn read(queue: &mut RequestQueue<LengthOnly>, sector: u64) {
    let extent = Extent::new(Sector(sector), 8).expect("not empty");
    queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), sector), Instant::ZERO).expect("it has room");
}

#[test]
#[should_panic(expected = "is not queued but InFlight")]
fn a_request_is_not_twice_at_the_device() {
    queue(KEEPS).poll_dispatch(Instant::ZERO);
}

#[test]
#[should_panic(expected = "is not queued but InFlight")]
fn no_bio_joins_a_request_at_the_device() {
    read(&mut queue(MERGES), 8);
}
