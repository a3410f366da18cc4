//! Two ascending lists, the disksort of BSD: one for the current sweep of the head, one for the next. It finds
//! neighbours in both; the merge is in `queue/merge.rs`.

use super::sorted_queue::SortedQueue;
use super::{Elevator, Neighbours, Outline, Settings, StarvationBound, Tunable};
use crate::block::bio::{Op, Priority};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::sector::{Extent, Sector};
use crate::time::Instant;
use std::fmt;

/// Sweeps upward through one sorted list; requests that start below the head join the list of the next sweep.
///
/// When the list of the current sweep is empty, the next sweep starts. After `sweep_max` dispatches, all new requests
/// join the next sweep: otherwise a stream of adjacent requests could keep the head in one place. (FreeBSD limits its
/// batches in the same way, with the same default.)
///
/// Insert and dispatch are O(log n), and O(1) on average next to the previous one. A look-up of neighbours searches
/// both lists, the current one only from its lowest request on.
///
/// Starvation bound: twice the sum of `sweep_max` and the number of queued requests. A request waits for at most the
/// rest of one sweep and is part of the next.
pub struct TwoList {
    lists: [SortedQueue<0>; 2],
    /// The list that each request is in, by tag.
    list_of: Box<[u8]>,
    /// The list of the current sweep.
    current: u8,
    /// Requests dispatched in the current sweep.
    swept: u64,
    /// The sector after the request dispatched last.
    head: Sector,
    settings: Settings,
}

impl fmt::Debug for TwoList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TwoList")
            .field("queued", &self.len())
            .field("head", &self.head)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

static TUNABLES: [Tunable; 1] = [Tunable {
    name: "sweep_max",
    unit: "requests",
    default: 128,
    range: 0..=1 << 30,
    about: "dispatches after which new requests join the next sweep; with 0, no request joins the current sweep",
}];
const SWEEP_MAX: usize = 0;

impl TwoList {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            lists: [SortedQueue::new(requests_max), SortedQueue::new(requests_max)],
            list_of: vec![0; requests_max].into(),
            current: 0,
            swept: 0,
            head: Sector(0),
            settings: Settings::new(&TUNABLES),
        }
    }

    fn list_of(&mut self, tag: Tag) -> &mut SortedQueue<0> {
        &mut self.lists[usize::from(self.list_of[tag.index()])]
    }

    fn current(&mut self) -> &mut SortedQueue<0> {
        &mut self.lists[usize::from(self.current)]
    }

    fn start_next_sweep(&mut self) {
        self.current ^= 1;
        self.swept = 0;
    }
}

/// Whether a list whose lowest request starts at `lowest` may have a neighbour of `extent`. The current list has none
/// below the head, so half of its look-ups are skipped.
fn may_have_neighbour(lowest: Option<Sector>, extent: Extent) -> bool {
    lowest.is_some_and(|lowest| lowest <= extent.end())
}

impl Elevator for TwoList {
    fn name(&self) -> &'static str {
        "two-list"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let is_ahead = requests[tag].extent().start() >= self.head;
        let joins_sweep = is_ahead && self.swept < self.settings[SWEEP_MAX];
        self.list_of[tag.index()] = if joins_sweep { self.current } else { self.current ^ 1 };
        self.list_of(tag).insert(tag, 0, requests);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        if self.current().is_empty() && !self.is_empty() {
            self.start_next_sweep();
        }
        let tag = self.current().dispatch_lowest(requests)?;
        self.swept += 1;
        self.head = self.current().head();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.lists.iter().map(SortedQueue::len).sum()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        StarvationBound::dispatches(
            (queued_max as u64).saturating_add(self.settings[SWEEP_MAX]).saturating_mul(2),
        )
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        for list in &mut self.lists {
            let lowest = list.lowest();
            list.prefetch(arrivals.iter().filter(|arrival| may_have_neighbour(lowest, arrival.extent)));
        }
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let [this, next] = self.lists.each_mut().map(|list| {
            if may_have_neighbour(list.lowest(), arrival.extent) {
                list.neighbours(arrival, requests)
            } else {
                Neighbours::default()
            }
        });
        Neighbours { before: this.before.or(next.before), after: this.after.or(next.after) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.list_of(tag).merged(tag, before, requests);
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.list_of(tag).remove(tag, requests);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        self.lists.iter_mut().find_map(|list| list.take_any(requests))
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> Option<&mut Settings> {
        Some(&mut self.settings)
    }
}
