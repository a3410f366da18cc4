//! What a queue tells its log, and in which words. Without a log each of these is one branch.

use super::RequestQueue;
use crate::block::log::{Event, Log, LogSink, Step, Subject};
use crate::block::merge::NoMerge;
use crate::block::request::{Chain, Request, Tag};
use crate::error::IoError;
use crate::memory::Memory;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Tells `sink` every step from now on, in place of whoever was told before. Bios and requests in flight
    /// appear there without their beginning.
    pub fn start_log(&mut self, sink: Box<dyn LogSink>) {
        self.log = Some(Box::new(Log::new(sink)));
    }

    /// Whether steps are logged.
    pub const fn is_logged(&self) -> bool {
        self.log.is_some()
    }

    /// Hands over the records held back, a batch at most, and lets go of the sink. So does dropping the queue.
    pub fn end_log(&mut self) {
        self.log = None;
    }

    /// Lets the sink have the records held back until the next step: for whoever has nothing more to do at the
    /// moment, and may have for long. See [`LogSink::rest`].
    #[inline]
    pub fn rest_log(&mut self) {
        if let Some(log) = &mut self.log {
            log.rest();
        }
    }

    /// A bio has been taken. Told together with its request's `Get`, if that is what comes next.
    #[inline]
    pub(super) fn log_queued(&mut self, slot: u32) {
        if let Some(log) = &mut self.log {
            log.note_queued(slot);
        }
    }

    /// Something else comes next, or nothing: tells of a bio that has been taken and is not told of yet.
    #[inline]
    pub(super) fn log_queued_alone(&mut self, now: Instant) {
        if let Some(log) = &mut self.log
            && let Some(slot) = log.take_queued()
        {
            log.push(&Step::of_bio(Event::Queue, slot, &self.bios[slot].bio), now);
        }
    }

    /// A step of a bio or piece.
    #[inline]
    pub(super) fn log_bio(&mut self, event: Event, slot: u32, other: u32, now: Instant) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            log.push(&Step::of_bio(event, slot, &self.bios[slot].bio).with_other(other), now);
        }
    }

    /// A step of a request.
    #[inline]
    pub(super) fn log_request(&mut self, event: Event, tag: Tag, other: u32, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push(&of_request(event, tag, &self.requests[tag]).with_other(other), now);
        }
    }

    /// A request got its slot for a bio or piece.
    #[inline]
    pub(super) fn log_got(&mut self, tag: Tag, chain: &Chain, now: Instant) {
        if let Some(log) = &mut self.log {
            let step = of_chain(Event::Get, Subject::Request(tag.index() as u32), chain);
            log.push_get(chain.first, &step.with_other(chain.first), now);
        }
    }

    /// A request is the first in an empty plug.
    #[inline]
    pub(super) fn log_plugged(&mut self, tag: Tag, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_passed(&of_request(Event::Plug, tag, &self.requests[tag]), now);
        }
    }

    /// A request goes to the elevator, having joined none there.
    #[inline]
    pub(super) fn log_insert(&mut self, tag: Tag, chain: &Chain, reason: NoMerge, now: Instant) {
        if let Some(log) = &mut self.log {
            let who = Subject::Request(tag.index() as u32);
            let step = || of_chain(Event::Insert, who, chain).because(reason);
            log.push_insert(tag, reason, step, now);
        }
    }

    /// A request goes to the device.
    #[inline]
    pub(super) fn log_dispatch(&mut self, tag: Tag, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_dispatch(tag, || of_request(Event::Dispatch, tag, &self.requests[tag]), now);
        }
    }

    /// Another elevator has taken over.
    pub(super) fn log_elevator(&mut self, now: Instant) {
        if let Some(log) = &mut self.log {
            log.push_elevator(self.elevator.name(), now);
        }
    }

    /// A step that ends, for now, a search for something to join.
    #[inline]
    pub(super) fn log_unmerged(
        &mut self,
        event: Event,
        who: Subject,
        chain: &Chain,
        reason: NoMerge,
        now: Instant,
    ) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            log.push(&of_chain(event, who, chain).because(reason), now);
        }
    }

    /// `chain` joined the request `tag`, or `refused` says why not.
    #[inline]
    pub(super) fn log_join(
        &mut self,
        event: Event,
        who: Subject,
        chain: &Chain,
        tag: Tag,
        refused: Option<NoMerge>,
        now: Instant,
    ) {
        self.log_queued_alone(now);
        if let Some(log) = &mut self.log {
            let step = Step { reason: refused, ..of_chain(event, who, chain) };
            log.push(&step.with_other(tag.index() as u32), now);
        }
    }

    /// The plug has been emptied of so many requests.
    #[inline]
    pub(super) fn log_unplug(&mut self, requests: usize, now: Instant) {
        self.log_queued_alone(now);
        if let Some(log) = self.log.as_mut().filter(|_| requests > 0) {
            log.push_passed(&Step::new(Event::Unplug, Subject::Queue).with_other(requests as u32), now);
        }
    }

    /// A request, of this chain, has completed, and with it its one bio if `is_last`.
    #[inline]
    pub(super) fn log_completion(
        &mut self,
        tag: Tag,
        chain: &Chain,
        result: Result<(), IoError>,
        is_last: bool,
        now: Instant,
    ) {
        if let Some(log) = &mut self.log {
            let step = of_chain(Event::Complete, Subject::Request(tag.index() as u32), chain);
            log.push(&Step { is_last, ..step }.with_other(errno(result)), now);
        }
    }
}

/// What stands in the log for how something ended.
pub(super) fn errno(result: Result<(), IoError>) -> u32 {
    result.map_or_else(|error| error.errno().unsigned_abs(), |()| 0)
}

const fn of_chain(event: Event, who: Subject, chain: &Chain) -> Step {
    Step {
        op: chain.op,
        extent: chain.extent,
        stream: chain.stream,
        is_fua: chain.fua,
        ..Step::new(event, who)
    }
}

const fn of_request(event: Event, tag: Tag, request: &Request) -> Step {
    let who = Subject::Request(tag.index() as u32);
    of_chain(event, who, &request.chain)
}
