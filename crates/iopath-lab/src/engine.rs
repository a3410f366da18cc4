//! One repetition of a workload: starts the jobs on their threads, waits for them, and reads the system's counters before
//! and after. The job of a thread is in `job.rs`; `run.rs` combines the repetitions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use hdrhistogram::Histogram;
use iopath_model::Host;
use iopath_os::{CpuTimes, process_cpu_times};

use crate::cache::used_between;
use crate::counters::{DiskCounters, ProcessIo, machine_busy_seconds};
use crate::error::LabError;
use crate::job::Pace;
use crate::job::drive::{self, Clock, JobContext, JobError, Moved};
use crate::job::tally::{JobResult, latencies};
use crate::path::{Connection, IoPath, JobSpec};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::result::CacheUse;
use crate::storage::{StorageBytes, StorageCounts};
use crate::target::Target;
use crate::workload::{LatencySampling, Workload};

/// The interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// The measurements of one repetition.
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
    /// In virtual time, that of the modelled host; none without one.
    pub(crate) cpu: Option<CpuSeconds>,
    /// The transfers of the disk: of this process if it submits them itself, else of all processes. None without a single
    /// disk.
    pub(crate) device: Option<DiskCounters>,
    /// Bytes that the storage transferred; none where no counter shows them.
    pub(crate) storage: Option<StorageBytes>,
    /// Counters of iopath's page cache.
    pub(crate) cache: Option<CacheUse>,
    /// With several targets: each of them, in their order.
    pub(crate) targets: Vec<Self>,
    /// Warnings of the connections.
    pub(crate) warnings: Vec<String>,
}

/// CPU time of one repetition, in seconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuSeconds {
    /// Of this process.
    pub(crate) user: f64,
    pub(crate) system: f64,
    /// Of the whole machine, including other programs; none where `/proc/stat` cannot be read.
    pub(crate) machine_busy: Option<f64>,
}

impl CpuSeconds {
    /// The CPU time of a modelled host since `before`. All of it is kernel time: the jobs compute nothing.
    pub(crate) fn modelled(host: &Host, before: Duration) -> Self {
        let system = host.busy().saturating_sub(before).as_secs_f64();
        Self { user: 0.0, system, machine_busy: Some(system) }
    }
}

/// Runs a workload once on an open path.
pub(crate) fn measure(
    path: &dyn IoPath,
    workload: &Workload,
    target: &Target,
    repetition: u32,
    progress: &mut dyn Progress,
) -> Result<Measured, LabError> {
    let jobs = Jobs {
        path,
        workload,
        target,
        repetition,
        gate: Gate::default(),
        stop: AtomicBool::new(false),
        moved: (0..workload.jobs.get()).map(|_| Moved::default()).collect(),
        clock: Clock::start(),
    };
    let (sender, outcomes) = mpsc::channel();
    let before = path.cache_stats();
    let measured = thread::scope(|scope| {
        // On every exit, the threads at the gate must end: the scope waits for them.
        let _leave = Leave(&jobs.gate);
        for job in 0..workload.jobs.get() {
            let (jobs, sender) = (&jobs, sender.clone());
            let thread = thread::Builder::new().name(format!("iopath-job-{job}"));
            let spawned = thread.spawn_scoped(scope, move || jobs.run_thread(job, &sender));
            spawned.map_err(|source| LabError::NoThread { job, jobs: workload.jobs.get(), source })?;
        }
        jobs.coordinate(&outcomes, progress)
    });
    let used = before.zip(path.cache_stats()).map(|(before, after)| used_between(&before, &after));
    Ok(Measured { cache: used, ..measured? })
}

/// The report of a job's thread. A thread also reports a panic: otherwise the coordinator would wait for it forever.
enum Outcome {
    Connected(Vec<String>),
    NotConnected(LabError),
    Ran(Result<JobResult, JobError>),
    Panicked(Box<dyn Any + Send>),
}

/// The phases of a repetition, in order. The measured phase is `Run`: threads connect before it and drop their connections
/// after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum Phase {
    #[default]
    Connect,
    Run,
    /// The counters were read: connections may be dropped.
    Drop,
    /// The repetition has ended, or a job has no thread or no connection: threads end.
    Leave,
}

/// Jobs wait here for the next phase, which only the coordinator sets. The number of waiting threads is not fixed.
#[derive(Debug, Default)]
struct Gate {
    phase: Mutex<Phase>,
    changed: Condvar,
}

impl Gate {
    fn set(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = phase;
        self.changed.notify_all();
    }

    /// Waits for this phase or a later one, and returns the present phase.
    fn wait_for(&self, phase: Phase) -> Phase {
        let present = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let reached = self.changed.wait_while(present, |present| *present < phase);
        *reached.unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sets the last phase when it is dropped.
struct Leave<'a>(&'a Gate);

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        self.0.set(Phase::Leave);
    }
}

/// The jobs of one repetition.
struct Jobs<'a> {
    path: &'a dyn IoPath,
    workload: &'a Workload,
    target: &'a Target,
    repetition: u32,
    gate: Gate,
    /// Set when a job fails: the others then stop.
    stop: AtomicBool,
    moved: Vec<Moved>,
    clock: Clock,
}

impl Jobs<'_> {
    /// The thread of a job.
    fn run_thread(&self, job: u32, outcomes: &Sender<Outcome>) {
        // A closed channel is no error: the coordinator returns early if another thread cannot be started.
        let report = |outcome| {
            let _ = outcomes.send(outcome);
        };
        let connected = catch_unwind(AssertUnwindSafe(|| self.connect(job)));
        let mut connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return report(Outcome::NotConnected(error)),
            Err(panic) => return report(Outcome::Panicked(panic)),
        };
        report(Outcome::Connected(connection.warnings()));
        if self.gate.wait_for(Phase::Run) == Phase::Leave {
            return;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(job, &mut *connection)));
        if !matches!(ran, Ok(Ok(_))) {
            self.stop.store(true, Ordering::Relaxed);
        }
        report(ran.map_or_else(Outcome::Panicked, Outcome::Ran));
        self.gate.wait_for(Phase::Drop);
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
        let plan = Plan::new(self.workload, self.target.size_bytes(), self.repetition, job);
        let runtime = self.workload.end.time();
        let context = JobContext {
            runtime_ns: runtime.and_then(|runtime| u64::try_from(runtime.as_nanos()).ok()),
            flush: self.workload.rw.writes(),
            clock: self.clock,
            stop: &self.stop,
            moved: &self.moved[job as usize],
        };
        match self.workload.latency_sampling {
            LatencySampling::ALL => {
                let pace = |now_ns| Pace::of(self.workload, now_ns);
                drive::run(connection, plan, pace, &context)
            }
            every => drive::run_sampled(connection, plan, &context, every.get(), self.seed(job)),
        }
    }

    /// Runs on the calling thread: sets the phases, reads the counters and reports progress.
    fn coordinate(
        &self,
        outcomes: &Receiver<Outcome>,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let connected = self.gather(outcomes, &mut |_| ());
        if !connected.iter().all(|outcome| matches!(outcome, Outcome::Connected(_))) {
            return Err(first_error(connected, self.target));
        }
        let before = Counters::before(self.target);
        self.gate.set(Phase::Run);
        let ran = self.gather(outcomes, &mut |done| progress.advance(done));
        let after = Counters::after(self.target);
        self.gate.set(Phase::Drop);
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

    /// The progress of the repetition, from 0 to 1.
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

/// The system's counters at one moment.
struct Counters {
    cpu: CpuCounters,
    transfers: TransferCounters,
}

struct CpuCounters {
    process: CpuTimes,
    machine_busy_seconds: Option<f64>,
}

struct TransferCounters {
    device: Option<DiskCounters>,
    storage: Option<StorageCounts>,
    /// None if the kernel or a server submits the I/O instead of this process.
    io: Option<ProcessIo>,
}

/// Reading the counters of transfers takes CPU time that is not the workload's.
impl Counters {
    fn before(target: &Target) -> Self {
        let transfers = TransferCounters::read(target);
        Self { cpu: CpuCounters::read(), transfers }
    }

    fn after(target: &Target) -> Self {
        let cpu = CpuCounters::read();
        Self { cpu, transfers: TransferCounters::read(target) }
    }
}

impl CpuCounters {
    fn read() -> Self {
        Self { machine_busy_seconds: machine_busy_seconds().ok(), process: process_cpu_times() }
    }
}

impl TransferCounters {
    fn read(target: &Target) -> Self {
        Self {
            device: target.disk().and_then(DiskCounters::of),
            storage: target.storage().counts(),
            io: ProcessIo::of_self().filter(|_| target.storage().is_accessed_by_process()),
        }
    }
}

impl Measured {
    fn of(jobs: &[JobResult], before: &Counters, after: &Counters, warnings: Vec<String>) -> Self {
        let Counters { cpu: cpu_before, transfers: before } = before;
        let Counters { cpu: cpu_after, transfers: after } = after;
        let disk = after.device.zip(before.device).map(|(after, before)| after - before);
        let own = after.io.zip(before.io).map(|(after, before)| after - before);
        let storage = after.storage.as_ref().zip(before.storage.as_ref());
        Self {
            cpu: Some(CpuSeconds {
                user: cpu_after.process.user.saturating_sub(cpu_before.process.user).as_secs_f64(),
                system: cpu_after.process.system.saturating_sub(cpu_before.process.system).as_secs_f64(),
                machine_busy: cpu_after
                    .machine_busy_seconds
                    .zip(cpu_before.machine_busy_seconds)
                    .map(|(after, before)| (after - before).max(0.0)),
            }),
            storage: storage.map(|(after, before)| after.since(before)),
            device: disk.map(|disk| own.map_or(disk, |own| disk.caused_by(own))),
            warnings,
            ..Self::of_jobs(jobs)
        }
    }

    /// What the jobs have measured themselves, without any counter of the system.
    pub(crate) fn of_jobs(jobs: &[JobResult]) -> Self {
        let mut latency_ns = latencies();
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
            cpu: None,
            storage: None,
            device: None,
            cache: None,
            targets: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Bytes moved in both directions.
    pub(crate) fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes
    }
}

/// The warnings of the connections, each once.
fn warnings(outcomes: Vec<Outcome>) -> Vec<String> {
    let mut warnings: Vec<String> = Vec::new();
    for outcome in outcomes {
        let Outcome::Connected(of_job) = outcome else { continue };
        for warning in of_job {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }
    }
    warnings
}

/// The first error among outcomes that hold one. Resumes a panic instead, if there is one.
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
