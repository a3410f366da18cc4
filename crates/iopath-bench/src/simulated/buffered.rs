//! Buffered I/O in virtual time: runs the jobs of a workload on the page cache, readahead and write-back of the
//! library, above a queue and a modelled device. `buffered/call.rs` has the calls of a job.
//!
//! ```text
//!   jobs ── calls ──▶ BufferedPath ── bios ──▶ queue ── requests ──▶ device
//!    ▲ outcomes            │  ▲                   │
//!    └─────────────────────┘  └─── completions ───┘
//! ```
//!
//! It calls the state machine as the threads of `Buffered` in `iopath-os` do, but never blocks: the state of a job
//! records that the job waits.

pub(super) mod call;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use iopath::Readahead;
use iopath::stats::BufferedStats;
use iopath_core::buffered::{BufferedPath, Geometry, Starvation};
use iopath_core::cache::CacheConfig;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{BlockDevice, Instant, IoError, LogSink, QueueConfig, QueuedDevice, SECTOR_BYTES, Stream};
use iopath_model::event_loop::{End, LoopError, Process, earlier};
use iopath_model::{Threads, VirtualClock, Work};
use iopath_report::result::CacheUse;

use super::counted::Counted;
use super::jobs::{JobSetup, Jobs, Runner, SimError};
use super::page_io::PageIo;
use super::span::{FrameSpans, Span};
use super::system::{System, Watch, run_jobs};
use super::unplug::{Unplug, Unplugger};
use crate::cache::{CacheSettings, used_between};
use crate::counters::DiskCounters;
use crate::job::tally::JobResult;
use crate::steady_detector::Count;
use call::{Call, Caller, Next};

/// The jobs of one repetition, their page cache and the device.
#[derive(Debug)]
pub(super) struct Buffered<D: BlockDevice> {
    pages: PageIo<Counted<D>>,
    /// The threads of the jobs; none if CPU work takes no time.
    threads: Option<Threads>,
    /// Bios submitted and not yet charged to the host.
    bios: u32,
    jobs: Jobs<State>,
    /// Runnable jobs, in the order in which they became runnable.
    runnable: VecDeque<u32>,
    /// Jobs that sleep, each with the number of its sleep.
    sleepers: BinaryHeap<Reverse<(Instant, u32, u64)>>,
    sleeps: u64,
    /// The values of the counters at the last [`System::start`].
    counted: BufferedStats,
}

/// The state of a job.
#[derive(Debug)]
struct State {
    call: Call,
    phase: Phase,
    /// Bios of this job whose cost is part of its next CPU work.
    bios: u32,
}

#[derive(Debug)]
enum Phase {
    Runnable,
    /// The job waits. The state machine returns its number with the outcome.
    Waiting,
    /// The job waits for a free frame. It checks again when its sleep ends.
    Starved {
        sleep: u64,
        since: Instant,
        is_idle: bool,
        starvation: Starvation,
    },
    Asleep {
        sleep: u64,
    },
    /// Its thread executes CPU work, or waits for a CPU.
    Computing,
    Ended,
}

impl<D: BlockDevice<Memory = Span>> Buffered<D> {
    /// An empty cache in front of a device. Without `threads`, CPU work takes no time.
    pub(super) fn new(
        device: D,
        cache: &CacheSettings,
        elevator: &ElevatorSpec,
        device_depth: Option<u32>,
        unplug: Unplug,
        threads: Option<Threads>,
    ) -> Self {
        let pages = page_io(Counted::new(device), cache, elevator, device_depth, unplug);
        Self {
            pages,
            threads,
            bios: 0,
            jobs: Jobs::none(),
            runnable: VecDeque::new(),
            sleepers: BinaryHeap::new(),
            sleeps: 0,
            counted: BufferedStats::default(),
        }
    }

    /// Moves page I/O, and wakes the jobs whose outcomes are known.
    fn pump(&mut self, now: Instant) {
        let bios = self.pages.pump(Stream(0), |_| false, now);
        if self.threads.is_some() {
            self.bios += bios;
        }
        while let Some(ready) = self.pages.path.poll_ready() {
            let number = ready.waiter as u32;
            let State { call, phase, .. } = &mut self.jobs[number].state;
            call.set_outcome(ready.outcome);
            // A writer that computes finishes its copy before it waits: see `BufferedWrite::is_waiting`.
            if !matches!(phase, Phase::Computing) {
                self.wake(number);
            }
        }
    }

    /// Charges the bios since the last call. The thread of the job that caused them executes this work if it has
    /// further work; otherwise the host executes it.
    fn charge_bios(&mut self, number: Option<u32>, now: Instant) {
        let bios = std::mem::take(&mut self.bios);
        let Some(threads) = self.threads.as_ref().filter(|_| bios > 0) else { return };
        match number.map(|number| &mut self.jobs[number].state) {
            Some(State { phase: Phase::Computing, bios: of_job, .. }) => *of_job += bios,
            _ => drop(threads.host().run(&Work { bios, ..Work::default() }, now)),
        }
    }

    fn wake(&mut self, number: u32) {
        self.jobs[number].state.phase = Phase::Runnable;
        self.runnable.push_back(number);
    }

    /// Wakes jobs whose sleep has ended.
    fn wake_sleepers(&mut self, now: Instant) {
        while let Some(&Reverse((until, number, ended))) = self.sleepers.peek() {
            if until > now {
                return;
            }
            self.sleepers.pop();
            match &self.jobs[number].state.phase {
                Phase::Asleep { sleep } if *sleep == ended => self.wake(number),
                Phase::Starved { sleep, .. } if *sleep == ended => self.check_starved(number, now),
                // The outcome arrived before the end of the sleep.
                _ => {}
            }
        }
    }

    fn sleep(&mut self, number: u32, until: Instant) -> u64 {
        self.sleeps += 1;
        self.sleepers.push(Reverse((until, number, self.sleeps)));
        self.sleeps
    }

    /// Continues jobs whose CPU work is done.
    fn wake_threads(&mut self, now: Instant) {
        while let Some(number) = self.threads.as_ref().and_then(|threads| threads.poll_done(now)) {
            self.wake(number);
        }
    }

    /// Runs a job until it waits, sleeps, has CPU work or has ended.
    fn run_job(&mut self, number: u32, now: Instant) {
        if !matches!(self.jobs[number].state.phase, Phase::Runnable) {
            return;
        }
        loop {
            let Self { pages: PageIo { path, .. }, jobs, threads, .. } = self;
            let Runner { job, flushes, state: State { call, phase, bios }, .. } = &mut jobs[number];
            if call.is_done() {
                job.handle_done(0, now.as_nanos());
                *call = Call::None;
            }
            if let Call::None = call {
                *call = match job.poll_transfer(now.as_nanos()) {
                    Some((_, transfer)) => Call::new(transfer, path),
                    None if job.needs_flush() => {
                        Call::Flush { is_begun: false, outcome: None, started: Some(now) }
                    }
                    None if !job.is_done() => {
                        // A job with a pace has nothing in flight and waits for its next transfer.
                        let until = job.poll_timeout().map_or(now, Instant::from_nanos);
                        let sleep = self.sleep(number, until);
                        self.jobs[number].state.phase = Phase::Asleep { sleep };
                        return;
                    }
                    None if *flushes => Call::Flush { is_begun: false, outcome: None, started: None },
                    None => return self.end_job(number, now),
                };
            }
            let mut caller = Caller { path, waiter: number.into(), is_timed: threads.is_some() };
            match call.step(&mut caller, now) {
                Ok(Next::Made) => continue,
                Ok(Next::Work(work)) => {
                    *phase = Phase::Computing;
                    if let Some(threads) = threads {
                        threads.begin(number, &Work { bios: std::mem::take(bios), ..work }, now);
                    }
                }
                Ok(Next::Wait) => self.wait(number, now),
                Ok(Next::Sleep(until)) => {
                    let sleep = self.sleep(number, until);
                    self.jobs[number].state.phase = Phase::Asleep { sleep };
                }
                Ok(Next::End) => {
                    if let Call::Flush { started: Some(started), .. } = *call {
                        job.handle_flush((now - started).as_nanos() as u64, now.as_nanos());
                        *call = Call::None;
                        continue;
                    }
                    self.end_job(number, now);
                }
                Err(error) => self.fail(number, error),
            }
            return;
        }
    }

    fn fail(&mut self, number: u32, error: IoError) {
        let Runner { job, state, .. } = &self.jobs[number];
        let transfer = job.transfer(0);
        let is_flush = matches!(state.call, Call::Flush { .. });
        self.jobs.fail(if is_flush { SimError::Flush(error) } else { SimError::Transfer(transfer, error) });
    }

    fn end_job(&mut self, number: u32, now: Instant) {
        self.jobs[number].state.phase = Phase::Ended;
        self.jobs.end(number, now);
    }

    /// Makes a job wait for the outcome of its call.
    fn wait(&mut self, number: u32, now: Instant) {
        self.jobs[number].state.phase = Phase::Waiting;
        self.pages.unplugger.handle_wait();
        if self.pages.path.is_starved(number.into()) {
            self.starve(number, Starvation::default(), now);
        }
    }

    fn starve(&mut self, number: u32, mut starvation: Starvation, now: Instant) {
        let sleep = self.sleep(number, starvation.next_check(now));
        let is_idle = self.pages.queue.queue().in_flight() == 0;
        self.jobs[number].state.phase = Phase::Starved { sleep, since: now, is_idle, starvation };
    }

    /// A job that waits for a frame checks again, or fails after its time limit.
    fn check_starved(&mut self, number: u32, now: Instant) {
        let phase = std::mem::replace(&mut self.jobs[number].state.phase, Phase::Waiting);
        let Phase::Starved { since, is_idle, mut starvation, .. } = phase else { return };
        self.pages.path.handle_unpinned();
        if is_idle {
            starvation.handle_idle(now - since);
        }
        if let Some(no_frame) = self.pages.path.fail_starved(number.into(), &starvation) {
            self.jobs.fail(SimError::NoFrame(format!("no page of the cache is free: {no_frame:?}")));
        } else if self.pages.path.is_starved(number.into()) {
            self.starve(number, starvation, now);
        }
    }

    fn stats(&self) -> BufferedStats {
        let mut stats = BufferedStats::default();
        stats.cache = self.pages.path.cache().stats();
        stats.readahead = *self.pages.path.readahead().stats();
        stats.readahead_bytes = self.pages.path.readahead().distance_bytes();
        stats
    }
}

/// An empty cache in front of a device.
pub(super) fn page_io<D: BlockDevice<Memory = Span>>(
    device: D,
    cache: &CacheSettings,
    elevator: &ElevatorSpec,
    device_depth: Option<u32>,
    unplug: Unplug,
) -> PageIo<D> {
    let limits = device.limits().clone();
    let (cache_bytes, page_bytes) = (cache.cache_bytes(), cache.page_bytes());
    let readahead = match cache.readahead() {
        Readahead::Off => None,
        Readahead::Bytes(bytes) => ReadaheadConfig::limited(bytes, cache_bytes, page_bytes, &limits),
        Readahead::Linux(bytes) => ReadaheadConfig::linux(bytes, cache_bytes, page_bytes, &limits),
        // `Auto`: the options of the bench have no other.
        _ => Some(ReadaheadConfig::for_device(cache_bytes, page_bytes, &limits)),
    };
    let geometry = Geometry {
        page_bytes,
        block_bytes: limits.logical_block_bytes,
        size_bytes: limits.capacity * SECTOR_BYTES,
        writes_last_block: true,
    };
    let config = CacheConfig::for_device(cache_bytes, page_bytes, &limits);
    let depth = device_depth.unwrap_or(QueueConfig::DEVICE_DEPTH).min(limits.depth_max);
    let queue = QueueConfig {
        plug_requests_max: unplug.plug_requests_max(),
        ..QueueConfig::of_cache(QueueConfig::CACHE_BIOS_MAX, depth, elevator.clone())
    };
    PageIo {
        path: BufferedPath::new(config, readahead, geometry, FrameSpans { page_bytes }),
        queue: QueuedDevice::new(device, &queue),
        unplugger: Unplugger::new(unplug),
        completion_unplugs: false,
    }
}

impl<D: BlockDevice<Memory = Span>> Process for Buffered<D> {
    fn advance(&mut self, now: Instant) {
        loop {
            self.pump(now);
            self.wake_sleepers(now);
            if self.threads.is_some() {
                self.charge_bios(None, now);
                self.wake_threads(now);
            }
            if self.runnable.is_empty() || self.jobs.has_failed() {
                return;
            }
            while let Some(number) = self.runnable.pop_front() {
                self.run_job(number, now);
                self.pages.handle_windows();
                if self.threads.is_some() {
                    self.pump(now);
                    self.charge_bios(Some(number), now);
                }
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let threads = self.threads.as_ref().and_then(Threads::poll_timeout);
        earlier(
            earlier(self.pages.poll_timeout(), threads),
            self.sleepers.peek().map(|Reverse((until, ..))| *until),
        )
    }

    fn is_done(&self) -> bool {
        self.jobs.is_done()
    }
}

impl<D: BlockDevice<Memory = Span>> System for Buffered<D> {
    fn start(&mut self, jobs: Vec<JobSetup>) {
        let state = |_: &JobSetup| State { call: Call::None, phase: Phase::Runnable, bios: 0 };
        self.runnable = self.jobs.start(jobs, state).collect();
        self.counted = self.stats();
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
        self.pages.queue.queue_mut().start_log(sink());
    }

    fn counters(&self) -> DiskCounters {
        self.pages.queue.device().counters()
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

    fn cache_use(&self) -> Option<CacheUse> {
        Some(used_between(&self.counted, &self.stats()))
    }
}
