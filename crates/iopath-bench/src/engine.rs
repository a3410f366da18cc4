//! One repetition of one or several workloads: starts the jobs on their threads, waits for them, and reads the system's
//! counters before and after. The job of a thread is in `job.rs`; `run.rs` combines the repetitions.

mod counted;
mod course;
mod gate;
mod measured;
mod ran;
mod several;
mod watches;
mod worker;

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use iopath_log::LogWriter;

use crate::cache::used_between;
use crate::counters::thread_use;
use crate::error::BenchError;
use crate::export::RemoteTarget;
use crate::job::Limits;
use crate::job::control::{AccessSink, FlowShare, flows};
use crate::job::drive::{self, Clock, FinalFlush, JobContext, JobError, Moved};
use crate::job::pause::prepare_thread;
use crate::job::tally::JobResult;
use crate::path::{Connection, IoPath, JobSpec, Pages};
use crate::peers::{Go, Peers, TICK as TICK_OF_RANKS};
use crate::progress::{JobSample, Progress, Sample};
use crate::signals::Interruption;
use crate::target::Target;
use crate::verify::checker::Checker;
use crate::verify::record::Record;
use crate::verify::{self, Verified};
use crate::workload::{Contents, LatencySampling, Workload};
use counted::Counters;
pub(crate) use counted::Transferred;
use course::CourseRecorder;
use gate::{Gate, Leave, Phase};
pub use measured::{CpuSeconds, Measured};
pub(crate) use ran::{JobRan, Ran, TargetRan};
use watches::Watches;
pub use worker::{Worker, done};

/// The interval of progress reports.
pub(crate) const TICK: Duration = Duration::from_millis(100);

/// An open path to a target, for any number of jobs.
#[derive(Clone, Copy)]
pub(crate) struct OpenVolume<'a> {
    pub(crate) path: &'a dyn IoPath,
    pub(crate) target: &'a Target,
    /// The expected content, if jobs verify it.
    pub(crate) record: Option<&'a Record>,
}

/// Runs jobs of any workloads at the same time, once, with a common start. Their transfers are those of repetition
/// `number`; 0 is a warm-up. `accesses` receives the accesses of the jobs that log them.
pub(crate) fn measure(
    volumes: &[OpenVolume],
    workers: &[Worker],
    number: u32,
    accesses: Option<&LogWriter>,
    peers: Option<&dyn Peers>,
    progress: &mut dyn Progress,
) -> Result<Ran, BenchError> {
    let targets = distinct(volumes.iter().map(|volume| volume.target));
    let jobs = RunningJobs {
        volumes,
        workers,
        targets,
        number,
        accesses,
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
    let cache_before: Vec<_> = volumes.iter().map(|volume| volume.path.cache_stats()).collect();
    let (sender, outcomes) = mpsc::channel();
    let count = workers.len() as u32;
    let mut ran = thread::scope(|scope| {
        // On every exit, the threads at the gate must end: the scope waits for them.
        let _leave = Leave(&jobs.gate);
        for number in 0..count {
            let (jobs, sender) = (&jobs, sender.clone());
            let thread = thread::Builder::new().name(format!("iopath-job-{number}"));
            let spawned = thread.spawn_scoped(scope, move || jobs.run_thread(number as usize, &sender));
            spawned.map_err(|source| BenchError::NoThread { job: number, jobs: count, source })?;
        }
        jobs.coordinate(&outcomes, peers, progress)
    })?;
    for (target, of_target) in jobs.targets.iter().zip(&mut ran.targets) {
        let on_target =
            volumes.iter().zip(&cache_before).filter(|(volume, _)| ptr::eq(volume.target, *target));
        let used = on_target
            .filter_map(|(volume, before)| Some(used_between(before.as_ref()?, &volume.path.cache_stats()?)));
        of_target.cache = used.reduce(|sum, one| [sum, one].into_iter().sum());
    }
    Ok(ran)
}

/// Each target once.
pub(crate) fn distinct<'a>(targets: impl IntoIterator<Item = &'a Target>) -> Vec<&'a Target> {
    let mut distinct: Vec<&Target> = Vec::new();
    for target in targets {
        if !distinct.iter().any(|known| ptr::eq(*known, target)) {
            distinct.push(target);
        }
    }
    distinct
}

/// The report of a job's thread. A thread also reports a panic: otherwise the coordinator would wait for it forever.
enum Outcome {
    /// With the number of the worker, and warnings.
    Connected(usize, Vec<String>),
    NotConnected(BenchError),
    /// With the number of the worker.
    Ran(usize, Result<(JobResult, Option<Verified>), JobError>),
    Panicked(Box<dyn Any + Send>),
}

/// The jobs of one repetition, each in a thread.
struct RunningJobs<'a> {
    volumes: &'a [OpenVolume<'a>],
    workers: &'a [Worker],
    /// The targets of the volumes, each once.
    targets: Vec<&'a Target>,
    number: u32,
    accesses: Option<&'a LogWriter>,
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

impl RunningJobs<'_> {
    /// The thread of a job.
    fn run_thread(&self, number: usize, outcomes: &Sender<Outcome>) {
        // A closed channel is no error: the coordinator returns early if another thread cannot be started.
        let report = |outcome| {
            let _ = outcomes.send(outcome);
        };
        let worker = &self.workers[number];
        // The buffers of the connection follow the policy of the thread.
        let connected = catch_unwind(AssertUnwindSafe(|| {
            let [on_volume, _] = self.of_volume(number);
            let applied = worker.workload.controls.thread.apply(on_volume as usize);
            prepare_thread();
            applied.and_then(|locked| Ok((locked, self.connect(number)?)))
        }));
        // The locked memory stays until the thread ends.
        let (_locked, mut connection) = match connected {
            Ok(Ok(connected)) => connected,
            Ok(Err(error)) => return report(Outcome::NotConnected(error)),
            Err(panic) => return report(Outcome::Panicked(panic)),
        };
        report(Outcome::Connected(number, connection.warnings()));
        // The counters of a job with a ramp include it, unlike the time of the measurement.
        let before = thread_use().filter(|_| worker.start.ramp.is_zero());
        if self.gate.wait_for(Phase::Run) == Phase::Leave {
            return;
        }
        let mut ran = catch_unwind(AssertUnwindSafe(|| self.run(number, &mut *connection)));
        if let Ok(Ok((result, _))) = &mut ran {
            result.thread = thread_use().zip(before).map(|(after, before)| after - before);
        }
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
        let worker @ Worker { workload, .. } = &self.workers[number];
        let OpenVolume { target, record, .. } = self.volumes[worker.volume];
        if let Some(transfers) = workload.batch.submit_max {
            connection.set_submit_max(transfers);
        }
        let plan = worker.plan(self.number);
        let context = JobContext {
            runtime_ns: worker.runtime_ns(),
            start: worker.start,
            flush_every: [workload.flush_every, workload.flush_data_every],
            flush_all: workload.flush_all,
            final_flush: match (workload.rw.writes(), workload.times_final_flush) {
                (false, _) => FinalFlush::None,
                (true, true) => FinalFlush::Timed,
                (true, false) => FinalFlush::Untimed,
            },
            latency_from: workload.latency_from,
            measures_submissions: workload.measures_submissions(),
            clock: self.clock,
            stop: &self.stop[number],
            moved: &self.moved[number],
            counts: workload.steady_state.is_some(),
        };
        let flow = self.flows[number].lock().unwrap_or_else(PoisonError::into_inner).take();
        let sink = self.accesses.filter(|_| workload.logs_accesses()).map(|log| AccessSink {
            sink: Box::new(log.add_queue()),
            stream: number as u32,
            zero_ns: self.clock.zero_ns(),
        });
        let limits =
            |begin| Limits::of(workload, [worker.repetition(self.number), worker.job], flow, sink, begin);
        let mut verified = None;
        let mut result = if let Some((settings, record)) = workload.verify.zip(record) {
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
        let waits = worker.ends_idle && self.targets.len() > 1 && workload.path.capabilities.is_cached();
        if let Some(disk) = target.disk().filter(|_| waits && self.is_last_on_disk(target)) {
            result.ended_ns = self.wait_until_idle(disk).unwrap_or(result.ended_ns);
        }
        Ok((result, verified))
    }

    /// Runs on the calling thread: sets the phases, reads the counters and reports progress.
    fn coordinate(
        &self,
        outcomes: &Receiver<Outcome>,
        peers: Option<&dyn Peers>,
        progress: &mut dyn Progress,
    ) -> Result<Ran, BenchError> {
        let connected = self.gather(outcomes, TICK, &mut |_| ());
        let mut warnings = vec![Vec::new(); self.workers.len()];
        let mut refused = Vec::new();
        for outcome in connected {
            match outcome {
                Outcome::Connected(number, of_job) => warnings[number] = of_job,
                other => refused.push(other),
            }
        }
        if !refused.is_empty() {
            return Err(self.first_error(refused));
        }
        // A repetition may be shorter than a tick: then no tick notices the request.
        if Interruption::is_requested() {
            return Err(BenchError::Interrupted);
        }
        let before = Counters::before(&self.targets);
        let counted_ns = self.clock.now_ns();
        // Last before the start: its preparations take a different time on each rank.
        peers.map_or(Ok(()), Peers::start)?;
        let zero_seconds = peers.map(|peers| self.zero_seconds(peers));
        let mut watches = Watches::new(self.workers, self.clock.now_ns());
        self.gate.set(Phase::Run);
        let (mut is_cut_off, mut recorder) = (false, CourseRecorder::default());
        let tick = peers.map_or(watches.tick(), |_| watches.tick().min(TICK_OF_RANKS));
        let ran = self.gather(outcomes, tick, &mut |done| {
            watches.poll(&self.moved, &self.stop, self.clock);
            progress.advance(done);
            let sample = self.sample(done);
            recorder.add(self.clock.now_ns(), sample.jobs.iter().map(|job| job.bytes).sum());
            progress.sample(&sample);
            let go = peers.map_or(Go::On, Peers::poll);
            is_cut_off |= go == Go::Failed || Interruption::is_requested();
            if is_cut_off || go == Go::End {
                self.stop_all();
            }
        });
        if let Some(peers) = peers {
            peers.ended();
        }
        let after = Counters::after(&self.targets);
        let counted_seconds = Duration::from_nanos(self.clock.now_ns() - counted_ns).as_secs_f64();
        self.gate.set(Phase::Drop);
        let mut results: Vec<Option<(JobResult, Option<Verified>)>> = ran.iter().map(|_| None).collect();
        let mut failed = Vec::new();
        for outcome in ran {
            match outcome {
                Outcome::Ran(number, Ok(job)) => results[number] = Some(job),
                other => failed.push(other),
            }
        }
        if !failed.is_empty() {
            return Err(self.first_error(failed));
        }
        let (cpu, transfers, disks) = after.since(&before);
        let mut jobs = Vec::with_capacity(results.len());
        for ((worker, ran), warnings) in self.workers.iter().zip(results).zip(warnings) {
            let (result, verified) = ran.expect("a job without a result has failed");
            let target = self.number_of(self.volumes[worker.volume].target);
            jobs.push(JobRan { part: worker.part, target, result, verified, warnings });
        }
        let started_ns = jobs.iter().map(|job| job.result.started_ns).min().unwrap_or(0);
        let ended_ns = jobs.iter().map(|job| job.result.ended_ns).max().unwrap_or(0);
        let bytes = jobs.iter().map(|job| job.result.read_bytes + job.result.written_bytes).sum();
        Ok(Ran {
            jobs,
            targets: self.targets_ran(transfers),
            steady: watches.outcomes(),
            cpu: Some(cpu),
            disks,
            counted_seconds,
            course: recorder.course(started_ns, ended_ns, bytes),
            is_cut_off,
            zero_seconds,
        })
    }

    /// The zero of the clock of the jobs, on that of the ranks.
    fn zero_seconds(&self, peers: &dyn Peers) -> f64 {
        let before_ns = self.clock.now_ns();
        let seconds = peers.seconds();
        let now_ns = before_ns.midpoint(self.clock.now_ns());
        seconds - Duration::from_nanos(now_ns).as_secs_f64()
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
                target: self.volumes[worker.volume]
                    .target
                    .file()
                    .map_or_else(String::new, |file| file.display().to_string()),
                bytes,
                ios: bytes / u64::from(worker.workload.block_size.bytes().max(1)),
                latency_ns: moved.latency_ns.load(Ordering::Relaxed),
            }
        });
        Sample { elapsed: Duration::from_nanos(self.clock.now_ns()), done, jobs: jobs.collect() }
    }

    /// The progress of the repetition, from 0 to 1.
    fn done(&self) -> f64 {
        let moved_bytes = self.moved.iter().map(|moved| moved.bytes.load(Ordering::Relaxed)).sum();
        done(self.workers, Duration::from_nanos(self.clock.now_ns()), moved_bytes)
    }

    fn connect(&self, number: usize) -> Result<Box<dyn Connection>, BenchError> {
        let [job, jobs] = self.of_volume(number);
        let worker @ Worker { workload, .. } = &self.workers[number];
        let OpenVolume { path, record, .. } = self.volumes[worker.volume];
        path.connect(&JobSpec {
            job,
            jobs,
            depth: workload.depth_in_flight(),
            block_bytes: workload.block_size.bytes(),
            seed: worker.seed(),
            contents: &workload.contents,
            fills: workload.verify.is_some() && record.is_some(),
            pages: workload.controls.thread.pages,
            waits: workload.is_paced() && workload.depth_in_flight() > 1,
        })
    }

    /// The number of a worker among those on its volume, and their count.
    fn of_volume(&self, number: usize) -> [u32; 2] {
        let volume = self.workers[number].volume;
        let on_volume = |workers: &[Worker]| workers.iter().filter(|other| other.volume == volume).count();
        [&self.workers[..number], self.workers].map(|workers| on_volume(workers) as u32)
    }

    /// The number of a target.
    fn number_of(&self, target: &Target) -> usize {
        self.targets
            .iter()
            .position(|known| ptr::eq(*known, target))
            .expect("targets has those of all volumes")
    }

    /// The first error among outcomes that hold one. Resumes a panic instead, if there is one.
    fn first_error(&self, outcomes: Vec<Outcome>) -> BenchError {
        let mut first = None;
        for outcome in outcomes {
            match outcome {
                Outcome::Panicked(panic) => resume_unwind(panic),
                Outcome::NotConnected(error) => first = first.or(Some(error)),
                Outcome::Ran(number, Err(error)) => {
                    let target = self.volumes[self.workers[number].volume].target;
                    first = first.or_else(|| Some(job_error(error, target)));
                }
                Outcome::Connected(..) | Outcome::Ran(_, Ok(_)) => {}
            }
        }
        first.expect("called because a job failed")
    }
}

/// Reads all blocks of a range back that the run has written, and checks them. Unmeasured. The caller has emptied the
/// caches.
pub(crate) fn read_back(
    path: &dyn IoPath,
    workload: &Workload,
    target: &Target,
    record: &Record,
) -> Result<Verified, BenchError> {
    let block_bytes = workload.block_size.bytes();
    let spec = JobSpec {
        job: 0,
        jobs: 1,
        depth: workload.depth_in_flight(),
        block_bytes,
        seed: 0,
        contents: &Contents::Random,
        fills: true,
        pages: Pages::default(),
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

fn job_error(error: JobError, target: &Target) -> BenchError {
    if error.is_given_up() {
        return BenchError::Interrupted;
    }
    let failure = target.remote().filter(|_| error.is_disconnected()).and_then(RemoteTarget::failure);
    let target = target.file().unwrap_or("no target".as_ref()).to_owned();
    match (error, failure) {
        (JobError::Path("flush", _), Some(reason)) => BenchError::FlushLost { target, reason },
        (JobError::Transfer(transfer, _), Some(reason)) => BenchError::ServerLost {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            reason,
        },
        (JobError::Transfer(transfer, source), None) => BenchError::Transfer {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            source,
        },
        (JobError::Path(action, source), _) => BenchError::Io { action, target, source },
    }
}
