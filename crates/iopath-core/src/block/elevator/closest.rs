//! Dispatches the request nearest to the head. Merging happens elsewhere (`queue/merge.rs`).
//!
//! Kept because it is the classic upper bound for seek time and the classic example of starvation: a stream
//! of neighbours can keep the head for ever. `patience` bounds that.

use super::arrivals::Arrivals;
use super::by_sector::BySector;
use super::{Elevator, Neighbours, Outline, StarvationBound, Tunable, defaults};
use crate::block::bio::{Op, Priority};
use crate::block::table::{RequestTable, Tag};
use crate::collections::fifo::Fifo;
use crate::sector::{Extent, Sector};
use crate::time::Instant;

/// Nearest first (shortest seek), with a bound on how often a request may be passed.
///
/// The distance is that from the end of the last request to the start of the next; of two as near, the higher
/// goes first. Requests are numbered as they come, those that join a queued one, too; when n + `patience` have
/// gone, number n goes next, the most overdue first.
///
/// Insert and dispatch are O(log n). A dispatch looks to both sides of the head, and as the head wanders at
/// random it finds the place anew each time: more work than a sweep's, which the published measurements
/// (2000) found to gain little for it.
///
/// Starvation bound: `patience` plus twice the requests queued: once for those that came before it, once for
/// those that ran out of patience before it.
#[derive(Debug)]
pub struct Closest {
    by_sector: BySector,
    arrivals: Arrivals,
    queued: Fifo,
    /// The sector after the last request dispatched.
    head: Sector,
    values: [u64; 1],
}

static TUNABLES: [Tunable; 1] = [Tunable {
    name: "patience",
    unit: "requests",
    default: 1024,
    range: 0..=1 << 30,
    about: "later requests that may pass a request; 0 is first come, first served",
}];
const PATIENCE: usize = 0;

impl Closest {
    /// Room for `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            by_sector: BySector::new(requests_max),
            arrivals: Arrivals::new(requests_max),
            queued: Fifo::new(requests_max),
            head: Sector(0),
            values: defaults(&TUNABLES),
        }
    }

    fn out_of_patience(&self) -> Option<Tag> {
        self.arrivals.due(&self.queued, self.values[PATIENCE]).map(|(_, tag)| tag)
    }
}

impl Elevator for Closest {
    fn name(&self) -> &'static str {
        "closest"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.by_sector.insert(tag, requests);
        self.arrivals.push(&mut self.queued, tag);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let tag = if let Some(tag) = self.out_of_patience() {
            self.by_sector.remove_front(tag, &self.queued, requests);
            tag
        } else {
            self.by_sector.pop_nearest(self.head)?
        };
        self.arrivals.remove(&mut self.queued, tag);
        self.head = requests[tag].extent().end();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.by_sector.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(
            (queued_max as u64).saturating_mul(2).saturating_add(self.values[PATIENCE]),
        )
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.by_sector.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.by_sector.neighbours(arrival, requests)
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.by_sector.merged(tag, before, requests);
        self.arrivals.pass();
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.by_sector.remove(tag, requests);
        self.arrivals.remove(&mut self.queued, tag);
    }

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        let tag = self.by_sector.pop_first()?;
        self.arrivals.remove(&mut self.queued, tag);
        Some(tag)
    }

    fn tunables(&self) -> &'static [Tunable] {
        &TUNABLES
    }

    fn values(&self) -> &[u64] {
        &self.values
    }

    fn values_mut(&mut self) -> &mut [u64] {
        &mut self.values
    }
}
