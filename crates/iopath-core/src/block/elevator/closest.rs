//! Shortest seek first: dispatches the request nearest to the head. The merge is in `queue/merge.rs`.
//!
//! This order is the classic upper bound of the gain by sorting. It is also the classic example of starvation: a stream
//! of adjacent requests can keep the head in one place. The tunable `patience` bounds the wait.

use super::pass_counter::PassCounter;
use super::sorted_queue::SortedQueue;
use super::{Elevator, Neighbours, Outline, Settings, StarvationBound, Tunable};
use crate::block::bio::{Op, Priority};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::sector::Extent;
use crate::time::Instant;

/// Shortest seek first, with a bound on how often later requests may pass a request.
///
/// The seek is the distance from the end of the last request to the start of the next. Of two requests at the same
/// distance, the one at the higher sector goes first. Requests are numbered in the order of arrival, including requests
/// merged into a queued one. Once n + `patience` requests have departed, request n is dispatched next; if there are
/// several such requests, the most overdue is first.
///
/// Insert and dispatch are O(log n). A dispatch searches both sides of the head, and the head moves in both directions,
/// so each search starts at the root. So a dispatch costs more than in a sweep. The published measurements (2000) found
/// little gain.
///
/// Starvation bound: `patience` plus twice the number of queued requests. Older requests go first, and so do requests
/// whose patience is used up earlier.
#[derive(Debug)]
pub struct Closest {
    queue: SortedQueue<1>,
    passes: PassCounter,
    settings: Settings,
}

static TUNABLES: [Tunable; 1] = [Tunable {
    name: "patience",
    unit: "requests",
    default: 1024,
    range: 0..=1 << 30,
    about: "later requests that may pass a request; 0 is first come, first served",
}];
const PATIENCE: usize = 0;

/// The class of every request.
const ALL: usize = 0;

impl Closest {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            queue: SortedQueue::new(requests_max),
            passes: PassCounter::default(),
            settings: Settings::new(&TUNABLES),
        }
    }

    fn is_out_of_patience(&self) -> bool {
        let oldest = self.queue.oldest(ALL);
        oldest.is_some_and(|(number, _)| self.passes.due(number, self.settings[PATIENCE]).is_some())
    }
}

impl Elevator for Closest {
    fn name(&self) -> &'static str {
        "closest"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.queue.insert(tag, self.passes.arrive(), requests);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let tag = if self.is_out_of_patience() {
            self.queue.dispatch_oldest(ALL, requests)?
        } else {
            self.queue.dispatch_nearest(requests)?
        };
        self.passes.depart();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(
            (queued_max as u64).saturating_mul(2).saturating_add(self.settings[PATIENCE]),
        )
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.queue.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.queue.neighbours(arrival, requests)
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.queue.merged(tag, before, requests);
        self.passes.pass();
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.queue.remove(tag, requests);
        self.passes.depart();
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.queue.take_any(requests)?;
        self.passes.depart();
        Some(tag)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> Option<&mut Settings> {
        Some(&mut self.settings)
    }
}
