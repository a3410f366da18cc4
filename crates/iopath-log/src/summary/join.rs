//! Joins the records of each bio and request of one queue. What comes of it is counted in `Tallies`.

use super::Tallies;
use super::slots::{Budget, Slots, UNKNOWN};
use super::stages::Stage;
use iopath_core::log::Event;
use iopath_core::{NoMerge, Op, Record};

/// A bio in flight, or a piece of one.
#[derive(Debug, Clone, Copy)]
struct Bio {
    queued_ns: u64,
    /// The request it is in, or [`CUT`] if it is in pieces.
    request: u32,
}

/// In place of a request: a bio that has been cut. No request has this number.
const CUT: u32 = u32::MAX;

impl Default for Bio {
    fn default() -> Self {
        Self { queued_ns: UNKNOWN, request: Record::NO_TAG }
    }
}

/// A request in flight, or over a moment ago.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// When it last became something else: got its slot, was inserted.
    since_ns: u64,
    dispatched_ns: u64,
    over_ns: u64,
    bio: u32,
    /// Whether it has been at the device before.
    was_dispatched: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            since_ns: UNKNOWN,
            dispatched_ns: UNKNOWN,
            over_ns: UNKNOWN,
            bio: Record::NO_TAG,
            was_dispatched: false,
        }
    }
}

/// What is in flight in one queue.
#[derive(Debug, Default)]
pub(super) struct Join {
    queue: u16,
    bios: Slots<Bio>,
    requests: Slots<Request>,
    in_flight: u32,
    /// When `in_flight` last changed.
    changed_ns: u64,
    head: super::seeks::Head,
}

impl Join {
    /// Of the queue of that number.
    pub(super) fn new(queue: u16) -> Self {
        Self { queue, ..Self::default() }
    }

    /// Records are missing: what was in flight is not known any more.
    pub(super) fn forget(&mut self) {
        self.bios.forget();
        self.requests.forget();
        self.in_flight = 0;
    }

    pub(super) fn finish(&mut self, tallies: &mut Tallies) {
        self.head.settle(&mut tallies.seeks);
    }

    #[inline]
    pub(super) fn follow(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        tallies.steps[usize::from(record.event_code())] += 1;
        let Some(event) = record.event() else { return };
        match event {
            Event::Queue => self.queued(record.tag(), record, now, budget, tallies),
            Event::Split => self.split(record, budget, tallies),
            Event::Get => self.get(record, now, budget, tallies),
            Event::BackMerge | Event::FrontMerge if record.is_request() => tallies.requests_joined += 1,
            Event::BackMerge | Event::FrontMerge => {
                self.bios.update(record.tag(), |bio| bio.request = record.other());
            }
            Event::NoMerge => tallies.refused[usize::from(record.reason_code())] += 1,
            Event::Insert => self.insert(record, now, budget, tallies),
            Event::SlotWait => note_not_adjacent(record, tallies),
            Event::Missed => self.forget(),
            Event::Elevator => tallies.elevators.note(record, self.queue, now),
            Event::Unplug => tallies.unplugged += u64::from(record.other()),
            Event::Dispatch => self.dispatch(record, now, budget, tallies),
            Event::Requeue => self.requeue(record, now, tallies),
            Event::Complete if record.is_request() => self.complete_request(record, now, tallies),
            Event::Complete => self.complete_bio(record.tag(), record, now, tallies),
            _ => {}
        }
    }

    fn queued(&mut self, bio: u32, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        tallies.sizes.add_bio(record);
        tallies.streams.queued(record, now);
        self.bios.set(bio, Bio { queued_ns: now, ..Bio::default() }, budget);
    }

    fn split(&mut self, record: Record, budget: &mut Budget, tallies: &mut Tallies) {
        let whole = self.bios.get(record.other());
        if whole.request != CUT {
            tallies.bios_split += 1;
            self.bios.update(record.other(), |bio| bio.request = CUT);
        }
        self.bios.set(record.tag(), Bio { queued_ns: whole.queued_ns, ..Bio::default() }, budget);
    }

    fn get(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_both() {
            tallies.steps[usize::from(Event::Queue.code())] += 1;
            self.queued(record.other(), record, now, budget, tallies);
        }
        self.got(record, now, budget, tallies);
    }

    fn got(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        let bio = record.other();
        tallies.stages.add(Stage::Q2g, self.bios.get(bio).queued_ns, now);
        self.bios.update(bio, |bio| bio.request = record.tag());
        self.requests.set(record.tag(), Request { since_ns: now, bio, ..Request::default() }, budget);
    }

    fn insert(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_first() {
            tallies.steps[usize::from(Event::Queue.code())] += 1;
            tallies.steps[usize::from(Event::Get.code())] += 1;
            self.queued(record.other(), record, now, budget, tallies);
            self.got(record, now, budget, tallies);
        }
        note_not_adjacent(record, tallies);
        self.requests.update(record.tag(), |request| {
            tallies.stages.add(Stage::G2i, request.since_ns, now);
            request.since_ns = now;
        });
    }

    fn dispatch(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_both() {
            tallies.steps[usize::from(Event::Insert.code())] += 1;
            self.insert(record, now, budget, tallies);
        }
        self.change_depth(now, tallies, |depth| depth.saturating_add(1));
        tallies.sizes.add_request(record);
        self.head.dispatch(record, &mut tallies.seeks);
        let mut request = self.requests.get(record.tag());
        // A flush has a slot of its own, and neither `Get` nor `Insert`.
        if !request.was_dispatched && record.op() != Some(Op::Flush) {
            tallies.stages.add(Stage::I2d, request.since_ns, now);
        }
        request.dispatched_ns = now;
        request.was_dispatched = true;
        self.requests.set(record.tag(), request, budget);
    }

    fn requeue(&mut self, record: Record, now: u64, tallies: &mut Tallies) {
        tallies.sizes.remove_request(record);
        self.head.take_back(record);
        let was_known = self.requests.get(record.tag()).dispatched_ns != UNKNOWN;
        self.requests.update(record.tag(), |request| request.dispatched_ns = UNKNOWN);
        if was_known {
            self.change_depth(now, tallies, |depth| depth.saturating_sub(1));
        }
    }

    fn complete_request(&mut self, record: Record, now: u64, tallies: &mut Tallies) {
        let request = self.requests.get(record.tag());
        if request.dispatched_ns != UNKNOWN {
            self.change_depth(now, tallies, |depth| depth.saturating_sub(1));
            tallies.stages.add(Stage::D2c, request.dispatched_ns, now);
        }
        self.requests.update(record.tag(), |request| {
            *request = Request { over_ns: now, dispatched_ns: request.dispatched_ns, ..Request::default() };
        });
        if record.is_last() {
            self.complete_bio(request.bio, record, now, tallies);
        }
    }

    fn complete_bio(&mut self, number: u32, record: Record, now: u64, tallies: &mut Tallies) {
        let bio = self.bios.get(number);
        self.bios.update(number, |bio| *bio = Bio::default());
        tallies.note_errno(record.other());
        if bio.queued_ns == UNKNOWN {
            tallies.unjoined += 1;
            tallies.streams.completed(record, None, now);
            return;
        }
        let q2c_ns = now.saturating_sub(bio.queued_ns);
        tallies.stages.add(Stage::Q2c, bio.queued_ns, now);
        tallies.streams.completed(record, Some(q2c_ns), now);
        if tallies.slowest.is_among(q2c_ns) {
            tallies.slowest.insert(record, bio.queued_ns, q2c_ns, self.d2c_ns(bio, now));
        }
    }

    /// How long the request that a bio went with was at the device, if that is still known.
    fn d2c_ns(&self, bio: Bio, now: u64) -> Option<u64> {
        let request = self.requests.get(bio.request);
        let is_its_own = request.over_ns == now && request.dispatched_ns != UNKNOWN;
        is_its_own.then(|| now.saturating_sub(request.dispatched_ns))
    }

    fn change_depth(&mut self, now: u64, tallies: &mut Tallies, change: impl FnOnce(u32) -> u32) {
        tallies.depth.add(self.changed_ns, now, self.in_flight);
        self.in_flight = change(self.in_flight);
        self.changed_ns = now;
    }
}

/// Other reasons have a record of their own.
fn note_not_adjacent(record: Record, tallies: &mut Tallies) {
    const NOT_ADJACENT: u8 = NoMerge::NotAdjacent.code();
    tallies.refused[usize::from(NOT_ADJACENT)] += u64::from(record.reason_code() == NOT_ADJACENT);
}
