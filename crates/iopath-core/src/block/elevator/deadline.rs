//! Sector order in batches, with an expiry time for each request: the scheme of Linux's mq-deadline. The merge is in
//! `queue/merge.rs`.

use super::sorted_queue::{READS, SortedQueue, WRITES};
use super::{Elevator, Neighbours, Outline, Settings, StarvationBound, Tunable};
use crate::block::bio::{Op, Priority};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::sector::Extent;
use crate::time::{Duration, Instant};
use std::fmt;

/// Dispatches batches of reads or of writes in ascending order. A batch starts at the oldest request if that request
/// has expired.
///
/// Each priority and direction has a sorted list and a list by age. A batch is up to `fifo_batch` requests upward from
/// the end of the last request of that direction. It starts at the oldest request instead if that request has expired,
/// or if no request lies upward. Reads go before writes. After `writes_starved` batches of reads while writes waited,
/// the elevator dispatches a batch of writes. The expiry times are soft: they are checked only when a batch starts.
///
/// Higher priorities go first. If a request of a lower priority has waited for `prio_aging_ms`, every second dispatch
/// takes the oldest such request. (mq-deadline gives such requests every dispatch, and so starves the higher priorities
/// when the device is overloaded.) When requests merge, the earlier of both expiry times counts.
///
/// Insert, look-up of neighbours and dispatch are O(log n), and O(1) on average beside the previous position of the
/// same priority and direction.
///
/// Starvation bound: 2 × `fifo_batch` × (`writes_starved` + 1) × (queued requests + 1) dispatches. The bound counts
/// from the expiry time of the request, or from `prio_aging_ms` if that is later and the request is not real-time.
pub struct Deadline {
    levels: [Level; Priority::ALL.len()],
    /// The last dispatch was of a request that had waited for `prio_aging_ms`.
    was_aged: bool,
    settings: Settings,
}

impl fmt::Debug for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Deadline")
            .field("queued", &self.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The requests of one priority.
#[derive(Debug)]
struct Level {
    /// By direction. Stamps are times of arrival in nanoseconds.
    lanes: [SortedQueue<1>; 2],
    /// The direction of the current batch, and the number of requests that it may still dispatch.
    batch: usize,
    batch_left: u64,
    /// Batches of reads started while writes waited.
    starved: u64,
}

/// The class of every request of a lane.
const ALL: usize = 0;

/// The defaults are those of mq-deadline.
static TUNABLES: [Tunable; 5] = [
    Tunable {
        name: "read_expire_ms",
        unit: "ms",
        default: 500,
        range: 0..=600_000,
        about: "wait after which a batch starts with the oldest read",
    },
    Tunable {
        name: "write_expire_ms",
        unit: "ms",
        default: 5000,
        range: 0..=600_000,
        about: "wait after which a batch starts with the oldest write, discard or write-zeroes",
    },
    Tunable {
        name: "writes_starved",
        unit: "batches",
        default: 2,
        range: 1..=65_535,
        about: "batches of reads dispatched while writes wait, before a batch of writes",
    },
    Tunable {
        name: "fifo_batch",
        unit: "requests",
        default: 16,
        range: 1..=65_535,
        about: "requests of one direction in a batch, in sector order",
    },
    Tunable {
        name: "prio_aging_ms",
        unit: "ms",
        default: 10_000,
        range: 0..=600_000,
        about: "wait after which requests of higher priority no longer delay a request",
    },
];
/// The tunables `read_expire_ms` and `write_expire_ms`: indices by direction.
const EXPIRE_MS: [usize; 2] = [0, 1];
const WRITES_STARVED: usize = 2;
const FIFO_BATCH: usize = 3;
const PRIO_AGING_MS: usize = 4;

impl Level {
    fn new(requests_max: usize) -> Self {
        let lanes = [READS, WRITES].map(|_| SortedQueue::new(requests_max));
        Self { lanes, batch: READS, batch_left: 0, starved: 0 }
    }

    fn is_empty(&self) -> bool {
        self.lanes.iter().all(SortedQueue::is_empty)
    }

    /// Starts a batch and returns its direction. At least one request is queued.
    fn start_batch(&mut self, settings: &Settings) -> usize {
        let [reads_wait, writes_wait] = self.lanes.each_ref().map(|lane| !lane.is_empty());
        let is_write = writes_wait && (!reads_wait || self.starved >= settings[WRITES_STARVED]);
        self.starved = if is_write { 0 } else { self.starved + u64::from(writes_wait) };
        self.batch = if is_write { WRITES } else { READS };
        self.batch_left = settings[FIFO_BATCH];
        self.batch
    }
}

impl Deadline {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            levels: Priority::ALL.map(|_| Level::new(requests_max)),
            was_aged: false,
            settings: Settings::new(&TUNABLES),
        }
    }

    fn lane(&mut self, io: &Outline) -> &mut SortedQueue<1> {
        &mut self.levels[io.priority.index()].lanes[direction(io.op)]
    }

    fn has_waited(&self, since: u64, tunable_ms: usize, now: Instant) -> bool {
        now - Instant::from_nanos(since) >= Duration::from_millis(self.settings[tunable_ms])
    }

    /// The oldest request below `level` in priority, if it has waited for `prio_aging_ms`.
    fn aged_below(&self, level: usize, now: Instant) -> Option<Tag> {
        let lanes = self.levels[level + 1..].iter().flat_map(|level| &level.lanes);
        let oldest = lanes.filter_map(|lane| lane.oldest(ALL));
        let (since, oldest) = oldest.min_by_key(|(since, _)| *since)?;
        self.has_waited(since, PRIO_AGING_MS, now).then_some(oldest)
    }

    /// Dispatches the next request of a level that is not empty.
    fn dispatch_of(&mut self, level: usize, requests: &RequestTable, now: Instant) -> Option<Tag> {
        let Level { lanes, batch, batch_left, .. } = &mut self.levels[level];
        if *batch_left > 0
            && let Some(next) = lanes[*batch].dispatch_upward(requests)
        {
            *batch_left -= 1;
            return Some(next);
        }
        let batch = self.levels[level].start_batch(&self.settings);
        self.levels[level].batch_left -= 1;
        let (since, oldest) = self.levels[level].lanes[batch].oldest(ALL)?;
        let is_expired = self.has_waited(since, EXPIRE_MS[batch], now);
        let lane = &mut self.levels[level].lanes[batch];
        if !is_expired && let Some(next) = lane.dispatch_upward(requests) {
            return Some(next);
        }
        lane.dispatch(oldest, requests)
    }
}

const fn direction(op: Op) -> usize {
    if op.is_write() { WRITES } else { READS }
}

impl Elevator for Deadline {
    fn name(&self) -> &'static str {
        "deadline"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let request = &requests[tag];
        let lane = &mut self.levels[request.priority().index()].lanes[direction(request.op())];
        lane.insert(tag, request.arrived().as_nanos(), requests);
    }

    fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag> {
        let urgent = self.levels.iter().position(|level| !level.is_empty())?;
        let aged = if self.was_aged { None } else { self.aged_below(urgent, now) };
        self.was_aged = aged.is_some();
        if let Some(tag) = aged {
            self.lane(&requests[tag].outline()).remove(tag, requests);
            return Some(tag);
        }
        self.dispatch_of(urgent, requests, now)
    }

    fn len(&self) -> usize {
        self.levels.iter().flat_map(|level| &level.lanes).map(SortedQueue::len).sum()
    }

    fn starvation_bound(&self, of: Op, priority: Priority, queued_max: usize) -> StarvationBound {
        let expire = self.settings[EXPIRE_MS[direction(of)]];
        let aging = if priority == Priority::RealTime { 0 } else { self.settings[PRIO_AGING_MS] };
        let batches =
            (self.settings[WRITES_STARVED] + 1).saturating_mul((queued_max as u64).saturating_add(1));
        let dispatches = batches.saturating_mul(2 * self.settings[FIFO_BATCH]);
        StarvationBound { after: Duration::from_millis(expire.max(aging)), dispatches }
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        for (level, priority) in self.levels.iter_mut().zip(Priority::ALL) {
            for (lane, of) in level.lanes.iter_mut().zip([READS, WRITES]) {
                let is_of = |io: &&Outline| io.priority == priority && direction(io.op) == of;
                lane.prefetch(arrivals.iter().filter(is_of));
            }
        }
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        self.lane(arrival).neighbours(arrival, requests)
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.lane(&requests[tag].outline()).merged(tag, before, requests);
    }

    fn absorb(&mut self, tag: Tag, into: Tag, requests: &RequestTable) {
        self.lane(&requests[tag].outline()).absorb_older(tag, into, requests);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let mut lanes = self.levels.iter_mut().flat_map(|level| &mut level.lanes);
        lanes.find_map(|lane| lane.take_any(requests))
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> Option<&mut Settings> {
        Some(&mut self.settings)
    }
}
