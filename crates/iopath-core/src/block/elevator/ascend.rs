//! One-way ascending sort, the elevator of Linux 2.2 and 2.4, with its four limits. Names neighbours and
//! refuses merges that would break a limit; merging itself is in `queue/merge.rs`.

use super::arrivals::Arrivals;
use super::by_sector::BySector;
use super::{Elevator, Neighbours, Outline, StarvationBound, Tunable, defaults};
use crate::block::bio::{Op, Priority};
use crate::block::merge::{NoMerge, Side};
use crate::block::table::{RequestTable, Tag};
use crate::collections::fifo::Fifo;
use crate::sector::{Extent, Sector};
use crate::time::Instant;

/// Sweeps upward over the sectors and starts again at the lowest; requests out of allowance go first.
///
/// The limits are those that `elvtune` set, as the published settings (2000) give them a meaning here:
/// - Requests are numbered as they come. A request that later ones pass loses allowance: number n has none
///   left when n + `read_latency` (or `write_latency`) have gone. It goes next, the most overdue first.
/// - What joins a queued request, be it another queued one, goes before its turn, and so passes all that wait.
///   While a request has no allowance left nothing may do that ([`NoMerge::StarvationBound`]).
/// - While more than `max_read_pending` reads are queued, a write does not grow past `max_bomb_segments`
///   segments by merging: write bombs keep readers waiting ([`NoMerge::LatencyBound`]).
///
/// Insert, merge look-up and dispatch are O(log n), and O(1) on average next to the last one.
///
/// Starvation bound: the allowance of its direction, plus twice the requests queued: once for those that
/// came before it, once for those that are out of allowance before it.
#[derive(Debug)]
pub struct Ascend {
    by_sector: BySector,
    arrivals: Arrivals,
    reads: Fifo,
    writes: Fifo,
    /// The sector after the last request dispatched.
    head: Sector,
    values: [u64; 4],
}

/// The defaults are the settings published as good for both throughput and interactive feel.
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
        about: "segments that a write may grow to by merging while reads wait",
    },
    Tunable {
        name: "max_read_pending",
        unit: "requests",
        default: 2,
        range: 0..=1 << 24,
        about: "queued reads up to which writes may grow without that limit",
    },
];
const READ_LATENCY: usize = 0;
const WRITE_LATENCY: usize = 1;
const MAX_BOMB_SEGMENTS: usize = 2;
const MAX_READ_PENDING: usize = 3;

impl Ascend {
    /// Room for `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            by_sector: BySector::new(requests_max),
            arrivals: Arrivals::new(requests_max),
            reads: Fifo::new(requests_max),
            writes: Fifo::new(requests_max),
            head: Sector(0),
            values: defaults(&TUNABLES),
        }
    }

    /// The request that has waited past its allowance for longest.
    fn out_of_allowance(&self) -> Option<Tag> {
        let read = self.arrivals.due(&self.reads, self.values[READ_LATENCY]);
        let write = self.arrivals.due(&self.writes, self.values[WRITE_LATENCY]);
        let (_, tag) = match (read, write) {
            (Some(read), Some(write)) if write.0 < read.0 => write,
            (read, write) => read.or(write)?,
        };
        Some(tag)
    }

    /// Forgets a request that is no longer in `by_sector`.
    fn forget(&mut self, tag: Tag, requests: &RequestTable) {
        let is_write = requests[tag].op().is_write();
        self.arrivals.remove(if is_write { &mut self.writes } else { &mut self.reads }, tag);
    }
}

impl Elevator for Ascend {
    fn name(&self) -> &'static str {
        "ascend"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        self.by_sector.insert(tag, requests);
        let is_write = requests[tag].op().is_write();
        self.arrivals.push(if is_write { &mut self.writes } else { &mut self.reads }, tag);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let tag = if let Some(tag) = self.out_of_allowance() {
            let fifo = if requests[tag].op().is_write() { &self.writes } else { &self.reads };
            self.by_sector.remove_front(tag, fifo, requests);
            tag
        } else {
            let tag = self.by_sector.pop_upward(self.head)?;
            if let Some(near) = self.by_sector.look_ahead(requests, Some(&self.arrivals.places)) {
                let fifo = if requests[near].op().is_write() { &self.writes } else { &self.reads };
                fifo.prefetch(&self.arrivals.places, near);
            }
            tag
        };
        self.forget(tag, requests);
        self.head = requests[tag].extent().end();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.by_sector.len()
    }

    fn starvation_bound(&self, of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        let allowance = self.values[if of.is_write() { WRITE_LATENCY } else { READ_LATENCY }];
        StarvationBound::dispatches(allowance.saturating_add((queued_max as u64).saturating_mul(2)))
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.by_sector.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.by_sector.neighbours(arrival, requests)
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
        let reads_wait = self.reads.len() as u64 > self.values[MAX_READ_PENDING];
        let is_bomb = joined.op.is_write() && u64::from(joined.segments) > self.values[MAX_BOMB_SEGMENTS];
        if reads_wait && is_bomb { Err(NoMerge::LatencyBound) } else { Ok(()) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.by_sector.merged(tag, before, requests);
        self.arrivals.pass();
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.by_sector.remove(tag, requests);
        self.forget(tag, requests);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let tag = self.by_sector.pop_first()?;
        self.forget(tag, requests);
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
