//! A scheduler that serves one I/O context at a time and idles for the next request of that context before it serves
//! another: CFQ of Linux 2.6.29 for synchronous reads of one priority (`block/cfq-iosched.c`). A stage of a modelled
//! target: the elevators of the library do not idle. Asynchronous writes and priorities are not modelled.
//!
//! ```text
//!   request of the active context      ─▶ device, also while the scheduler idles
//!   request close to the last one      ─▶ its context becomes active, if the scheduler idles
//!   other request                      ─▶ held until the slice or the idle time of the active context ends
//! ```

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, Limits, Op, Priority, Stream, Tag};
use iopath_model::event_loop::earlier;

mod mean;

use mean::Mean;

/// The times of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTimes {
    /// The time that the device idles for the next request of a context; zero to serve all contexts in order of
    /// arrival.
    pub idle: Duration,
    /// The time after which a context gives way to others.
    pub slice: Duration,
    /// The resolution of the kernel's clock. Idle times end at its ticks.
    pub tick: Duration,
}

/// `cfq_quantum`: requests of a context at the device while others wait.
const QUANTUM: usize = 4;

/// `CIC_SEEKY`: a context with a longer mean distance idles for [`SEEKY_IDLE`] at most. Sectors.
const SEEKY: u64 = 8 * 1024;

/// `CFQ_MIN_TT`.
const SEEKY_IDLE: Duration = Duration::from_millis(2);

/// A device behind the scheduler. The stream of a request is its context.
#[derive(Debug)]
pub(super) struct Contexts<D: BlockDevice> {
    inner: D,
    limits: Limits,
    times: ContextTimes,
    /// Requests that are not yet at the device, in the order of arrival.
    held: VecDeque<Held<D::Memory>>,
    /// The contexts of requests at the device.
    in_flight: HashMap<u32, Stream>,
    histories: HashMap<Stream, History>,
    active: Option<Stream>,
    /// None until the first request of the slice completes.
    slice_end: Option<Instant>,
    /// While the device idles for the active context: until when.
    idle_until: Option<Instant>,
    /// The end of the last request that the device received, in sectors.
    position: u64,
}

#[derive(Debug)]
struct Held<M> {
    tag: Tag,
    op: Op,
    extent: Extent,
    stream: Stream,
    memory: Vec<M>,
}

/// The past requests of a context.
#[derive(Debug, Default)]
struct History {
    /// Ticks from the end of a request to the next request.
    think: Mean,
    /// Sectors from the end of a request to the next request.
    distance: Mean,
    last_end: Instant,
    position: u64,
}

impl<D: BlockDevice> Contexts<D> {
    /// A scheduler in front of `inner`. `limits` are the limits of the queue above it.
    pub(super) fn new(inner: D, limits: Limits, times: ContextTimes) -> Self {
        Self {
            inner,
            limits,
            times,
            held: VecDeque::new(),
            in_flight: HashMap::new(),
            histories: HashMap::new(),
            active: None,
            slice_end: None,
            idle_until: None,
            position: 0,
        }
    }

    /// Whether the device idles for the next request of this context.
    pub(super) fn idles_for(&self, stream: Stream) -> bool {
        self.idle_until.is_some() && self.active == Some(stream)
    }

    fn ticks(&self, time: Instant) -> u64 {
        (time - Instant::ZERO).as_nanos() as u64 / self.times.tick.as_nanos().max(1) as u64
    }

    /// Ticks of the idle time.
    fn idle_ticks(&self) -> u64 {
        self.ticks(Instant::ZERO + self.times.idle)
    }

    /// Whether the scheduler idles for a context of this history: it neither thinks too long nor seeks too far.
    fn has_idle_window(&self, stream: Stream) -> bool {
        let thinks_long = self.histories.get(&stream).and_then(|history| history.think.value());
        !self.times.idle.is_zero() && thinks_long.is_none_or(|ticks| ticks <= self.idle_ticks())
    }

    fn activate(&mut self, stream: Stream) {
        (self.active, self.slice_end, self.idle_until) = (Some(stream), None, None);
    }

    /// Submits the requests that the active context has, and activates another if that is due.
    fn dispatch(&mut self, now: Instant) {
        if self.idle_until.is_some_and(|until| until <= now) {
            (self.idle_until, self.active) = (None, None);
        }
        while let Some(oldest) = self.held.front() {
            let Some(active) = self.active.filter(|_| self.slice_end.is_none_or(|end| now < end)) else {
                let oldest = oldest.stream;
                self.activate(oldest);
                continue;
            };
            match self.held.iter().position(|held| held.stream == active) {
                Some(index) => {
                    let others_wait = self.held.iter().any(|held| held.stream != active);
                    let limit = if others_wait { QUANTUM } else { 4 * QUANTUM };
                    if self.at_device(active) >= limit || !self.submit_held(index, now) {
                        return;
                    }
                    self.idle_until = None;
                }
                None if self.idle_until.is_none()
                    && (self.at_device(active) == 0 || !self.has_idle_window(active)) =>
                {
                    self.active = None;
                }
                None => return,
            }
        }
    }

    /// Requests of a context at the device.
    fn at_device(&self, stream: Stream) -> usize {
        self.in_flight.values().filter(|other| **other == stream).count()
    }

    /// Submits a held request. Returns whether the device has accepted it.
    fn submit_held(&mut self, index: usize, now: Instant) -> bool {
        let held = &self.held[index];
        let mut io = Io::new(held.tag, held.op, held.extent, &held.memory);
        (io.stream, io.priority) = (held.stream, Priority::default());
        let is_accepted = self.inner.submit(&io, now).is_ok();
        if is_accepted {
            self.position = held.extent.end().0;
            self.in_flight.insert(held.tag.to_bits(), held.stream);
            self.held.remove(index);
        }
        is_accepted
    }

    /// Notes a new request of a context. A request close to the position of an idle device activates its context.
    fn handle_request(&mut self, stream: Stream, extent: Extent, now: Instant) {
        let (ticks, idle) = (self.ticks(now), self.idle_ticks());
        let last_end = self.histories.get(&stream).map_or(Instant::ZERO, |history| history.last_end);
        let thought = (ticks - self.ticks(last_end)).min(2 * idle);
        let history = self.histories.entry(stream).or_default();
        history.think.add(thought);
        history.distance.add(history.position.abs_diff(extent.start().0));
        history.position = extent.end().0;
        let Some(active) = self.active.filter(|active| *active != stream && self.idle_until.is_some()) else {
            return;
        };
        let reach = self.histories.get(&active).and_then(|history| history.distance.value());
        if reach.is_some_and(|reach| self.position.abs_diff(extent.start().0) <= reach) {
            self.activate(stream);
        }
    }

    fn handle_completion(&mut self, tag: Tag, now: Instant) {
        let Some(stream) = self.in_flight.remove(&tag.to_bits()) else { return };
        let history = self.histories.entry(stream).or_default();
        history.last_end = now;
        let is_seeky = history.distance.value().is_some_and(|sectors| sectors > SEEKY);
        if self.active != Some(stream) {
            return;
        }
        let slice_end = *self.slice_end.get_or_insert(now + self.times.slice);
        let has_more = self.held.iter().any(|held| held.stream == stream);
        if now >= slice_end {
            self.active = None;
        } else if !has_more && self.in_flight.is_empty() && self.has_idle_window(stream) {
            let idle = if is_seeky { self.times.idle.min(SEEKY_IDLE) } else { self.times.idle };
            let tick = (self.times.tick.as_nanos() as u64).max(1);
            let begun = now.as_nanos() / tick * tick;
            let until = Instant::from_nanos(begun) + idle;
            self.idle_until = Some(until.max(now));
        }
    }
}

impl<D: BlockDevice> BlockDevice for Contexts<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, now: Instant) -> Result<(), Busy> {
        let Io { tag, op, extent, stream, .. } = *io;
        self.handle_request(stream, extent, now);
        self.held.push_back(Held { tag, op, extent, stream, memory: io.segments().collect() });
        Ok(())
    }

    fn commit(&mut self, now: Instant) {
        self.dispatch(now);
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        let done: Option<Completion> = self.inner.poll_completion(now);
        if let Some(Completion { tag, .. }) = done {
            self.handle_completion(tag, now);
        }
        self.commit(now);
        done
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let idle = self.idle_until.filter(|_| !self.held.is_empty());
        earlier(idle, self.inner.poll_timeout())
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::{LengthOnly, Sector};
    use iopath_model::{Model, ModelDevice};

    use super::*;

    /// Submits requests of these contexts at time zero. Returns the order of completion, and the time of each.
    fn completed(idle: Duration, contexts: &[u32]) -> Vec<(u32, Duration)> {
        let device = ModelDevice::<LengthOnly>::new(&Model::preset("ssd-nvme").unwrap(), 1);
        let limits = device.limits().clone();
        let times = ContextTimes { idle, slice: Duration::from_millis(100), tick: Duration::from_millis(4) };
        let mut device = Contexts::new(device, limits, times);
        let memory = [LengthOnly::new(4096)];
        for (index, context) in contexts.iter().enumerate() {
            let extent = Extent::new(Sector(8 * index as u64), 8).unwrap();
            let mut io = Io::new(Tag::from_bits(index as u32), Op::Read, extent, &memory);
            io.stream = Stream(*context);
            device.submit(&io, Instant::ZERO).unwrap();
        }
        device.commit(Instant::ZERO);
        let mut done = Vec::new();
        while let Some(now) = device.poll_timeout() {
            while let Some(Completion { tag, .. }) = device.poll_completion(now) {
                done.push((contexts[tag.to_bits() as usize], now - Instant::ZERO));
            }
        }
        done
    }

    #[test]
    fn the_device_serves_one_context_and_idles_before_it_serves_another() {
        let idle = Duration::from_millis(8);
        let done = completed(idle, &[1, 2, 1]);
        assert_eq!(done.iter().map(|(context, _)| *context).collect::<Vec<_>>(), [1, 1, 2]);
        assert!(done[2].1 >= idle && done[1].1 < idle, "{done:?}");
        let without = completed(Duration::ZERO, &[1, 2, 1]);
        assert!(without.len() == 3 && without.iter().all(|(_, at)| *at < idle), "{without:?}");
    }

    const IDLE: Duration = Duration::from_millis(8);

    /// A scheduler whose device has completed requests of context 1, the last of which ended at sector 32.
    fn after_four_requests(pause: Duration) -> (Contexts<ModelDevice<LengthOnly>>, Instant) {
        let device = ModelDevice::<LengthOnly>::new(&Model::preset("ssd-nvme").unwrap(), 1);
        let limits = device.limits().clone();
        let times = ContextTimes { idle: IDLE, slice: 100 * IDLE, tick: Duration::from_millis(4) };
        let mut device = Contexts::new(device, limits, times);
        let mut now = Instant::ZERO;
        for index in 0..4 {
            submit(&mut device, index, 1, u64::from(index) * 8, now + pause);
            now = complete(&mut device, now + pause);
        }
        (device, now)
    }

    fn submit(
        device: &mut Contexts<ModelDevice<LengthOnly>>,
        tag: u32,
        context: u32,
        sector: u64,
        now: Instant,
    ) {
        let memory = [LengthOnly::new(4096)];
        let extent = Extent::new(Sector(sector), 8).unwrap();
        let mut io = Io::new(Tag::from_bits(tag), Op::Read, extent, &memory);
        io.stream = Stream(context);
        device.submit(&io, now).unwrap();
        device.commit(now);
    }

    /// Runs until a request completes. Returns the time of that.
    fn complete(device: &mut Contexts<ModelDevice<LengthOnly>>, mut now: Instant) -> Instant {
        loop {
            now = now.max(device.poll_timeout().unwrap());
            if device.poll_completion(now).is_some() {
                return now;
            }
        }
    }

    #[test]
    fn a_request_close_to_the_last_one_does_not_wait_for_the_idle_time() {
        for (sector, waits) in [(32, false), (1 << 20, true)] {
            let (mut device, now) = after_four_requests(Duration::ZERO);
            submit(&mut device, 9, 2, sector, now);
            let until = complete(&mut device, now);
            assert_eq!(until - now >= Duration::from_millis(4), waits, "sector {sector}: {:?}", until - now);
        }
    }

    #[test]
    fn the_device_does_not_idle_for_a_context_that_thinks_longer() {
        for (pause, idles) in [(0, true), (20, false)] {
            let (mut device, now) = after_four_requests(Duration::from_millis(pause));
            assert_eq!(device.idles_for(Stream(1)), idles, "{pause} ms");
            submit(&mut device, 9, 2, 1 << 20, now);
            let until = complete(&mut device, now);
            assert_eq!(until - now >= Duration::from_millis(4), idles, "{pause} ms: {:?}", until - now);
        }
    }
}
