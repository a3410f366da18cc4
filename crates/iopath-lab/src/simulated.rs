//! Runs one repetition of a workload on modelled targets in virtual time. The run consists of the jobs of `job.rs`, the
//! queues, elevators, page cache and log of the library, and devices of `iopath-model`. `run.rs` combines the
//! repetitions.
//!
//! ```text
//!   event loop: now = the earliest time limit of jobs, page cache, queues and device
//!     └─ System   direct.rs    jobs ──────────────────────────▶ queues.rs ──▶ model
//!                 buffered.rs  jobs ──▶ page cache, readahead ──▶ queue ─────▶ model
//! ```
//!
//! `machine.rs` runs several such systems as the volumes of one modelled machine.
//!
//! A run has one thread and only the virtual clock, and each source of random numbers has a seed. So the same workload
//! gives the same results and the same log on every machine.

pub(crate) mod accesses;
mod buffered;
pub(crate) mod contexts;
mod counted;
mod direct;
mod jobs;
pub(crate) mod machine;
mod page_io;
mod ports;
pub(crate) mod queues;
pub(crate) mod server;
mod span;
mod system;
pub(crate) mod together;
pub(crate) mod transport;
mod unplug;
mod volumes;
mod watched;

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use iopath_core::BlockDevice;
use iopath_core::elevator::ElevatorSpec;
use iopath_log::SyncLogWriter;
use iopath_model::event_loop::End;
use iopath_model::{Host, ModelDevice, Staged, Threads, VirtualClock};
use iopath_os::system_error;
use iopath_report::random;
use rand_xoshiro::rand_core::RngCore;

use crate::cache::CacheSettings;
use crate::engine::{CpuSeconds, Measured};
use crate::error::LabError;
use crate::job::control::AccessSink;
use crate::job::{Begin, Job, Limits, Start};
use crate::model::ModelTarget;
use crate::plan::Plan;
use crate::progress::Progress;
use crate::workload::{DeviceDepth, Workload};
use accesses::{Accesses, CachedThreads};
use buffered::Buffered;
use direct::Direct;
use jobs::{JobSetup, SimError};
use queues::{QueuePerJob, SHARED_BIOS_MAX, SharedQueue};
pub(crate) use span::Span;
use system::System;
pub(crate) use unplug::Unplug;
use volumes::Volumes;
use watched::{JobOf, Watches};

/// The interval of progress reports, in real time.
const TICK: Duration = Duration::from_millis(100);

/// Separates the random numbers of a model from those of plans, which have the same seed.
const PURPOSE: u64 = 0x30DE1;

/// The seed of a model, for a repetition of a workload with this seed.
pub(crate) fn model_seed(seed: u64, repetition: u32) -> u64 {
    random::generator(seed, [PURPOSE, repetition.into()]).next_u64()
}

/// The destination of the accesses of the job with this number, in virtual time.
pub(crate) fn access_sink(log: Option<&SyncLogWriter>, stream: u32) -> Option<AccessSink> {
    log.map(|log| AccessSink { sink: Box::new(log.add_queue()), stream, zero_ns: 0 })
}

/// Modelled targets in virtual time, for the repetitions of one workload on each of them at the same time.
pub(crate) struct Simulation<'a> {
    workload: &'a Workload,
    /// At least one.
    models: Vec<&'a ModelTarget>,
    log: Option<&'a SyncLogWriter>,
    /// The caller sets it to end the run early.
    stop: &'a AtomicBool,
    /// The clock is not reset between repetitions, so the times in the log only increase.
    clock: VirtualClock,
    /// The state that a warm workload keeps between repetitions. A cold repetition begins with models and page caches
    /// in their initial state.
    opened: Option<Opened>,
}

/// The modelled targets and the modelled CPUs in front of them.
struct Opened {
    targets: Volumes,
    host: Option<Host>,
}

impl<'a> Simulation<'a> {
    /// A simulation that accesses the start of each model: the size of the workload, or the whole model.
    pub(crate) fn new(
        workload: &'a Workload,
        models: Vec<&'a ModelTarget>,
        log: Option<&'a SyncLogWriter>,
        stop: &'a AtomicBool,
    ) -> Self {
        Self { workload, models, log, stop, clock: VirtualClock::default(), opened: None }
    }

    /// Runs `warm_up` once, without measurement, before the first repetition of a warm workload.
    pub(crate) fn warm_up(
        &mut self,
        warm_up: &Workload,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        let mut opened = self.open(0);
        self.run(&mut opened, warm_up, 0, None, progress)?.complete()?;
        self.opened = Some(opened);
        Ok(())
    }

    /// Measures repetition `number`, from 1.
    pub(crate) fn measure(&mut self, number: u32, progress: &mut dyn Progress) -> Result<Measured, LabError> {
        let mut opened = self.opened.take().unwrap_or_else(|| self.open(number));
        if let Some(log) = self.log {
            log.begin_repeat(number, self.clock.now());
        }
        // A repetition of a warm workload has the same transfers as its warm-up.
        let repetition = if self.workload.warm { 0 } else { number };
        let accesses = self.log.filter(|_| self.workload.logs_accesses());
        let measured = self.run(&mut opened, self.workload, repetition, accesses, progress)?;
        if self.workload.warm {
            self.opened = Some(opened);
        }
        Ok(measured)
    }

    /// The models, their queues and page caches, in their initial state, and an idle host.
    fn open(&self, number: u32) -> Opened {
        let host = self.workload.host.as_ref().map(|host| Host::new(host.model()));
        let mut targets = Volumes::default();
        for (target, model) in self.models.iter().enumerate() {
            let spec = VolumeSpec::of(self.workload, model.align_bytes());
            let device = ModelDevice::<Span>::new(model.model(), model_seed(self.seed(target), number));
            targets.push(match &host {
                Some(host) => system_on(Staged::new(device, host.clone()), &spec, Some(host.threads())),
                None => system_on(device, &spec, None),
            });
        }
        if let Some(log) = self.log {
            targets.start_logs(&mut || Box::new(log.add_queue()));
        }
        Opened { targets, host }
    }

    /// The seed of a target.
    fn seed(&self, target: usize) -> u64 {
        random::of_target(self.workload.seed, target)
    }

    /// Runs all jobs of a workload once on each target. `accesses` receives their accesses.
    fn run(
        &mut self,
        opened: &mut Opened,
        workload: &Workload,
        repetition: u32,
        accesses: Option<&SyncLogWriter>,
        progress: &mut dyn Progress,
    ) -> Result<Measured, LabError> {
        let Opened { targets, host } = opened;
        let busy_before = host.as_ref().map(Host::busy);
        let started = self.clock.now();
        let runtime_ns = workload.end.time().and_then(|time| u64::try_from(time.as_nanos()).ok());
        let before: Vec<_> = targets.volumes().iter().map(|target| target.counters()).collect();
        let (mut all_bytes, mut watches) = (0.0, Watches::default());
        for (target, model) in self.models.iter().enumerate() {
            let workload = Workload { seed: self.seed(target), ..workload.clone() };
            let size_bytes = workload.size_bytes.unwrap_or(model.size_bytes());
            all_bytes += workload.end.bytes().unwrap_or(size_bytes) as f64;
            let job = |number| {
                let (depth, block_bytes) = (workload.depth_in_flight(), workload.block_size.bytes());
                let plan = Plan::new(&workload, size_bytes, repetition, number);
                let started_ns = started.as_nanos();
                let stream = target as u32 * workload.jobs.get() + number;
                let sink = access_sink(accesses, stream);
                let begin = Begin::of(Start::default(), started_ns);
                let Limits { pace, control } = Limits::of(&workload, [repetition, number], None, sink, begin);
                let job = Job::new(plan, depth, runtime_ns, started_ns)
                    .with_flushes(workload.flush_every)
                    .with_pace(pace)
                    .with_control(control);
                JobSetup { job, depth, block_bytes, flushes: workload.rw.writes() }
            };
            targets.start(target, (0..workload.jobs.get()).map(job).collect());
            for job in 0..workload.jobs.get() {
                watches.add(JobOf { volume: target, job }, 0, &workload, started.as_nanos(), false);
            }
        }
        let mut shown = Instant::now();
        let mut watch = |moved_bytes: &dyn Fn() -> u64, now: iopath_core::Instant| {
            if self.stop.load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            if shown.elapsed() >= TICK {
                shown = Instant::now();
                let of_bytes = moved_bytes() as f64 / all_bytes;
                let of_time = runtime_ns.map_or(0.0, |ns| (now - started).as_nanos() as f64 / ns as f64);
                progress.advance(if runtime_ns.is_some() { of_time } else { of_bytes }.min(1.0));
            }
            ControlFlow::Continue(())
        };
        let ended = watched::run(targets, &mut watches, &mut self.clock, &mut watch);
        let ended = ended.map_err(|source| LabError::Simulation { target: self.name(), source })?;
        let (mut jobs, mut measured) = (Vec::new(), Vec::new());
        // A failure ends the run, so jobs of other targets may have no results.
        for (model, target) in self.models.iter().zip(targets.volumes_mut()) {
            if target.has_failed() {
                target.finish().map_err(|error| failed(model.name().to_owned(), error))?;
            }
        }
        for ((target, model), before) in targets.volumes_mut().iter_mut().zip(&self.models).zip(before) {
            let of_target = target.finish().map_err(|error| failed(model.name().to_owned(), error))?;
            measured.push(Measured {
                device: Some(target.counters() - before),
                cache: target.cache_use(),
                ..Measured::of_jobs(&of_target)
            });
            jobs.extend(of_target);
        }
        Ok(Measured {
            cpu: host.as_ref().zip(busy_before).map(|(host, before)| CpuSeconds::modelled(host, before)),
            device: measured.iter().map(|target| target.device).sum(),
            cache: measured.iter().map(|target| target.cache).sum(),
            steady: watches.outcomes().first().map(|(_, outcome)| *outcome),
            targets: if measured.len() > 1 { measured } else { Vec::new() },
            is_cut_off: matches!(ended, End::Stopped),
            ..Measured::of_jobs(&jobs)
        })
    }

    /// The names of all targets.
    fn name(&self) -> PathBuf {
        let names: Vec<_> = self.models.iter().map(|model| model.name().to_string_lossy()).collect();
        names.join(", ").into()
    }
}

/// Recorded accesses of threads to a page cache above a device.
pub(crate) fn cached_threads<D: BlockDevice<Memory = Span>, A: Accesses>(
    device: D,
    cache: &CacheSettings,
    elevator: &ElevatorSpec,
    device_depth: Option<u32>,
    threads: usize,
    accesses: A,
) -> CachedThreads<D, A> {
    let pages = buffered::page_io(device, cache, elevator, device_depth, Unplug::AtOnce);
    CachedThreads::new(pages, threads, accesses)
}

/// The top half of a volume, and its queues.
struct VolumeSpec {
    is_cached: bool,
    cache: CacheSettings,
    elevator: ElevatorSpec,
    device_depth: Option<u32>,
    jobs: u32,
    /// The most transfers that a job has in flight.
    depth: u32,
}

impl VolumeSpec {
    /// That of one workload on a model with this block size.
    fn of(workload: &Workload, block_bytes: u32) -> Self {
        Self {
            is_cached: workload.path.capabilities.cache,
            cache: workload.cache.on_block(block_bytes),
            elevator: workload.elevator.clone().unwrap_or_default(),
            device_depth: workload.device_depth.map(DeviceDepth::get),
            jobs: workload.jobs.get(),
            depth: workload.depth_in_flight(),
        }
    }
}

/// A volume on a device. Without `threads`, CPU work takes no time.
fn system_on<D: BlockDevice<Memory = Span> + 'static>(
    device: D,
    spec: &VolumeSpec,
    threads: Option<Threads>,
) -> Box<dyn System> {
    let VolumeSpec { is_cached, ref cache, ref elevator, device_depth, jobs, depth } = *spec;
    if is_cached {
        let unplug = Unplug::AtOnce;
        return Box::new(Buffered::new(device, cache, elevator, device_depth, unplug, threads));
    }
    // A volume has the same rule: see `Queue` in crate `iopath`.
    if elevator.name() == "none" && jobs > 1 {
        return Box::new(Direct::new(QueuePerJob::new(device, jobs, depth), None, threads));
    }
    let bios_max = jobs.saturating_mul(depth).min(SHARED_BIOS_MAX);
    let queue = SharedQueue::new(device, bios_max, None, device_depth, elevator);
    Box::new(Direct::new(queue, None, threads))
}

/// The failure of a run on `target`.
fn failed(target: PathBuf, error: SimError) -> LabError {
    match error {
        SimError::Transfer(transfer, source) => LabError::ModelledFault {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            source,
        },
        SimError::Flush(error) => LabError::Io { action: "flush", target, source: system_error(error) },
        SimError::Refused(text) | SimError::NoFrame(text) => {
            LabError::Io { action: "access", target, source: std::io::Error::other(text) }
        }
    }
}
