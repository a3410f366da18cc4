//! Drives a job on a connection with the real clock: the inner loop of each job's thread. Every measurement includes
//! the cost of this loop, so it does not allocate, lock or format, and reads the clock once per batch. The state
//! machines are in `job.rs` and `job/sampled.rs`.

use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use iopath_core::Instant;
use rustix::io::Errno;

use super::pause::pause_until;
use super::sampled::SampledJob;
use super::tally::{JobResult, Tally};
use super::{Begin, Job, Limits, Start};
use crate::path::{Connection, Done, Transfer};
use crate::plan::Plan;
use crate::signals::Interruption;
use crate::steady_detector::Count;
use crate::workload::LatencyFrom;

/// The longest pause of a job with a pace: then it publishes its progress.
const PAUSE_MAX_NS: u64 = 100_000_000;

/// Nanoseconds since a moment that all jobs of a repetition share, on the clock of the queues.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    zero_ns: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero_ns: iopath_os::now().as_nanos() }
    }

    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        self.ns_of(iopath_os::now())
    }

    /// The shared moment, on the clock of the queues.
    pub(crate) const fn zero_ns(self) -> u64 {
        self.zero_ns
    }

    /// A time of the queues on this clock.
    #[inline]
    fn ns_of(self, time: Instant) -> u64 {
        time.as_nanos().saturating_sub(self.zero_ns)
    }

    /// A time of this clock on that of the queues.
    #[inline]
    fn instant(self, ns: u64) -> Instant {
        Instant::from_nanos(self.zero_ns.saturating_add(ns))
    }
}

/// The bytes that a job has moved and its last latency, for the progress, and its transfers of each direction. One
/// cache line, which the job writes without locks. Aligned, to avoid false sharing between jobs.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Moved {
    pub(crate) bytes: AtomicU64,
    pub(crate) latency_ns: AtomicU64,
    /// The [`Count`] of reads and of writes, if [`JobContext::counts`].
    directions: [[AtomicU64; 4]; 2],
}

impl Moved {
    /// The reads and writes so far.
    pub(crate) fn counts(&self) -> [Count; 2] {
        [0, 1].map(|index| {
            let [ios, bytes, timed, latency_ns] =
                self.directions[index].each_ref().map(|value| value.load(Ordering::Relaxed));
            Count { ios, bytes, timed, latency_ns }
        })
    }
}

/// The reason for the early end of a job.
#[derive(Debug)]
pub(crate) enum JobError {
    /// A transfer failed.
    Transfer(Transfer, io::Error),
    /// An operation of the path failed.
    Path(&'static str, io::Error),
}

impl JobError {
    /// Whether an interruption gave up the requests at a server. Then the transfers so far are the result.
    pub(crate) fn is_given_up(&self) -> bool {
        self.is_disconnected() && Interruption::is_requested()
    }

    /// Whether the connection to a server is lost.
    pub(crate) fn is_disconnected(&self) -> bool {
        let (Self::Transfer(_, source) | Self::Path(_, source)) = self;
        Errno::from_io_error(source) == Some(Errno::NOTCONN)
    }
}

/// The limits and shared state of a job, in addition to its plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct JobContext<'a> {
    /// The time limit; unset, the plan ends the job.
    pub(crate) runtime_ns: Option<u64>,
    /// Only for a job that measures every latency.
    pub(crate) start: Start,
    /// Only for a job that measures every latency.
    pub(crate) flush_every: [Option<NonZeroU64>; 2],
    /// Whether flushes include the metadata of the file; those of data alone never do.
    pub(crate) flush_all: bool,
    /// The flush at the end of the job.
    pub(crate) final_flush: FinalFlush,
    pub(crate) latency_from: LatencyFrom,
    /// Whether submissions are measured, on a path with [`Connection::submits_queued`].
    pub(crate) measures_submissions: bool,
    pub(crate) clock: Clock,
    /// Set when another job failed.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) moved: &'a Moved,
    /// Whether the job publishes the transfers of each direction.
    pub(crate) counts: bool,
}

/// The flush at the end of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FinalFlush {
    /// A job that does not write needs none.
    None,
    /// It is a part of the job.
    Timed,
    /// It follows the job.
    Untimed,
}

impl JobContext<'_> {
    /// The job that starts now.
    pub(crate) fn job(
        &self,
        plan: Plan,
        depth: u32,
        limits: impl FnOnce(Begin) -> Limits,
        now_ns: u64,
    ) -> Job {
        Job::new(plan, depth, self.runtime_ns, now_ns)
            .with_start(self.start, now_ns)
            .with_flushes(self.flush_every)
            .with_limits(limits(Begin::of(self.start, now_ns)))
            .with_latency_from(self.latency_from)
    }

    /// Makes the flush between transfers that a job needs. Returns the time.
    pub(crate) fn flush(
        &self,
        connection: &mut dyn Connection,
        job: &mut Job,
        started_ns: u64,
    ) -> Result<u64, JobError> {
        let started_ns = match self.latency_from {
            LatencyFrom::Due => started_ns,
            LatencyFrom::Submission => self.clock.now_ns(),
        };
        Self::flush_path(connection, self.flush_all && !job.flushes_data_alone())?;
        let now_ns = self.clock.now_ns();
        job.handle_flush(now_ns - started_ns, now_ns);
        Ok(now_ns)
    }

    /// Publishes the progress. Returns true if the job has to stop.
    #[inline]
    pub(crate) fn publish(&self, tally: &Tally) -> bool {
        self.moved.bytes.store(tally.moved_bytes(), Ordering::Relaxed);
        self.moved.latency_ns.store(tally.last_latency_ns(), Ordering::Relaxed);
        if self.counts {
            self.publish_counts(tally);
        }
        self.stop.load(Ordering::Relaxed)
    }

    #[cold]
    fn publish_counts(&self, tally: &Tally) {
        for (published, count) in self.moved.directions.iter().zip(tally.counts()) {
            let Count { ios, bytes, timed, latency_ns } = count;
            for (place, value) in published.iter().zip([ios, bytes, timed, latency_ns]) {
                place.store(value, Ordering::Relaxed);
            }
        }
    }

    /// Pauses until a time, a tenth of a second at most. Returns the time.
    pub(crate) fn wait_until(&self, due_ns: Option<u64>) -> u64 {
        let end_ns = due_ns.unwrap_or(0).min(self.clock.now_ns() + PAUSE_MAX_NS);
        pause_until(end_ns, || self.clock.now_ns())
    }

    /// Ends a job that has nothing in flight, with a flush if the job writes.
    pub(crate) fn finish(&self, connection: &mut dyn Connection) -> Result<(), JobError> {
        if self.final_flush == FinalFlush::Timed {
            Self::flush_path(connection, self.flush_all)?;
        }
        Ok(())
    }

    /// Flushes the file, with its metadata if `all`.
    fn flush_path(connection: &mut dyn Connection, all: bool) -> Result<(), JobError> {
        let flushed = if all { connection.flush_all() } else { connection.flush() };
        flushed.map_err(|error| JobError::Path("flush", error))
    }

    /// The result of a job that ended like this, with the flush that follows it.
    pub(crate) fn ended(
        &self,
        connection: &mut dyn Connection,
        ended: Result<(), JobError>,
        result: impl FnOnce(u64) -> JobResult,
    ) -> Result<JobResult, JobError> {
        let ended_ns = self.clock.now_ns();
        match ended {
            Err(error) if !error.is_given_up() => return Err(error),
            Err(_) => return Ok(result(ended_ns)),
            Ok(()) => {}
        }
        let mut result = result(ended_ns);
        if self.final_flush == FinalFlush::Untimed {
            Self::flush_path(connection, self.flush_all)?;
            result.final_flush_ns = self.clock.now_ns() - ended_ns;
        }
        Ok(result)
    }

    /// Begins the latency of a transfer that is ready, if it is from its submission. As in fio, the work on the
    /// completion before it is no part of it.
    #[inline]
    pub(crate) fn begin(&self, job: &mut Job, slot: u32) {
        if self.latency_from == LatencyFrom::Submission {
            job.begin(slot, self.clock.now_ns());
        }
    }
}

/// Runs a job that measures every latency.
pub(crate) fn run(
    connection: &mut dyn Connection,
    plan: Plan,
    limits: impl FnOnce(Begin) -> Limits,
    context: &JobContext,
) -> Result<JobResult, JobError> {
    let now_ns = context.clock.now_ns();
    let mut job = context.job(plan, connection.depth(), limits, now_ns);
    if context.measures_submissions && connection.submits_queued() {
        job = job.with_submissions();
    }
    let ended = run_job(connection, &mut job, context, now_ns);
    context.ended(connection, ended, |ended_ns| job.finish(ended_ns))
}

fn run_job(
    connection: &mut dyn Connection,
    job: &mut Job,
    context: &JobContext,
    mut now_ns: u64,
) -> Result<(), JobError> {
    let mut done: Vec<Done> = Vec::with_capacity(connection.depth() as usize);
    loop {
        // The reap freed the slots: its reading of the clock is also the submission time.
        connection.begin_batch(context.clock.instant(now_ns));
        while let Some((slot, transfer)) = job.poll_transfer(now_ns) {
            submit(connection, job, context, slot, transfer)?;
            if job.has_queued() && !connection.has_queued() {
                job.handle_submitted(context.clock.now_ns());
            }
        }
        if job.has_queued() {
            connection.submit_queued().map_err(|error| JobError::Path("submit transfers to", error))?;
            job.handle_submitted(context.clock.now_ns());
        }
        if job.is_idle() {
            if job.is_done() {
                return context.finish(connection);
            }
            if job.needs_flush() {
                now_ns = context.flush(connection, job, now_ns)?;
            } else {
                now_ns = context.wait_until(job.poll_timeout());
            }
            if context.publish(job.tally()) {
                job.stop();
            }
            continue;
        }
        reap(connection, &mut done, job, now_ns)?;
        // As in fio, the first completions of a batch are seen with the last one.
        while done.len() < job.completions_wanted() {
            reap(connection, &mut done, job, now_ns)?;
        }
        now_ns = match connection.completed_at() {
            // The time of the path may be that of the batch, before the submission.
            Some(completed) if context.latency_from == LatencyFrom::Due => {
                context.clock.ns_of(completed).max(now_ns)
            }
            _ => context.clock.now_ns(),
        };
        for Done { slot, result } in done.drain(..) {
            result.map_err(|error| JobError::Transfer(job.transfer(slot), error))?;
            job.handle_done(slot, now_ns);
        }
        if context.publish(job.tally()) {
            job.stop();
        }
    }
}

/// Submits a transfer of a job, with its content and priority if it has its own. Inlined, because a call costs as much
/// as the loop spends on a transfer otherwise.
#[expect(clippy::inline_always, reason = "the compiler does not inline it otherwise")]
#[inline(always)]
pub(crate) fn submit(
    connection: &mut dyn Connection,
    job: &mut Job,
    context: &JobContext,
    slot: u32,
    transfer: Transfer,
) -> Result<(), JobError> {
    let submitted = if job.prepares_transfers() {
        submit_prepared(connection, job, context, slot, transfer)
    } else {
        context.begin(job, slot);
        connection.submit(slot, transfer)
    };
    submitted.map_err(|error| JobError::Transfer(transfer, error))
}

#[cold]
fn submit_prepared(
    connection: &mut dyn Connection,
    job: &mut Job,
    context: &JobContext,
    slot: u32,
    transfer: Transfer,
) -> io::Result<()> {
    if let Some(filler) = job.filler(transfer)
        && let Some(buffer) = connection.buffer(slot)
    {
        filler.fill(&mut buffer[..transfer.bytes as usize]);
    }
    let priority = job.priority(transfer);
    context.begin(job, slot);
    match priority {
        None => connection.submit(slot, transfer),
        Some(priority) => connection.submit_prioritized(slot, transfer, priority),
    }
}

/// Waits for completions; of a job with a pace, until the start of its next transfer at the latest.
#[inline]
pub(crate) fn reap(
    connection: &mut dyn Connection,
    done: &mut Vec<Done>,
    job: &Job,
    now_ns: u64,
) -> Result<(), JobError> {
    let due_ns = if job.is_paced() { job.poll_timeout() } else { None };
    let reaped = match due_ns {
        None => connection.reap(done),
        Some(due_ns) => {
            let wait_ns = due_ns.saturating_sub(now_ns).min(PAUSE_MAX_NS);
            connection.reap_within(done, Duration::from_nanos(wait_ns))
        }
    };
    reaped.map_err(|error| JobError::Path("wait for transfers of", error))
}

/// Runs a job that measures one latency of `every`, on a connection of depth 1.
pub(crate) fn run_sampled(
    connection: &mut dyn Connection,
    plan: Plan,
    context: &JobContext,
    every: u32,
    seed: u64,
) -> Result<JobResult, JobError> {
    let now_ns = context.clock.now_ns();
    let mut job = SampledJob::new(plan, every, seed, context.runtime_ns, now_ns);
    let ended = run_sampled_job(connection, &mut job, context, now_ns);
    context.ended(connection, ended, |ended_ns| job.into_tally().finish(ended_ns))
}

fn run_sampled_job(
    connection: &mut dyn Connection,
    job: &mut SampledJob,
    context: &JobContext,
    mut now_ns: u64,
) -> Result<(), JobError> {
    let mut done: Vec<Done> = Vec::with_capacity(1);
    while let Some(transfers) = job.poll_run(now_ns) {
        let ran = connection.run_each(transfers, &mut done);
        ran.map_err(|(transfer, error)| JobError::Transfer(transfer, error))?;
        if job.needs_clock() {
            now_ns = context.clock.now_ns();
        }
        job.handle_run(now_ns);
        if context.publish(job.tally()) {
            job.stop();
        }
    }
    context.finish(connection)
}
