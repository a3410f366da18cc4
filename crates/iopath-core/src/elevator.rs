//! The elevator: in which order requests go to the device. Merging is not its business, but it names the
//! candidates, since it knows what lies where; it never sees memory.

mod ascend;
mod none;

pub use ascend::Ascend;
pub use none::NoElevator;

use crate::bio::Op;
use crate::merge::Side;
use crate::sector::Extent;
use crate::table::{RequestTable, Tag};
use crate::time::Instant;
use std::fmt;

/// Decides which queued request goes to the device next.
///
/// Every request inserted comes out of [`Elevator::dispatch`] or [`Elevator::take_any`] exactly once,
/// unless [`Elevator::remove`] took it. Requests that must keep their order never are in the elevator at
/// the same time, so it may order as it likes, within the starvation bound that it states.
pub trait Elevator: fmt::Debug + Send {
    /// Its name in [`ELEVATORS`].
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

    /// The queued requests that `extent` would join at its start and at its end: candidates for a merge.
    ///
    /// An elevator that does not keep requests where it can find them names none.
    fn neighbours(&mut self, _op: Op, _extent: Extent, _requests: &RequestTable) -> Neighbours {
        Neighbours::default()
    }

    /// Whether a neighbour may be merged into `tag` on `side`; limits have been checked.
    fn allows_merge(&self, _tag: Tag, _side: Side, _joined: Extent, _requests: &RequestTable) -> bool {
        true
    }

    /// `tag` has grown: it was `before`, and `requests` has its extent now.
    fn merged(&mut self, _tag: Tag, _before: Extent, _requests: &RequestTable, _now: Instant) {}

    /// Gives up `tag` because another request has taken it in. Only requests that the elevator named in
    /// [`Elevator::neighbours`] are removed.
    fn remove(&mut self, tag: Tag, requests: &RequestTable);

    /// Gives up any request, in any order, when another elevator takes over.
    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag>;

    /// A dispatched request is over.
    fn completed(&mut self, _tag: Tag, _requests: &RequestTable, _now: Instant) {}

    /// When to ask [`Elevator::dispatch`] again although nothing happened.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }
}

/// The queued requests next to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Ends where the extent starts.
    pub before: Option<Tag>,
    /// Starts where the extent ends.
    pub after: Option<Tag>,
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

/// Every elevator there is.
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
];

impl ElevatorKind {
    /// The elevator of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ELEVATORS.iter().find(|kind| kind.name == name)
    }
}
