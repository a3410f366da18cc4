//! The common parts of all modelled mechanisms: the request, and the list of completions by time. It contains no
//! mechanism.

use iopath_core::{Extent, Op, Tag};

use crate::schedule::Schedule;

/// Nanoseconds since the start of the run.
pub(crate) type Nanos = u64;

/// Nanoseconds in a second.
pub(crate) const SECOND: Nanos = 1_000_000_000;

/// A request, as a mechanism receives it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) tag: Tag,
    pub(crate) op: Op,
    pub(crate) extent: Extent,
    pub(crate) fua: bool,
}

/// The mechanism of a modelled device: it calculates times and moves no data.
///
/// Times never decrease from call to call. Each event is executed at its own time, even if the call comes later. So the
/// result does not depend on how often a caller polls.
pub(crate) trait Mechanism {
    /// Accepts a request. It begins at [`Mechanism::commit`].
    fn submit(&mut self, request: Request, now: Nanos);

    /// Begins all accepted requests.
    fn commit(&mut self, now: Nanos);

    /// The next request that has completed at `now` or before.
    fn poll(&mut self, now: Nanos) -> Option<Tag>;

    /// The time of the next event: a completion, or an internal event that determines one.
    fn next_event(&self) -> Option<Nanos>;
}

/// Requests in the order of their completion times; requests with the same time stay in the order of insertion.
#[derive(Debug, Default)]
pub(crate) struct Completions(Schedule<Tag>);

impl Completions {
    pub(crate) fn with_capacity(depth: u32) -> Self {
        Self(Schedule::with_capacity(depth as usize))
    }

    /// A list for times that a mechanism draws at random, in any order.
    pub(crate) fn in_any_order(depth: u32) -> Self {
        Self(Schedule::in_any_order(depth as usize))
    }

    #[inline]
    pub(crate) fn push(&mut self, tag: Tag, at: Nanos) {
        self.0.push(tag, at);
    }

    #[inline]
    pub(crate) fn pop(&mut self, now: Nanos) -> Option<Tag> {
        self.0.pop(now).map(|(_, tag)| tag)
    }

    #[inline]
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.0.next()
    }
}
