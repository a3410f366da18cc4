//! First come, first served. Finds no candidates for a merge: most merges happen in the plug.

use super::{Elevator, StarvationBound};
use crate::block::bio::{Op, Priority};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::time::Instant;
use std::collections::VecDeque;
use std::fmt;

/// Dispatches in the order of arrival: the right choice for devices that support command queueing.
///
/// Insert and dispatch are O(1). Starvation bound: the number of queued requests, since no request passes another.
pub struct NoElevator {
    queue: VecDeque<Tag>,
}

impl fmt::Debug for NoElevator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoElevator").field("queued", &self.queue.len()).finish_non_exhaustive()
    }
}

impl NoElevator {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self { queue: VecDeque::with_capacity(requests_max) }
    }
}

impl Elevator for NoElevator {
    fn name(&self) -> &'static str {
        "none"
    }

    fn insert(&mut self, tag: Tag, _requests: &RequestTable, _now: Instant) {
        self.queue.push_back(tag);
    }

    fn dispatch(&mut self, _requests: &RequestTable, _now: Instant) -> Option<Tag> {
        self.queue.pop_front()
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(queued_max as u64)
    }

    /// A linear search. The queue never calls it, since this elevator returns no neighbours.
    fn absorb(&mut self, tag: Tag, _into: Tag, _requests: &RequestTable) {
        self.queue.retain(|queued| *queued != tag);
    }

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.queue.pop_front()
    }
}
