//! The bios and requests of one device. Finds the subject of each event, and records the step. Tasks, devices and
//! streams are in `joiner.rs`.
//!
//! A bio waits from its queueing until it has a request; a request is queued until its issue, then dispatched until its
//! completion. Merges change the range of a queued request, and partial completions that of a dispatched one.

mod complete;

use super::event::KernelIo;
use super::table::{Index, NONE, Slab};
use iopath_core::log::{Event, Step, StepLog, Subject};
use iopath_core::{Extent, Instant, NoMerge, Op, Record, Sector, Stream};
use std::collections::VecDeque;

/// The maximum number of bios, and of requests, in flight. More exist only if their ends are lost.
const IN_FLIGHT_MAX: usize = if cfg!(test) { 1 << 10 } else { 1 << 20 };

/// The maximum number of writes that wait for the flush after them. More exist only if events are lost.
const LATE_MAX: usize = 1024;

/// A bio, or a piece of one.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "properties that are independent of each other")]
struct Bio {
    start: u64,
    sectors: u64,
    op: Op,
    is_fua: bool,
    stream: Stream,
    /// The bio from which this piece was cut, or [`NONE`].
    whole: u32,
    /// The sectors of the pieces that have not completed, of a bio that was split.
    left: u64,
    is_split: bool,
    /// Whether the log has no `split` of this piece yet: it may be split again.
    is_rest: bool,
    /// Whether the kernel flushes the device before or after the write: the bio ends after its request.
    ends_late: bool,
    /// The next bio of the same request, or [`NONE`].
    next: u32,
    /// The bio of a device above that ends with this one.
    above: Option<Above>,
}

/// A bio of a device above that has no completion of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Above {
    pub(super) queue: usize,
    /// The number of that queue in the log.
    pub(super) number: u16,
    pub(super) io: KernelIo,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Not yet inserted into an elevator: in a plug, or to be issued at once.
    Got,
    Inserted,
    Dispatched,
    /// A bio at the driver of a device without a request queue.
    Direct,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    start: u64,
    sectors: u64,
    op: Op,
    is_fua: bool,
    stream: Stream,
    state: State,
    /// Its bios, from the first to the last that was added; [`NONE`] if none is known.
    first: u32,
    last: u32,
}

impl Request {
    const fn end(&self) -> u64 {
        self.start.saturating_add(self.sectors)
    }
}

/// How often the joiner found no subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct JoinCounts {
    /// Completions of requests and bios that were queued before the recording, or whose start was lost.
    pub unknown_completions: u64,
    /// Completions of a part of a request.
    pub partial_completions: u64,
    /// Issues and completions of commands without sectors, such as those of drivers.
    pub commands: u64,
    /// Bios and requests whose end the joiner did not see, because events were lost or too many were in flight.
    pub forgotten: u64,
}

/// The queue of one device.
#[derive(Debug)]
pub(super) struct Queue {
    /// Its number in the log.
    pub(super) number: u16,
    log: StepLog,
    /// Whether the device has a request queue. Otherwise its driver takes bios.
    has_requests: bool,
    /// Whether the device executes forced unit access. Otherwise the kernel flushes it after the write.
    has_fua: bool,
    bios: Slab<Bio>,
    requests: Slab<Request>,
    /// Bios without a request, by their first sector.
    waiting: Index,
    /// Requests before their issue, by their first sector and by the sector after their last one.
    queued: Index,
    queued_by_end: Index,
    /// Requests at the device, by their first sector.
    dispatched: Index,
    /// Bios at the driver of a device without requests, by the sector after their last one: a driver may advance their
    /// start.
    direct: Index,
    /// Flushes that wait for the device, and flushes at the device, in order.
    flushes: VecDeque<u32>,
    device_flushes: VecDeque<u32>,
    /// Writes whose request has completed, and whose flush may not have.
    late: VecDeque<u32>,
    /// Bios of devices above that have completed.
    pub(super) above: Vec<Above>,
    pub(super) counts: JoinCounts,
}

impl Queue {
    pub(super) fn new(number: u16, log: StepLog, has_requests: bool, has_fua: bool) -> Self {
        Self {
            number,
            log,
            has_requests,
            has_fua,
            bios: Slab::default(),
            requests: Slab::default(),
            waiting: Index::default(),
            queued: Index::default(),
            queued_by_end: Index::default(),
            dispatched: Index::default(),
            direct: Index::default(),
            flushes: VecDeque::new(),
            device_flushes: VecDeque::new(),
            late: VecDeque::new(),
            above: Vec::new(),
            counts: JoinCounts::default(),
        }
    }

    /// Passes the pending records to the sink.
    pub(super) fn flush_log(&mut self) {
        self.log.flush();
    }

    /// Requests with sectors that were issued and have not completed.
    pub(super) const fn at_device(&self) -> usize {
        self.dispatched.len()
    }

    /// Events were lost: all that is in flight is unknown.
    pub(super) fn forget(&mut self, lost: u64, now: Instant) {
        self.counts.forgotten += (self.bios.len() + self.requests.len()) as u64;
        self.bios.clear();
        self.requests.clear();
        let Self { waiting, queued, queued_by_end, dispatched, direct, .. } = self;
        for index in [waiting, queued, queued_by_end, dispatched, direct] {
            index.clear();
        }
        self.flushes.clear();
        self.device_flushes.clear();
        self.late.clear();
        self.log.record_missed(lost, now);
    }

    /// A bio was queued. `above` is the bio of another device that it was, with the number of its queue.
    pub(super) fn queue(
        &mut self,
        io: KernelIo,
        stream: Stream,
        remapped: Option<Above>,
        now: Instant,
    ) -> Option<u32> {
        let op = if io.is_flush() { Op::Flush } else { io.op? };
        self.make_room(now);
        let bio = Bio {
            start: io.sector,
            sectors: io.sectors.into(),
            op,
            is_fua: io.is_fua,
            stream,
            whole: NONE,
            left: 0,
            is_split: false,
            is_rest: false,
            ends_late: io.sectors > 0 && (io.is_preflush || io.is_fua && !self.has_fua),
            next: NONE,
            above: None,
        };
        let slot = self.bios.insert(bio);
        if self.has_requests {
            self.log.record(&of_bio(Event::Queue, slot, &bio), now);
            self.waiting.insert(bio.start, slot);
        } else {
            let request = Request { state: State::Direct, ..self.request_of(slot) };
            let number = self.requests.insert(request);
            self.direct.insert(request.end(), number);
            self.log.record_at_once(&of_request(Event::Dispatch, number, &request).with_other(slot), now);
        }
        if let Some(Above { number, io: from, .. }) = remapped {
            let step = of_bio(Event::Remap, slot, &bio).with_other(number.into());
            self.log.record(&Step { extent: extent(from.sector, from.sectors.into()), ..step }, now);
        }
        Some(slot)
    }

    /// A bio of a device above became a bio of this one, without an event of its own: `above` ends with it.
    pub(super) fn end_above(&mut self, bio: u32, above: Above) {
        self.bios[bio].above = Some(above);
    }

    /// Whether a bio waits that this event may be about.
    pub(super) fn has_waiting(&self, io: &KernelIo) -> bool {
        self.find_waiting(io).is_some()
    }

    /// Whether a request with this range, or a flush, waits for its issue.
    pub(super) fn has_queued(&self, io: &KernelIo) -> bool {
        if io.is_flush() { !self.flushes.is_empty() } else { self.find_queued(io).is_some() }
    }

    /// A bio was split at `new_sector`. The rest is queued again, and may be split again.
    pub(super) fn split(&mut self, sector: u64, new_sector: u64, now: Instant) {
        if !self.has_requests {
            // The driver has the whole bio.
            return;
        }
        let contains = |slot: &u32| {
            let Bio { start, sectors, .. } = self.bios[*slot];
            start < new_sector && new_sector < start.saturating_add(sectors)
        };
        let Some(slot) = self.waiting.of(sector).find(contains) else { return };
        let bio = self.bios[slot];
        let first = new_sector - sector;
        let whole = if bio.is_rest { bio.whole } else { slot };
        let piece = Bio { sectors: first, whole, is_rest: false, ..bio };
        let rest = Bio { start: new_sector, sectors: bio.sectors - first, whole, is_rest: true, ..bio };
        self.waiting.remove(sector, slot);
        let number = self.bios.insert(piece);
        self.log.record(&of_bio(Event::Split, number, &piece).with_other(whole), now);
        self.waiting.insert(sector, number);
        if bio.is_rest {
            self.bios[slot] = rest;
            self.waiting.insert(new_sector, slot);
        } else {
            self.bios[slot].is_split = true;
            self.bios[slot].left = bio.sectors;
            let number = self.bios.insert(rest);
            self.waiting.insert(new_sector, number);
        }
    }

    /// A request was created for a bio. Returns its number.
    pub(super) fn get(&mut self, io: KernelIo, stream: Stream, now: Instant) -> Option<u32> {
        self.make_room(now);
        let bio = self.take_waiting(&io, now);
        if let Some(slot) = bio
            && self.bios[slot].op == Op::Flush
        {
            self.log.record(&of_bio(Event::Flush, slot, &self.bios[slot]), now);
            self.flushes.push_back(slot);
            return None;
        }
        let request = match bio {
            Some(slot) => self.request_of(slot),
            None => Self::request_without_bio(&io, stream)?,
        };
        let number = self.add_queued(request);
        let other = bio.unwrap_or(Record::NO_TAG);
        self.log.record(&of_request(Event::Get, number, &request).with_other(other), now);
        Some(number)
    }

    /// A plug has its first request.
    pub(super) fn plug(&mut self, number: u32, now: Instant) {
        // The request may be forgotten.
        if let Some(request) = self.requests.get(number) {
            self.log.record(&of_request(Event::Plug, number, request), now);
        }
    }

    /// A plug was emptied of `requests` requests.
    pub(super) fn unplug(&mut self, requests: u32, now: Instant) {
        self.log.record(&Step::new(Event::Unplug, Subject::Queue).with_other(requests), now);
    }

    /// A bio was merged into a queued request.
    pub(super) fn merge(&mut self, event: Event, io: KernelIo, now: Instant) {
        let Some(slot) = self.take_waiting(&io, now) else { return };
        let bio = self.bios[slot];
        let (index, sector) = if event == Event::BackMerge {
            (&self.queued_by_end, bio.start)
        } else {
            (&self.queued, bio.start.saturating_add(bio.sectors))
        };
        let joined = index.of(sector).find(|number| self.requests[*number].op == bio.op);
        let step = of_bio(event, slot, &bio).with_other(joined.unwrap_or(Record::NO_TAG));
        self.log.record(&step, now);
        let Some(number) = joined else {
            // The request is older than the recording.
            self.bios.remove(slot);
            return;
        };
        let request = self.requests[number];
        let sectors = request.sectors.saturating_add(bio.sectors);
        self.move_queued(number, request.start.min(bio.start), sectors);
        self.append_bios(number, slot, slot);
    }

    /// A queued request was merged into the one before it.
    pub(super) fn merge_request(&mut self, io: KernelIo, now: Instant) {
        let Some(number) = self.find_queued(&io) else { return };
        let request = self.requests[number];
        let is_survivor = |other: &u32| *other != number && self.requests[*other].op == request.op;
        let joined = self.queued_by_end.of(request.start).find(is_survivor);
        let step = of_request(Event::BackMerge, number, &request);
        self.log.record(&step.with_other(joined.unwrap_or(Record::NO_TAG)), now);
        self.remove_queued(number);
        self.requests.remove(number);
        if let Some(joined) = joined {
            let survivor = self.requests[joined];
            self.move_queued(joined, survivor.start, survivor.sectors.saturating_add(request.sectors));
            if request.first != NONE {
                self.append_bios(joined, request.first, request.last);
            }
        } else {
            self.drop_bios(request.first);
        }
    }

    /// A request was inserted into the elevator.
    pub(super) fn insert(&mut self, io: KernelIo, stream: Stream, now: Instant) {
        if io.is_flush() {
            return;
        }
        self.make_room(now);
        let Some(number) = self.find_or_add(&io, stream) else { return };
        self.requests[number].state = State::Inserted;
        let step = of_request(Event::Insert, number, &self.requests[number]);
        self.log.record(&Step { reason: self.reason(number), ..step }, now);
    }

    /// A request was issued to the driver.
    pub(super) fn issue(&mut self, io: KernelIo, stream: Stream, now: Instant) {
        self.make_room(now);
        if io.sectors == 0 {
            if !io.is_flush() {
                self.counts.commands += 1;
                return;
            }
            let request = Request {
                start: 0,
                sectors: 0,
                op: Op::Flush,
                is_fua: false,
                stream,
                state: State::Dispatched,
                first: NONE,
                last: NONE,
            };
            let number = self.requests.insert(request);
            self.log.record(&of_request(Event::Dispatch, number, &request), now);
            self.device_flushes.push_back(number);
            return;
        }
        let Some(number) = self.find_or_add(&io, stream) else { return };
        let reason = self.reason(number);
        self.remove_queued(number);
        let request = &mut self.requests[number];
        let was_inserted = request.state == State::Inserted;
        request.state = State::Dispatched;
        // The event states the range; a merge of a bio may have been lost.
        request.sectors = io.sectors.into();
        let step = of_request(Event::Dispatch, number, request);
        self.dispatched.insert(request.start, number);
        if was_inserted {
            self.log.record(&step, now);
        } else {
            self.log.record_direct(&Step { reason, ..step }, now);
        }
    }

    /// The driver had no room for a request.
    pub(super) fn requeue(&mut self, io: KernelIo, now: Instant) {
        let Some(number) = self.find_dispatched(&io) else { return };
        let request = &mut self.requests[number];
        request.state = State::Inserted;
        let request = *request;
        self.dispatched.remove(request.start, number);
        self.queued.insert(request.start, number);
        self.queued_by_end.insert(request.end(), number);
        self.log.record(&of_request(Event::Requeue, number, &request), now);
    }

    /// Forgets all that is in flight if it is too much.
    fn make_room(&mut self, now: Instant) {
        if self.bios.len().max(self.requests.len()) >= IN_FLIGHT_MAX {
            self.forget(0, now);
        }
    }

    /// Why a request that is about to be inserted was not merged, as far as the waiting requests prove it.
    fn reason(&self, number: u32) -> Option<NoMerge> {
        let request = &self.requests[number];
        let adjacent = self.queued_by_end.of(request.start).chain(self.queued.of(request.end()));
        let mut others = adjacent.filter(|other| *other != number).peekable();
        if others.peek().is_none() {
            return Some(NoMerge::NotAdjacent);
        }
        others.all(|other| self.requests[other].op != request.op).then_some(NoMerge::Direction)
    }

    fn find_waiting(&self, io: &KernelIo) -> Option<u32> {
        let is_it = |slot: &u32| {
            let bio = &self.bios[*slot];
            bio.sectors == u64::from(io.sectors) && (io.op == Some(bio.op) || bio.op == Op::Flush)
        };
        self.waiting.of(io.sector).find(is_it)
    }

    /// Removes the bio that this event is about from the waiting ones. A rest of a split bio becomes a piece.
    fn take_waiting(&mut self, io: &KernelIo, now: Instant) -> Option<u32> {
        let slot = self.find_waiting(io)?;
        let bio = &mut self.bios[slot];
        let was_rest = std::mem::take(&mut bio.is_rest);
        let bio = *bio;
        self.waiting.remove(bio.start, slot);
        if was_rest {
            self.log.record(&of_bio(Event::Split, slot, &bio).with_other(bio.whole), now);
        }
        Some(slot)
    }

    fn request_of(&self, slot: u32) -> Request {
        let Bio { start, sectors, op, is_fua, stream, .. } = self.bios[slot];
        Request { start, sectors, op, is_fua, stream, state: State::Got, first: slot, last: slot }
    }

    fn request_without_bio(io: &KernelIo, stream: Stream) -> Option<Request> {
        Some(Request {
            start: io.sector,
            sectors: io.sectors.into(),
            op: io.op?,
            is_fua: io.is_fua,
            stream,
            state: State::Got,
            first: NONE,
            last: NONE,
        })
    }

    fn add_queued(&mut self, request: Request) -> u32 {
        let number = self.requests.insert(request);
        self.queued.insert(request.start, number);
        self.queued_by_end.insert(request.end(), number);
        number
    }

    fn remove_queued(&mut self, number: u32) {
        let Request { start, .. } = self.requests[number];
        self.queued.remove(start, number);
        self.queued_by_end.remove(self.requests[number].end(), number);
    }

    /// Changes the range of a queued request.
    fn move_queued(&mut self, number: u32, start: u64, sectors: u64) {
        self.remove_queued(number);
        self.requests[number].start = start;
        self.requests[number].sectors = sectors;
        self.queued.insert(start, number);
        self.queued_by_end.insert(self.requests[number].end(), number);
    }

    /// The queued request of this range, or one whose start has no other candidate.
    fn find_queued(&self, io: &KernelIo) -> Option<u32> {
        self.find(&self.queued, io).next()
    }

    /// Of equal requests the one that was issued last: an earlier one may have completed without an event.
    fn find_dispatched(&self, io: &KernelIo) -> Option<u32> {
        self.find(&self.dispatched, io).last()
    }

    /// The requests of that start and operation: those of the same length if there are any, the oldest first.
    fn find(&self, index: &Index, io: &KernelIo) -> impl Iterator<Item = u32> {
        let is_op = |number: &u32| io.op == Some(self.requests[*number].op);
        let is_equal = |number: &u32| self.requests[*number].sectors == u64::from(io.sectors);
        let has_equal = index.of(io.sector).filter(is_op).any(|number| is_equal(&number));
        index.of(io.sector).filter(is_op).filter(move |number| !has_equal || is_equal(number))
    }

    /// The queued request, or a new one whose earlier events are not in the recording.
    fn find_or_add(&mut self, io: &KernelIo, stream: Stream) -> Option<u32> {
        match self.find_queued(io) {
            Some(number) => Some(number),
            None => Some(self.add_queued(Self::request_without_bio(io, stream)?)),
        }
    }

    /// Adds a list of bios to a request.
    fn append_bios(&mut self, number: u32, first: u32, last: u32) {
        let request = &mut self.requests[number];
        if request.first == NONE {
            request.first = first;
        } else {
            self.bios[request.last].next = first;
        }
        self.requests[number].last = last;
        self.bios[last].next = NONE;
    }

    fn drop_bios(&mut self, first: u32) {
        let mut slot = first;
        while slot != NONE {
            self.bios.remove(slot);
            slot = self.bios[slot].next;
        }
    }
}

fn extent(start: u64, sectors: u64) -> Extent {
    Extent::new(Sector(start), sectors).unwrap_or_else(|| {
        let start = start.min(Sector::MAX.0);
        Extent::new(Sector(start), sectors.min(Sector::MAX.0 - start)).unwrap_or_default()
    })
}

fn of_bio(event: Event, slot: u32, bio: &Bio) -> Step {
    let Bio { start, sectors, op, is_fua, stream, .. } = *bio;
    Step { op, extent: extent(start, sectors), stream, is_fua, ..Step::new(event, Subject::Bio(slot)) }
}

fn of_request(event: Event, number: u32, request: &Request) -> Step {
    let Request { start, sectors, op, is_fua, stream, .. } = *request;
    Step { op, extent: extent(start, sectors), stream, is_fua, ..Step::new(event, Subject::Request(number)) }
}
