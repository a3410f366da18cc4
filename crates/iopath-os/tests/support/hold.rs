//! An elevator for tests that holds each request back for a while. It orders nothing.

use std::collections::VecDeque;
use std::time::Duration;

use iopath_core::elevator::{Elevator, ElevatorKind, StarvationBound};
use iopath_core::{Instant, Op, Priority, RequestTable, Tag};

/// The time from the arrival of a request to its dispatch.
pub(crate) const HELD_FOR: Duration = Duration::from_millis(1);

pub(crate) const HOLD: ElevatorKind = ElevatorKind {
    name: "hold",
    about: "holds each request back for a while",
    build: |_| Box::<Hold>::default(),
};

/// Dispatches in order of arrival, each request not before `HELD_FOR` after its arrival.
///
/// Starvation bound: one dispatch for each request queued, `HELD_FOR` after the arrival.
#[derive(Debug, Default)]
pub(crate) struct Hold(VecDeque<(Instant, Tag)>);

impl Elevator for Hold {
    fn name(&self) -> &'static str {
        "hold"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.0.push_back((requests[tag].arrived() + HELD_FOR, tag));
    }

    fn dispatch(&mut self, _requests: &RequestTable, now: Instant) -> Option<Tag> {
        let (due, tag) = *self.0.front()?;
        (due <= now).then(|| self.0.pop_front())?;
        Some(tag)
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound { after: HELD_FOR, dispatches: queued_max as u64 }
    }

    fn absorb(&mut self, _tag: Tag, _into: Tag, _requests: &RequestTable) {}

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.0.pop_front().map(|(_, tag)| tag)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.0.front().map(|(due, _)| *due)
    }
}
