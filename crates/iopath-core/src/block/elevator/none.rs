//! First come, first served. Names no candidates for merging: the plug's are the likely ones.

use super::{Elevator, StarvationBound};
use crate::block::bio::{Op, Priority};
use crate::block::table::{RequestTable, Tag};
use crate::time::Instant;
use std::collections::VecDeque;

/// Dispatches in the order of arrival: right for devices that order requests themselves.
///
/// Insert and dispatch are O(1). Starvation bound: a request is passed by none; it waits for those that
/// were queued before it.
#[derive(Debug)]
pub struct NoElevator {
    queue: VecDeque<Tag>,
}

impl NoElevator {
    /// Room for `requests_max` requests.
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

    /// It names no neighbours, so nobody calls this: a search would do.
    fn absorb(&mut self, tag: Tag, _into: Tag, _requests: &RequestTable) {
        self.queue.retain(|queued| *queued != tag);
    }

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.queue.pop_front()
    }
}
