//! The request queue between the submitters of bios and the device. This file has the state and the public methods.
//! Each stage is a file: `order`, `split`, `plug`, `merge`, `flush`, `complete`. `log` records the steps, `tune`
//! changes the elevator, `refusal` has the errors of submission.

mod complete;
mod flush;
mod log;
mod merge;
mod order;
mod plug;
mod refusal;
mod scheduler;
mod split;
mod tune;

use crate::block::bio::{Bio, BioDone, Op};
use crate::block::device::Io;
use crate::block::elevator::{ElevatorSpec, PREFETCH_FROM};
use crate::block::limits::Limits;
use crate::block::log::{Event, Log, Subject};
use crate::block::merge::NoMerge;
use crate::block::request::{Chain, State, Tag};
use crate::block::table::{BioTable, RequestTable};
use crate::error::IoError;
use crate::memory::Memory;
use crate::time::{Duration, Instant};
use flush::Flush;
use order::Order;
use plug::Plug;
pub use refusal::SubmitError;
use scheduler::Scheduler;
use std::collections::VecDeque;
use std::fmt;

/// The size of a queue and its elevator. All memory is allocated when the queue is made.
#[derive(Debug, Clone)]
pub struct QueueConfig {
    /// Maximum bios submitted and not yet collected with [`RequestQueue::poll_completion`].
    pub bios_max: u32,
    /// Request slots: for requests in the plug, in the elevator and in flight.
    pub requests_max: u32,
    /// Maximum requests in flight; the limit of the device applies, too.
    pub depth: u32,
    /// A plug with this many requests is emptied before another is added.
    pub plug_requests_max: u32,
    /// The elevator and its settings.
    pub elevator: ElevatorSpec,
}

impl QueueConfig {
    /// The maximum of `bios_max` and `requests_max`; greater values are clamped to it.
    pub const SLOTS_MAX: u32 = 1 << 22;

    /// Requests that a queue keeps plugged, so that later requests can merge with them; as in Linux.
    pub const PLUG_REQUESTS: u32 = 32;

    /// The maximum number of bios in a queue that threads share. Further bios wait with their callers.
    pub const SHARED_BIOS_MAX: u32 = 4096;

    /// The maximum number of bios between a page cache and its device. A run of pages that is not contiguous in memory
    /// counts once per piece.
    pub const CACHE_BIOS_MAX: u32 = 1024;

    /// The default of the requests in flight at the device of a queue with many callers.
    pub const DEVICE_DEPTH: u32 = 32;

    /// A queue of `bios_max` bios between a page cache and its device.
    pub fn of_cache(bios_max: u32, depth: u32, elevator: ElevatorSpec) -> Self {
        let (requests_max, plug_requests_max) = (bios_max.max(depth), Self::PLUG_REQUESTS);
        Self { bios_max, requests_max, depth, plug_requests_max, elevator }
    }
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            bios_max: 1024,
            requests_max: 256,
            depth: 64,
            plug_requests_max: Self::PLUG_REQUESTS,
            elevator: ElevatorSpec::default(),
        }
    }
}

/// The counters of a queue.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueStats {
    /// Bios accepted.
    pub bios: u64,
    /// Requests dispatched, including requeued ones.
    pub dispatched: u64,
    /// Bios split into pieces.
    pub split: u64,
    /// Bios held back by an earlier overlapping one.
    pub held: u64,
    /// Requests that the device refused because it was busy.
    pub requeued: u64,
    /// Bios or pieces that found no free request slot.
    pub slot_waits: u64,
    /// Merges by the side of the request, as `Side` numbers them: back, front.
    merges: [u64; 2],
    refused: [u64; NoMerge::ALL.len()],
}

impl QueueStats {
    /// Merges at the end of a request.
    pub const fn back_merges(&self) -> u64 {
        self.merges[0]
    }

    /// Merges at the start of a request.
    pub const fn front_merges(&self) -> u64 {
        self.merges[1]
    }

    /// Merges with an adjacent request that were refused for this reason.
    pub const fn refused(&self, reason: NoMerge) -> u64 {
        self.refused[reason.index()]
    }
}

/// The counters of several queues.
impl std::ops::AddAssign for QueueStats {
    fn add_assign(&mut self, other: Self) {
        let Self { bios, dispatched, split, held, requeued, slot_waits, merges, refused } = other;
        let counters = [
            (&mut self.bios, bios),
            (&mut self.dispatched, dispatched),
            (&mut self.split, split),
            (&mut self.held, held),
            (&mut self.requeued, requeued),
            (&mut self.slot_waits, slot_waits),
        ];
        for (sum, count) in counters {
            *sum += count;
        }
        self.merges.iter_mut().zip(merges).for_each(|(sum, count)| *sum += count);
        self.refused.iter_mut().zip(refused).for_each(|(sum, count)| *sum += count);
    }
}

/// Requests announced to the elevator together: few enough for their memory to stay in the cache.
const PREFETCHED_MAX: usize = 32;

/// Whether requests may be dispatched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// The device was busy: wait for a completion.
    UntilCompletion,
    /// The device was busy while no request of this queue was in flight: wait until this time.
    Until(Instant),
}

/// Splits, plugs, merges, orders and dispatches bios. The documentation of the crate has an example.
///
/// All memory is allocated when the queue is made; no later call allocates, except where documented.
pub struct RequestQueue<M> {
    limits: Limits,
    bios: BioTable<M>,
    requests: RequestTable,
    order: Order,
    plug: Plug,
    elevator: Scheduler,
    /// The kind and settings of `elevator`.
    spec: ElevatorSpec,
    flush: Flush,
    /// Requests that the device refused; they are dispatched before all others.
    requeued: VecDeque<Tag>,
    /// Bios that wait for a request slot.
    waiting: VecDeque<u32>,
    done: VecDeque<BioDone>,
    /// The error of a failed flush, until [`RequestQueue::take_failed_flush`].
    failed_flush: Option<IoError>,
    gate: Gate,
    depth: u32,
    in_flight: u32,
    /// Bios accepted and not collected, and their maximum.
    bios_in: u32,
    bios_max: u32,
    /// Pieces split from bios and not completed, and their maximum.
    pieces: u32,
    pieces_max: u32,
    stats: QueueStats,
    log: Option<Box<Log>>,
}

impl<M> fmt::Debug for RequestQueue<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestQueue")
            .field("elevator", &self.spec)
            .field("bios", &self.bios_in)
            .field("requests", &self.requests.len())
            .field("in_flight", &self.in_flight)
            .field("depth", &self.depth)
            .field("done", &self.done.len())
            .field("failed_flush", &self.failed_flush)
            .finish_non_exhaustive()
    }
}

impl<M: Memory> RequestQueue<M> {
    /// The delay before a retry on a device that is busy while no request of this queue is in flight.
    const RETRY_AFTER: Duration = Duration::from_millis(1);

    /// A queue for a device with these limits.
    pub fn new(limits: Limits, config: &QueueConfig) -> Self {
        let bios_max = config.bios_max.clamp(1, QueueConfig::SLOTS_MAX);
        let requests_max = config.requests_max.clamp(1, QueueConfig::SLOTS_MAX) as usize;
        // Pieces have slots of their own, so that a queue without free bio slots can still split its bios.
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
            elevator: Scheduler::new(&config.elevator, requests.capacity()),
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

    /// Submits a bio; [`RequestQueue::poll_completion`] returns its completion.
    ///
    /// # Errors
    /// If the bio is invalid for this device or the queue is full. The error returns the bio.
    #[expect(
        clippy::inline_always,
        reason = "the compiler does not inline it into several callers, and a call costs a null device a tenth of its CPU time per I/O"
    )]
    #[inline(always)]
    pub fn submit_bio(&mut self, bio: Bio<M>, now: Instant) -> Result<(), SubmitError<M>> {
        self.check(&bio)?;
        self.bios_in += 1;
        self.stats.bios += 1;
        let slot = self.bios.insert(bio, None);
        self.log_queued(slot);
        // A flush covers completed writes only, so no bio in progress holds it back.
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

    /// Holds requests back until [`RequestQueue::unplug`], so that later bios can merge with them. Plugs nest.
    pub fn plug(&mut self) {
        self.plug.plug();
    }

    /// Ends a plug. The outermost one moves the plugged requests to the elevator.
    ///
    /// # Panics
    /// If the queue is not plugged: a bug of the caller.
    pub fn unplug(&mut self, now: Instant) {
        if self.plug.unplug() {
            self.empty_plug(now);
        }
    }

    /// The number of plugged requests.
    #[must_use]
    pub fn plugged(&self) -> usize {
        self.plug.len()
    }

    /// Moves the plugged requests to the elevator; the queue stays plugged. For callers that are about to wait.
    pub fn empty_plug(&mut self, now: Instant) {
        let tags = self.plug.take();
        self.log_unplug(tags.len(), now);
        // The insert of a single request would wait for its prefetch.
        if tags.len() > 1 && self.elevator.len_of_prefetched() >= PREFETCH_FROM {
            self.prefetch(&tags);
        }
        for tag in &tags {
            self.insert(*tag, now);
        }
        self.plug.restore(tags);
    }

    /// The next request for the device. `None` if no request is queued or the maximum is in flight.
    #[expect(clippy::inline_always, reason = "see `submit_bio`")]
    #[inline(always)]
    pub fn poll_dispatch(&mut self, now: Instant) -> Option<Io<'_, M>> {
        if self.gate != Gate::Open || self.in_flight >= self.depth {
            return None;
        }
        // A refused request was dispatched before all others. A flush covers completed writes only, so it need not wait
        // for queued ones.
        let tag =
            self.requeued.pop_front().or_else(|| self.flush.start()).or_else(|| self.dispatch_queued(now))?;
        self.in_flight += 1;
        self.stats.dispatched += 1;
        self.log_dispatch(tag, now);
        let request = &mut self.requests[tag];
        request.state = State::InFlight;
        let fua = request.chain.fua && self.limits.fua;
        let first = request.chain.first;
        // The completion needs them. After a long wait in the elevator they are in no cache of the processor.
        self.bios.prefetch(first);
        self.order.prefetch(first);
        Some(Io::of_bios(tag, &request.chain, fua, &self.bios))
    }

    /// The next request of the elevator.
    #[inline]
    fn dispatch_queued(&mut self, now: Instant) -> Option<Tag> {
        let tag = self.elevator.dispatch(&self.requests, now)?;
        self.assert_queued(tag);
        Some(tag)
    }

    /// An elevator is code of anybody. A request that it returns twice would be twice at the device, and its memory in
    /// use after the first completion.
    #[inline]
    fn assert_queued(&self, tag: Tag) {
        let state = self.requests[tag].state;
        assert!(
            state == State::Queued,
            "elevator {}: {tag:?} is not queued but {state:?}",
            self.elevator.name()
        );
    }

    /// Returns a request that the device refused because it was busy. The queue dispatches again after the next
    /// completion, or after a millisecond if no request is in flight.
    ///
    /// # Panics
    /// If the request is not in flight: a bug of the caller.
    pub fn requeue(&mut self, tag: Tag, now: Instant) {
        self.leave_device(tag, State::Requeued);
        self.stats.requeued += 1;
        self.log_request(Event::Requeue, tag, 0, now);
        self.requeued.push_front(tag);
        self.gate =
            if self.in_flight > 0 { Gate::UntilCompletion } else { Gate::Until(now + Self::RETRY_AFTER) };
    }

    /// The next completed bio.
    pub fn poll_completion(&mut self) -> Option<BioDone> {
        let Some(done) = self.done.pop_front() else {
            // Starts over at the front of its memory, which is in the cache of the processor.
            self.done.clear();
            return None;
        };
        self.bios_in -= 1;
        Some(done)
    }

    /// The error of a flush that failed since the last call. Writes of any caller since the last successful flush may
    /// be lost. A failed write with forced unit access counts as a failed flush, because the error may come from the
    /// flush that makes the write durable. The error is available when the request completes, before
    /// [`RequestQueue::poll_completion`] returns the bio.
    pub const fn take_failed_flush(&mut self) -> Option<IoError> {
        self.failed_flush.take()
    }

    /// The number of bios completed and not collected.
    pub fn completions(&self) -> usize {
        self.done.len()
    }

    /// Call this at the time of [`RequestQueue::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if matches!(self.gate, Gate::Until(due) if due <= now) {
            self.gate = Gate::Open;
        }
    }

    /// The time at which to call [`RequestQueue::handle_timeout`] and [`RequestQueue::poll_dispatch`] if no request
    /// completes before. `None` while the maximum is in flight, since only a completion allows the next dispatch.
    pub fn poll_timeout(&self) -> Option<Instant> {
        match self.gate {
            Gate::Until(due) => Some(due),
            Gate::Open if self.in_flight < self.depth => self.elevator.poll_timeout(),
            Gate::Open | Gate::UntilCompletion => None,
        }
    }

    /// The number of requests in flight.
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The number of bios submitted and not collected.
    pub const fn bios_in(&self) -> u32 {
        self.bios_in
    }

    /// Whether [`RequestQueue::poll_dispatch`] may return a request. This is also possible while the queue is plugged,
    /// if the plug has overflowed.
    pub fn has_dispatchable(&self) -> bool {
        let has_room = self.gate == Gate::Open && self.in_flight < self.depth;
        has_room && !(self.elevator.is_empty() && self.requeued.is_empty())
    }

    /// The limits of the device.
    pub const fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Sets the capacity of the device in sectors; later bios beyond it are refused.
    pub fn set_capacity(&mut self, sectors: u64) {
        self.limits.capacity = sectors;
    }

    /// The counters of the queue.
    pub const fn stats(&self) -> &QueueStats {
        &self.stats
    }

    fn check(&self, bio: &Bio<M>) -> Result<(), SubmitError<M>> {
        if self.bios_in >= self.bios_max {
            return Err(SubmitError::QueueFull(*bio));
        }
        Self::check_bio(&self.limits, self.limits.capacity, bio)
    }

    /// Checks a bio against the limits of the device and its capacity in sectors, as [`RequestQueue::submit_bio`] does.
    /// Does not check whether the queue has room.
    pub fn check_bio(limits: &Limits, capacity: u64, bio: &Bio<M>) -> Result<(), SubmitError<M>> {
        let memory_bytes = bio.memory.map_or(0, |memory| memory.bytes());
        if memory_bytes != bio.memory_bytes() {
            return Err(SubmitError::MemoryMismatch { bio: *bio, memory_bytes });
        }
        if bio.op == Op::Flush {
            return Ok(());
        }
        if bio.extent.is_empty() || bio.extent.end().0 > capacity {
            return Err(SubmitError::OutOfRange { bio: *bio, capacity });
        }
        if !limits.is_whole_blocks(bio.extent) {
            let block_bytes = limits.logical_block_bytes;
            return Err(SubmitError::Unaligned { bio: *bio, block_bytes });
        }
        if limits.sectors_max(bio.op) < limits.block_sectors() {
            return Err(SubmitError::Unsupported(*bio));
        }
        Ok(())
    }

    /// Merges a request into one in the elevator, or inserts it there.
    fn insert(&mut self, tag: Tag, now: Instant) {
        let chain = self.requests[tag].chain;
        let subject = Subject::Request(tag.index() as u32);
        if let Err(reason) = self.merge_in_elevator(subject, &chain, now) {
            self.log_insert(tag, &chain, reason, now);
            self.requests[tag].state = State::Queued;
            self.elevator.insert(tag, &self.requests, now);
        } else {
            self.requests.release(tag);
        }
    }

    /// Announces requests to the elevator before they are inserted.
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
        assert!(request.state == State::InFlight, "{tag:?} is not in flight but {:?}", request.state);
        request.state = state;
        self.in_flight -= 1;
    }
}
