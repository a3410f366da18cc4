//! Shares the device among streams by weight, so that parallel streams finish together. Orders streams, not
//! sectors: a stream's requests go as they came. Which streams there are is `fair/streams.rs`.

mod streams;

use super::by_sector::BySector;
use super::{Elevator, Neighbours, Outline, StarvationBound, Tunable, defaults};
use crate::block::bio::{Op, Priority, Stream};
use crate::block::table::{Request, RequestTable, Tag};
use crate::collections::list::Links;
use crate::collections::sorted::SortedSet;
use crate::sector::{Extent, SECTOR_BYTES};
use crate::time::Instant;
use streams::{Slot, Streams, WEIGHT_MAX};

/// Weighted fair queueing: the stream that has been served least for its weight goes next.
///
/// Each stream has a virtual time, which every dispatch moves on by the request's cost over the stream's
/// weight. The cost is `request_cost_bytes` and the bytes of a read or write. The least virtual time goes
/// next, and stays until it has been served `quantum_bytes` or has nothing queued. The clock runs at the mean
/// rate of the streams that wait; a stream that wakes starts there, or where it left off if that is later: it
/// saves nothing up by idling, and gains nothing by coming and going. Whenever a request is queued one goes:
/// the order is work-conserving. Requests merge within their stream only. Priorities count for nothing here:
/// give weights.
///
/// Insert and dispatch are O(log n); the stream is found by hash. As many streams are remembered as requests
/// can be queued: who has been idle for longest is forgotten first.
///
/// Starvation bound: with q requests queued, `c` the highest cost of a request over the lowest (the quantum
/// added to the highest), `w` the greatest weight over the least: q × (q + 3) × c × w dispatches. A request
/// waits for those its own stream queued before it, each of which lets every other stream go once for its share.
#[derive(Debug)]
pub struct Fair {
    by_sector: BySector,
    streams: Streams,
    /// Links of the requests of each stream.
    links: Links<Tag>,
    /// Streams with requests, but for the one being served, by virtual time.
    ready: SortedSet,
    serving: Option<Serving>,
    clock: u64,
    /// Of the streams that have requests.
    weights: u64,
    /// The highest cost of a request so far.
    cost_max: u64,
    values: [u64; 2],
}

/// The stream whose turn it is, and how much of its turn is left.
#[derive(Debug, Clone, Copy)]
struct Serving {
    slot: Slot,
    left: u64,
}

static TUNABLES: [Tunable; 2] = [
    Tunable {
        name: "request_cost_bytes",
        unit: "bytes",
        default: 16 << 10,
        range: 0..=1 << 30,
        about: "what a request costs besides its bytes: the device's bandwidth over its requests a second",
    },
    Tunable {
        name: "quantum_bytes",
        unit: "bytes",
        default: 128 << 10,
        range: 0..=1 << 30,
        about: "cost that a stream is served for at a time; more is better for disks that seek",
    },
];
const REQUEST_COST_BYTES: usize = 0;
const QUANTUM_BYTES: usize = 1;

/// Virtual time per sector of cost for a weight of one: 3,000 years at a gigabyte a second and weight 100.
const VIRTUAL_PER_SECTOR: u64 = 10_000;

/// How many requests of a stream are looked up together when its turn comes: about a quantum of 4 KiB reads.
const TURN_AHEAD: usize = 8;

impl Fair {
    /// Room for `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            by_sector: BySector::new(requests_max),
            streams: Streams::new(requests_max),
            links: Links::new(requests_max),
            ready: SortedSet::with_capacity(requests_max),
            serving: None,
            clock: 0,
            weights: 0,
            cost_max: 1,
            values: defaults(&TUNABLES),
        }
    }

    /// What a request costs, in sectors.
    fn cost(&self, request: &Request) -> u64 {
        let data = if request.op().has_memory() { request.extent().sectors() } else { 0 };
        (self.values[REQUEST_COST_BYTES] / SECTOR_BYTES + data).max(1)
    }

    /// The stream whose turn it is.
    fn turn(&mut self, requests: &RequestTable) -> Option<Serving> {
        if let Some(serving) = self.serving {
            return Some(serving);
        }
        let (virtual_time, slot) = self.ready.pop_first()?;
        self.clock = self.clock.max(virtual_time);
        let mut queue = self.streams[Slot(slot)].queue.iter(&self.links);
        self.by_sector.prefetch_removals(queue.by_ref().take(TURN_AHEAD), requests);
        // Those of its next turn.
        self.by_sector.prefetch_requests(queue.take(TURN_AHEAD), requests);
        Some(Serving { slot: Slot(slot), left: self.values[QUANTUM_BYTES] / SECTOR_BYTES })
    }

    /// Takes the oldest request of `serving`'s stream, and says how that stream goes on.
    fn serve(&mut self, serving: Serving, requests: &RequestTable) -> Option<Tag> {
        let Serving { slot, left } = serving;
        let tag = self.streams[slot].queue.pop_front(&mut self.links)?;
        let cost = self.cost(&requests[tag]);
        let stream = &mut self.streams[slot];
        let virtual_cost = cost.saturating_mul(VIRTUAL_PER_SECTOR);
        stream.virtual_time = stream.virtual_time.saturating_add(virtual_cost / u64::from(stream.weight));
        self.clock = self.clock.saturating_add((virtual_cost / self.weights).max(1));
        self.serving = None;
        if stream.queue.is_empty() {
            self.weights -= u64::from(stream.weight);
            self.streams.rest(slot);
        } else if cost < left {
            self.serving = Some(Serving { slot, left: left - cost });
        } else {
            self.ready.insert(stream.virtual_time, slot.0);
        }
        Some(tag)
    }
}

impl Elevator for Fair {
    fn name(&self) -> &'static str {
        "fair"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let request = &requests[tag];
        self.cost_max = self.cost_max.max(self.cost(request));
        self.by_sector.insert(tag, requests);
        let slot = self.streams.enter(request.stream());
        let stream = &mut self.streams[slot];
        if stream.queue.is_empty() {
            stream.virtual_time = stream.virtual_time.max(self.clock);
            self.weights += u64::from(stream.weight);
            self.ready.insert(stream.virtual_time, slot.0);
        }
        stream.queue.push_back(&mut self.links, tag);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let serving = self.turn(requests)?;
        let tag = self.serve(serving, requests)?;
        self.by_sector.remove(tag, requests);
        Some(tag)
    }

    fn len(&self) -> usize {
        self.by_sector.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        let queued = queued_max as u64;
        let (least, greatest) = self.streams.weight_range();
        let cost_min = (self.values[REQUEST_COST_BYTES] / SECTOR_BYTES).max(1);
        let costs = (self.cost_max + self.values[QUANTUM_BYTES] / SECTOR_BYTES).div_ceil(cost_min);
        let weights = u64::from(greatest.div_ceil(least));
        let queued = queued.saturating_mul(queued.saturating_add(3));
        StarvationBound::dispatches(queued.saturating_mul(costs).saturating_mul(weights))
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.by_sector.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let Neighbours { before, after } = self.by_sector.neighbours(arrival, requests);
        let is_own = |tag: &Tag| requests[*tag].stream() == arrival.stream;
        Neighbours { before: before.filter(is_own), after: after.filter(is_own) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.cost_max = self.cost_max.max(self.cost(&requests[tag]));
        self.by_sector.merged(tag, before, requests);
    }

    /// Its stream goes on with the one that takes it in.
    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.by_sector.remove(tag, requests);
        let slot = self.streams.enter(requests[tag].stream());
        self.streams[slot].queue.remove(&mut self.links, tag);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        self.dispatch(requests, Instant::ZERO)
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

    fn set_weight(&mut self, stream: Stream, weight: u32) {
        let weight = weight.clamp(1, WEIGHT_MAX);
        let changed = self.streams.set_weight(stream, weight);
        if let Some(slot) = changed.filter(|slot| !self.streams[*slot].queue.is_empty()) {
            self.weights -= u64::from(self.streams[slot].weight);
            self.weights += u64::from(weight);
        }
        if let Some(slot) = changed {
            self.streams[slot].weight = weight;
        }
    }
}
