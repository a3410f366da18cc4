//! Two ascending lists, the disksort of BSD: one for this sweep of the head, one for the next. Names neighbours
//! in both; merging itself is in `queue/merge.rs`.

use super::by_sector::BySector;
use super::{Elevator, Neighbours, Outline, StarvationBound, Tunable, defaults};
use crate::block::bio::{Op, Priority};
use crate::block::table::{RequestTable, Tag};
use crate::sector::{Extent, Sector};
use crate::time::Instant;

/// Sweeps upward through one sorted list; what starts below the head joins the list of the next sweep.
///
/// When the list of this sweep is empty the other takes its place. A sweep that has dispatched `sweep_max`
/// requests takes in nothing more, whatever its sector: else a stream of neighbours could keep the head for
/// ever. (FreeBSD bounds its batches likewise, at the same number.)
///
/// Insert and dispatch are O(log n), and O(1) on average next to the last one. A merge look-up asks both
/// lists, this sweep's only from its lowest request on.
///
/// Starvation bound: twice the sum of `sweep_max` and the requests queued: once for the sweep in flight, once
/// for the next, which the request is in.
#[derive(Debug)]
pub struct TwoList {
    lists: [BySector; 2],
    /// Which of `lists` each request is in, by tag.
    list_of: Box<[u8]>,
    /// Which of `lists` is this sweep's.
    current: u8,
    /// Requests dispatched in this sweep.
    swept: u64,
    /// The sector after the last request dispatched.
    head: Sector,
    values: [u64; 1],
}

static TUNABLES: [Tunable; 1] = [Tunable {
    name: "sweep_max",
    unit: "requests",
    default: 128,
    range: 0..=1 << 30,
    about: "dispatches after which a sweep takes in nothing more; 0 sorts only what waited at its start",
}];
const SWEEP_MAX: usize = 0;

impl TwoList {
    /// Room for `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            lists: [BySector::new(requests_max), BySector::new(requests_max)],
            list_of: vec![0; requests_max].into(),
            current: 0,
            swept: 0,
            head: Sector(0),
            values: defaults(&TUNABLES),
        }
    }

    fn list_of(&mut self, tag: Tag) -> &mut BySector {
        &mut self.lists[usize::from(self.list_of[tag.index()])]
    }

    fn current(&mut self) -> &mut BySector {
        &mut self.lists[usize::from(self.current)]
    }

    fn start_next_sweep(&mut self) {
        self.current ^= 1;
        self.swept = 0;
    }
}

/// Whether a request in a list that begins at `least` may touch `extent`. None of this sweep's does, where the head has
/// passed: half of the look-ups in that list have completed before they begin.
fn may_touch(least: Option<Sector>, extent: Extent) -> bool {
    least.is_some_and(|least| least <= extent.end())
}

impl Elevator for TwoList {
    fn name(&self) -> &'static str {
        "two-list"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let is_ahead = requests[tag].extent().start() >= self.head;
        let joins_sweep = is_ahead && self.swept < self.values[SWEEP_MAX];
        self.list_of[tag.index()] = if joins_sweep { self.current } else { self.current ^ 1 };
        self.list_of(tag).insert(tag, requests);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        if self.current().is_empty() && !self.is_empty() {
            self.start_next_sweep();
        }
        let tag = self.current().pop_first()?;
        self.current().look_ahead(requests, None);
        self.swept += 1;
        self.head = requests[tag].extent().end();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.lists.iter().map(BySector::len).sum()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(
            (queued_max as u64).saturating_add(self.values[SWEEP_MAX]).saturating_mul(2),
        )
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        for list in &mut self.lists {
            let least = list.least();
            list.prefetch(arrivals.iter().filter(|arrival| may_touch(least, arrival.extent)));
        }
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let [this, next] = self.lists.each_mut().map(|list| {
            let is_near = may_touch(list.least(), arrival.extent);
            if is_near { list.neighbours(arrival, requests) } else { Neighbours::default() }
        });
        Neighbours { before: this.before.or(next.before), after: this.after.or(next.after) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.list_of(tag).merged(tag, before, requests);
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.list_of(tag).remove(tag, requests);
    }

    fn take_any(&mut self, _requests: &RequestTable) -> Option<Tag> {
        self.lists.iter_mut().find_map(BySector::pop_first)
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
