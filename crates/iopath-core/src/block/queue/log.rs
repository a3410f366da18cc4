//! Records the steps of the queue in its log. Without a log, each call is one branch.

use super::RequestQueue;
use crate::block::log::{Event, Log, LogSink, Step, Subject};
use crate::block::merge::NoMerge;
use crate::block::request::{Chain, Request, Tag};
use crate::error::IoError;
use crate::memory::Memory;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Records every later step in `sink`, which replaces an earlier sink. The first steps of bios and requests in
    /// flight are missing in it.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.log = Some(Box::new(Log::new(sink)));
    }

    /// Whether steps are logged.
    pub const fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Passes the pending records, at most one batch, to the sink and drops it. Dropping the queue does the same.
    pub fn end_log(&mut self) {
        self.log = None;
    }

    /// Publishes the pending records in the sink until the next step: for callers that become idle. See
    /// [`LogSink::publish`].
    #[inline]
    pub fn publish_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.publish();
        }
    }

    /// A bio was accepted. The step is recorded with the `Get` of its request, if that is the next step.
    #[inline]
    pub(super) fn log_queued(&mut self, slot: u32) {
        if let Some(log) = &mut self.log {
            log.note_queued(slot);
        }
    }

    /// Records the step of an accepted bio, if it is still pending.
    #[inline]
    pub(super) fn log_queued_alone(&mut self, now: Instant) {
        if self.log.is_some() {
            self.push_queued_alone(now);
        }
    }

    /// Out of line: a queue without a log does not call it.
    fn push_queued_alone(&mut self, now: Instant) {
        if let Some(log) = &mut self.log
            && let Some(slot) = log.take_queued()
        {
            log.push(&Step::of_bio(Event::Queue, slot, &self.bios[slot].bio), now);
        }
    }

    /// Records a step of a bio or piece.
    #[inline]
    pub(super) fn log_bio(&mut self, event: Event, slot: u32, other: u32, now: Instant) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            log.push(&Step::of_bio(event, slot, &self.bios[slot].bio).with_other(other), now);
        }
    }

    /// Records a step of a request.
    #[inline]
    pub(super) fn log_request(&mut self, event: Event, tag: Tag, other: u32, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push(&of_request(event, tag, &self.requests[tag]).with_other(other), now);
        }
    }

    /// A request slot was taken for the bio or piece in `slot`.
    #[inline]
    pub(super) fn log_got(&mut self, tag: Tag, slot: u32, now: Instant) {
        if let Some(log) = &mut self.log {
            let step = of_request(Event::Get, tag, &self.requests[tag]);
            log.push_get(slot, &step.with_other(slot), now);
        }
    }

    /// A request is the first in an empty plug.
    #[inline]
    pub(super) fn log_plugged(&mut self, tag: Tag, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_plug(tag, || of_request(Event::Plug, tag, &self.requests[tag]), now);
        }
    }

    /// A request was inserted in the elevator, since it could not be merged there.
    #[inline]
    pub(super) fn log_insert(&mut self, tag: Tag, chain: &Chain, reason: NoMerge, now: Instant) {
        if let Some(log) = &mut self.log {
            let subject = Subject::Request(tag.index() as u32);
            let step = || of_chain(Event::Insert, subject, chain).because(reason);
            log.push_insert(tag, reason, step, now);
        }
    }

    /// A request was dispatched.
    #[inline]
    pub(super) fn log_dispatch(&mut self, tag: Tag, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_dispatch(tag, || of_request(Event::Dispatch, tag, &self.requests[tag]), now);
        }
    }

    /// The elevator was replaced.
    pub(super) fn log_elevator(&mut self, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_elevator(self.elevator.name(), now);
        }
    }

    /// Records a step after a search that found no merge.
    #[inline]
    pub(super) fn log_unmerged(
        &mut self,
        event: Event,
        subject: Subject,
        chain: &Chain,
        reason: NoMerge,
        now: Instant,
    ) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            log.push(&of_chain(event, subject, chain).because(reason), now);
        }
    }

    /// `chain` was merged into the request `tag`, or the merge was `refused`.
    #[inline]
    pub(super) fn log_join(
        &mut self,
        event: Event,
        subject: Subject,
        chain: &Chain,
        tag: Tag,
        refused: Option<NoMerge>,
        now: Instant,
    ) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            let step = Step { reason: refused, ..of_chain(event, subject, chain) };
            log.push(&step.with_other(tag.index() as u32), now);
        }
    }

    /// The plug was emptied of `requests` requests.
    #[inline]
    pub(super) fn log_unplug(&mut self, requests: usize, now: Instant) {
        self.log_queued_alone(now);
        if let Some(log) = self.log.as_mut().filter(|_| requests > 0) {
            log.push_unplug(requests as u32, now);
        }
    }

    /// A request has completed, and with it its only bio if `is_last`.
    #[inline]
    pub(super) fn log_completion(
        &mut self,
        tag: Tag,
        result: Result<(), IoError>,
        is_last: bool,
        now: Instant,
    ) {
        if self.log.is_some() {
            self.push_completion(tag, result, is_last, now);
        }
    }

    fn push_completion(&mut self, tag: Tag, result: Result<(), IoError>, is_last: bool, now: Instant) {
        if let Some(log) = &mut self.log {
            let step = of_request(Event::Complete, tag, &self.requests[tag]);
            log.push(&Step { is_last, ..step }.with_other(errno(result)), now);
        }
    }
}

/// The result as the log stores it.
pub(super) fn errno(result: Result<(), IoError>) -> u32 {
    result.map_or_else(|error| error.errno().unsigned_abs(), |()| 0)
}

const fn of_chain(event: Event, subject: Subject, chain: &Chain) -> Step {
    Step {
        op: chain.op,
        extent: chain.extent,
        stream: chain.stream,
        is_fua: chain.fua,
        ..Step::new(event, subject)
    }
}

const fn of_request(event: Event, tag: Tag, request: &Request) -> Step {
    let subject = Subject::Request(tag.index() as u32);
    of_chain(event, subject, &request.chain)
}
