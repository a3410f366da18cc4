//! The elevator: in which order requests go to the device. Merging is not its business, but it names the
//! candidates, since it knows what lies where; it never sees memory.
//!
//! An elevator is one file in `elevator/` and one row in [`ELEVATORS`]; one of a user's own crate is an
//! [`ElevatorKind`] that an [`ElevatorSpec`] is made of. They share pieces: `by_sector` (what lies where),
//! `arrivals` (who has been passed how often), [`TagList`](crate::TagList), [`SortedSet`](crate::collections::sorted::SortedSet).

mod arrivals;
mod ascend;
mod by_sector;
mod closest;
mod deadline;
mod fair;
mod none;
mod spec;
mod stand;
mod tunable;
mod two_list;

pub use ascend::Ascend;
pub use closest::Closest;
pub use deadline::Deadline;
pub use fair::Fair;
pub use none::NoElevator;
pub use spec::{ElevatorError, ElevatorSpec};
pub use stand::Stand;
pub use tunable::{Tunable, defaults};
pub use two_list::TwoList;

use crate::block::bio::{Op, Priority, Stream};
use crate::block::merge::{NoMerge, Side};
use crate::block::table::{RequestTable, Tag};
use crate::sector::Extent;
use crate::time::{Duration, Instant};
use std::fmt;

/// Decides which queued request goes to the device next.
///
/// Every request inserted comes out of [`Elevator::dispatch`] or [`Elevator::take_any`] exactly once,
/// unless [`Elevator::absorb`] took it. Requests that must keep their order never are in the elevator at
/// the same time, so it may order as it likes, within the starvation bound that it states.
pub trait Elevator: fmt::Debug + Send {
    /// Its name in [`ELEVATORS`], or the one its own crate gave it.
    fn name(&self) -> &'static str;

    /// Takes a request.
    fn insert(&mut self, tag: Tag, requests: &RequestTable, now: Instant);

    /// Gives up the request that goes to the device now; `None` when there is none, or none yet.
    fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag>;

    /// Requests inserted and not yet given up.
    fn len(&self) -> usize;

    /// Whether no request is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How long a request can be passed over at most. The conformance test holds the elevator to it.
    fn starvation_bound(&self, of: Op, priority: Priority, queued_max: usize) -> StarvationBound;

    /// `arrivals` are about to look for [`Elevator::neighbours`] and be inserted, one after another: a chance to
    /// ask for the memory that this will touch, for all at once, and to remember where it was found. Changes no
    /// order.
    fn prefetch(&mut self, _arrivals: &[Outline]) {}

    /// The queued requests that `arrival` would join at its start and at its end: candidates for a merge.
    ///
    /// An elevator that does not keep requests where it can find them names none.
    fn neighbours(&mut self, _arrival: &Outline, _requests: &RequestTable) -> Neighbours {
        Neighbours::default()
    }

    /// Whether a neighbour may be merged into `tag` on `side`, so that it becomes `joined`, and if not,
    /// why. The device's limits have been checked.
    fn allows_merge(
        &self,
        _tag: Tag,
        _side: Side,
        _joined: &Outline,
        _requests: &RequestTable,
    ) -> Result<(), NoMerge> {
        Ok(())
    }

    /// `tag` has grown: it was `before`, and `requests` has its extent now.
    fn merged(&mut self, _tag: Tag, _before: Extent, _requests: &RequestTable, _now: Instant) {}

    /// Gives up `tag` because `into`, of which [`Elevator::merged`] has just told, has taken it in. Only
    /// requests that the elevator named in [`Elevator::neighbours`] are absorbed.
    fn absorb(&mut self, tag: Tag, into: Tag, requests: &RequestTable);

    /// Gives up any request, in any order, when another elevator takes over.
    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag>;

    /// A dispatched request has completed.
    fn completed(&mut self, _tag: Tag, _requests: &RequestTable, _now: Instant) {}

    /// When to ask [`Elevator::dispatch`] again although nothing happened: later than the last time it gave none.
    /// One that holds every request back says when, or the path waits for ever.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// What can be set, while I/O runs, too.
    fn tunables(&self) -> &'static [Tunable] {
        &[]
    }

    /// The value of each of [`Elevator::tunables`].
    fn values(&self) -> &[u64] {
        &[]
    }

    /// The values, to be set within their ranges: see [`dyn Elevator::set_tunable`](Self#method.set_tunable).
    fn values_mut(&mut self) -> &mut [u64] {
        &mut []
    }

    /// Gives a stream a share of `weight` against the 100 that a stream has unless told otherwise, 1 to
    /// 10,000; what lies outside is taken for the nearest of these. Elevators without shares do nothing.
    fn set_weight(&mut self, _stream: Stream, _weight: u32) {}
}

// Returned in a register: see `Tag`.
const _: () = assert!(size_of::<Neighbours>() == 8);

/// What is known of a bio or request without its memory: all that an elevator goes by, but for the age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outline {
    /// What it does.
    pub op: Op,
    /// Where.
    pub extent: Extent,
    /// Whose it is.
    pub stream: Stream,
    /// How urgent it is.
    pub priority: Priority,
    /// In how many pieces of memory.
    pub segments: u32,
}

/// The queued requests next to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Ends where the extent starts.
    pub before: Option<Tag>,
    /// Starts where the extent ends.
    pub after: Option<Tag>,
}

/// When a request has gone at the latest, whatever else arrives: of the requests dispatched later than
/// `after` its arrival, it is among the first `dispatches`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarvationBound {
    /// How long nothing is promised.
    pub after: Duration,
    /// Dispatches from then on, its own included.
    pub dispatches: u64,
}

impl StarvationBound {
    /// A bound on dispatches alone, from the arrival on.
    pub const fn dispatches(dispatches: u64) -> Self {
        Self { after: Duration::ZERO, dispatches }
    }
}

/// One elevator that can be chosen by name.
#[derive(Debug, Clone, Copy)]
pub struct ElevatorKind {
    /// As written on command lines.
    pub name: &'static str,
    /// What it is for, in one line.
    pub about: &'static str,
    /// Makes one that can hold a queue's number of requests without allocating again.
    pub build: fn(requests_max: usize) -> Box<dyn Elevator>,
}

/// Every elevator of this crate.
pub static ELEVATORS: &[ElevatorKind] = &[
    ElevatorKind {
        name: "none",
        about: "first come, first served; for devices that order requests themselves",
        build: |requests_max| Box::new(NoElevator::new(requests_max)),
    },
    ElevatorKind {
        name: "ascend",
        about: "one-way ascending sort; a request that too many others have passed goes first",
        build: |requests_max| Box::new(Ascend::new(requests_max)),
    },
    ElevatorKind {
        name: "two-list",
        about: "one-way sweeps; what comes below the head waits for the next sweep",
        build: |requests_max| Box::new(TwoList::new(requests_max)),
    },
    ElevatorKind {
        name: "closest",
        about: "the request nearest to the head; one that too many others have passed goes first",
        build: |requests_max| Box::new(Closest::new(requests_max)),
    },
    ElevatorKind {
        name: "deadline",
        about: "ascending batches of reads or writes, each request with a deadline; heeds priorities",
        build: |requests_max| Box::new(Deadline::new(requests_max)),
    },
    ElevatorKind {
        name: "fair",
        about: "a share of the device by weight for each stream, so that parallel streams end together",
        build: |requests_max| Box::new(Fair::new(requests_max)),
    },
];

impl ElevatorKind {
    /// The elevator of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ELEVATORS.iter().find(|kind| kind.name == name)
    }

    /// What can be set in it.
    pub fn tunables(&self) -> &'static [Tunable] {
        (self.build)(1).tunables()
    }
}
