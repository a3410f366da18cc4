//! The elevator of a queue. `none`, the usual one, is called without a virtual call: a fast device completes a request
//! in less time than several of them take. Decides nothing: the elevators do (`block/elevator.rs`).

use std::ops::{Deref, DerefMut};

use crate::block::elevator::{Elevator, ElevatorSpec, Neighbours, NoElevator};
use crate::block::request::{Outline, Tag};
use crate::block::table::RequestTable;
use crate::time::Instant;

/// An elevator. Dereferences to it; the methods here are those on the path of each request.
#[derive(Debug)]
pub(super) enum Scheduler {
    None(NoElevator),
    Other(Box<dyn Elevator>),
}

impl Scheduler {
    /// The elevator for a queue of `requests_max` requests.
    pub(super) fn new(spec: &ElevatorSpec, requests_max: usize) -> Self {
        if spec.is_none() {
            Self::None(NoElevator::new(requests_max))
        } else {
            Self::Other(spec.build(requests_max))
        }
    }

    #[inline]
    pub(super) fn insert(&mut self, tag: Tag, requests: &RequestTable, now: Instant) {
        match self {
            Self::None(none) => none.insert(tag, requests, now),
            Self::Other(other) => other.insert(tag, requests, now),
        }
    }

    #[inline]
    pub(super) fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag> {
        match self {
            Self::None(none) => none.dispatch(requests, now),
            Self::Other(other) => other.dispatch(requests, now),
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::None(none) => none.is_empty(),
            Self::Other(other) => other.is_empty(),
        }
    }

    /// The number of queued requests, or zero if [`Elevator::prefetch`] has no effect.
    #[inline]
    pub(super) fn len_of_prefetched(&self) -> usize {
        match self {
            Self::None(_) => 0,
            Self::Other(other) => other.len(),
        }
    }

    #[inline]
    pub(super) fn neighbours(&mut self, arrival: &Outline, requests: &RequestTable) -> Neighbours {
        match self {
            Self::None(_) => Neighbours::default(),
            Self::Other(other) => other.neighbours(arrival, requests),
        }
    }

    #[inline]
    pub(super) fn completed(&mut self, tag: Tag, requests: &RequestTable, now: Instant) {
        if let Self::Other(other) = self {
            other.completed(tag, requests, now);
        }
    }

    #[inline]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::None(_) => None,
            Self::Other(other) => other.poll_timeout(),
        }
    }
}

impl Deref for Scheduler {
    type Target = dyn Elevator;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::None(none) => none,
            Self::Other(other) => &**other,
        }
    }
}

impl DerefMut for Scheduler {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Self::None(none) => none,
            Self::Other(other) => &mut **other,
        }
    }
}
