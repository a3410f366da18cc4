//! Direct and raw I/O in virtual time: the jobs of a workload on the queues of a modelled device. `job.rs` decides the
//! transfers of a job.
//!
//! ```text
//!   jobs ── transfers ──▶ queues ── requests ──▶ device
//!    ▲                      │
//!    └──── completions ─────┘        each at its own virtual time: no call is saved by gathering them
//! ```

use std::collections::VecDeque;

use iopath_core::{Bio, BioDone, Extent, Instant, IoError, LogSink, Op, Priority, Stream, SubmitError};
use iopath_model::event_loop::Process;

use super::queues::Queues;
use super::span::Span;
use super::system::{SimError, System};
use crate::counters::DiskCounters;
use crate::job::Job;
use crate::job::tally::JobResult;
use crate::path::{Direction, Transfer};

/// The slot of a job's flush, in tokens. No transfer has it.
const FLUSH: u32 = u32::MAX;

/// The jobs of one repetition, and their queues.
#[derive(Debug)]
pub(super) struct Direct<Q> {
    queues: Q,
    jobs: Vec<Runner>,
    depth: u32,
    block_bytes: u32,
    /// Whether a final flush counts as part of each job.
    flushes: bool,
    /// Jobs whose slots have become free since their last poll, each once.
    runnable: Vec<u32>,
    /// Bios that did not fit in a shared queue, the oldest first.
    backlog: VecDeque<(u32, Bio<Span>)>,
    unfinished: usize,
    failure: Option<SimError>,
}

/// A job and its progress.
#[derive(Debug)]
struct Runner {
    job: Job,
    state: State,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Has free slots.
    Runnable,
    /// All slots are in flight, or the plan is complete.
    Waiting,
    /// The transfers have completed, the flush has not.
    Flushing,
    Ended(Instant),
}

impl<Q: Queues> Direct<Q> {
    /// Jobs of `depth` transfers in flight of up to `block_bytes` bytes.
    pub(super) fn new(queues: Q, depth: u32, block_bytes: u32, flushes: bool) -> Self {
        Self {
            queues,
            jobs: Vec::new(),
            depth,
            block_bytes,
            flushes,
            runnable: Vec::new(),
            backlog: VecDeque::new(),
            unfinished: 0,
            failure: None,
        }
    }

    fn handle_done(&mut self, done: BioDone, now: Instant) {
        let (number, slot) = ((done.token >> 32) as u32, done.token as u32);
        let Runner { job, state } = &mut self.jobs[number as usize];
        if slot == FLUSH {
            *state = State::Ended(now);
            self.unfinished -= 1;
            if let Err(error) = done.result {
                self.fail(SimError::Flush(error));
            }
            return;
        }
        if let Err(error) = done.result {
            let transfer = job.transfer(slot);
            return self.fail(SimError::Transfer(transfer, error));
        }
        job.handle_done(slot, now.as_nanos());
        if *state == State::Waiting {
            *state = State::Runnable;
            self.runnable.push(number);
        }
    }

    /// The first failure ends the run.
    #[cold]
    fn fail(&mut self, failure: SimError) {
        self.failure.get_or_insert(failure);
    }

    /// Submits the next transfers of a job; ends it if it has none.
    fn poll_job(&mut self, number: u32, now: Instant) {
        let buffers = u64::from(number) * u64::from(self.depth);
        self.jobs[number as usize].state = State::Waiting;
        while let Some((slot, transfer)) = self.jobs[number as usize].job.poll_transfer(now.as_nanos()) {
            let address = (buffers + u64::from(slot)) * u64::from(self.block_bytes);
            match bio(number, slot, transfer, address) {
                Some(bio) => self.submit(number, bio, now),
                None => return self.fail(SimError::Transfer(transfer, IoError::EndOfDevice)),
            }
        }
        if !self.jobs[number as usize].job.is_idle() {
            return;
        }
        if self.flushes {
            self.jobs[number as usize].state = State::Flushing;
            self.submit(number, Bio::flush(token(number, FLUSH)).on_stream(Stream(number)), now);
        } else {
            self.jobs[number as usize].state = State::Ended(now);
            self.unfinished -= 1;
        }
    }

    fn submit(&mut self, number: u32, bio: Bio<Span>, now: Instant) {
        if !self.backlog.is_empty() {
            self.backlog.push_back((number, bio));
        } else if let Err(refused) = self.queues.submit(number, bio, now) {
            self.handle_refused(number, refused);
        }
    }

    #[cold]
    fn handle_refused(&mut self, number: u32, refused: SubmitError<Span>) {
        match refused {
            SubmitError::QueueFull(bio) => self.backlog.push_front((number, bio)),
            other => self.fail(SimError::Refused(other.to_string())),
        }
    }

    /// Submits bios that found the queue full.
    fn submit_backlog(&mut self, now: Instant) {
        while let Some((number, bio)) = self.backlog.pop_front() {
            if let Err(refused) = self.queues.submit(number, bio, now) {
                return self.handle_refused(number, refused);
            }
        }
    }
}

impl<Q: Queues> System for Direct<Q> {
    fn start(&mut self, jobs: Vec<Job>) {
        self.unfinished = jobs.len();
        self.runnable = (0..jobs.len() as u32).collect();
        self.jobs = jobs.into_iter().map(|job| Runner { job, state: State::Runnable }).collect();
    }

    fn finish(&mut self) -> Result<Vec<JobResult>, SimError> {
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        let ended = |Runner { job, state }| match state {
            State::Ended(now) => Some(job.into_tally().finish(now.as_nanos())),
            _ => None,
        };
        Ok(self.jobs.drain(..).filter_map(ended).collect())
    }

    fn moved_bytes(&self) -> u64 {
        self.jobs.iter().map(|runner| runner.job.moved_bytes()).sum()
    }

    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>) {
        self.queues.start_logs(sink);
    }

    fn counters(&self) -> DiskCounters {
        self.queues.counters()
    }
}

impl<Q: Queues> Process for Direct<Q> {
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.queues.collect(now);
        loop {
            while let Some(done) = self.queues.poll_completion() {
                self.handle_done(done, now);
            }
            self.submit_backlog(now);
            // In the order in which the jobs became runnable. Polling makes none runnable.
            for index in 0..self.runnable.len() {
                self.poll_job(self.runnable[index], now);
            }
            self.runnable.clear();
            if !self.queues.dispatch(now) || self.failure.is_some() {
                return;
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        self.queues.poll_timeout()
    }

    fn is_done(&self) -> bool {
        self.unfinished == 0 || self.failure.is_some()
    }
}

fn bio(number: u32, slot: u32, transfer: Transfer, address: u64) -> Option<Bio<Span>> {
    let bytes = u64::from(transfer.bytes);
    Some(Bio {
        op: match transfer.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
        },
        extent: Extent::from_bytes(transfer.offset, bytes)?,
        memory: Some(Span { address, bytes }),
        fua: false,
        stream: Stream(number),
        priority: Priority::default(),
        token: token(number, slot),
    })
}

const fn token(number: u32, slot: u32) -> u64 {
    (number as u64) << 32 | slot as u64
}
