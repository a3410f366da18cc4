//! One repeat: the jobs on their threads, begun together, and what the system counted meanwhile. The loop of a job is
//! in `job.rs`; what repeats mean together in `run.rs`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use iopath_os::{CpuTimes, process_cpu_times};

use crate::cache::used_between;
use crate::counters::{DiskCounters, machine_busy_seconds};
use crate::error::LabError;
use crate::job::{self, Clock, JobError, JobResult, Moved, Terms};
use crate::path::{Connection, IoPath, JobSpec};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::result::CacheUse;
use crate::storage::StorageBytes;
use crate::target::Target;
use crate::workload::Workload;

/// How often progress is told.
const TICK: Duration = Duration::from_millis(100);

/// What one repeat measured.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) ios: u64,
    /// From the first job's start to the last job's end.
    pub(crate) seconds: f64,
    /// From the first job's start to the first job's end.
    pub(crate) first_ended_seconds: f64,
    pub(crate) latency_ns: Histogram<u64>,
    pub(crate) user_seconds: f64,
    pub(crate) system_seconds: f64,
    /// Of the whole machine, whatever it was busy with; none where `/proc/stat` is not to be had.
    pub(crate) machine_busy_seconds: Option<f64>,
    pub(crate) device: Option<DiskCounters>,
    /// Bytes that the storage transferred; none where no counter shows them.
    pub(crate) storage: Option<StorageBytes>,
    /// What a page cache of iopath's did.
    pub(crate) cache: Option<CacheUse>,
    /// What the connections had to say.
    pub(crate) warnings: Vec<String>,
}

/// Runs a workload once on an open path.
pub(crate) fn measure(
    path: &dyn IoPath,
    workload: &Workload,
    target: &Target,
    repeat: u32,
    progress: &mut dyn Progress,
) -> Result<Measured, LabError> {
    let jobs = workload.jobs.get();
    let crew = Crew {
        path,
        workload,
        target,
        repeat,
        barrier: Barrier::new(jobs as usize + 1),
        abandoned: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        moved: (0..jobs).map(|_| Moved::default()).collect(),
        clock: Clock::start(),
    };
    let (sender, outcomes) = mpsc::channel();
    let before = path.cache_stats();
    let measured = thread::scope(|scope| {
        for job in 0..jobs {
            let (crew, sender) = (&crew, sender.clone());
            scope.spawn(move || crew.work(job, &sender));
        }
        crew.conduct(&outcomes, progress)
    });
    let used = before.zip(path.cache_stats()).map(|(before, after)| used_between(&before, &after));
    Ok(Measured { cache: used, ..measured? })
}

/// What a job thread reports. A panic is passed on, or everyone would wait for that thread for ever.
enum Outcome {
    Connected(Vec<String>),
    NotConnected(LabError),
    Ran(Result<JobResult, JobError>),
    Panicked(Box<dyn Any + Send>),
}

/// The jobs of one repeat. All wait for each other three times: when all are connected, when the counters are read
/// before, and when they are read after, so that making and dropping connections is not measured.
struct Crew<'a> {
    path: &'a dyn IoPath,
    workload: &'a Workload,
    target: &'a Target,
    repeat: u32,
    barrier: Barrier,
    /// Set before the first meeting when a job has no connection: nobody begins.
    abandoned: AtomicBool,
    /// Set when a job failed: the others end soon.
    stop: AtomicBool,
    moved: Vec<Moved>,
    clock: Clock,
}

impl Crew<'_> {
    /// A job's thread.
    fn work(&self, job: u32, outcomes: &Sender<Outcome>) {
        let report = |outcome| outcomes.send(outcome).expect("the conductor listens until all have reported");
        let connected = catch_unwind(AssertUnwindSafe(|| self.connect(job)));
        let mut connection = None;
        let outcome = match connected {
            Ok(Ok(connected)) => Outcome::Connected(connection.insert(connected).warnings()),
            Ok(Err(error)) => Outcome::NotConnected(error),
            Err(panic) => Outcome::Panicked(panic),
        };
        if connection.is_none() {
            self.abandoned.store(true, Ordering::Relaxed);
        }
        report(outcome);
        self.barrier.wait();
        self.barrier.wait();
        let Some(mut connection) = connection.filter(|_| !self.abandoned.load(Ordering::Relaxed)) else {
            return;
        };
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(job, &mut *connection)));
        if !matches!(ran, Ok(Ok(_))) {
            self.stop.store(true, Ordering::Relaxed);
        }
        report(ran.map_or_else(Outcome::Panicked, Outcome::Ran));
        self.barrier.wait();
    }

    fn connect(&self, job: u32) -> Result<Box<dyn Connection>, LabError> {
        self.path.connect(&JobSpec {
            job,
            jobs: self.workload.jobs.get(),
            depth: self.workload.depth_in_flight(),
            block_bytes: self.workload.block_size.bytes(),
            seed: self.seed(job),
        })
    }

    fn seed(&self, job: u32) -> u64 {
        self.workload.seed.wrapping_add(job.into())
    }

    fn run(&self, job: u32, connection: &mut dyn Connection) -> Result<JobResult, JobError> {
        let plan = Plan::new(self.workload, self.target.size_bytes(), self.repeat, job);
        let terms = Terms {
            runtime: self.workload.end.time(),
            flush: self.workload.rw.writes(),
            clock: self.clock,
            stop: &self.stop,
            moved: &self.moved[job as usize],
        };
        match self.workload.latency_sampling.get() {
            1 => job::run(connection, plan, &terms),
            every => job::sampled::run(connection, plan, &terms, every, self.seed(job)),
        }
    }

    /// The calling thread: reads the counters and waits.
    fn conduct(
        &self,
        outcomes: &Receiver<Outcome>,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let connected = self.gather(outcomes, &mut |_| ());
        self.barrier.wait();
        let before = Counters::read(self.target);
        self.barrier.wait();
        if self.abandoned.load(Ordering::Relaxed) {
            return Err(first_error(connected, self.target));
        }
        let ran = self.gather(outcomes, &mut |done| progress.advance(done));
        let after = Counters::read(self.target);
        self.barrier.wait();
        let mut jobs = Vec::with_capacity(ran.len());
        let mut failed = Vec::new();
        for outcome in ran {
            match outcome {
                Outcome::Ran(Ok(job)) => jobs.push(job),
                other => failed.push(other),
            }
        }
        if !failed.is_empty() {
            return Err(first_error(failed, self.target));
        }
        Ok(Measured::of(&jobs, &before, &after, warnings(connected)))
    }

    /// One outcome of each job.
    fn gather(&self, outcomes: &Receiver<Outcome>, advance: &mut dyn FnMut(f64)) -> Vec<Outcome> {
        let mut gathered = Vec::with_capacity(self.moved.len());
        while gathered.len() < self.moved.len() {
            match outcomes.recv_timeout(TICK) {
                Ok(outcome) => gathered.push(outcome),
                Err(RecvTimeoutError::Timeout) => advance(self.done()),
                Err(RecvTimeoutError::Disconnected) => unreachable!("the caller holds a sender"),
            }
        }
        gathered
    }

    /// How far the repeat is, from 0 to 1.
    fn done(&self) -> f64 {
        let done = if let Some(runtime) = self.workload.end.time() {
            self.clock.now_ns() as f64 / runtime.as_nanos() as f64
        } else {
            let moved: u64 = self.moved.iter().map(|moved| moved.bytes.load(Ordering::Relaxed)).sum();
            moved as f64 / self.target.size_bytes() as f64
        };
        done.min(1.0)
    }
}

/// What the system counts, at one moment.
struct Counters {
    process: CpuTimes,
    machine_busy_seconds: Option<f64>,
    device: Option<DiskCounters>,
    storage: Option<StorageBytes>,
}

impl Counters {
    fn read(target: &Target) -> Self {
        Self {
            device: target.disk().and_then(DiskCounters::of),
            storage: target.storage().bytes(),
            machine_busy_seconds: machine_busy_seconds().ok(),
            process: process_cpu_times(),
        }
    }
}

impl Measured {
    fn of(jobs: &[JobResult], before: &Counters, after: &Counters, warnings: Vec<String>) -> Self {
        let mut latency_ns = job::latencies();
        for job in jobs {
            latency_ns.add(&job.latency_ns).expect("all histograms have the same bounds");
        }
        let started_ns = jobs.iter().map(|job| job.started_ns).min().unwrap_or(0);
        let first_ended_ns = jobs.iter().map(|job| job.ended_ns).min().unwrap_or(0);
        let ended_ns = jobs.iter().map(|job| job.ended_ns).max().unwrap_or(0);
        Self {
            read_bytes: jobs.iter().map(|job| job.read_bytes).sum(),
            written_bytes: jobs.iter().map(|job| job.written_bytes).sum(),
            ios: jobs.iter().map(|job| job.ios).sum(),
            seconds: Duration::from_nanos(ended_ns - started_ns).as_secs_f64(),
            first_ended_seconds: Duration::from_nanos(first_ended_ns - started_ns).as_secs_f64(),
            latency_ns,
            user_seconds: after.process.user.saturating_sub(before.process.user).as_secs_f64(),
            system_seconds: after.process.system.saturating_sub(before.process.system).as_secs_f64(),
            machine_busy_seconds: after
                .machine_busy_seconds
                .zip(before.machine_busy_seconds)
                .map(|(after, before)| (after - before).max(0.0)),
            device: after.device.zip(before.device).map(|(after, before)| after - before),
            storage: after.storage.zip(before.storage).map(|(after, before)| after - before),
            cache: None,
            warnings,
        }
    }

    /// Bytes moved either way.
    pub(crate) fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

/// What the connections warned of, each thing once.
fn warnings(outcomes: Vec<Outcome>) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for outcome in outcomes {
        let Outcome::Connected(said) = outcome else { continue };
        for warning in said {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// The first error among outcomes that hold one; goes on with a panic instead, if one is there.
fn first_error(outcomes: Vec<Outcome>, target: &Target) -> LabError {
    let mut first = None;
    for outcome in outcomes {
        match outcome {
            Outcome::Panicked(panic) => resume_unwind(panic),
            Outcome::NotConnected(error) => first = first.or(Some(error)),
            Outcome::Ran(Err(error)) => first = first.or_else(|| Some(job_error(error, target))),
            Outcome::Connected(_) | Outcome::Ran(Ok(_)) => {}
        }
    }
    first.expect("called because a job failed")
}

fn job_error(error: JobError, target: &Target) -> LabError {
    let target = target.file().unwrap_or("no target".as_ref()).to_owned();
    match error {
        JobError::Transfer(transfer, source) => LabError::Transfer {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            source,
        },
        JobError::Path(action, source) => LabError::Io { action, target, source },
    }
}
