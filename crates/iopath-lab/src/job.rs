//! One job's loop: submit for every free slot, reap, record. Everything the lab itself costs for each I/O is here, and
//! so nothing here allocates, locks, formats or reads the clock more than once a batch. The loop that times only some
//! of the I/Os is in `job/sampled.rs`.

pub(crate) mod sampled;

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::path::{Connection, Direction, Done, Transfer};
use crate::plan::Plan;

/// Latencies above this are counted as this: an hour, in nanoseconds.
const LATENCY_MAX_NS: u64 = 3_600_000_000_000;

/// Nanoseconds since a moment that all jobs of a repeat share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    zero: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { zero: Instant::now() }
    }

    #[inline]
    pub(crate) fn now_ns(self) -> u64 {
        let elapsed = self.zero.elapsed();
        elapsed.as_secs() * 1_000_000_000 + u64::from(elapsed.subsec_nanos())
    }
}

/// How far a job is, for the progress bar. On a cache line of its own, so that jobs do not slow each other down.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Moved {
    pub(crate) bytes: AtomicU64,
}

/// What one job measured.
#[derive(Debug)]
pub(crate) struct JobResult {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) ios: u64,
    /// On the shared clock, in nanoseconds.
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) latency_ns: Histogram<u64>,
}

/// Why a job ended early.
#[derive(Debug)]
pub(crate) enum JobError {
    /// A transfer failed.
    Transfer(Transfer, io::Error),
    /// The path itself failed: at what.
    Path(&'static str, io::Error),
}

/// A histogram for latencies: three digits, up to [`LATENCY_MAX_NS`].
pub(crate) fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("the bounds are constants in order")
}

/// A slot in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    transfer: Transfer,
    submitted_ns: u64,
}

/// What a job has to know beside its plan.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms<'a> {
    /// When to end; unset, when the plan does.
    pub(crate) runtime: Option<Duration>,
    /// Whether the time of a final flush belongs to the job.
    pub(crate) flush: bool,
    pub(crate) clock: Clock,
    /// Set when another job failed: no need to go on.
    pub(crate) stop: &'a AtomicBool,
    pub(crate) moved: &'a Moved,
}

impl Terms<'_> {
    /// When a job that began then has to end, on the shared clock.
    fn deadline_ns(&self, started_ns: u64) -> u64 {
        let runtime_ns = self.runtime.and_then(|runtime| u64::try_from(runtime.as_nanos()).ok());
        runtime_ns.map_or(u64::MAX, |runtime_ns| started_ns.saturating_add(runtime_ns))
    }

    /// The end of a job with nothing in flight: flushes where that belongs to it, and takes the time.
    fn finish(
        &self,
        connection: &mut dyn Connection,
        started_ns: u64,
        tally: Tally,
    ) -> Result<JobResult, JobError> {
        if self.flush {
            connection.flush().map_err(|error| JobError::Path("flush", error))?;
        }
        let [read_bytes, written_bytes] = tally.bytes;
        Ok(JobResult {
            read_bytes,
            written_bytes,
            ios: tally.ios,
            started_ns,
            ended_ns: self.clock.now_ns(),
            latency_ns: tally.latency_ns,
        })
    }
}

/// Runs a plan on a connection.
pub(crate) fn run(
    connection: &mut dyn Connection,
    mut plan: Plan,
    terms: &Terms,
) -> Result<JobResult, JobError> {
    let clock = terms.clock;
    let depth = connection.depth();
    let idle = Transfer { direction: Direction::Read, offset: 0, bytes: 0 };
    let mut slots = vec![Slot { transfer: idle, submitted_ns: 0 }; depth as usize];
    let mut free: Vec<u32> = (0..depth).rev().collect();
    let mut done: Vec<Done> = Vec::with_capacity(depth as usize);
    let mut tally = Tally::new();
    let started_ns = clock.now_ns();
    let deadline_ns = terms.deadline_ns(started_ns);
    // What is submitted now was free to go when the last batch was in: the same reading of the clock serves both.
    let mut submitted_ns = started_ns;
    loop {
        while let Some(&slot) = free.last() {
            let Some(transfer) = plan.next() else { break };
            free.pop();
            slots[slot as usize] = Slot { transfer, submitted_ns };
            connection.submit(slot, transfer).map_err(|error| JobError::Transfer(transfer, error))?;
        }
        if free.len() == depth as usize {
            break;
        }
        connection.reap(&mut done).map_err(|error| JobError::Path("wait for transfers of", error))?;
        let ended_ns = clock.now_ns();
        tally.count(&slots, &mut done, &mut free, ended_ns)?;
        submitted_ns = ended_ns;
        terms.moved.bytes.store(tally.bytes[0] + tally.bytes[1], Ordering::Relaxed);
        if ended_ns >= deadline_ns || terms.stop.load(Ordering::Relaxed) {
            plan.stop();
        }
    }
    terms.finish(connection, started_ns, tally)
}

/// The sums of a job.
struct Tally {
    latency_ns: Histogram<u64>,
    /// Read, written.
    bytes: [u64; 2],
    ios: u64,
}

impl Tally {
    fn new() -> Self {
        Self { latency_ns: latencies(), bytes: [0; 2], ios: 0 }
    }

    /// Counts transfers that have succeeded, without their latencies.
    fn add(&mut self, transfers: &[Transfer]) {
        self.ios += transfers.len() as u64;
        let is_read = |transfer: &&Transfer| transfer.direction == Direction::Read;
        let sum = |bytes: u64, transfer: &Transfer| bytes + u64::from(transfer.bytes);
        let (all, read) = (transfers.iter().fold(0, sum), transfers.iter().filter(is_read).fold(0, sum));
        self.bytes = [self.bytes[0] + read, self.bytes[1] + all - read];
    }

    /// Counts a reaped batch and frees its slots. Transfers of one batch that were submitted together took equally
    /// long, and are recorded together.
    fn count(
        &mut self,
        slots: &[Slot],
        done: &mut Vec<Done>,
        free: &mut Vec<u32>,
        ended_ns: u64,
    ) -> Result<(), JobError> {
        let (mut alike, mut alike_ns) = (0, 0);
        for Done { slot, result } in done.drain(..) {
            let Slot { transfer, submitted_ns } = slots[slot as usize];
            result.map_err(|error| JobError::Transfer(transfer, error))?;
            let latency_ns = ended_ns - submitted_ns;
            if latency_ns != alike_ns {
                self.record(alike_ns, alike);
                (alike, alike_ns) = (0, latency_ns);
            }
            alike += 1;
            self.ios += 1;
            self.bytes[usize::from(transfer.direction == Direction::Write)] += u64::from(transfer.bytes);
            free.push(slot);
        }
        self.record(alike_ns, alike);
        Ok(())
    }

    fn record(&mut self, latency_ns: u64, count: u64) {
        if count > 0 {
            self.latency_ns.saturating_record_n(latency_ns, count);
        }
    }
}
