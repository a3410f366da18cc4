//! Runs jobs on modelled targets in virtual time, repetition after repetition. The run consists of the jobs of
//! `job.rs`, the queues, elevators, page cache and log of the library, and devices of `iopath-model`. `run.rs` combines
//! the repetitions.
//!
//! ```text
//!   event loop: now = the earliest time limit of jobs, page cache, queues and device
//!     └─ System   direct.rs    jobs ──────────────────────────▶ queues.rs ──▶ model
//!                 buffered.rs  jobs ──▶ page cache, readahead ──▶ queue ─────▶ model
//! ```
//!
//! `modelled.rs` runs several such systems as the volumes of one modelled machine.
//!
//! A run has one thread and only the virtual clock, and each source of random numbers has a seed. So the same workload
//! gives the same results and the same log on every machine.

pub mod accesses;
mod buffered;
pub mod contexts;
mod counted;
mod direct;
mod jobs;
pub mod machine;
mod modelled;
mod page_io;
mod ports;
pub mod queues;
pub mod server;
mod span;
mod system;
pub mod transport;
mod unplug;
mod volumes;
mod watched;

use std::path::PathBuf;
use std::sync::Arc;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{BlockDevice, QueueConfig};
use iopath_model::{Host, ModelDevice, Staged, Threads};
use iopath_os::system_error;
use rand_xoshiro::rand_core::RngCore;

use crate::cache::CacheSettings;
use crate::engine::{Ran, Worker};
use crate::error::BenchError;
use crate::model::ModelTarget;
use crate::model_host::ModelHost;
use crate::progress::Progress;
use crate::workload::{DeviceDepth, Workload};
use accesses::{Accesses, CachedThreads};
use buffered::Buffered;
use direct::Direct;
use iopath_report::random;
use jobs::SimError;
use modelled::ModelledVolumes;
pub use modelled::Timeline;
use queues::{QueuePerJob, SharedQueue};
pub use span::Span;
use system::System;
pub use unplug::Unplug;

/// Separates the random numbers of a model from those of plans, which have the same seed.
const PURPOSE: u64 = 0x30DE1;

/// The seed of a model, for a repetition of a workload with this seed.
pub fn model_seed(seed: u64, repetition: u32) -> u64 {
    random::generator(seed, [PURPOSE, repetition.into()]).next_u64()
}

/// Modelled targets in virtual time, for the repetitions of jobs at the same time.
pub struct Simulation<'a> {
    targets: Vec<ModelVolume<'a>>,
    host: Option<ModelHost>,
    seed: u64,
    modelled: ModelledVolumes,
}

/// A model, and the top half in front of it, which its jobs share.
struct ModelVolume<'a> {
    model: &'a ModelTarget,
    /// Page cache, elevator and path are those of all workloads on the volume.
    workload: Arc<Workload>,
    jobs: u32,
    /// The most transfers that a job has in flight.
    depth: u32,
    /// Whether model and page cache keep their state between repetitions. A cold repetition begins with both in their
    /// initial state.
    is_warm: bool,
}

impl<'a> Simulation<'a> {
    /// The models, with at least one of the workers on each.
    pub fn new(models: &[&'a ModelTarget], workers: &[Worker], seed: u64, timeline: &Timeline) -> Self {
        let target = |(number, model): (usize, &&'a ModelTarget)| {
            let on_model = || workers.iter().filter(move |worker| worker.volume == number);
            ModelVolume {
                model,
                workload: Arc::clone(&on_model().next().expect("each model has a worker").workload),
                jobs: on_model().count() as u32,
                depth: on_model().map(|worker| worker.workload.depth_in_flight()).max().unwrap_or(1),
                is_warm: on_model().any(|worker| worker.workload.warm),
            }
        };
        let targets: Vec<_> = models.iter().enumerate().map(target).collect();
        let host = workers.first().and_then(|worker| worker.workload.host.clone());
        let names = models.iter().map(|model| model.name().to_owned()).collect();
        let modelled = ModelledVolumes { names, ..ModelledVolumes::default() };
        let mut this = Self { targets, host, seed, modelled };
        this.modelled.host = this.new_host();
        for number in 0..this.targets.len() {
            let volume = this.open(number, 0, timeline);
            this.modelled.volumes.push(volume);
        }
        this
    }

    /// Runs unmeasured jobs, for volumes that stay warm.
    pub(crate) fn warm_up(
        &mut self,
        workers: &[Worker],
        timeline: &mut Timeline,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        self.modelled.run(workers, 0, timeline, progress)?.complete().map(drop)
    }

    /// Sets cold volumes to their initial state, before repetition `number`, from 1. Completes the log of the
    /// repetition before it.
    pub fn reset(&mut self, number: u32, timeline: &Timeline) {
        if self.targets.iter().all(|target| !target.is_warm) {
            self.modelled.host = self.new_host();
        }
        for target in 0..self.targets.len() {
            if !self.targets[target].is_warm {
                let volume = self.open(target, number, timeline);
                self.modelled.volumes.replace(target, volume);
            }
        }
    }

    /// Measures repetition `number`, after [`Simulation::reset`].
    pub fn measure(
        &mut self,
        workers: &[Worker],
        number: u32,
        timeline: &mut Timeline,
        progress: &mut dyn Progress,
    ) -> Result<Ran, BenchError> {
        self.modelled.run(workers, number, timeline, progress)
    }

    /// The modelled CPUs, idle.
    fn new_host(&self) -> Option<Host> {
        self.host.as_ref().map(|host| Host::new(host.model()))
    }

    /// A volume in its initial state.
    fn open(&self, number: usize, repetition: u32, timeline: &Timeline) -> Box<dyn System> {
        let target @ ModelVolume { model, is_warm, .. } = &self.targets[number];
        let seed = model_seed(random::of_target(self.seed, number), repetition);
        let device = ModelDevice::<Span>::new(model.model(), seed);
        let mut volume = match &self.modelled.host {
            Some(host) => system_on(Staged::new(device, host.clone()), target, Some(host.threads())),
            None => system_on(device, target, None),
        };
        // The first state of a volume that is not warm is never used.
        if let Some(log) = timeline.log.filter(|_| *is_warm || repetition > 0) {
            volume.start_logs(&mut || Box::new(log.add_queue()));
        }
        volume
    }
}

/// Recorded accesses of threads to a page cache above a device.
pub fn cached_threads<D: BlockDevice<Memory = Span>, A: Accesses>(
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

/// A volume on a device. Without `threads`, CPU work takes no time.
fn system_on<D: BlockDevice<Memory = Span> + 'static>(
    device: D,
    target: &ModelVolume,
    threads: Option<Threads>,
) -> Box<dyn System> {
    let ModelVolume { model, ref workload, jobs, depth, .. } = *target;
    let elevator = &workload.elevator.clone().unwrap_or_default();
    let device_depth = workload.device_depth.map(DeviceDepth::get);
    if workload.path.capabilities.cache {
        let unplug = Unplug::AtOnce;
        let cache = workload.cache.on_block(model.align_bytes());
        return Box::new(Buffered::new(device, &cache, elevator, device_depth, unplug, threads));
    }
    // A volume has the same rule: see `Queue` in crate `iopath`.
    if elevator.name() == "none" && jobs > 1 {
        return Box::new(Direct::new(QueuePerJob::new(device, jobs, depth), None, threads));
    }
    let bios_max = jobs.saturating_mul(depth).min(QueueConfig::SHARED_BIOS_MAX);
    let queue = SharedQueue::new(device, bios_max, None, device_depth, elevator);
    Box::new(Direct::new(queue, None, threads))
}

/// The failure of a run on `target`.
fn failed(target: PathBuf, error: SimError) -> BenchError {
    match error {
        SimError::Transfer(transfer, source) => BenchError::ModelledFault {
            target,
            direction: transfer.direction,
            offset: transfer.offset,
            bytes: transfer.bytes,
            source,
        },
        SimError::Flush(error) => BenchError::Io { action: "flush", target, source: system_error(error) },
        SimError::Refused(text) | SimError::NoFrame(text) => {
            BenchError::Io { action: "access", target, source: std::io::Error::other(text) }
        }
    }
}
