//! Weighted fair queueing: shares the device among streams by weight, so that parallel streams finish together. It
//! orders streams, not sectors: the requests of a stream go in the order of arrival. The table of streams is
//! `fair/streams.rs`.

mod streams;

use super::sorted_queue::SortedQueue;
use super::{Elevator, Neighbours, Outline, Settings, StarvationBound, Tunable};
use crate::block::bio::{Op, Priority, Stream};
use crate::block::request::{Request, Tag};
use crate::block::table::RequestTable;
use crate::collections::list::Links;
use crate::collections::sorted::SortedSet;
use crate::sector::{Extent, SECTOR_BYTES};
use crate::time::Instant;
use std::fmt;
use streams::{StreamSlot, Streams, WEIGHT_MAX};

/// Dispatches from the stream that has been served least for its weight.
///
/// Each stream has a virtual time. A dispatch advances it by the cost of the request over the weight of the stream. The
/// cost is `request_cost_bytes` plus the bytes of a read or write. The elevator serves the stream with the least
/// virtual time next, until it has dispatched `quantum_bytes` of the stream or the stream has no request queued. A
/// clock runs at the mean rate of the streams with requests. A stream that becomes active again starts at the clock or
/// at its own virtual time, whichever is later, so that idle time gives no credit. The order is work-conserving: a
/// dispatch returns a request whenever one is queued. Requests merge within their stream only. I/O priorities are
/// ignored: set weights instead.
///
/// Insert and dispatch are O(log n); a hash table finds the stream. The table has as many slots for streams as requests
/// can be queued. When it is full, the stream that has been idle for longest loses its slot.
///
/// Starvation bound: q × (q + 3) × c × w dispatches. q is the number of queued requests; c is the highest cost of a
/// request plus the quantum, over the lowest cost; w is the greatest weight over the least. A request waits for older
/// requests of its stream. Before each of these, every other stream may receive its share.
pub struct Fair {
    queue: SortedQueue<0>,
    streams: Streams,
    /// Links of the requests of each stream.
    links: Links<Tag>,
    /// The streams with requests, by virtual time, except the stream being served.
    ready: SortedSet,
    serving: Option<Serving>,
    clock: u64,
    /// The sum over the streams with requests.
    weights: u64,
    /// The highest cost of a request so far.
    cost_max: u64,
    settings: Settings,
}

impl fmt::Debug for Fair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fair")
            .field("queued", &self.len())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// The stream being served, and the rest of its quantum as cost in sectors.
#[derive(Debug, Clone, Copy)]
struct Serving {
    slot: StreamSlot,
    left: u64,
}

static TUNABLES: [Tunable; 2] = [
    Tunable {
        name: "request_cost_bytes",
        unit: "bytes",
        default: 16 << 10,
        range: 0..=1 << 30,
        about: "cost of a request besides its data: the device's bandwidth divided by its IOPS",
    },
    Tunable {
        name: "quantum_bytes",
        unit: "bytes",
        default: 128 << 10,
        range: 0..=1 << 30,
        about: "cost served from one stream before the next; use a larger value for disks that seek",
    },
];
const REQUEST_COST_BYTES: usize = 0;
const QUANTUM_BYTES: usize = 1;

/// Virtual time per sector of cost at weight 1. 64 bits last for 3,000 years at 1 GB/s and weight 100.
const VIRTUAL_PER_SECTOR: u64 = 10_000;

/// Requests of a stream that are prefetched together when it is served: about a quantum of 4 KiB reads.
const PREFETCH_REQUESTS: usize = 8;

impl Fair {
    /// An elevator for up to `requests_max` requests.
    pub fn new(requests_max: usize) -> Self {
        Self {
            queue: SortedQueue::new(requests_max),
            streams: Streams::new(requests_max),
            links: Links::new(requests_max as u32),
            ready: SortedSet::with_capacity(requests_max),
            serving: None,
            clock: 0,
            weights: 0,
            cost_max: 1,
            settings: Settings::new(&TUNABLES),
        }
    }

    /// The cost of a request in sectors.
    fn cost(&self, request: &Request) -> u64 {
        let data = if request.op().has_memory() { request.extent().sectors() } else { 0 };
        (self.settings[REQUEST_COST_BYTES] / SECTOR_BYTES + data).max(1)
    }

    /// The stream to dispatch from: the one being served, or the next.
    fn next_stream(&mut self, requests: &RequestTable) -> Option<Serving> {
        if let Some(serving) = self.serving {
            return Some(serving);
        }
        let (virtual_time, slot) = self.ready.pop_first()?;
        self.clock = self.clock.max(virtual_time);
        let slot = StreamSlot(slot);
        let mut queued = self.links.iter(&self.streams[slot].requests);
        self.queue.prefetch_removals(queued.by_ref().take(PREFETCH_REQUESTS), requests);
        // For the next time that the elevator serves this stream.
        self.queue.prefetch_requests(queued.take(PREFETCH_REQUESTS), requests);
        Some(Serving { slot, left: self.settings[QUANTUM_BYTES] / SECTOR_BYTES })
    }

    /// Removes the oldest request of a stream, charges its cost, and decides whether to serve the same stream next.
    fn serve(&mut self, serving: Serving, requests: &RequestTable) -> Option<Tag> {
        let Serving { slot, left } = serving;
        let tag = self.links.pop_front(&mut self.streams[slot].requests)?;
        let cost = self.cost(&requests[tag]);
        let stream = &mut self.streams[slot];
        let virtual_cost = cost.saturating_mul(VIRTUAL_PER_SECTOR);
        stream.virtual_time = stream.virtual_time.saturating_add(virtual_cost / u64::from(stream.weight));
        self.clock = self.clock.saturating_add((virtual_cost / self.weights).max(1));
        self.serving = None;
        if stream.requests.is_empty() {
            self.weights -= u64::from(stream.weight);
            self.streams.set_idle(slot);
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
        self.queue.insert(tag, 0, requests);
        let slot = self.streams.activate(request.stream());
        let stream = &mut self.streams[slot];
        if stream.requests.is_empty() {
            stream.virtual_time = stream.virtual_time.max(self.clock);
            self.weights += u64::from(stream.weight);
            self.ready.insert(stream.virtual_time, slot.0);
        }
        self.links.push_back(&mut stream.requests, tag);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let serving = self.next_stream(requests)?;
        let tag = self.serve(serving, requests)?;
        self.queue.remove(tag, requests);
        Some(tag)
    }

    fn len(&self) -> usize {
        self.queue.len()
    }

    fn starvation_bound(&self, _of: Op, _priority: Priority, queued_max: usize) -> StarvationBound {
        let queued = queued_max as u64;
        let (least, greatest) = self.streams.weight_range();
        let cost_min = (self.settings[REQUEST_COST_BYTES] / SECTOR_BYTES).max(1);
        let costs = (self.cost_max + self.settings[QUANTUM_BYTES] / SECTOR_BYTES).div_ceil(cost_min);
        let weights = u64::from(greatest.div_ceil(least));
        let queued = queued.saturating_mul(queued.saturating_add(3));
        StarvationBound::dispatches(queued.saturating_mul(costs).saturating_mul(weights))
    }

    fn prefetch(&mut self, arrivals: &[Outline]) {
        self.queue.prefetch(arrivals.iter());
    }

    fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        let Neighbours { before, after } = self.queue.neighbours(arrival, requests);
        let is_own = |tag: &Tag| requests[*tag].stream() == arrival.stream;
        Neighbours { before: before.filter(is_own), after: after.filter(is_own) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        self.cost_max = self.cost_max.max(self.cost(&requests[tag]));
        self.queue.merged(tag, before, requests);
    }

    fn absorb(&mut self, tag: Tag, _into: Tag, requests: &RequestTable) {
        self.queue.remove(tag, requests);
        let slot = self.streams.activate(requests[tag].stream());
        // The stream keeps at least `into`.
        self.links.remove(&mut self.streams[slot].requests, tag);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        self.dispatch(requests, Instant::ZERO)
    }

    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn settings_mut(&mut self) -> Option<&mut Settings> {
        Some(&mut self.settings)
    }

    fn set_weight(&mut self, stream: Stream, weight: u32) {
        let weight = weight.clamp(1, WEIGHT_MAX);
        let changed = self.streams.set_weight(stream, weight);
        if let Some(slot) = changed.filter(|slot| !self.streams[*slot].requests.is_empty()) {
            self.weights -= u64::from(self.streams[slot].weight);
            self.weights += u64::from(weight);
        }
        if let Some(slot) = changed {
            self.streams[slot].weight = weight;
        }
    }
}
