//! An elevator that holds requests back for a fixed time: the times of `poll_timeout`, and the cases in which only a
//! completion allows a dispatch.

use iopath_core::elevator::{Elevator, ElevatorKind, ElevatorSpec, StarvationBound};
use iopath_core::{
    Bio, Duration, Extent, Instant, IoError, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue,
    RequestTable, Sector, Tag,
};
use std::collections::VecDeque;

const HOLD_TIME: Duration = Duration::from_millis(1);
const T0: Instant = Instant::from_nanos(1_000_000_000);

/// First come, first served, each request `HOLD_TIME` after its arrival at the earliest.
///
/// Starvation bound: one dispatch for each queued request, from `HOLD_TIME` after the arrival.
#[derive(Debug, Default)]
struct Hold {
    queued: VecDeque<(Instant, Tag)>,
}

impl Elevator for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.queued.push_back((requests[tag].arrived() + HOLD_TIME, tag));
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
        StarvationBound { after: HOLD_TIME, dispatches: queued_max as u64 }
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
    about: "holds each request back for a fixed time",
    build: |_| Box::<Hold>::default(),
};

fn queue(depth: u32) -> RequestQueue<LengthOnly> {
    let config = QueueConfig { depth, elevator: ElevatorSpec::new(HOLD), ..QueueConfig::default() };
    RequestQueue::new(Limits::with_capacity(1 << 20), &config)
}

fn read(queue: &mut RequestQueue<LengthOnly>, sector: u64, now: Instant) {
    let extent = Extent::new(Sector(sector), 8).unwrap();
    queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), sector), now).unwrap();
}

fn dispatch(queue: &mut RequestQueue<LengthOnly>, now: Instant) -> Option<Tag> {
    queue.handle_timeout(now);
    queue.poll_dispatch(now).map(|io| io.tag)
}

#[test]
fn the_timeout_of_the_queue_is_that_of_the_elevator() {
    let mut queue = queue(2);
    assert_eq!(queue.poll_timeout(), None);
    read(&mut queue, 100, T0);
    assert_eq!(dispatch(&mut queue, T0), None);
    assert_eq!(queue.poll_timeout(), Some(T0 + HOLD_TIME));
    assert!(dispatch(&mut queue, T0 + HOLD_TIME).is_some());
    assert_eq!(queue.poll_timeout(), None, "no request is held back");
}

#[test]
fn there_is_no_timeout_while_the_device_is_full() {
    let mut queue = queue(1);
    read(&mut queue, 100, T0);
    read(&mut queue, 200, T0);
    let late = T0 + HOLD_TIME * 10;
    let first = dispatch(&mut queue, late).unwrap();
    // The time of the elevator has passed, but the device is full: only a completion allows a dispatch.
    assert_eq!((dispatch(&mut queue, late), queue.poll_timeout()), (None, None));
    queue.handle_completion(first, Ok(()), late);
    assert_eq!(queue.poll_timeout(), Some(T0 + HOLD_TIME), "the device is no longer full");
    assert!(dispatch(&mut queue, late).is_some());
}

#[test]
fn there_is_no_timeout_before_a_completion_of_a_busy_device() {
    let mut queue = queue(2);
    read(&mut queue, 100, T0);
    read(&mut queue, 200, T0);
    read(&mut queue, 300, T0);
    let late = T0 + HOLD_TIME;
    let first = dispatch(&mut queue, late).unwrap();
    let second = dispatch(&mut queue, late).unwrap();
    queue.requeue(second, late);
    assert_eq!((dispatch(&mut queue, late), queue.poll_timeout()), (None, None));
    queue.handle_completion(first, Err(IoError::Media), late);
    assert!(dispatch(&mut queue, late).is_some());
}
