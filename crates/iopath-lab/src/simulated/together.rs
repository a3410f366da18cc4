//! Jobs of any workloads at the same time on models, in virtual time: the groups of a job file. The repetitions of one
//! workload are in `simulated.rs`.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use iopath_log::SyncLogWriter;
use iopath_model::event_loop::End;
use iopath_model::{ModelDevice, VirtualClock};
use iopath_report::random;
use rand_xoshiro::rand_core::RngCore;

use super::jobs::JobSetup;
use super::span::Span;
use super::system::System;
use super::volumes::Volumes;
use super::watched::{self, JobOf, Watches};
use super::{PURPOSE, TICK, VolumeSpec, access_sink, failed, system_on};
use crate::counters::DiskCounters;
use crate::error::LabError;
use crate::job::control::flows;
use crate::job::tally::JobResult;
use crate::job::{Begin, Job, Limits, Start};
use crate::model::ModelTarget;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::steady_detector::Outcome;
use crate::workload::Workload;

/// A model, and the top half in front of it. Volumes jobs share it.
pub(crate) struct ModelVolume<'a> {
    pub(crate) model: &'a ModelTarget,
    /// Page cache, elevator and path: those of each workload on the volume.
    pub(crate) workload: &'a Workload,
    /// The jobs on it.
    pub(crate) jobs: u32,
    /// The most transfers that a job has in flight.
    pub(crate) depth: u32,
    /// Whether model and page cache keep their state between repetitions.
    pub(crate) is_warm: bool,
}

/// One job, on a volume.
pub(crate) struct ModelWorker<'a> {
    pub(crate) volume: usize,
    pub(crate) workload: &'a Workload,
    /// The end of the range that the workload accesses.
    pub(crate) end_bytes: u64,
    pub(crate) start: Start,
    /// Whether the end of the job ends all jobs.
    pub(crate) ends_all: bool,
    /// The number of its workload: jobs with the same number are steady together.
    pub(crate) clones: usize,
}

/// The measurements of one repetition.
pub(crate) struct ModelMeasured {
    /// Of each worker.
    pub(crate) jobs: Vec<JobResult>,
    /// The requests of all models.
    pub(crate) device: DiskCounters,
    /// The steady states, each with the number of the workload.
    pub(crate) steady: Vec<(usize, Outcome)>,
    /// Whether the caller ended the jobs before the ends of their plans.
    pub(crate) is_cut_off: bool,
}

/// The volumes of a group of jobs.
pub(crate) struct Together<'a> {
    volumes: Vec<ModelVolume<'a>>,
    systems: Volumes,
    seed: u64,
    log: Option<&'a SyncLogWriter>,
    stop: &'a AtomicBool,
}

impl<'a> Together<'a> {
    /// The volumes in their initial state.
    pub(crate) fn new(
        volumes: Vec<ModelVolume<'a>>,
        seed: u64,
        log: Option<&'a SyncLogWriter>,
        stop: &'a AtomicBool,
    ) -> Self {
        let mut this = Self { volumes, systems: Volumes::default(), seed, log, stop };
        for volume in 0..this.volumes.len() {
            let system = this.open(volume, 0);
            this.systems.push(system);
        }
        this
    }

    /// Runs the unmeasured workload of a warm volume.
    pub(crate) fn warm_up(
        &mut self,
        volume: usize,
        warm_up: &Workload,
        clock: &mut VirtualClock,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        let end_bytes = warm_up.size_bytes.unwrap_or(self.volumes[volume].model.size_bytes());
        let worker = ModelWorker {
            volume,
            workload: warm_up,
            end_bytes,
            start: Start::default(),
            ends_all: false,
            clones: 0,
        };
        let ran = self.run(&[worker], 0, false, clock, progress)?;
        if ran.is_cut_off { Err(LabError::Interrupted) } else { Ok(()) }
    }

    /// Measures repetition `number`, from 1.
    pub(crate) fn measure(
        &mut self,
        workers: &[ModelWorker],
        number: u32,
        clock: &mut VirtualClock,
        progress: &mut dyn Progress,
    ) -> Result<ModelMeasured, LabError> {
        for volume in 0..self.volumes.len() {
            if !self.volumes[volume].is_warm {
                let system = self.open(volume, number);
                self.systems.replace(volume, system);
            }
        }
        self.run(workers, number, true, clock, progress)
    }

    fn open(&self, number: usize, repetition: u32) -> Box<dyn System> {
        let ModelVolume { model, workload, jobs, depth, is_warm } = self.volumes[number];
        let seed = random::of_target(self.seed, number);
        let seed = random::generator(seed, [PURPOSE, repetition.into()]).next_u64();
        let device = ModelDevice::<Span>::new(model.model(), seed);
        let spec = VolumeSpec { jobs, depth, ..VolumeSpec::of(workload, model.align_bytes()) };
        let mut system = system_on(device, &spec, None);
        // The first state of a volume that is not warm is never used.
        if let Some(log) = self.log.filter(|_| is_warm || repetition > 0) {
            system.start_logs(&mut || Box::new(log.add_queue()));
        }
        system
    }

    fn run(
        &mut self,
        workers: &[ModelWorker],
        repetition: u32,
        logs: bool,
        clock: &mut VirtualClock,
        progress: &mut dyn Progress,
    ) -> Result<ModelMeasured, LabError> {
        let started = clock.now();
        let mut setups: Vec<Vec<JobSetup>> = self.volumes.iter().map(|_| Vec::new()).collect();
        let mut watches = Watches::default();
        // The number of each worker on its volume.
        let mut numbers = Vec::with_capacity(workers.len());
        let flows = flows(workers.iter().map(|worker| worker.workload.controls.flow.as_ref()));
        for ((stream, worker), flow) in (0..).zip(workers).zip(flows) {
            let ModelWorker { volume, workload, end_bytes, start, ends_all, clones } = *worker;
            let job = setups[volume].len() as u32;
            numbers.push(job);
            let begin = Begin::of(start, started.as_nanos());
            watches.add(JobOf { volume, job }, clones, workload, begin.measured_ns, ends_all);
            // A warm run repeats the transfers of its warm-up.
            let repetition = if workload.warm { 0 } else { repetition };
            let runtime_ns = workload.end.time().and_then(|time| u64::try_from(time.as_nanos()).ok());
            let (depth, block_bytes) = (workload.depth_in_flight(), workload.block_size.bytes());
            let plan = Plan::new(workload, end_bytes, repetition, 0);
            let sink = access_sink(self.log.filter(|_| logs && workload.logs_accesses()), stream);
            let Limits { pace, control } = Limits::of(workload, [repetition, 0], flow, sink, begin);
            let job = Job::new(plan, depth, runtime_ns, started.as_nanos())
                .with_start(start, started.as_nanos())
                .with_flushes(workload.flush_every)
                .with_pace(pace)
                .with_control(control);
            setups[volume].push(JobSetup { job, depth, block_bytes, flushes: workload.rw.writes() });
        }
        for (volume, setups) in setups.into_iter().enumerate() {
            self.systems.start(volume, setups);
        }
        let before = self.counters();
        let ended = self.advance(workers, &mut watches, clock, progress)?;
        let mut of_volumes: Vec<Vec<Option<JobResult>>> = Vec::new();
        for (system, volume) in self.systems.volumes_mut().iter_mut().zip(&self.volumes) {
            let jobs = system.finish().map_err(|error| failed(volume.model.name().to_owned(), error))?;
            of_volumes.push(jobs.into_iter().map(Some).collect());
        }
        let jobs = workers.iter().zip(numbers);
        let jobs = jobs.filter_map(|(worker, job)| of_volumes[worker.volume].get_mut(job as usize)?.take());
        Ok(ModelMeasured {
            jobs: jobs.collect(),
            device: self.counters() - before,
            steady: watches.outcomes(),
            is_cut_off: matches!(ended, End::Stopped),
        })
    }

    /// The event loop, until all jobs have ended.
    fn advance(
        &mut self,
        workers: &[ModelWorker],
        watches: &mut Watches,
        clock: &mut VirtualClock,
        progress: &mut dyn Progress,
    ) -> Result<End, LabError> {
        let started = clock.now();
        let time = |worker: &ModelWorker| {
            Some((worker.start.delay + worker.start.ramp + worker.workload.end.time()?).as_nanos() as f64)
        };
        let longest = workers.iter().map(time).collect::<Option<Vec<_>>>();
        let longest_ns = longest.map(|times| times.into_iter().fold(0.0, f64::max));
        let all_bytes: f64 =
            workers.iter().map(|worker| worker.workload.end.bytes().unwrap_or(worker.end_bytes) as f64).sum();
        let (stop, mut shown) = (self.stop, Instant::now());
        let mut watch = |moved_bytes: &dyn Fn() -> u64, now: iopath_core::Instant| {
            if stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            if shown.elapsed() >= TICK {
                shown = Instant::now();
                let done = match longest_ns {
                    Some(ns) => (now - started).as_nanos() as f64 / ns,
                    None => moved_bytes() as f64 / all_bytes,
                };
                progress.advance(done.min(1.0));
            }
            ControlFlow::Continue(())
        };
        let ended = watched::run(&mut self.systems, watches, clock, &mut watch);
        let ended = ended.map_err(|source| LabError::Simulation { target: self.name(), source })?;
        // A failure ends the run, so jobs of other volumes may have no results.
        for (system, volume) in self.systems.volumes_mut().iter_mut().zip(&self.volumes) {
            if system.has_failed() {
                system.finish().map_err(|error| failed(volume.model.name().to_owned(), error))?;
            }
        }
        Ok(ended)
    }

    /// The requests of all models so far.
    fn counters(&self) -> DiskCounters {
        self.systems.volumes().iter().map(|system| system.counters()).sum()
    }

    /// The names of all models.
    fn name(&self) -> PathBuf {
        let names: Vec<_> = self.volumes.iter().map(|volume| volume.model.name().to_string_lossy()).collect();
        names.join(", ").into()
    }
}
