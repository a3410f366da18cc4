//! The request queue: what a bio passes between its submitter and the device. The state machine and its
//! face; each stage is a file of its own: `order`, `split`, `plug`, `merge`, `flush`, `complete`; `log` tells of each;
//! `tune` changes the elevator.

mod complete;
mod flush;
mod log;
mod merge;
mod order;
mod plug;
mod refusal;
mod split;
mod tune;

use crate::block::bio::{Bio, BioDone, Op};
use crate::block::device::Io;
use crate::block::elevator::{Elevator, ElevatorSpec};
use crate::block::limits::Limits;
use crate::block::log::{Event, Log, Subject};
use crate::block::merge::NoMerge;
use crate::block::request::{Chain, NONE, State, Tag};
use crate::block::table::{BioTable, RequestTable};
use crate::error::IoError;
use crate::memory::Memory;
use crate::time::{Duration, Instant};
use flush::Flush;
use order::Order;
use plug::Plug;
pub use refusal::SubmitError;
use std::collections::VecDeque;

/// How large a queue is and which elevator orders it. Memory is taken for all of it at once.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Bios that may be submitted and not yet collected with [`RequestQueue::poll_completion`].
    pub bios_max: u32,
    /// Request slots: what waits in plug and elevator or is at the device.
    pub requests_max: u32,
    /// Requests at the device at once; the device's own limit applies, too.
    pub depth: u32,
    /// A plug that holds this many requests is emptied before it takes another.
    pub plug_requests_max: u32,
    /// The elevator and its settings.
    pub elevator: ElevatorSpec,
}

impl QueueConfig {
    /// The most bios and the most request slots of a queue; numbers above are taken for this one. A queue takes the
    /// memory for its slots when it is made.
    pub const SLOTS_MAX: u32 = 1 << 22;
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            bios_max: 1024,
            requests_max: 256,
            depth: 64,
            plug_requests_max: 32,
            elevator: ElevatorSpec::default(),
        }
    }
}

/// What a queue has done since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueStats {
    /// Bios taken.
    pub bios: u64,
    /// Requests given to the device, again ones included.
    pub dispatched: u64,
    /// Bios cut into pieces.
    pub split: u64,
    /// Bios held back because an earlier one was in their way.
    pub held: u64,
    /// Requests that the device gave back because it was busy.
    pub requeued: u64,
    /// How often a bio or piece found no free request slot.
    pub slot_waits: u64,
    merges: [u64; 2],
    refused: [u64; NoMerge::ALL.len()],
}

impl QueueStats {
    /// How often something was added at the end of a request.
    pub const fn back_merges(&self) -> u64 {
        self.merges[0]
    }

    /// How often something was added at the start of a request.
    pub const fn front_merges(&self) -> u64 {
        self.merges[1]
    }

    /// How often a merge with something that touched was refused for this reason.
    pub const fn refused(&self, reason: NoMerge) -> u64 {
        self.refused[reason.index()]
    }
}

/// How many requests the elevator is told of together: few enough for their memory to stay close.
const PREFETCHED_MAX: usize = 32;

/// Whether the device may be given requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// It was busy: not before something completes.
    UntilCompletion,
    /// It was busy with nothing of ours in flight: only time can help.
    Until(Instant),
}

/// Splits, plugs, merges, orders and dispatches bios. See the crate's documentation for an example.
///
/// Memory, slots and lists are allocated when the queue is made: nothing afterwards allocates.
#[derive(Debug)]
pub struct RequestQueue<M> {
    limits: Limits,
    bios: BioTable<M>,
    requests: RequestTable,
    order: Order,
    plug: Plug,
    elevator: Box<dyn Elevator>,
    /// What `elevator` is and how it is set.
    spec: ElevatorSpec,
    flush: Flush,
    /// Requests that the device gave back, to be dispatched before all others.
    requeued: VecDeque<Tag>,
    /// Bios that wait for a request slot.
    waiting: VecDeque<u32>,
    done: VecDeque<BioDone>,
    /// How the last flush failed that failed and was not asked for.
    failed_flush: Option<IoError>,
    gate: Gate,
    depth: u32,
    in_flight: u32,
    /// Bios taken and not collected, and the most there may be.
    bios_in: u32,
    bios_max: u32,
    /// Pieces cut from bios and not over, and the most there may be.
    pieces: u32,
    pieces_max: u32,
    stats: QueueStats,
    log: Option<Box<Log>>,
}

impl<M: Memory> RequestQueue<M> {
    /// How long to leave a device alone that is busy though nothing of this queue is in flight.
    const RETRY_AFTER: Duration = Duration::from_millis(1);

    /// A queue in front of a device of these limits.
    pub fn new(limits: Limits, config: &QueueConfig) -> Self {
        let bios_max = config.bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let requests_max = config.requests_max.clamp(1, QueueConfig::SLOTS_MAX) as usize;
        // Pieces cut from bios have slots besides the bios' own, so that a queue full of bios can cut them.
        let pieces_max = requests_max as u32;
        let bio_slots = (bios_max + pieces_max) as usize;
        let mut requests = RequestTable::new(requests_max + 1);
        let flush_tag = requests.take(Chain::EMPTY, Instant::ZERO);
        let flush_tag = flush_tag.expect("a new table has a free slot");
        let depth = config.depth.min(limits.depth_max).clamp(1, requests_max as u32 + 1);
        Self {
            bios: BioTable::new(bio_slots),
            order: Order::new(bio_slots),
            plug: Plug::new((config.plug_requests_max as usize).clamp(1, requests_max)),
            elevator: config.elevator.build(requests.capacity()),
            spec: config.elevator.clone(),
            flush: Flush::new(flush_tag, bios_max as usize),
            requeued: VecDeque::with_capacity(depth as usize),
            waiting: VecDeque::with_capacity(bio_slots),
            failed_flush: None,
            done: VecDeque::with_capacity(bios_max as usize),
            gate: Gate::Open,
            in_flight: 0,
            bios_in: 0,
            pieces: 0,
            stats: QueueStats::default(),
            log: None,
            limits,
            requests,
            depth,
            bios_max,
            pieces_max,
        }
    }

    /// Takes a bio; its completion comes from [`RequestQueue::poll_completion`].
    pub fn submit_bio(&mut self, bio: Bio<M>, now: Instant) -> Result<(), SubmitError<M>> {
        self.check(&bio)?;
        self.bios_in += 1;
        self.stats.bios += 1;
        let slot = self.bios.insert(bio, NONE);
        self.log_queued(slot);
        if bio.op == Op::Flush {
            self.flush_or_complete(slot, now);
        } else if self.order.admit(slot, bio.extent, bio.op.is_write()) {
            self.admit(slot, now);
        } else {
            self.stats.held += 1;
            self.log_bio(Event::Hold, slot, 0, now);
        }
        self.log_queued_alone(now);
        Ok(())
    }

    /// Holds requests back until [`RequestQueue::unplug`], so that what follows can join them. Plugs nest.
    pub fn plug(&mut self) {
        self.plug.plug();
    }

    /// Takes a plug off; the last hands what it held to the elevator.
    ///
    /// # Panics
    /// Without a plug: a bug of the caller.
    pub fn unplug(&mut self, now: Instant) {
        if self.plug.unplug() {
            self.empty_plug(now);
        }
    }

    /// Hands what is plugged to the elevator without taking the plug off: for whoever is about to wait.
    pub fn empty_plug(&mut self, now: Instant) {
        let tags = self.plug.take();
        self.log_unplug(tags.len(), now);
        self.prefetch(&tags);
        for tag in &tags {
            self.insert(*tag, now);
        }
        self.plug.restore(tags);
    }

    /// The next request for the device; `None` when there is none or the device has all it can take.
    pub fn poll_dispatch(&mut self, now: Instant) -> Option<Io<'_, M>> {
        if self.gate != Gate::Open || self.in_flight >= self.depth {
            return None;
        }
        let tag = self
            .requeued
            .pop_front()
            .or_else(|| self.flush.start())
            .or_else(|| self.elevator.dispatch(&self.requests, now))?;
        self.in_flight += 1;
        self.stats.dispatched += 1;
        self.log_dispatch(tag, now);
        let request = &mut self.requests[tag];
        request.state = State::InFlight;
        let fua = request.chain.fua && self.limits.fua;
        Some(Io::of_bios(tag, &request.chain, fua, &self.bios))
    }

    /// Takes a request back that the device had no room for. No other is dispatched before something
    /// completes or, if nothing is in flight, a millisecond has passed.
    ///
    /// # Panics
    /// If the request is not at the device: a bug of the caller.
    pub fn requeue(&mut self, tag: Tag, now: Instant) {
        self.leave_device(tag, State::Requeued);
        self.stats.requeued += 1;
        self.log_request(Event::Requeue, tag, 0, now);
        self.requeued.push_front(tag);
        self.gate =
            if self.in_flight > 0 { Gate::UntilCompletion } else { Gate::Until(now + Self::RETRY_AFTER) };
    }

    /// The next bio that has completed.
    pub fn poll_completion(&mut self) -> Option<BioDone> {
        let done = self.done.pop_front()?;
        self.bios_in -= 1;
        Some(done)
    }

    /// Whether the device could not be flushed since this was last asked, or may not have been where write and flush
    /// are one (forced unit access), and why: what it has taken since its last flush may be lost, whoever wrote it.
    /// Known as soon as it has happened, not when [`RequestQueue::poll_completion`] comes to the bio.
    pub const fn take_failed_flush(&mut self) -> Option<IoError> {
        self.failed_flush.take()
    }

    /// How many bios have completed and not collected.
    pub fn completions(&self) -> usize {
        self.done.len()
    }

    /// Something that [`RequestQueue::poll_timeout`] announced may be due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.gate, Gate::Until(due) if due <= now) {
            self.gate = Gate::Open;
        }
    }

    /// When to call [`RequestQueue::handle_timeout`] and then [`RequestQueue::poll_dispatch`] although
    /// nothing completed. While the device has all it can take nothing is due, whatever the elevator says: only a
    /// completion helps.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.gate {
            Gate::Until(due) => Some(due),
            Gate::Open if self.in_flight < self.depth => self.elevator.poll_timeout(),
            Gate::Open | Gate::UntilCompletion => None,
        }
    }

    /// Requests at the device.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Bios taken and not yet collected.
    pub const fn bios_in(&self) -> u32 {
        self.bios_in
    }

    /// Whether [`RequestQueue::poll_dispatch`] has something to give: so it may be while the queue is plugged,
    /// when the plug has overflowed.
    pub fn has_dispatchable(&self) -> bool {
        let has_room = self.gate == Gate::Open && self.in_flight < self.depth;
        has_room && !(self.elevator.is_empty() && self.requeued.is_empty())
    }

    /// The limits of the device.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The device ends after `sectors` sectors from now on: bios that reach further are refused.
    pub fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    /// What the queue has done so far.
    pub const fn stats(&self) -> &QueueStats {
        &self.stats
    }

    fn check(&self, bio: &Bio<M>) -> Result<(), SubmitError<M>> {
        if self.bios_in >= self.bios_max {
            return Err(SubmitError::QueueFull(*bio));
        }
        let memory_bytes = bio.memory.map_or(0, |memory| memory.bytes());
        if memory_bytes != bio.memory_bytes() {
            return Err(SubmitError::MemoryMismatch { bio: *bio, memory_bytes });
        }
        if bio.op == Op::Flush {
            return Ok(());
        }
        let capacity = self.limits.capacity;
        if bio.extent.is_empty() || bio.extent.end().0 > capacity {
            return Err(SubmitError::OutOfRange { bio: *bio, capacity });
        }
        if !self.limits.is_whole_blocks(bio.extent) {
            let block_bytes = self.limits.logical_block_bytes;
            return Err(SubmitError::Unaligned { bio: *bio, block_bytes });
        }
        if self.limits.sectors_max(bio.op) < self.limits.block_sectors() {
            return Err(SubmitError::Unsupported(*bio));
        }
        Ok(())
    }

    /// Gives a request to the elevator, or to a request that is there already.
    fn insert(&mut self, tag: Tag, now: Instant) {
        let chain = self.requests[tag].chain;
        let who = Subject::Request(tag.index() as u32);
        if let Err(reason) = self.merge_in_elevator(who, &chain, now) {
            self.log_insert(tag, &chain, reason, now);
            self.requests[tag].state = State::Queued;
            self.elevator.insert(tag, &self.requests, now);
        } else {
            self.requests.release(tag);
        }
    }

    /// Tells the elevator of requests that it is about to be given.
    fn prefetch(&mut self, tags: &[Tag]) {
        let mut arrivals = [Chain::EMPTY.outline(); PREFETCHED_MAX];
        for tags in tags.chunks(PREFETCHED_MAX) {
            for (arrival, tag) in arrivals.iter_mut().zip(tags) {
                *arrival = self.requests[*tag].outline();
            }
            self.elevator.prefetch(&arrivals[..tags.len()]);
        }
    }

    fn leave_device(&mut self, tag: Tag, state: State) {
        let request = &mut self.requests[tag];
        assert!(request.state == State::InFlight, "{tag:?} is not at the device but {:?}", request.state);
        request.state = state;
        self.in_flight -= 1;
    }
}
