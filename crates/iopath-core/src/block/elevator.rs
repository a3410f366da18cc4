//! The I/O scheduler (elevator): decides the order in which queued requests go to the device. The queue merges
//! requests; an elevator finds candidates for a merge, since it keeps the order of the sectors. An elevator never sees
//! memory.
//!
//! An elevator is one file in `elevator/` and one row in [`ELEVATORS`]. Another crate defines an elevator as an
//! [`ElevatorKind`] and makes an [`ElevatorSpec`] of it. Shared parts: `sorted_queue` (order of sectors, and of age),
//! `pass_counter` (how often requests were passed), `settings` (tunables and their values).

mod ascend;
mod closest;
mod deadline;
mod error;
mod fair;
mod harness;
mod none;
mod pass_counter;
mod registry;
mod settings;
mod sorted_queue;
mod spec;
mod tunable;
mod two_list;

pub use ascend::Ascend;
pub use closest::Closest;
pub use deadline::Deadline;
pub use error::ElevatorError;
pub use fair::Fair;
pub use harness::Harness;
pub use none::NoElevator;
pub use registry::{ELEVATORS, ElevatorKind};
pub use settings::Settings;
pub use spec::ElevatorSpec;
pub use tunable::Tunable;
pub use two_list::TwoList;

pub use crate::block::request::Outline;

use crate::block::bio::{Op, Priority, Stream};
use crate::block::merge::{NoMerge, Side};
use crate::block::request::Tag;
use crate::block::table::RequestTable;
use crate::sector::Extent;
use crate::time::{Duration, Instant};
use std::fmt;

/// The number of queued requests from which prefetching pays: fewer fit the caches of the processor.
pub const PREFETCH_FROM: usize = 4096;

/// Decides which queued request goes to the device next.
///
/// Each inserted request leaves exactly once: by [`Elevator::dispatch`], [`Elevator::take_any`] or
/// [`Elevator::absorb`]. Requests with a required order (overlapping, at least one a write) are never in the elevator
/// at the same time. So the elevator may choose any order within its starvation bound.
pub trait Elevator: fmt::Debug + Send {
    /// The name in [`ELEVATORS`], or in the [`ElevatorKind`] of another crate.
    fn name(&self) -> &'static str;

    /// Adds a request.
    fn insert(&mut self, tag: Tag, requests: &RequestTable, now: Instant);

    /// Removes and returns the request to send to the device now. `None` if the elevator is empty or holds its
    /// requests back for now: see [`Elevator::poll_timeout`].
    fn dispatch(&mut self, requests: &RequestTable, now: Instant) -> Option<Tag>;

    /// The number of queued requests.
    fn len(&self) -> usize;

    /// Whether no request is queued.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bound on the wait of a request with this operation and priority, while at most `queued_max` requests are
    /// queued. The conformance test checks it.
    fn starvation_bound(&self, of: Op, priority: Priority, queued_max: usize) -> StarvationBound;

    /// Announces requests that the queue will next look up with [`Elevator::neighbours`] and insert, in this order. The
    /// elevator can prefetch memory for all of them at once. The call changes no order. The queue makes it only while
    /// [`PREFETCH_FROM`] requests are queued.
    fn prefetch(&mut self, _arrivals: &[Outline]) {}

    /// The queued requests adjacent to `arrival`: the candidates for a merge.
    ///
    /// An elevator that cannot find them quickly returns none.
    fn neighbours(&mut self, _arrival: &Outline, _requests: &RequestTable) -> Neighbours {
        Neighbours::default()
    }

    /// Returns the reason if the request must not grow to `joined` on `side`. The queue has checked the limits of the
    /// device.
    fn allows_merge(
        &self,
        _tag: Tag,
        _side: Side,
        _joined: &Outline,
        _requests: &RequestTable,
    ) -> Result<(), NoMerge> {
        Ok(())
    }

    /// A merge has extended a request from `before` to its extent in `requests`.
    fn merged(&mut self, _tag: Tag, _before: Extent, _requests: &RequestTable, _now: Instant) {}

    /// Removes `tag`, which was merged into `into`; [`Elevator::merged`] was called for `into` before. `tag` is a
    /// request that [`Elevator::neighbours`] returned.
    fn absorb(&mut self, tag: Tag, into: Tag, requests: &RequestTable);

    /// Removes and returns any request. The queue calls this to move all requests to another elevator.
    fn take_any(&mut self, requests: &RequestTable) -> Option<Tag>;

    /// A dispatched request has completed.
    fn completed(&mut self, _tag: Tag, _requests: &RequestTable, _now: Instant) {}

    /// The time at which to call [`Elevator::dispatch`] again without another event. The time is later than the last
    /// call that returned `None`. An elevator that holds requests back must return a time; otherwise the queue waits
    /// forever.
    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// The tunables and their values.
    fn settings(&self) -> &Settings {
        &Settings::NONE
    }

    /// The same for changes, which are allowed at any time. `Some` if [`Elevator::settings`] has tunables.
    fn settings_mut(&mut self) -> Option<&mut Settings> {
        None
    }

    /// Sets the weight of a stream, clamped to 1..=10,000. The default is 100. Elevators without shares ignore it.
    fn set_weight(&mut self, _stream: Stream, _weight: u32) {}
}

// Returned in a register: see `Tag`.
const _: () = assert!(size_of::<Neighbours>() == 8);

/// The queued requests adjacent to an extent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neighbours {
    /// Ends where the extent starts.
    pub before: Option<Tag>,
    /// Starts where the extent ends.
    pub after: Option<Tag>,
}

/// A bound on the wait of a request, independent of later arrivals. Once `after` has passed since its arrival, the
/// request is one of the next `dispatches` requests dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarvationBound {
    /// The time after arrival from which the bound counts.
    pub after: Duration,
    /// Dispatches from then on, including its own.
    pub dispatches: u64,
}

impl StarvationBound {
    /// A bound in dispatches from the arrival on.
    pub const fn dispatches(dispatches: u64) -> Self {
        Self { after: Duration::ZERO, dispatches }
    }
}
