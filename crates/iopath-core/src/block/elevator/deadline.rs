//! Sector order in batches, with a deadline for each request: the scheme of Linux's mq-deadline. Which requests
//! are of one kind and in which order they go; merging itself is in `queue/merge.rs`.

use super::by_sector::BySector;
use super::{Elevator, Neighbours, Outline, StarvationBound, Tunable, defaults};
use crate::block::bio::{Op, Priority};
use crate::block::table::{RequestTable, Tag};
use crate::collections::fifo::{Fifo, Places};
use crate::sector::{Extent, Sector};
use crate::time::{Duration, Instant};

/// Batches of reads or of writes in ascending order, each started by the oldest request if that has expired.
///
/// Of each priority and direction there is a sorted list and a list by age. A batch is up to `fifo_batch`
/// requests upward from where the last of that direction ended; it starts at the oldest request instead if
/// that has waited for its expiry time, or if nothing lies upward. Reads go before writes, but after
/// `writes_starved` batches of reads that writes waited for comes one of writes. So deadlines are soft: they
/// are looked at when a batch starts.
///
/// Urgent priorities go first, but every other dispatch takes the oldest less urgent request that has waited
/// for `prio_aging_ms`. (mq-deadline gives such requests every dispatch, and so starves the urgent ones when
/// the device is overloaded.) A request that takes in another keeps the earlier of both deadlines.
///
/// Insert, merge look-up and dispatch are O(log n), and O(1) on average next to the last one of the same kind.
///
/// Starvation bound: after its expiry time (and `prio_aging_ms` unless it is real-time), 2 × `fifo_batch` ×
/// (`writes_starved` + 1) dispatches for each request queued, and once more for the batches in flight.
#[derive(Debug)]
pub struct Deadline {
    levels: [Level; Priority::ALL.len()],
    places: Places,
    /// The last dispatch was for age.
    was_aged: bool,
    values: [u64; 5],
}

/// The requests of one priority.
#[derive(Debug)]
struct Level {
    /// Reads, and what [`Op::is_write`].
    lanes: [Lane; 2],
    /// The direction of the batch, and how much of it is left.
    batch: usize,
    batch_left: u64,
    /// Batches of reads started while writes waited.
    starved: u64,
}

/// The requests of one priority and direction.
#[derive(Debug)]
struct Lane {
    by_sector: BySector,
    /// Stamped with when each came, in nanoseconds.
    by_age: Fifo,
    /// The sector after the last one dispatched.
    head: Sector,
}

const READ: usize = 0;
const WRITE: usize = 1;

/// The defaults are mq-deadline's.
static TUNABLES: [Tunable; 5] = [
    Tunable {
        name: "read_expire_ms",
        unit: "ms",
        default: 500,
        range: 0..=600_000,
        about: "how long a read may wait before a batch starts with it",
    },
    Tunable {
        name: "write_expire_ms",
        unit: "ms",
        default: 5000,
        range: 0..=600_000,
        about: "the same for a write, discard or write-zeroes",
    },
    Tunable {
        name: "writes_starved",
        unit: "batches",
        default: 2,
        range: 1..=65_535,
        about: "batches of reads that may go before one of writes that wait",
    },
    Tunable {
        name: "fifo_batch",
        unit: "requests",
        default: 16,
        range: 1..=65_535,
        about: "requests of one direction dispatched in sector order at a time",
    },
    Tunable {
        name: "prio_aging_ms",
        unit: "ms",
        default: 10_000,
        range: 0..=600_000,
        about: "how long a request may wait for more urgent ones",
    },
];
const EXPIRE_MS: [usize; 2] = [0, 1];
const WRITES_STARVED: usize = 2;
const FIFO_BATCH: usize = 3;
const PRIO_AGING_MS: usize = 4;

impl Lane {
    fn new(requests_max: usize) -> Self {
        Self { by_sector: BySector::new(requests_max), by_age: Fifo::new(requests_max), head: Sector(0) }
    }
}

impl Level {
    fn new(requests_max: usize) -> Self {
        let lanes = [READ, WRITE].map(|_| Lane::new(requests_max));
        Self { lanes, batch: READ, batch_left: 0, starved: 0 }
    }

    fn is_empty(&self) -> bool {
        self.lanes.iter().all(|lane| lane.by_sector.is_empty())
    }

    /// Starts a batch; of which direction. There is a request.
    fn start_batch(&mut self, values: &[u64; 5]) -> usize {
        let [reads_wait, writes_wait] = self.lanes.each_ref().map(|lane| !lane.by_sector.is_empty());
        let is_write = writes_wait && (!reads_wait || self.starved >= values[WRITES_STARVED]);
        self.starved = if is_write { 0 } else { self.starved + u64::from(writes_wait) };
        self.batch = usize::from(is_write);
        self.batch_left = values[FIFO_BATCH];
        self.batch
    }
}

impl Deadline {
    /// Room for `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            levels: Priority::ALL.map(|_| Level::new(requests_max)),
            places: Places::new(requests_max),
            was_aged: false,
            values: defaults(&TUNABLES),
        }
    }

    fn lane(&mut self, op: Op, priority: Priority) -> &mut Lane {
        &mut self.levels[priority.index()].lanes[usize::from(op.is_write())]
    }

    fn has_waited(&self, since: u64, tunable_ms: usize, now: Instant) -> bool {
        now - Instant::from_nanos(since) >= Duration::from_millis(self.values[tunable_ms])
    }

    /// The oldest request less urgent than `level`, if it has waited for so long that urgency no longer counts.
    fn aged_below(&self, level: usize, now: Instant) -> Option<Tag> {
        let lanes = self.levels[level + 1..].iter().flat_map(|level| &level.lanes);
        let oldest = lanes.filter_map(|lane| lane.by_age.front());
        let (since, oldest) = oldest.min_by_key(|(since, _)| *since)?;
        self.has_waited(since, PRIO_AGING_MS, now).then_some(oldest)
    }

    /// Takes the next request of a level that has one out of its sorted list.
    fn pop(&mut self, level: usize, requests: &RequestTable, now: Instant) -> Option<Tag> {
        let Level { lanes, batch, batch_left, .. } = &mut self.levels[level];
        let lane = &mut lanes[*batch];
        if *batch_left > 0
            && let Some(next) = lane.by_sector.pop_at_or_after(lane.head)
        {
            *batch_left -= 1;
            return Some(next);
        }
        let direction = self.levels[level].start_batch(&self.values);
        self.levels[level].batch_left -= 1;
        let (since, oldest) = self.levels[level].lanes[direction].by_age.front()?;
        let is_expired = self.has_waited(since, EXPIRE_MS[direction], now);
        let Lane { by_sector, head, .. } = &mut self.levels[level].lanes[direction];
        if !is_expired && let Some(next) = by_sector.pop_at_or_after(*head) {
            return Some(next);
        }
        by_sector.remove(oldest, requests);
        Some(oldest)
    }

    /// Forgets a request that is no longer in the sorted list of its lane, which it names.
    fn forget(&mut self, tag: Tag, requests: &RequestTable) -> &mut Lane {
        let Outline { op, priority, .. } = requests[tag].outline();
        let lane = &mut self.levels[priority.index()].lanes[usize::from(op.is_write())];
        lane.by_age.remove(&self.places, tag);
        lane
    }
}

impl Elevator for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let request = &requests[tag];
        let level = &mut self.levels[request.priority().index()];
        let lane = &mut level.lanes[usize::from(request.op().is_write())];
        lane.by_sector.insert(tag, requests);
        lane.by_age.push_back(&mut self.places, tag, request.arrived().as_nanos());
    }

    fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag> {
        let urgent = self.levels.iter().position(|level| !level.is_empty())?;
        let aged = if self.was_aged { None } else { self.aged_below(urgent, now) };
        self.was_aged = aged.is_some();
        if let Some(tag) = aged {
            self.forget(tag, requests).by_sector.remove(tag, requests);
            return Some(tag);
        }
        let tag = self.pop(urgent, requests, now)?;
        self.forget(tag, requests).head = requests[tag].extent().end();
        let Level { lanes, batch, .. } = &self.levels[urgent];
        let Lane { by_sector, by_age, .. } = &lanes[*batch];
        if let Some(near) = by_sector.look_ahead(requests, Some(&self.places)) {
            by_age.prefetch(&self.places, near);
        }
        Some(tag)
    }

    fn len(&self) -> usize {
        self.levels.iter().flat_map(|level| &level.lanes).map(|lane| lane.by_sector.len()).sum()
    }

    fn starvation_bound(&self, of: Op, priority: Priority, queued_max: usize) -> StarvationBound {
        let expire = self.values[EXPIRE_MS[usize::from(of.is_write())]];
        let aging = if priority == Priority::RealTime { 0 } else { self.values[PRIO_AGING_MS] };
        let batches = (self.values[WRITES_STARVED] + 1).saturating_mul((queued_max as u64).saturating_add(1));
        let dispatches = batches.saturating_mul(2 * self.values[FIFO_BATCH]);
        StarvationBound { after: Duration::from_millis(expire.max(aging)), dispatches }
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        for (level, priority) in self.levels.iter_mut().zip(Priority::ALL) {
            for (lane, is_write) in level.lanes.iter_mut().zip([false, true]) {
                let is_of = |io: &&Outline| io.priority == priority && io.op.is_write() == is_write;
                lane.by_sector.prefetch(arrivals.iter().filter(is_of));
            }
        }
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.lane(arrival.op, arrival.priority).by_sector.neighbours(arrival, requests)
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        let Outline { op, priority, .. } = requests[tag].outline();
        self.lane(op, priority).by_sector.merged(tag, before, requests);
    }

    fn absorb(&mut self, tag: Tag, into: Tag, requests: &RequestTable) {
        let Outline { op, priority, .. } = requests[tag].outline();
        let lane = &mut self.levels[priority.index()].lanes[usize::from(op.is_write())];
        lane.by_sector.remove(tag, requests);
        if lane.by_age.stamp(&self.places, tag) < lane.by_age.stamp(&self.places, into) {
            lane.by_age.replace(&mut self.places, tag, into);
        } else {
            lane.by_age.remove(&self.places, tag);
        }
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let mut lanes = self.levels.iter_mut().flat_map(|level| &mut level.lanes);
        let tag = lanes.find_map(|lane| lane.by_sector.pop_first())?;
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
