//! The queues of a run on a model: one that all jobs share, or one for each job. They are the queues of the library.
//! This file only drives them, as the runners of `iopath-os` do in real time.

use std::cell::RefCell;
use std::rc::Rc;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Bio, BioDone, BlockDevice, Instant, LogSink, QueueConfig, QueuedDevice, SubmitError};

use super::counted::Counted;
use super::ports::{Hub, Port};
use super::span::Span;
use crate::counters::DiskCounters;

/// The queues between the jobs and the device.
pub trait Queues {
    /// Moves completions from the device to the queues.
    fn collect(&mut self, now: Instant);

    /// The next completed bio of any queue.
    fn poll_completion(&mut self) -> Option<BioDone>;

    /// Submits a bio of `job`. It may stay in the plug until [`Queues::dispatch`].
    fn submit(&mut self, job: u32, bio: Bio<Span>, now: Instant) -> Result<(), SubmitError<Span>>;

    /// Unplugs, and dispatches as many requests as the device accepts. Returns whether a bio has completed during the
    /// call. For example, a flush completes at once on a device without a volatile cache.
    fn dispatch(&mut self, now: Instant) -> bool;

    /// The time at which [`Queues::collect`] and [`Queues::dispatch`] are due.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Starts the logs of all queues.
    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>);

    /// The requests of the device so far.
    fn counters(&self) -> DiskCounters;
}

/// One queue for all jobs, because an elevator belongs to the device.
#[derive(Debug)]
pub struct SharedQueue<D: BlockDevice> {
    queue: QueuedDevice<Counted<D>>,
}

impl<D: BlockDevice<Memory = Span>> SharedQueue<D> {
    /// A queue for at most `bios_max` bios in flight, and at most `device_depth` requests at the device (by default,
    /// the limit of the device). It allocates `requests_max` requests, by default enough for all bios.
    pub fn new(
        device: D,
        bios_max: u32,
        requests_max: Option<u32>,
        device_depth: Option<u32>,
        elevator: &ElevatorSpec,
    ) -> Self {
        let bios_max = bios_max.max(1);
        let depth = device_depth.unwrap_or(u32::MAX).min(device.limits().depth_max);
        let config = QueueConfig {
            bios_max,
            requests_max: requests_max.unwrap_or(bios_max.max(depth.min(QueueConfig::SHARED_BIOS_MAX))),
            depth,
            plug_requests_max: QueueConfig::PLUG_REQUESTS,
            elevator: elevator.clone(),
        };
        Self { queue: QueuedDevice::new(Counted::new(device), &config) }
    }
}

impl<D: BlockDevice<Memory = Span>> Queues for SharedQueue<D> {
    #[inline]
    fn collect(&mut self, now: Instant) {
        self.queue.collect(now);
    }

    #[inline]
    fn poll_completion(&mut self) -> Option<BioDone> {
        self.queue.poll_completion()
    }

    #[inline]
    fn submit(&mut self, _job: u32, bio: Bio<Span>, now: Instant) -> Result<(), SubmitError<Span>> {
        self.queue.submit_bio(bio, now)
    }

    #[inline]
    fn dispatch(&mut self, now: Instant) -> bool {
        self.queue.unplug(now);
        self.queue.dispatch(now);
        self.queue.commit(now);
        self.queue.queue().completions() > 0
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.queue.poll_timeout()
    }

    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>) {
        self.queue.queue_mut().start_log(sink());
    }

    fn counters(&self) -> DiskCounters {
        self.queue.device().counters()
    }
}

/// A queue for each job, without an elevator, over one device.
#[derive(Debug)]
pub struct QueuePerJob<D: BlockDevice> {
    hub: Rc<RefCell<Hub<Counted<D>>>>,
    queues: Vec<QueuedDevice<Port<Counted<D>>>>,
    /// Queues with completions that were not polled.
    ready: Vec<u32>,
    /// Queues that have changed since the last dispatch. A queue may occur twice.
    touched: Vec<u32>,
}

impl<D: BlockDevice<Memory = Span>> QueuePerJob<D> {
    /// A queue for each of `jobs`, of `depth` bios each.
    pub fn new(device: D, jobs: u32, depth: u32) -> Self {
        let config = QueueConfig {
            bios_max: depth,
            requests_max: depth,
            depth,
            plug_requests_max: QueueConfig::PLUG_REQUESTS,
            elevator: ElevatorSpec::default(),
        };
        let (hub, ports) = Hub::new(Counted::new(device), jobs);
        let queues = ports.into_iter().map(|port| QueuedDevice::new(port, &config)).collect();
        Self { hub, queues, ready: Vec::new(), touched: Vec::new() }
    }
}

impl<D: BlockDevice<Memory = Span>> Queues for QueuePerJob<D> {
    fn collect(&mut self, now: Instant) {
        let from = self.ready.len();
        self.hub.borrow_mut().collect(now, &mut self.ready);
        for &queue in &self.ready[from..] {
            self.queues[queue as usize].collect(now);
            self.touched.push(queue);
        }
    }

    fn poll_completion(&mut self) -> Option<BioDone> {
        while let Some(&queue) = self.ready.last() {
            if let Some(done) = self.queues[queue as usize].poll_completion() {
                return Some(done);
            }
            self.ready.pop();
        }
        None
    }

    fn submit(&mut self, job: u32, bio: Bio<Span>, now: Instant) -> Result<(), SubmitError<Span>> {
        if self.touched.last() != Some(&job) {
            self.touched.push(job);
        }
        self.queues[job as usize].submit_bio(bio, now)
    }

    fn dispatch(&mut self, now: Instant) -> bool {
        for number in self.touched.drain(..) {
            let queue = &mut self.queues[number as usize];
            queue.unplug(now);
            queue.dispatch(now);
            if queue.queue().completions() > 0 {
                self.ready.push(number);
            }
        }
        self.hub.borrow_mut().commit(now);
        !self.ready.is_empty()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.hub.borrow().poll_timeout()
    }

    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>) {
        for queue in &mut self.queues {
            queue.queue_mut().start_log(sink());
        }
    }

    fn counters(&self) -> DiskCounters {
        self.hub.borrow().device().counters()
    }
}
