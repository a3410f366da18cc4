//! One repetition of one or several workloads: starts the jobs on their threads, waits for them, and reads the system's
//! counters before and after. The job of a thread is in `job.rs`; `run.rs` combines the repetitions.

mod counted;
mod course;
mod gate;
mod measured;
mod several;
mod watches;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use iopath_log::LogWriter;
use iopath_report::random;
use iopath_report::result::{CacheUse, Course};

use crate::cache::used_between;
use crate::error::LabError;
use crate::export::RemoteTarget;
use crate::job::control::{AccessSink, FlowShare, flows};
use crate::job::drive::{self, Clock, JobContext, JobError, Moved};
use crate::job::tally::JobResult;
use crate::job::{Limits, Start};
use crate::path::{Connection, IoPath, JobSpec};
use crate::plan::Plan;
use crate::progress::{JobSample, Progress, Sample};
use crate::signals::Interruption;
use crate::steady_detector as steady;
use crate::target::Target;
use crate::verify::checker::Checker;
use crate::verify::record::Record;
use crate::verify::{self, Verified};
use crate::workload::{LatencySampling, Workload};
use counted::Counters;
pub(crate) use counted::Transferred;
use course::CourseRecorder;
use gate::{Gate, Leave, Phase};
pub(crate) use measured::{CpuSeconds, Measured};
pub(crate) use several::connections_of;
use watches::Watches;

/// The interval of progress reports.
const TICK: Duration = Duration::from_millis(100);

/// Runs a workload once on an open path of each target, on all of them at the same time. `records` are those of the
/// targets if the workload verifies. `accesses` receives the accesses of all jobs.
pub(crate) fn measure(
    paths: &[&dyn IoPath],
    workload: &Workload,
    targets: &[&Target],
    repetition: u32,
    records: &[Record],
    accesses: Option<&LogWriter>,
    progress: &mut dyn Progress,
) -> Result<Measured, LabError> {
    let jobs = workload.jobs.get();
    let seeded = |target| Workload { seed: random::of_target(workload.seed, target), ..workload.clone() };
    let workloads: Vec<Workload> = (0..targets.len()).map(seeded).collect();
    let worker = |index: usize, job| Worker {
        path: paths[index],
        workload: &workloads[index],
        target: targets[index],
        job,
        of_path: [job, jobs],
        end_bytes: targets[index].size_bytes(),
        repetition,
        start: Start::default(),
        ends_all: false,
        clones: 0,
        record: records.get(index),
        accesses,
        until_idle: targets.len() > 1 && workload.path.capabilities.is_cached(),
    };
    let workers: Vec<Worker> = (0..targets.len())
        .flat_map(|index| (0..jobs).map(move |job| (index, job)))
        .map(|(index, job)| worker(index, job))
        .collect();
    let before: Vec<_> = paths.iter().map(|path| path.cache_stats()).collect();
    let together = measure_together(&workers, targets, progress)?;
    let used: Vec<Option<CacheUse>> = paths
        .iter()
        .zip(&before)
        .map(|(path, before)| {
            before.as_ref().zip(path.cache_stats()).map(|(before, after)| used_between(before, &after))
        })
        .collect();
    if let [cache] = used[..] {
        return Ok(Measured { cache, ..together.measured() });
    }
    Ok(together.of_each(targets, jobs as usize, &used))
}

/// Runs jobs of any workloads at the same time, once, with a common start. `targets` are those of the workers, each
/// once.
pub(crate) fn measure_together(
    workers: &[Worker],
    targets: &[&Target],
    progress: &mut dyn Progress,
) -> Result<Together, LabError> {
    let jobs = Jobs {
        workers,
        targets,
        gate: Gate::default(),
        stop: workers.iter().map(|_| AtomicBool::new(false)).collect(),
        moved: workers.iter().map(|_| Moved::default()).collect(),
        ended: workers.iter().map(|_| AtomicBool::new(false)).collect(),
        clock: Clock::start(),
        flows: flows(workers.iter().map(|worker| worker.workload.controls.flow.as_ref()))
            .into_iter()
            .map(Mutex::new)
            .collect(),
    };
    let (sender, outcomes) = mpsc::channel();
    let count = workers.len() as u32;
    thread::scope(|scope| {
        // On every exit, the threads at the gate must end: the scope waits for them.
        let _leave = Leave(&jobs.gate);
        for number in 0..count {
            let (jobs, sender) = (&jobs, sender.clone());
            let thread = thread::Builder::new().name(format!("iopath-job-{number}"));
            let spawned = thread.spawn_scoped(scope, move || jobs.run_thread(number as usize, &sender));
            spawned.map_err(|source| LabError::NoThread { job: number, jobs: count, source })?;
        }
        jobs.coordinate(&outcomes, progress)
    })
}

/// One job of a workload, for one thread.
#[derive(Clone, Copy)]
pub(crate) struct Worker<'a> {
    pub(crate) path: &'a dyn IoPath,
    pub(crate) workload: &'a Workload,
    pub(crate) target: &'a Target,
    /// The number of the job in its workload.
    pub(crate) job: u32,
    /// Its number among the jobs on this path, and their count.
    pub(crate) of_path: [u32; 2],
    /// The end of the range that the workload accesses.
    pub(crate) end_bytes: u64,
    pub(crate) repetition: u32,
    pub(crate) start: Start,
    /// Whether the end of the job ends all jobs.
    pub(crate) ends_all: bool,
    /// The number of its workload: jobs with the same number are steady together.
    pub(crate) clones: usize,
    /// The expected content, of a workload that verifies.
    pub(crate) record: Option<&'a Record>,
    /// The log that receives its accesses.
    pub(crate) accesses: Option<&'a LogWriter>,
    /// Whether the last job on a disk ends when that disk is idle: readahead may continue after the last transfer.
    pub(crate) until_idle: bool,
}

impl Worker<'_> {
    fn seed(&self) -> u64 {
        self.workload.seed.wrapping_add(self.job.into())
    }

    /// The time after which the job ends, from the common start.
    fn time(&self) -> Option<Duration> {
        Some(self.start.delay + self.start.ramp + self.workload.end.time()?)
    }

    /// About the bytes that the job moves.
    fn bytes(&self) -> u64 {
        self.workload.end.bytes().unwrap_or(self.end_bytes) / u64::from(self.workload.jobs)
    }
}

/// The measurements of jobs that ran at the same time.
#[derive(Debug)]
pub(crate) struct Together {
    /// Of each worker.
    pub(crate) jobs: Vec<JobResult>,
    /// The blocks that each worker has checked.
    pub(crate) verified: Vec<Option<Verified>>,
    /// The steady states, each with the number of the workload.
    pub(crate) steady: Vec<(usize, steady::Outcome)>,
    pub(crate) cpu: CpuSeconds,
    /// Transfers of the disk and of the storage of each target. See [`Measured`].
    pub(crate) transfers: Vec<Transferred>,
    /// The course over time, of all jobs together.
    pub(crate) course: Option<Course>,
    /// The warnings of all connections, each once.
    pub(crate) warnings: Vec<String>,
    /// Whether a signal ended the jobs before the ends of their plans.
    pub(crate) is_cut_off: bool,
}

impl Together {
    /// The sums of jobs on one target.
    fn measured(self) -> Measured {
        let Transferred { device, storage, connections } =
            self.transfers.into_iter().next().unwrap_or_default();
        let (cpu, warnings) = (Some(self.cpu), self.warnings);
        let verified = all_verified(self.verified.iter().map(Option::as_ref));
        let steady = self.steady.first().map(|(_, outcome)| *outcome);
        let Self { course, is_cut_off, .. } = self;
        Measured {
            verified,
            course,
            steady,
            cpu,
            device,
            storage,
            connections,
            warnings,
            is_cut_off,
            ..Measured::of_jobs(&self.jobs)
        }
    }
}

/// The report of a job's thread. A thread also reports a panic: otherwise the coordinator would wait for it forever.
enum Outcome {
    Connected(Vec<String>),
    NotConnected(LabError),
    /// With the number of the worker.
    Ran(usize, Result<(JobResult, Option<Verified>), JobError>),
    Panicked(Box<dyn Any + Send>),
}

/// The jobs of one repetition.
struct Jobs<'a> {
    workers: &'a [Worker<'a>],
    targets: &'a [&'a Target],
    gate: Gate,
    /// Set for each job when a job fails or ends all others, and when the job is steady: it then stops.
    stop: Vec<AtomicBool>,
    moved: Vec<Moved>,
    /// Whether each job has ended.
    ended: Vec<AtomicBool>,
    clock: Clock,
    /// The share of each job in the I/Os of its group, until the job starts.
    flows: Vec<Mutex<Option<FlowShare>>>,
}

impl Jobs<'_> {
    /// The thread of a job.
    fn run_thread(&self, number: usize, outcomes: &Sender<Outcome>) {
        // A closed channel is no error: the coordinator returns early if another thread cannot be started.
        let report = |outcome| {
            let _ = outcomes.send(outcome);
        };
        let worker = &self.workers[number];
        // The buffers of the connection follow the policy of the thread.
        let connected = catch_unwind(AssertUnwindSafe(|| {
            let [clone, _] = worker.of_path;
            let applied = worker.workload.controls.thread.apply(clone as usize);
            applied.and_then(|()| connect(worker))
        }));
        let mut connection = match connected {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => return report(Outcome::NotConnected(error)),
            Err(panic) => return report(Outcome::Panicked(panic)),
        };
        report(Outcome::Connected(connection.warnings()));
        if self.gate.wait_for(Phase::Run) == Phase::Leave {
            return;
        }
        let ran = catch_unwind(AssertUnwindSafe(|| self.run(number, &mut *connection)));
        if worker.ends_all || !matches!(ran, Ok(Ok(_))) {
            self.stop_all();
        }
        report(ran.map_or_else(Outcome::Panicked, |ran| Outcome::Ran(number, ran)));
        self.gate.wait_for(Phase::Drop);
    }

    fn run(
        &self,
        number: usize,
        connection: &mut dyn Connection,
    ) -> Result<(JobResult, Option<Verified>), JobError> {
        let worker @ &Worker { workload, start, .. } = &self.workers[number];
        let plan = Plan::new(workload, worker.end_bytes, worker.repetition, worker.job);
        let runtime = workload.end.time();
        let context = JobContext {
            runtime_ns: runtime.and_then(|runtime| u64::try_from(runtime.as_nanos()).ok()),
            start,
            flush_every: workload.flush_every,
            flush: workload.rw.writes(),
            clock: self.clock,
            stop: &self.stop[number],
            moved: &self.moved[number],
            counts: workload.steady_state.is_some(),
        };
        let flow = self.flows[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        let sink = worker.accesses.map(|log| AccessSink {
            sink: Box::new(log.add_queue()),
            stream: number as u32,
            zero_ns: self.clock.zero_ns(),
        });
        let limits = |begin| Limits::of(workload, [worker.repetition, worker.job], flow, sink, begin);
        let mut verified = None;
        let mut result = if let Some((settings, record)) = workload.verify.zip(worker.record) {
            let mut checker = Checker::new(record).with_dumps(settings.dump);
            let ran = verify::drive::run(connection, plan, limits, &context, settings, &mut checker)?;
            verified = Some(checker.into_verified());
            ran
        } else {
            match workload.latency_sampling {
                LatencySampling::ALL => drive::run(connection, plan, limits, &context),
                every => drive::run_sampled(connection, plan, &context, every.get(), worker.seed()),
            }?
        };
        self.ended[number].store(true, Ordering::SeqCst);
        if let Some(disk) = worker.target.disk().filter(|_| worker.until_idle && self.is_last_on_disk(number))
        {
            result.ended_ns = self.wait_until_idle(disk).unwrap_or(result.ended_ns);
        }
        Ok((result, verified))
    }

    /// Runs on the calling thread: sets the phases, reads the counters and reports progress.
    fn coordinate(
        &self,
        outcomes: &Receiver<Outcome>,
        progress: &mut dyn Progress,
    ) -> Result<Together, LabError> {
        let connected = self.gather(outcomes, TICK, &mut |_| ());
        if !connected.iter().all(|outcome| matches!(outcome, Outcome::Connected(_))) {
            return Err(first_error(connected, self.workers));
        }
        // A repetition may be shorter than a tick: then no tick notices the request.
        if Interruption::is_requested() {
            return Err(LabError::Interrupted);
        }
        let before = Counters::before(self.targets);
        let mut watches = Watches::new(self.workers, self.clock.now_ns());
        self.gate.set(Phase::Run);
        let (mut is_cut_off, mut recorder) = (false, CourseRecorder::default());
        let ran = self.gather(outcomes, watches.tick(), &mut |done| {
            watches.poll(&self.moved, &self.stop, self.clock);
            progress.advance(done);
            let sample = self.sample(done);
            recorder.add(self.clock.now_ns(), sample.jobs.iter().map(|job| job.bytes).sum());
            progress.sample(&sample);
            if Interruption::is_requested() {
                is_cut_off = true;
                self.stop_all();
            }
        });
        let after = Counters::after(self.targets);
        self.gate.set(Phase::Drop);
        let mut jobs: Vec<Option<(JobResult, Option<Verified>)>> = ran.iter().map(|_| None).collect();
        let mut failed = Vec::new();
        for outcome in ran {
            match outcome {
                Outcome::Ran(number, Ok(job)) => jobs[number] = Some(job),
                other => failed.push(other),
            }
        }
        if !failed.is_empty() {
            return Err(first_error(failed, self.workers));
        }
        let (jobs, verified): (Vec<JobResult>, _) = jobs.into_iter().flatten().unzip();
        let (cpu, transfers) = after.since(&before);
        let (steady, warnings) = (watches.outcomes(), warnings(connected));
        let started_ns = jobs.iter().map(|job| job.started_ns).min().unwrap_or(0);
        let ended_ns = jobs.iter().map(|job| job.ended_ns).max().unwrap_or(0);
        let bytes = jobs.iter().map(|job| job.read_bytes + job.written_bytes).sum();
        let course = recorder.course(started_ns, ended_ns, bytes);
        Ok(Together { jobs, verified, steady, cpu, transfers, course, warnings, is_cut_off })
    }

    fn stop_all(&self) {
        self.stop.iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }

    /// One outcome of each job.
    fn gather(
        &self,
        outcomes: &Receiver<Outcome>,
        tick: Duration,
        advance: &mut dyn FnMut(f64),
    ) -> Vec<Outcome> {
        let mut gathered = Vec::with_capacity(self.moved.len());
        while gathered.len() < self.moved.len() {
            match outcomes.recv_timeout(tick) {
                Ok(outcome) => gathered.push(outcome),
                Err(RecvTimeoutError::Timeout) => advance(self.done()),
                Err(RecvTimeoutError::Disconnected) => unreachable!("the caller holds a sender"),
            }
        }
        gathered
    }

    /// The counters of all jobs.
    fn sample(&self, done: f64) -> Sample {
        let jobs = self.workers.iter().zip(&self.moved).map(|(worker, moved)| {
            let bytes = moved.bytes.load(Ordering::Relaxed);
            JobSample {
                target: worker.target.file().map_or_else(String::new, |file| file.display().to_string()),
                bytes,
                ios: bytes / u64::from(worker.workload.block_size.bytes().max(1)),
                latency_ns: moved.latency_ns.load(Ordering::Relaxed),
            }
        });
        Sample { elapsed: Duration::from_nanos(self.clock.now_ns()), done, jobs: jobs.collect() }
    }

    /// The progress of the repetition, from 0 to 1.
    fn done(&self) -> f64 {
        let times: Option<Vec<Duration>> = self.workers.iter().map(Worker::time).collect();
        let done = if let Some(last) = times.and_then(|times| times.into_iter().max()) {
            self.clock.now_ns() as f64 / last.as_nanos() as f64
        } else {
            let moved: u64 = self.moved.iter().map(|moved| moved.bytes.load(Ordering::Relaxed)).sum();
            moved as f64 / self.workers.iter().map(Worker::bytes).sum::<u64>().max(1) as f64
        };
        done.min(1.0)
    }
}

fn connect(worker: &Worker) -> Result<Box<dyn Connection>, LabError> {
    let [job, jobs] = worker.of_path;
    worker.path.connect(&JobSpec {
        job,
        jobs,
        depth: worker.workload.depth_in_flight(),
        block_bytes: worker.workload.block_size.bytes(),
        seed: worker.seed(),
        fills: worker.record.is_some(),
        waits: worker.workload.is_paced() && worker.workload.depth_in_flight() > 1,
    })
}

/// Reads all blocks of a range back that the run has written, and checks them. Unmeasured. The caller has emptied the
/// caches.
pub(crate) fn read_back(
    path: &dyn IoPath,
    workload: &Workload,
    target: &Target,
    record: &Record,
) -> Result<Verified, LabError> {
    let block_bytes = workload.block_size.bytes();
    let spec = JobSpec {
        job: 0,
        jobs: 1,
        depth: workload.depth_in_flight(),
        block_bytes,
        seed: 0,
        fills: true,
        waits: false,
    };
    let mut connection = path.connect(&spec)?;
    let dumps = workload.verify.is_some_and(|verify| verify.dump);
    let mut checker = Checker::new(record).with_dumps(dumps);
    let mut reads = record.reads(block_bytes);
    verify::drive::read_back(&mut *connection, &mut reads, &mut checker)
        .map_err(|error| job_error(error, target))?;
    Ok(checker.into_verified())
}

/// The sum of what workers have checked; none if no worker verifies.
pub(crate) fn all_verified<'a>(verified: impl IntoIterator<Item = Option<&'a Verified>>) -> Option<Verified> {
    verified.into_iter().flatten().fold(None, |sum: Option<Verified>, one| {
        let mut sum = sum.unwrap_or_default();
        sum.add(one);
        Some(sum)
    })
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
fn first_error(outcomes: Vec<Outcome>, workers: &[Worker]) -> LabError {
    let mut first = None;
    for outcome in outcomes {
        match outcome {
            Outcome::Panicked(panic) => resume_unwind(panic),
            Outcome::NotConnected(error) => first = first.or(Some(error)),
            Outcome::Ran(number, Err(error)) => {
                first = first.or_else(|| Some(job_error(error, workers[number].target)));
            }
            Outcome::Connected(_) | Outcome::Ran(_, Ok(_)) => {}
        }
    }
    first.expect("called because a job failed")
}

fn job_error(error: JobError, target: &Target) -> LabError {
    if error.is_given_up() {
        return LabError::Interrupted;
    }
    let failure = target.remote().filter(|_| error.is_disconnected()).and_then(RemoteTarget::failure);
    let target = target.file().unwrap_or("no target".as_ref()).to_owned();
    match (error, failure) {
        (JobError::Path("flush", _), Some(reason)) => LabError::FlushLost { target, reason },
        (JobError::Transfer(transfer, _), Some(reason)) => LabError::ServerLost {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            reason,
        },
        (JobError::Transfer(transfer, source), None) => LabError::Transfer {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            source,
        },
        (JobError::Path(action, source), _) => LabError::Io { action, target, source },
    }
}
