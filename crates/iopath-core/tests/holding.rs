//! An elevator that holds requests back for a while: when the queue is to be asked again, and when only a completion
//! helps.

use iopath_core::elevator::{Elevator, ElevatorKind, ElevatorSpec, StarvationBound};
use iopath_core::{
    Bio, Duration, Extent, Instant, IoError, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue,
    RequestTable, Sector, Tag,
};
use std::collections::VecDeque;

const HELD_FOR: Duration = Duration::from_millis(1);
const T0: Instant = Instant::from_nanos(1_000_000_000);

/// First come, first served, but none before `HELD_FOR` after its arrival.
///
/// Starvation bound: one dispatch for each request queued, `HELD_FOR` after the arrival.
#[derive(Debug, Default)]
struct Hold {
    queued: VecDeque<(Instant, Tag)>,
}

impl Elevator for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.queued.push_back((requests[tag].arrived() + HELD_FOR, tag));
    }

    fn dispatch(&mut self, _requests: &RequestTable, now: Instant) -> Option<Tag> {
        let (due, tag) = *self.queued.front()?;
        (due <= now).then(|| self.queued.pop_front())?;
        Some(tag)
    }

    fn len(&self) -> usize {
        self.queued.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound { after: HELD_FOR, dispatches: queued_max as u64 }
    }

    fn absorb(&mut self, _tag: Tag, _into: Tag, _requests: &RequestTable) {}

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.queued.pop_front().map(|(_, tag)| tag)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.queued.front().map(|(due, _)| *due)
    }
}

const HOLD: ElevatorKind = ElevatorKind {
    name: "hold",
    about: "holds each request back for a while",
    build: |_| Box::<Hold>::default(),
};

fn queue(depth: u32) -> RequestQueue<LengthOnly> {
    let config = QueueConfig { depth, elevator: ElevatorSpec::new(HOLD), ..QueueConfig::default() };
    RequestQueue::new(Limits::with_capacity(1 << 20), &config)
}

fn read(queue: &mut RequestQueue<LengthOnly>, place: u64, now: Instant) {
    let extent = Extent::new(Sector(place), 8).unwrap();
    queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), place), now).unwrap();
}

fn dispatch(queue: &mut RequestQueue<LengthOnly>, now: Instant) -> Option<Tag> {
    queue.handle_timeout(now);
    queue.poll_dispatch(now).map(|io| io.tag)
}

#[test]
fn the_queue_is_due_when_the_elevator_is() {
    let mut queue = queue(2);
    assert_eq!(queue.poll_timeout(), None);
    read(&mut queue, 100, T0);
    assert_eq!(dispatch(&mut queue, T0), None);
    assert_eq!(queue.poll_timeout(), Some(T0 + HELD_FOR));
    assert!(dispatch(&mut queue, T0 + HELD_FOR).is_some());
    assert_eq!(queue.poll_timeout(), None, "nothing is held back any more");
}

#[test]
fn nothing_is_due_while_the_device_is_full() {
    let mut queue = queue(1);
    read(&mut queue, 100, T0);
    read(&mut queue, 200, T0);
    let late = T0 + HELD_FOR * 10;
    let first = dispatch(&mut queue, late).unwrap();
    // The elevator has been due for long, and the device has no room: time does not help.
    assert_eq!((dispatch(&mut queue, late), queue.poll_timeout()), (None, None));
    queue.handle_completion(first, Ok(()), late);
    assert_eq!(queue.poll_timeout(), Some(T0 + HELD_FOR), "there is room again");
    assert!(dispatch(&mut queue, late).is_some());
}

#[test]
fn nothing_is_due_before_a_busy_device_completes_something() {
    let mut queue = queue(2);
    read(&mut queue, 100, T0);
    read(&mut queue, 200, T0);
    read(&mut queue, 300, T0);
    let late = T0 + HELD_FOR;
    let first = dispatch(&mut queue, late).unwrap();
    let second = dispatch(&mut queue, late).unwrap();
    queue.requeue(second, late);
    assert_eq!((dispatch(&mut queue, late), queue.poll_timeout()), (None, None));
    queue.handle_completion(first, Err(IoError::Media), late);
    assert!(dispatch(&mut queue, late).is_some());
}
