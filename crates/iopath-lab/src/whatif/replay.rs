//! Replays a trace on a model in virtual time, through the queue, the elevators and the merges of the library. The
//! process of one recorded device; `study.rs` runs many.
//!
//! ```text
//!   source.rs ── due requests ──▶ queue ── requests ──▶ meter.rs ──▶ model
//!       ▲                           │
//!       └─────── completions ───────┘ ──▶ tally.rs
//! ```

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use iopath_core::{Bio, BioDone, Extent, Instant, QueueConfig, SECTOR_BYTES, Sector, Stream, SubmitError};
use iopath_model::event_loop::{End, LoopError, Process, earlier, run};
use iopath_model::{Model, ModelDevice, VirtualClock};
use iopath_report::random::of_target;

use super::alternative::{Alternative, Priorities};
use super::meter::{Gauge, Metered, Tighter};
use super::request::Request;
use super::source::{Closed, Open, Source};
use super::tally::Tally;
use super::trace::{Input, Trace};
use crate::recorded_times::Stretch;
use iopath_bench::simulated::queues::{QueuePerJob, Queues, SharedQueue};
use iopath_bench::simulated::{Span, model_seed};

mod cached;

/// The seeds are those of the first repetition of a run, so a replay repeats it.
const REPETITION: u32 = 1;

/// Bios of each queue if the run had a queue for each stream.
const QUEUE_BIOS_MAX: u32 = 1024;

/// The most queues of a replay. With more, all streams share one queue.
const QUEUES_MAX: usize = 256;

/// How requests are submitted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timing {
    /// Above 0; 1 is the recorded speed.
    pub(crate) speed: f64,
    pub(crate) is_closed: bool,
}

/// Why a replay ended early.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The caller stopped it.
    Stopped,
    Loop(LoopError),
    /// A request failed.
    Io {
        request: Request,
        error: String,
    },
    /// The queue refused a request.
    Refused(String),
}

/// One replay of all devices of an input.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run<'a> {
    pub(crate) input: &'a Input,
    pub(crate) model: &'a Model,
    pub(crate) alternative: &'a Alternative,
    pub(crate) timing: Timing,
    pub(crate) seed: u64,
    /// The sectors to which higher sectors wrap around; none if the model is large enough.
    pub(crate) wrap: Option<u64>,
}

impl Run<'_> {
    /// Replays the input. Each recorded device has a model of its own.
    pub(crate) fn tally(&self, stop: &AtomicBool) -> Result<Tally, Failure> {
        let mut sum: Option<Tally> = None;
        for (number, trace) in self.input.devices.iter().enumerate() {
            let of_device = self.device(trace, number, stop)?;
            match &mut sum {
                Some(sum) => sum.add_device(&of_device),
                None => sum = Some(of_device),
            }
        }
        Ok(sum.unwrap_or_else(|| Tally::new(1, 1, &[])))
    }

    fn device(&self, trace: &Trace, number: usize, stop: &AtomicBool) -> Result<Tally, Failure> {
        let gauge = Gauge::default();
        let Alternative { elevator, depth, max_request_bytes, is_merged, .. } = self.alternative;
        let tighter = Tighter { request_bytes_max: *max_request_bytes, is_unmerged: !is_merged };
        let model =
            ModelDevice::<Span>::new(self.model, model_seed(of_target(self.seed, number), REPETITION));
        let device = Metered::new(model, tighter, gauge.clone());
        if self.input.has_accesses {
            return cached::tally(self, trace, device, gauge, stop);
        }
        let streams = self.input.streams.len();
        // A volume has the same rule: without an elevator, each thread has a queue.
        let had_queues = self.input.queues > 1;
        if elevator.name() == "none" && had_queues && depth.is_none() && streams <= QUEUES_MAX {
            let queues = QueuePerJob::new(device, streams.max(1) as u32, QUEUE_BIOS_MAX);
            self.timed(trace, queues, gauge, stop)
        } else {
            let queue = SharedQueue::new(device, QueueConfig::SHARED_BIOS_MAX, None, *depth, elevator);
            self.timed(trace, queue, gauge, stop)
        }
    }

    fn timed<Q: Queues>(
        &self,
        trace: &Trace,
        queues: Q,
        gauge: Gauge,
        stop: &AtomicBool,
    ) -> Result<Tally, Failure> {
        let stretch = Stretch::of_speed(self.timing.speed);
        if self.timing.is_closed {
            self.replayed(trace, queues, gauge, Closed::new(trace, stretch), stop)
        } else {
            self.replayed(trace, queues, gauge, Open::new(trace, stretch), stop)
        }
    }

    fn replayed<Q: Queues, S: Source>(
        &self,
        trace: &Trace,
        queues: Q,
        gauge: Gauge,
        source: S,
        stop: &AtomicBool,
    ) -> Result<Tally, Failure> {
        let mut replay = Replay {
            requests: &trace.requests,
            streams: &self.input.streams,
            priorities: &self.alternative.priorities,
            wrap: self.wrap,
            address_stride: if self.alternative.is_merged { SECTOR_BYTES } else { 0 },
            queues,
            source,
            backlog: VecDeque::new(),
            in_flight: 0,
            window: 0,
            gauge,
            tally: Tally::new(self.input.windows, self.input.streams.len(), &trace.requests),
            failure: None,
        };
        let mut watch = |_: &Replay<'_, Q, S>, _: Instant| {
            if stop.load(Ordering::Relaxed) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        match run(&mut replay, &mut VirtualClock::default(), &mut watch).map_err(Failure::Loop)? {
            End::Done => {}
            End::Stopped => return Err(Failure::Stopped),
        }
        let Replay { mut tally, gauge, failure, .. } = replay;
        if let Some(failure) = failure {
            return Err(failure);
        }
        gauge.add_to(&mut tally);
        Ok(tally)
    }
}

/// The replay of one device.
#[derive(Debug)]
struct Replay<'a, Q, S> {
    requests: &'a [Request],
    /// The recorded numbers of the streams.
    streams: &'a [u32],
    priorities: &'a Priorities,
    wrap: Option<u64>,
    /// The distance of the memory of adjacent sectors.
    address_stride: u64,
    queues: Q,
    source: S,
    /// Requests that did not fit in a queue, the oldest first.
    backlog: VecDeque<u32>,
    in_flight: u64,
    /// The latest window of which a request was submitted.
    window: u8,
    gauge: Gauge,
    tally: Tally,
    failure: Option<Failure>,
}

impl<Q: Queues, S: Source> Replay<'_, Q, S> {
    #[inline]
    fn handle_done(&mut self, done: BioDone, now: Instant) {
        let index = done.token as usize;
        self.in_flight -= 1;
        let request = &self.requests[index];
        if let Err(error) = done.result {
            self.failure.get_or_insert(Failure::Io { request: *request, error: error.to_string() });
        }
        if request.op().has_memory() {
            self.tally.complete(request, self.source.due_ns(index), now.as_nanos());
        }
        self.source.handle_done(index, now.as_nanos());
    }

    #[inline]
    fn submit_due(&mut self, now: Instant) {
        if !self.backlog.is_empty() {
            self.submit_backlog(now);
        }
        while let Some(index) = self.source.poll(now.as_nanos()) {
            let window = self.requests[index].window;
            if window > self.window {
                self.window = window;
                self.gauge.begin_window(usize::from(window), now.as_nanos());
            }
            if !self.backlog.is_empty() || !self.submit(index, now) {
                self.backlog.push_back(index as u32);
            }
        }
    }

    #[cold]
    fn submit_backlog(&mut self, now: Instant) {
        while let Some(&index) = self.backlog.front() {
            if !self.submit(index as usize, now) {
                return;
            }
            self.backlog.pop_front();
        }
    }

    /// Submits a request. Returns false if its queue is full.
    #[inline]
    fn submit(&mut self, index: usize, now: Instant) -> bool {
        let request = &self.requests[index];
        let bio = self.bio(index, request);
        match self.queues.submit(request.stream.into(), bio, now) {
            Ok(()) => self.in_flight += 1,
            Err(SubmitError::QueueFull(_)) => return false,
            Err(refused) => {
                self.failure.get_or_insert_with(|| Failure::Refused(refused.to_string()));
            }
        }
        true
    }

    #[inline]
    fn bio(&self, index: usize, request: &Request) -> Bio<Span> {
        let op = request.op();
        let sector = match self.wrap {
            Some(wrap) => request.sector % wrap,
            None => request.sector,
        };
        let stream = self.streams[usize::from(request.stream)];
        Bio {
            op,
            // The input was checked against the capacity of the model.
            extent: Extent::new(Sector(sector), request.sectors.into()).unwrap_or_default(),
            // Adjacent sectors have adjacent memory, so merges do not depend on the limit of segments. Without merges,
            // all memory has one address: see `meter.rs`.
            memory: op.has_memory().then(|| Span::at(sector * self.address_stride, request.bytes())),
            fua: request.is_fua(),
            stream: Stream(stream),
            priority: self.priorities.of(stream, op),
            token: index as u64,
        }
    }
}

impl<Q: Queues, S: Source> Process for Replay<'_, Q, S> {
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.queues.collect(now);
        loop {
            while let Some(done) = self.queues.poll_completion() {
                self.handle_done(done, now);
            }
            self.submit_due(now);
            if !self.queues.dispatch(now) || self.failure.is_some() {
                return;
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        earlier(self.queues.poll_timeout(), self.source.poll_timeout().map(Instant::from_nanos))
    }

    fn is_done(&self) -> bool {
        (self.in_flight == 0 && self.source.is_done() && self.backlog.is_empty()) || self.failure.is_some()
    }
}
