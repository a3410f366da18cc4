//! Follows each bio and request of one queue through its records. The counters are in `tallies.rs`.

use super::accesses::InFlight;
use super::report::Slow;
use super::slots::{Budget, Slots, UNKNOWN};
use super::stages::Stage;
use super::tallies::Tallies;
use super::timeline::EventNumber;
use crate::names::op_name;
use iopath_core::log::Event;
use iopath_core::{NoMerge, Op, Record};

/// A bio in flight, or a piece of one.
#[derive(Debug, Clone, Copy)]
struct Bio {
    queued_ns: u64,
    /// The request that contains it, if it is placed.
    request: u32,
    state: BioState,
    is_piece: bool,
    /// The code of the last reason not to merge it, 0 for none.
    refused: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BioState {
    /// The log has no `queue` or `split` of the bio.
    Unknown,
    /// The bio has no request yet.
    Waiting,
    /// The bio is in a request.
    Placed,
    /// The queue split the bio into pieces.
    Split,
}

impl Default for Bio {
    fn default() -> Self {
        Self {
            queued_ns: UNKNOWN,
            request: Record::NO_TAG,
            state: BioState::Unknown,
            is_piece: false,
            refused: 0,
        }
    }
}

impl Bio {
    fn place(&mut self, request: u32) {
        self.state = BioState::Placed;
        self.request = request;
    }
}

/// A request in flight, or one that has just completed.
#[derive(Debug, Clone, Copy)]
struct Request {
    /// The start of its current stage: the time of its `get` or `insert`. For a completed request, the time of its
    /// `dispatch`.
    since_ns: u64,
    dispatched_ns: u64,
    completed_ns: u64,
    dispatch: EventNumber,
    /// The bio or piece that it was created for.
    bio: u32,
    /// The code of the last reason not to merge it, 0 for none.
    refused: u8,
    /// Whether it has been dispatched before.
    was_dispatched: bool,
}

impl Default for Request {
    fn default() -> Self {
        Self {
            since_ns: UNKNOWN,
            dispatched_ns: UNKNOWN,
            completed_ns: UNKNOWN,
            dispatch: 0,
            bio: Record::NO_TAG,
            refused: 0,
            was_dispatched: false,
        }
    }
}

impl Request {
    /// Resets the state of a slot whose request has completed: the slot has a new request.
    #[inline]
    fn begin_again(&mut self) {
        if self.completed_ns != UNKNOWN {
            *self = Self::default();
        }
    }
}

/// Bios and requests in flight in one queue.
#[derive(Debug, Default)]
pub(super) struct Join {
    queue: u16,
    bios: Slots<Bio>,
    requests: Slots<Request>,
    accesses: InFlight,
    /// Whether it has recorded a step of a bio, a request or itself.
    has_steps: bool,
}

impl Join {
    /// Joins the steps of the queue with this number.
    pub(super) fn new(queue: u16) -> Self {
        Self { queue, ..Self::default() }
    }

    /// Whether it is a queue, else a caller of accesses.
    pub(super) const fn is_queue(&self) -> bool {
        self.has_steps || !self.accesses.is_used
    }

    /// Records are missing: the bios and requests in flight are unknown.
    pub(super) fn forget(&mut self, now: u64, tallies: &mut Tallies) {
        if let Some(devices) = &mut tallies.devices {
            let dispatched = self.requests.states().map(|request| request.dispatched_ns);
            devices.forget(self.queue, dispatched.filter(|ns| *ns != UNKNOWN), now);
        }
        self.bios.forget();
        self.requests.forget();
        self.accesses.forget();
        tallies.timeline.gap(self.queue, now);
    }

    #[inline]
    pub(super) fn follow(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        let mut record = record;
        if record.is_alone() {
            tallies.count_step(Event::Plug.code());
            tallies.count_step(Event::Unplug.code());
            tallies.unplugged += 1;
            record = record.without_plug();
        }
        tallies.count_step(record.event_code());
        let Some(event) = record.event() else { return };
        if matches!(event, Event::Access | Event::AccessEnd) {
            return self.accesses.follow(event, record, now, budget, &mut tallies.accesses);
        }
        self.has_steps |= !matches!(event, Event::Clock | Event::Missed);
        match event {
            Event::Queue => self.queued(record.tag(), record, now, budget, tallies),
            Event::Split => self.split(record, budget, tallies),
            Event::Get => self.get(record, now, budget, tallies),
            Event::BackMerge | Event::FrontMerge if record.is_request() => {
                tallies.flow.requests_joined += 1;
            }
            Event::BackMerge | Event::FrontMerge => self.merge(record, tallies),
            Event::NoMerge => self.refuse(record, tallies),
            Event::Insert => self.insert(record, now, budget, tallies),
            Event::SlotWait => self.wait_for_slot(record, tallies),
            Event::Missed => self.forget(now, tallies),
            Event::Elevator => tallies.elevators.note(record, self.queue, now),
            Event::Remap => {
                if let Some(devices) = &mut tallies.devices {
                    devices.remapped(record);
                }
            }
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
        if let Some(devices) = &mut tallies.devices {
            devices.queued(self.queue, record);
        }
        // A flush gets no request of its own.
        let state = if record.op() == Some(Op::Flush) { BioState::Placed } else { BioState::Waiting };
        self.bios.set(bio, Bio { queued_ns: now, state, ..Bio::default() }, budget);
    }

    fn split(&mut self, record: Record, budget: &mut Budget, tallies: &mut Tallies) {
        let whole = self.bios.get(record.other());
        if whole.state == BioState::Waiting && !whole.is_piece {
            tallies.flow.split += 1;
            self.bios.update(record.other(), |bio| bio.state = BioState::Split);
        }
        tallies.flow.pieces += 1;
        let piece =
            Bio { queued_ns: whole.queued_ns, state: BioState::Waiting, is_piece: true, ..Bio::default() };
        self.bios.set(record.tag(), piece, budget);
    }

    /// A bio without a slot waits. A piece without a slot is discarded, and split again later.
    fn wait_for_slot(&mut self, record: Record, tallies: &mut Tallies) {
        let bio = self.bios.get(record.tag());
        if bio.is_piece && bio.state == BioState::Waiting {
            tallies.flow.pieces -= 1;
            self.bios.update(record.tag(), |bio| *bio = Bio::default());
        } else {
            self.bios.update(record.tag(), |bio| bio.refused = 0);
        }
    }

    fn merge(&mut self, record: Record, tallies: &mut Tallies) {
        let bio = self.bios.get(record.tag());
        if bio.state == BioState::Waiting {
            let flow = &mut tallies.flow;
            let merged = if bio.is_piece { &mut flow.pieces_merged } else { &mut flow.merged };
            *merged += 1;
        }
        self.bios.update(record.tag(), |bio| bio.place(record.other()));
    }

    fn refuse(&mut self, record: Record, tallies: &mut Tallies) {
        let reason = record.reason_code();
        tallies.merges_refused.add(reason);
        if record.is_request() {
            self.requests.update(record.tag(), |request| request.refused = reason);
        } else {
            self.bios.update(record.tag(), |bio| bio.refused = reason);
        }
    }

    fn get(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_both() {
            tallies.count_step(Event::Queue.code());
            self.queued(record.other(), record, now, budget, tallies);
        }
        self.got(record, now, budget, tallies);
    }

    fn got(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        let number = record.other();
        let mut refused = 0;
        if let Some(bio) = self.bios.find(number) {
            let flow = &mut tallies.flow;
            match bio.state {
                BioState::Waiting => {
                    let own = if bio.is_piece { &mut flow.pieces_own_request } else { &mut flow.own_request };
                    *own += 1;
                    tallies.stages.add(Stage::Q2g, bio.queued_ns, now);
                }
                BioState::Placed => flow.retried += 1,
                BioState::Unknown | BioState::Split => {}
            }
            refused = bio.refused;
            bio.place(record.tag());
        }
        let request = Request { since_ns: now, bio: number, refused, ..Request::default() };
        self.requests.set(record.tag(), request, budget);
    }

    fn insert(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_first() {
            tallies.count_step(Event::Queue.code());
            tallies.count_step(Event::Get.code());
            self.queued(record.other(), record, now, budget, tallies);
            self.got(record, now, budget, tallies);
        }
        let mut reason = record.reason_code();
        self.requests.update(record.tag(), |request| {
            request.begin_again();
            // The elevator had no adjacent request, but the plug may have had one.
            if reason == NOT_ADJACENT && request.refused != 0 {
                reason = request.refused;
            }
            tallies.stages.add(Stage::G2i, request.since_ns, now);
            request.since_ns = now;
        });
        tallies.not_merged.add(reason);
    }

    fn dispatch(&mut self, record: Record, now: u64, budget: &mut Budget, tallies: &mut Tallies) {
        if record.is_both() {
            tallies.count_step(Event::Insert.code());
            self.insert(record, now, budget, tallies);
        }
        tallies.sizes.add_request(record);
        let dispatch = tallies.timeline.dispatch(self.queue, record, now);
        if let Some(devices) = &mut tallies.devices {
            devices.dispatched(self.queue, record, now);
        }
        let Some(request) = self.requests.entry(record.tag(), budget) else { return };
        request.begin_again();
        // A flush has a slot of its own, and neither `Get` nor `Insert`.
        if !request.was_dispatched && record.op() != Some(Op::Flush) {
            tallies.stages.add(Stage::I2d, request.since_ns, now);
        }
        request.dispatch = dispatch;
        request.dispatched_ns = now;
        request.was_dispatched = true;
    }

    fn requeue(&mut self, record: Record, now: u64, tallies: &mut Tallies) {
        let request = self.requests.get(record.tag());
        if request.dispatched_ns != UNKNOWN {
            tallies.sizes.remove_request(record);
            tallies.timeline.cancel(request.dispatch, self.queue, now);
            if let Some(devices) = &mut tallies.devices {
                devices.requeued(self.queue, record, now);
            }
        }
        self.requests.update(record.tag(), |request| request.dispatched_ns = UNKNOWN);
    }

    fn complete_request(&mut self, record: Record, now: u64, tallies: &mut Tallies) {
        let mut bio = Record::NO_TAG;
        if let Some(request) = self.requests.find(record.tag()) {
            if request.dispatched_ns != UNKNOWN {
                tallies.timeline.complete(self.queue, now);
                if let Some(devices) = &mut tallies.devices {
                    devices.completed(self.queue, request.dispatched_ns, now);
                }
                tallies.stages.add(Stage::D2c, request.dispatched_ns, now);
            }
            bio = request.bio;
            let since_ns = request.dispatched_ns;
            *request = Request { completed_ns: now, since_ns, ..Request::default() };
        }
        if record.is_last() {
            self.complete_bio(bio, record, now, tallies);
        }
    }

    fn complete_bio(&mut self, number: u32, record: Record, now: u64, tallies: &mut Tallies) {
        let bio = self.bios.find(number).map(std::mem::take).unwrap_or_default();
        tallies.note_errno(record.other());
        let q2c_ns = (bio.queued_ns != UNKNOWN).then(|| now.saturating_sub(bio.queued_ns));
        tallies.streams.completed(record, q2c_ns, now);
        tallies.repeats.completed(record, q2c_ns, now);
        let Some(q2c_ns) = q2c_ns else {
            tallies.unjoined += 1;
            return;
        };
        tallies.stages.add(Stage::Q2c, bio.queued_ns, now);
        if tallies.slowest.is_among(q2c_ns) {
            tallies.slowest.insert(Slow {
                bios: 1,
                queued_ns: bio.queued_ns,
                q2c_ns,
                d2c_ns: self.d2c_ns(bio, now),
                queue: self.queue,
                stream: record.stream().0,
                op: record.op().map_or("unknown", op_name),
                sector: record.sector(),
                sectors: record.sectors(),
                errno: record.other(),
            });
        }
    }

    /// The time that the request of a bio was at the device, if it is still known.
    fn d2c_ns(&self, bio: Bio, now: u64) -> Option<u64> {
        let request = self.requests.get(bio.request);
        let is_its_own =
            bio.state == BioState::Placed && request.completed_ns == now && request.since_ns != UNKNOWN;
        is_its_own.then(|| now.saturating_sub(request.since_ns))
    }
}

const NOT_ADJACENT: u8 = NoMerge::NotAdjacent.code();
