//! A scheduler that serves one I/O context at a time and idles for the next request of that context before it serves
//! another, as CFQ of Linux 2.6 does for synchronous reads. A stage of a modelled target: the elevators of the library do
//! not idle. Priorities, think times and asynchronous writes are not modelled.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, Limits, Op, Priority, Stream, Tag};
use iopath_model::event_loop::earlier;

/// The times of the scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContextTimes {
    /// The time that the device idles for the next request of a context; zero to serve all contexts in order of arrival.
    pub(crate) idle: Duration,
    /// The time after which a context without a queued request gives way to others.
    pub(crate) slice: Duration,
}

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
    active: Option<Stream>,
    slice_end: Instant,
    /// While the device idles for the active context: until when.
    idle_until: Option<Instant>,
}

#[derive(Debug)]
struct Held<M> {
    tag: Tag,
    op: Op,
    extent: Extent,
    stream: Stream,
    memory: Vec<M>,
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
            active: None,
            slice_end: Instant::ZERO,
            idle_until: None,
        }
    }

    /// Submits the requests that the active context has, and activates another if that is due.
    fn dispatch(&mut self, now: Instant) {
        if self.idle_until.is_some_and(|until| until <= now) {
            (self.idle_until, self.active) = (None, None);
        }
        while let Some(oldest) = self.held.front() {
            let Some(active) = self.active else {
                self.active = Some(oldest.stream);
                self.slice_end = now + self.times.slice;
                continue;
            };
            match self.held.iter().position(|held| held.stream == active) {
                Some(index) => {
                    self.idle_until = None;
                    if !self.submit_held(index, now) {
                        return;
                    }
                }
                None if now >= self.slice_end || !self.holds(active) => {
                    (self.active, self.idle_until) = (None, None);
                }
                None => return,
            }
        }
    }

    /// Whether the active context keeps the device: it has requests in flight, or the device idles for it.
    fn holds(&self, active: Stream) -> bool {
        !self.times.idle.is_zero()
            && (self.idle_until.is_some() || self.in_flight.values().any(|stream| *stream == active))
    }

    /// Submits a held request. Returns whether the device has accepted it.
    fn submit_held(&mut self, index: usize, now: Instant) -> bool {
        let held = &self.held[index];
        let mut io = Io::new(held.tag, held.op, held.extent, &held.memory);
        (io.stream, io.priority) = (held.stream, Priority::default());
        let is_accepted = self.inner.submit(&io, now).is_ok();
        if is_accepted {
            self.in_flight.insert(held.tag.to_bits(), held.stream);
            self.held.remove(index);
        }
        is_accepted
    }

    fn handle_completion(&mut self, tag: Tag, now: Instant) {
        let stream = self.in_flight.remove(&tag.to_bits());
        let is_last = !self.in_flight.values().any(|other| Some(*other) == stream)
            && !self.held.iter().any(|held| Some(held.stream) == stream);
        if stream == self.active && is_last {
            self.idle_until = Some(now + self.times.idle);
        }
    }
}

impl<D: BlockDevice> BlockDevice for Contexts<D> {
    type Memory = D::Memory;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn submit(&mut self, io: &Io<'_, D::Memory>, _now: Instant) -> Result<(), Busy> {
        let Io { tag, op, extent, stream, .. } = *io;
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
        let times = ContextTimes { idle, slice: Duration::from_millis(100) };
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
        assert!(done[2].1 >= done[1].1 + idle && done[1].1 < idle, "{done:?}");
        let without = completed(Duration::ZERO, &[1, 2, 1]);
        assert!(without.len() == 3 && without.iter().all(|(_, at)| *at < idle), "{without:?}");
    }
}
