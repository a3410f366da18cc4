//! One-way ascending sort: the elevator of Linux 2.2 and 2.4 with its four limits. It finds neighbours and refuses
//! merges that would exceed a limit; the merge itself is in `queue/merge.rs`.

use super::pass_counter::PassCounter;
use super::sorted_queue::{READS, SortedQueue, WRITES};
use super::{Elevator, Neighbours, Outline, Settings, StarvationBound, Tunable};
use crate::block::bio::{Op, Priority};
use crate::block::merge::{NoMerge, Side};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::sector::Extent;
use crate::time::Instant;

/// Sweeps upward over the sectors, then starts again at the lowest. Requests that were passed too often go first.
///
/// The four limits are those of `elvtune`; the published settings (2000) are the defaults:
/// - Each request has an allowance, `read_latency` or `write_latency`: later requests that may pass it. Requests are
///   numbered in the order of arrival. Request n has no allowance left once n plus its allowance of requests have
///   departed. Then it is dispatched next; if there are several such requests, the most overdue is first.
/// - A request that merges into a queued one passes all other queued requests. While a request without allowance is
///   queued, the elevator refuses merges ([`NoMerge::StarvationBound`]).
/// - While more than `max_read_pending` reads are queued, a write does not grow past `max_bomb_segments` segments by
///   merging, since a large write delays the reads ([`NoMerge::LatencyBound`]).
///
/// Insert, look-up of neighbours and dispatch are O(log n), and O(1) on average beside the previous position.
///
/// Starvation bound: the allowance of the request, plus twice the number of queued requests. Older requests go first,
/// and so do requests whose allowance is used up earlier.
#[derive(Debug)]
pub struct Ascend {
    queue: SortedQueue<2>,
    passes: PassCounter,
    settings: Settings,
}

static TUNABLES: [Tunable; 4] = [
    Tunable {
        name: "read_latency",
        unit: "requests",
        default: 8192,
        range: 0..=1 << 30,
        about: "later requests that may pass a read; 0 is first come, first served",
    },
    Tunable {
        name: "write_latency",
        unit: "requests",
        default: 131_072,
        range: 0..=1 << 30,
        about: "later requests that may pass a write, discard or write-zeroes",
    },
    Tunable {
        name: "max_bomb_segments",
        unit: "segments",
        default: 128,
        range: 1..=65_535,
        about: "maximum segments of a write after a merge while reads are queued",
    },
    Tunable {
        name: "max_read_pending",
        unit: "requests",
        default: 2,
        range: 0..=1 << 24,
        about: "queued reads above which max_bomb_segments limits writes",
    },
];
/// The tunables `read_latency` and `write_latency`: indices by class.
const LATENCY: [usize; 2] = [0, 1];
const MAX_BOMB_SEGMENTS: usize = 2;
const MAX_READ_PENDING: usize = 3;

impl Ascend {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            queue: SortedQueue::new(requests_max),
            passes: PassCounter::default(),
            settings: Settings::new(&TUNABLES),
        }
    }

    /// The class whose oldest request is the most overdue; `None` if every request has allowance left.
    fn out_of_allowance(&self) -> Option<usize> {
        let due = |class: usize| {
            let (number, _) = self.queue.oldest(class)?;
            self.passes.due(number, self.settings[LATENCY[class]])
        };
        match (due(READS), due(WRITES)) {
            (Some(read), Some(write)) => Some(if write < read { WRITES } else { READS }),
            (read, write) => read.and(Some(READS)).or(write.and(Some(WRITES))),
        }
    }
}

impl Elevator for Ascend {
    fn name(&self) -> &'static str {
        "ascend"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.queue.insert(tag, self.passes.arrive(), requests);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let tag = match self.out_of_allowance() {
            Some(class) => self.queue.dispatch_oldest(class, requests),
            None => self.queue.dispatch_cyclic(requests),
        }?;
        self.passes.depart();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn starvation_bound(&self, of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        let allowance = self.settings[LATENCY[if of.is_write() { WRITES } else { READS }]];
        StarvationBound::dispatches(allowance.saturating_add((queued_max as u64).saturating_mul(2)))
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.queue.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.queue.neighbours(arrival, requests)
    }

    fn allows_merge(
        &self,
        _tag: Tag,
        _side: Side,
        joined: &Outline,
        _requests: &RequestTable,
    ) -> Result<(), NoMerge> {
        if self.out_of_allowance().is_some() {
            return Err(NoMerge::StarvationBound);
        }
        let reads_wait = self.queue.len_of(READS) as u64 > self.settings[MAX_READ_PENDING];
        let is_bomb = joined.op.is_write() && u64::from(joined.segments) > self.settings[MAX_BOMB_SEGMENTS];
        if reads_wait && is_bomb { Err(NoMerge::LatencyBound) } else { Ok(()) }
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
