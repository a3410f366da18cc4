//! A test harness for an elevator: requests without bios, memory or device, to test and measure the elevator alone. It
//! calls the elevator in the same order as the queue does. It is not a queue: see [`RequestQueue`].
//!
//! [`RequestQueue`]: crate::RequestQueue

use super::{Elevator, ElevatorSpec, Outline};
use crate::block::merge::{NoMerge, Side};
use crate::block::request::{Chain, NONE, State, Tag};
use crate::block::table::RequestTable;
use crate::time::Instant;

/// An elevator and its queued requests.
///
/// ```
/// use iopath_core::elevator::{ElevatorSpec, Outline, Harness};
/// use iopath_core::{Extent, Instant, Op, Priority, Sector, Stream};
///
/// let mut harness = Harness::new(&"ascend".parse::<ElevatorSpec>()?, 8);
/// for start in [300, 100, 200] {
///     let extent = Extent::new(Sector(start), 8).expect("within the address space");
///     let read = Outline { op: Op::Read, extent, stream: Stream(0), priority: Priority::default(), segments: 1 };
///     harness.insert(&read, Instant::ZERO);
/// }
/// let order: Vec<_> = std::iter::from_fn(|| harness.dispatch(Instant::ZERO))
///     .map(|(_, request)| request.extent.start().0)
///     .collect();
/// assert_eq!(order, [100, 200, 300]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Harness {
    requests: RequestTable,
    elevator: Box<dyn Elevator>,
}

impl Harness {
    /// A harness for up to `requests_max` requests.
    pub fn new(spec: &ElevatorSpec, requests_max: usize) -> Self {
        Self { requests: RequestTable::new(requests_max), elevator: spec.build(requests_max) }
    }

    /// The elevator.
    pub fn elevator(&mut self) -> &mut dyn Elevator {
        &mut *self.elevator
    }

    /// Queues a request without a merge.
    ///
    /// # Panics
    /// If all slots are taken.
    pub fn insert(&mut self, arrival: &Outline, now: Instant) -> Tag {
        let Outline { op, extent, stream, priority, segments } = *arrival;
        let chain = Chain { op, extent, stream, priority, segments, fua: false, first: NONE, last: NONE };
        let tag = self.requests.take(chain, now).expect("all slots of the harness are taken");
        self.requests[tag].state = State::Queued;
        self.elevator.insert(tag, &self.requests, now);
        tag
    }

    /// Announces arrivals to the elevator, as the queue does when it empties the plug.
    pub fn prefetch(&mut self, arrivals: &[Outline]) {
        self.elevator.prefetch(arrivals);
    }

    /// Merges `arrival` into an adjacent queued request. If `arrival` closes the gap to another request, merges the two
    /// requests as well. Returns the request, or the reason against a merge. Only the elevator limits merges: the
    /// harness has no device limits.
    pub fn merge(&mut self, arrival: &Outline, now: Instant) -> Result<Tag, NoMerge> {
        let neighbours = self.elevator.neighbours(arrival, &self.requests);
        let mut reason = NoMerge::NotAdjacent;
        for (candidate, side) in [(neighbours.before, Side::Back), (neighbours.after, Side::Front)] {
            let Some(tag) = candidate else { continue };
            match self.join(tag, side, arrival, now) {
                Ok(()) => {
                    self.close_gap(tag, now);
                    return Ok(tag);
                }
                Err(refusal) => reason = refusal,
            }
        }
        Err(reason)
    }

    /// A queued request.
    ///
    /// # Panics
    /// If it is no longer queued.
    pub fn request(&self, tag: Tag) -> Outline {
        self.requests[tag].outline()
    }

    /// Dispatches a request and completes it at once, which releases its tag.
    pub fn dispatch(&mut self, now: Instant) -> Option<(Tag, Outline)> {
        let tag = self.elevator.dispatch(&self.requests, now)?;
        let outline = self.requests[tag].outline();
        self.elevator.completed(tag, &self.requests, now);
        self.requests.release(tag);
        Some((tag, outline))
    }

    fn close_gap(&mut self, tag: Tag, now: Instant) {
        let grown = self.requests[tag].outline();
        let neighbours = self.elevator.neighbours(&grown, &self.requests);
        for (candidate, side) in [(neighbours.after, Side::Back), (neighbours.before, Side::Front)] {
            let Some(other) = candidate.filter(|other| *other != tag) else { continue };
            let outline = self.requests[other].outline();
            if self.join(tag, side, &outline, now).is_ok() {
                self.elevator.absorb(other, tag, &self.requests);
                self.requests.release(other);
                return;
            }
        }
    }

    /// Merges `added` into `tag`, if the elevator allows it.
    fn join(&mut self, tag: Tag, side: Side, added: &Outline, now: Instant) -> Result<(), NoMerge> {
        let own = self.requests[tag].outline();
        let (low, high) = if side == Side::Back { (own, *added) } else { (*added, own) };
        let extent = low.extent.join(high.extent).ok_or(NoMerge::NotAdjacent)?;
        if low.op != high.op {
            return Err(NoMerge::Direction);
        }
        if low.priority != high.priority {
            return Err(NoMerge::Priority);
        }
        let joined = Outline { extent, segments: low.segments + high.segments, ..own };
        self.elevator.allows_merge(tag, side, &joined, &self.requests)?;
        let chain = &mut self.requests[tag].chain;
        (chain.extent, chain.segments) = (joined.extent, joined.segments);
        self.elevator.merged(tag, own.extent, &self.requests, now);
        Ok(())
    }
}
