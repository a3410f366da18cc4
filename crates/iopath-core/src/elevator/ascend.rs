//! One-way ascending sort, the elevator of Linux 2.4, with its bound on how often a request is passed.

use super::{Elevator, Neighbours};
use crate::bio::Op;
use crate::sector::{Extent, Sector};
use crate::sorted::SortedSet;
use crate::table::{RequestTable, Tag};
use crate::tag_list::TagList;
use crate::time::Instant;

/// Sweeps upward over the sectors and starts again at the lowest; requests out of allowance go first.
///
/// Requests are numbered as they come. Request n is out of allowance when n + `read_latency` (or
/// `write_latency`) requests have been dispatched, since then it has been passed that often.
/// Insert and dispatch are O(log n).
///
/// Starvation bound: request n is dispatched as number n + its allowance + the requests out of allowance
/// before it, of which there are never more than the queue holds.
#[derive(Debug)]
pub struct Ascend {
    by_sector: SortedSet,
    reads: Arrivals,
    writes: Arrivals,
    /// Requests ever inserted.
    inserted: u64,
    /// Requests ever given up.
    gone: u64,
    /// The sector after the last request dispatched.
    head: Sector,
}

/// Requests of one direction in the order they came.
#[derive(Debug)]
struct Arrivals {
    list: TagList,
    /// The request's number, by tag.
    number: Box<[u64]>,
    /// How many may pass a request.
    allowance: u64,
}

impl Arrivals {
    fn new(requests_max: usize, allowance: u64) -> Self {
        Self { list: TagList::new(requests_max), number: vec![0; requests_max].into(), allowance }
    }

    /// The oldest request, and as what number it is dispatched at the latest.
    fn oldest(&self) -> Option<(u64, Tag)> {
        let tag = self.list.front()?;
        Some((self.number[tag.index()] + self.allowance, tag))
    }
}

impl Ascend {
    /// How many requests may pass a read: the value published as good for throughput and feel (2000).
    pub const READ_LATENCY: u64 = 8192;

    /// How many requests may pass a write: likewise.
    pub const WRITE_LATENCY: u64 = 131_072;

    /// Room for `requests_max` requests, with the published allowances.
    pub fn new(requests_max: usize) -> Self {
        Self::with_latency(requests_max, Self::READ_LATENCY, Self::WRITE_LATENCY)
    }

    /// Room for `requests_max` requests; at most `read_latency` requests pass a read and
    /// `write_latency` a write, discard or write-zeroes.
    pub fn with_latency(requests_max: usize, read_latency: u64, write_latency: u64) -> Self {
        Self {
            by_sector: SortedSet::with_capacity(requests_max),
            reads: Arrivals::new(requests_max, read_latency),
            writes: Arrivals::new(requests_max, write_latency),
            inserted: 0,
            gone: 0,
            head: Sector(0),
        }
    }

    /// The request that has waited past its allowance for longest.
    fn out_of_allowance(&self) -> Option<Tag> {
        let (due, tag) = match (self.reads.oldest(), self.writes.oldest()) {
            (Some(read), Some(write)) => {
                if write.0 < read.0 {
                    write
                } else {
                    read
                }
            }
            (read, write) => read.or(write)?,
        };
        (due <= self.gone).then_some(tag)
    }

    fn arrivals(&mut self, op: Op) -> &mut Arrivals {
        if op.is_write() { &mut self.writes } else { &mut self.reads }
    }

    /// Forgets a request that is no longer in `by_sector`.
    fn forget(&mut self, tag: Tag, requests: &RequestTable) {
        self.gone += 1;
        self.arrivals(requests[tag].op()).list.remove(tag);
    }
}

impl Elevator for Ascend {
    fn name(&self) -> &'static str {
        "ascend"
    }

    fn insert(&mut self, tag: Tag, requests: &RequestTable, _now: Instant) {
        let number = self.inserted;
        self.inserted += 1;
        let request = &requests[tag];
        self.by_sector.insert(request.extent().start().0, tag.to_bits());
        let arrivals = self.arrivals(request.op());
        arrivals.number[tag.index()] = number;
        arrivals.list.push_back(tag);
    }

    fn dispatch(&mut self, requests: &RequestTable, _now: Instant) -> Option<Tag> {
        let tag = if let Some(tag) = self.out_of_allowance() {
            self.by_sector.remove(requests[tag].extent().start().0, tag.to_bits());
            tag
        } else {
            let next = self.by_sector.pop_at_or_after(self.head.0).or_else(|| self.by_sector.pop_first());
            Tag::from_bits(next?.1)
        };
        self.forget(tag, requests);
        self.head = requests[tag].extent().end();
        Some(tag)
    }

    fn len(&self) -> usize {
        self.by_sector.len()
    }

    fn neighbours(&mut self, _op: Op, extent: Extent, requests: &RequestTable) -> Neighbours {
        let (below, above) = self.by_sector.neighbours(extent.end().0);
        let before = |(_, bits)| {
            let tag = Tag::from_bits(bits);
            requests[tag].extent().is_followed_by(extent).then_some(tag)
        };
        let after = |(start, bits)| (start == extent.end().0).then_some(Tag::from_bits(bits));
        Neighbours { before: below.and_then(before), after: above.and_then(after) }
    }

    fn merged(&mut self, tag: Tag, before: Extent, requests: &RequestTable, _now: Instant) {
        let start = requests[tag].extent().start();
        if start != before.start() {
            self.by_sector.remove(before.start().0, tag.to_bits());
            self.by_sector.insert(start.0, tag.to_bits());
        }
    }

    fn remove(&mut self, tag: Tag, requests: &RequestTable) {
        self.by_sector.remove(requests[tag].extent().start().0, tag.to_bits());
        self.forget(tag, requests);
    }

    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag> {
        let (_, bits) = self.by_sector.pop_first()?;
        let tag = Tag::from_bits(bits);
        self.forget(tag, requests);
        Some(tag)
    }
}
