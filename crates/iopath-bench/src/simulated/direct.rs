//! Direct and raw I/O in virtual time: runs the jobs of a workload on the queues of a modelled device. `job.rs`
//! determines the transfers of a job.
//!
//! ```text
//!   jobs ── transfers ──▶ queues ── requests ──▶ device
//!    ▲                      │
//!    └──── completions ─────┘        each at its own virtual time: no call is saved by gathering them
//! ```
//!
//! With a host, the thread of a job executes the CPU work of a transfer before its bios are submitted: the call and the
//! bios. A thread executes one piece of work at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iopath_core::{Bio, BioDone, Extent, Instant, IoError, LogSink, Op, Priority, Stream, SubmitError};
use iopath_model::event_loop::{End, LoopError, Process, earlier};
use iopath_model::{Threads, VirtualClock, Work};

use super::jobs::{JobSetup, Jobs, Runner, SimError};
use super::queues::Queues;
use super::span::Span;
use super::system::{System, Watch, run_jobs};
use crate::counters::DiskCounters;
use crate::job::tally::JobResult;
use crate::path::{Direction, Transfer};
use crate::steady_detector::Count;

/// The slots in the tokens of a job's flushes: at its end, and between transfers. No transfer uses these slots.
const FLUSH: u32 = u32::MAX;
const FLUSH_BETWEEN: u32 = u32::MAX - 1;

/// The jobs of one repetition, and their queues.
#[derive(Debug)]
pub(super) struct Direct<Q> {
    queues: Q,
    cut: Option<Cut>,
    /// The threads of the jobs; none if CPU work takes no time.
    threads: Option<Threads>,
    jobs: Jobs<State>,
    /// Jobs whose slots have become free since their last poll, each once.
    runnable: Vec<u32>,
    /// Bios that did not fit in a shared queue, the oldest first.
    backlog: VecDeque<(u32, Bio<Span>)>,
    /// The times at which jobs with a pace have work.
    timers: BinaryHeap<Reverse<(Instant, u32)>>,
}

/// The gap between the buffers of adjacent slots on a modelled host.
const BUFFER_GAP_BYTES: u64 = 4096;

/// How the top half cuts a transfer into bios.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cut {
    /// The maximum size of a bio.
    pub(super) bio_bytes_max: u32,
    /// Whether the bios of a transfer are in flight one after another.
    pub(super) is_serial: bool,
    /// The number of bios that a thread submits before it releases the lock of the host: enough to fill a request.
    pub(super) step_max: u32,
}

impl Cut {
    /// The number of bios of a transfer.
    fn count(self, transfer: Transfer) -> u32 {
        transfer.bytes.div_ceil(self.bio_bytes_max)
    }

    /// The number of bios to submit together, after the first `submitted` bios of a transfer.
    fn together(self, transfer: Transfer, submitted: u32) -> u32 {
        if self.is_serial { 1 } else { (self.count(transfer) - submitted).min(self.step_max) }
    }
}

/// The state of a job.
#[derive(Debug)]
struct State {
    /// Whether the job is in `runnable`. If not, all slots are in flight, or the plan is complete.
    is_runnable: bool,
    /// The address of the buffer of slot 0; the others follow.
    buffers: u64,
    /// The distance between the buffers of adjacent slots.
    buffer_stride: u64,
    /// If transfers are cut: the pieces of the transfer in each slot.
    pieces: Vec<Pieces>,
    /// The bios for which the thread executes CPU work.
    on_cpu: Option<Submission>,
    /// Slots whose next pieces wait until the thread is free.
    due: VecDeque<u32>,
    /// The earliest timer of the job.
    timer: Option<Instant>,
    /// The start of the flush in flight; none without one.
    flush_started: Option<Instant>,
}

/// The bios that a thread submits when its CPU work is done. Each variant has the slot.
#[derive(Debug, Clone, Copy)]
enum Submission {
    /// All bios of a transfer, or the first of serial bios.
    Transfer(u32),
    /// The next bios of a transfer.
    Pieces(u32),
}

/// The pieces of a transfer in flight.
#[derive(Debug, Clone, Copy, Default)]
struct Pieces {
    /// Pieces that have been submitted.
    submitted: u32,
    /// Pieces that have not completed.
    left: u32,
}

impl<Q: Queues> Direct<Q> {
    /// Queues without jobs. Without `cut`, each transfer is one bio. Without `threads`, CPU work takes no time.
    pub(super) fn new(queues: Q, cut: Option<Cut>, threads: Option<Threads>) -> Self {
        let (backlog, timers) = (VecDeque::new(), BinaryHeap::new());
        Self { queues, cut, threads, jobs: Jobs::none(), runnable: Vec::new(), backlog, timers }
    }

    fn handle_done(&mut self, done: BioDone, now: Instant) {
        let (number, slot) = ((done.token >> 32) as u32, done.token as u32);
        if slot == FLUSH {
            self.jobs.end(number, now);
            if let Err(error) = done.result {
                self.jobs.fail(SimError::Flush(error));
            }
            return;
        }
        if slot == FLUSH_BETWEEN {
            return self.handle_flushed(number, done.result, now);
        }
        let runner = &mut self.jobs[number];
        if let Err(error) = done.result {
            let transfer = runner.job.transfer(slot);
            return self.jobs.fail(SimError::Transfer(transfer, error));
        }
        if let Some(cut) = self.cut {
            let pieces = &mut runner.state.pieces[slot as usize];
            pieces.left -= 1;
            if pieces.left > 0 {
                if cut.is_serial && self.threads.is_none() {
                    self.submit_piece(number, slot, cut, now);
                } else if cut.is_serial {
                    runner.state.due.push_back(slot);
                    self.wake(number);
                }
                return;
            }
        }
        let runner = &mut self.jobs[number];
        runner.job.handle_done(slot, now.as_nanos());
        self.wake(number);
    }

    /// A flush between transfers has completed.
    #[cold]
    fn handle_flushed(&mut self, number: u32, result: Result<(), IoError>, now: Instant) {
        let Runner { job, state, .. } = &mut self.jobs[number];
        let started = state.flush_started.take().unwrap_or(now);
        job.handle_flush((now - started).as_nanos() as u64, now.as_nanos());
        match result {
            Ok(()) => self.wake(number),
            Err(error) => self.jobs.fail(SimError::Flush(error)),
        }
    }

    #[inline]
    fn wake(&mut self, number: u32) {
        let state = &mut self.jobs[number].state;
        if !state.is_runnable {
            state.is_runnable = true;
            self.runnable.push(number);
        }
    }

    /// Submits the next transfers of a job. Ends the job if its plan is complete.
    fn poll_job(&mut self, number: u32, now: Instant) {
        let state = &mut self.jobs[number].state;
        state.is_runnable = false;
        if state.flush_started.is_some() {
            return;
        }
        if self.threads.is_some() {
            if self.begin_work(number, now) {
                return;
            }
        } else {
            while let Some((slot, transfer)) = self.jobs[number].job.poll_transfer(now.as_nanos()) {
                self.submit_transfer(number, slot, transfer, now);
            }
        }
        let job = &self.jobs[number].job;
        if job.needs_flush() {
            self.jobs[number].state.flush_started = Some(now);
            let flush = Bio::flush(token(number, FLUSH_BETWEEN)).on_stream(Stream(number));
            return self.submit(number, flush, now);
        }
        if !job.is_done() {
            if let Some(due_ns) = job.poll_timeout() {
                self.set_timer(number, Instant::from_nanos(due_ns));
            }
            return;
        }
        if self.jobs[number].flushes {
            self.jobs[number].state.flush_started = Some(now);
            self.submit(number, Bio::flush(token(number, FLUSH)).on_stream(Stream(number)), now);
        } else {
            self.jobs.end(number, now);
        }
    }

    /// Wakes a job with a pace at `due`, unless it has an earlier timer.
    #[cold]
    fn set_timer(&mut self, number: u32, due: Instant) {
        let timer = &mut self.jobs[number].state.timer;
        if timer.is_none_or(|earlier| due < earlier) {
            *timer = Some(due);
            self.timers.push(Reverse((due, number)));
        }
    }

    #[cold]
    fn end_timers(&mut self, now: Instant) {
        while let Some(&Reverse((due, number))) = self.timers.peek().filter(|Reverse((due, _))| *due <= now) {
            self.timers.pop();
            let timer = &mut self.jobs[number].state.timer;
            // If the times differ, an earlier timer has replaced this one.
            if *timer == Some(due) {
                *timer = None;
                self.wake(number);
            }
        }
    }

    /// Begins the CPU work of the next bios of a job, unless its thread is busy. Returns false if the job has no bios
    /// to submit.
    fn begin_work(&mut self, number: u32, now: Instant) -> bool {
        let Self { threads: Some(threads), cut, jobs, .. } = self else { return false };
        let Runner { job, state, .. } = &mut jobs[number];
        if state.on_cpu.is_some() {
            return true;
        }
        let (submission, work) = if let Some(slot) = state.due.pop_front() {
            let submitted = state.pieces[slot as usize].submitted;
            let bios = cut.map_or(1, |cut| cut.together(job.transfer(slot), submitted));
            (Submission::Pieces(slot), Work { bios, ..Work::default() })
        } else if let Some((slot, transfer)) = job.poll_transfer(now.as_nanos()) {
            let bios = cut.map_or(1, |cut| cut.together(transfer, 0));
            (Submission::Transfer(slot), Work { calls: 1, bios, ..Work::default() })
        } else {
            return false;
        };
        state.on_cpu = Some(submission);
        threads.begin(number, &work, now);
        true
    }

    /// Submits the bios whose CPU work is done.
    fn end_work(&mut self, now: Instant) {
        while let Some(number) = self.threads.as_ref().and_then(|threads| threads.poll_done(now)) {
            let Runner { job, state, .. } = &mut self.jobs[number];
            match state.on_cpu.take() {
                Some(Submission::Transfer(slot)) => {
                    let transfer = job.transfer(slot);
                    self.submit_transfer(number, slot, transfer, now);
                }
                Some(Submission::Pieces(slot)) => {
                    if let Some(cut) = self.cut {
                        let transfer = job.transfer(slot);
                        self.submit_pieces(number, slot, transfer, cut, now);
                    }
                }
                None => {}
            }
            self.wake(number);
        }
    }

    /// Submits the bios of a transfer, or the first of serial bios.
    #[inline]
    fn submit_transfer(&mut self, number: u32, slot: u32, transfer: Transfer, now: Instant) {
        let Some(cut) = self.cut else {
            let State { buffers, buffer_stride, .. } = self.jobs[number].state;
            let address = buffers + u64::from(slot) * buffer_stride;
            return self.submit_part(number, slot, transfer, address, now);
        };
        self.jobs[number].state.pieces[slot as usize] = Pieces { submitted: 0, left: cut.count(transfer) };
        self.submit_pieces(number, slot, transfer, cut, now);
    }

    /// Submits the next pieces of a transfer. Further pieces wait for the thread.
    fn submit_pieces(&mut self, number: u32, slot: u32, transfer: Transfer, cut: Cut, now: Instant) {
        let submitted = self.jobs[number].state.pieces[slot as usize].submitted;
        let together = cut.together(transfer, submitted);
        for _ in 0..together {
            self.submit_piece(number, slot, cut, now);
        }
        if !cut.is_serial && submitted + together < cut.count(transfer) {
            self.jobs[number].state.due.push_back(slot);
        }
    }

    /// Submits the next piece of the transfer in a slot.
    fn submit_piece(&mut self, number: u32, slot: u32, cut: Cut, now: Instant) {
        let Runner { job, state, .. } = &mut self.jobs[number];
        let (whole, pieces) = (job.transfer(slot), &mut state.pieces[slot as usize]);
        let start = pieces.submitted * cut.bio_bytes_max;
        pieces.submitted += 1;
        let bytes = cut.bio_bytes_max.min(whole.bytes - start);
        let part = Transfer { offset: whole.offset + u64::from(start), bytes, ..whole };
        let address = state.buffers + u64::from(slot) * state.buffer_stride + u64::from(start);
        self.submit_part(number, slot, part, address, now);
    }

    #[inline]
    fn submit_part(&mut self, number: u32, slot: u32, part: Transfer, address: u64, now: Instant) {
        match bio(number, slot, part, address) {
            Some(bio) => self.submit(number, bio, now),
            None => self.jobs.fail(SimError::Transfer(part, IoError::EndOfDevice)),
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
            other => self.jobs.fail(SimError::Refused(other.to_string())),
        }
    }

    /// Submits the bios that did not fit in the queue.
    fn submit_backlog(&mut self, now: Instant) {
        while let Some((number, bio)) = self.backlog.pop_front() {
            if let Err(refused) = self.queues.submit(number, bio, now) {
                return self.handle_refused(number, refused);
            }
        }
    }
}

impl<Q: Queues> System for Direct<Q> {
    fn start(&mut self, jobs: Vec<JobSetup>) {
        let (mut buffers, is_cut) = (0, self.cut.is_some());
        // On a modelled host, the buffers of two transfers are separate allocations, so a merge of both has two
        // segments.
        let gap_bytes = if self.threads.is_some() { BUFFER_GAP_BYTES } else { 0 };
        let state = |setup: &JobSetup| {
            let pieces = if is_cut { vec![Pieces::default(); setup.depth as usize] } else { Vec::new() };
            let (buffer_stride, due, timer) =
                (u64::from(setup.block_bytes) + gap_bytes, VecDeque::new(), None);
            let (on_cpu, flush_started) = (None, None);
            let state = State {
                is_runnable: true,
                buffers,
                buffer_stride,
                pieces,
                on_cpu,
                due,
                timer,
                flush_started,
            };
            buffers += u64::from(setup.depth) * buffer_stride;
            state
        };
        self.runnable = self.jobs.start(jobs, state).collect();
    }

    fn run(&mut self, clock: &mut VirtualClock, watch: Watch<'_>) -> Result<End, LoopError> {
        run_jobs(self, clock, watch)
    }

    fn finish(&mut self) -> Result<Vec<JobResult>, SimError> {
        self.jobs.finish()
    }

    fn has_failed(&self) -> bool {
        self.jobs.has_failed()
    }

    fn moved_bytes(&self) -> u64 {
        self.jobs.moved_bytes()
    }

    fn start_logs(&mut self, sink: &mut dyn FnMut() -> Box<dyn LogSink>) {
        self.queues.start_logs(sink);
    }

    fn counters(&self) -> DiskCounters {
        self.queues.counters()
    }

    fn counts(&self, job: u32) -> [Count; 2] {
        self.jobs.counts(job)
    }

    fn has_ended(&self, job: u32) -> bool {
        self.jobs.has_ended(job)
    }

    fn stop(&mut self, job: u32) {
        self.jobs.stop(job);
    }
}

impl<Q: Queues> Process for Direct<Q> {
    #[inline]
    fn advance(&mut self, now: Instant) {
        self.queues.collect(now);
        if self.threads.is_some() {
            self.end_work(now);
        }
        if !self.timers.is_empty() {
            self.end_timers(now);
        }
        loop {
            while let Some(done) = self.queues.poll_completion() {
                self.handle_done(done, now);
            }
            self.submit_backlog(now);
            // The jobs run in the order in which they became runnable. `poll_job` makes no other job runnable.
            for index in 0..self.runnable.len() {
                self.poll_job(self.runnable[index], now);
            }
            self.runnable.clear();
            if !self.queues.dispatch(now) || self.jobs.has_failed() {
                return;
            }
        }
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        let mut due = self.queues.poll_timeout();
        if let Some(Reverse((timer, _))) = self.timers.peek() {
            due = earlier(due, Some(*timer));
        }
        match &self.threads {
            Some(threads) => earlier(due, threads.poll_timeout()),
            None => due,
        }
    }

    fn is_done(&self) -> bool {
        self.jobs.is_done()
    }
}

#[inline]
fn bio(number: u32, slot: u32, transfer: Transfer, address: u64) -> Option<Bio<Span>> {
    let bytes = u64::from(transfer.bytes);
    Some(Bio {
        op: match transfer.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Discard,
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
