//! A modelled machine: its CPUs, and volumes with workloads that run at the same time, in virtual time. The experiments
//! of the lab build their setups from it. `simulated.rs` has the run of `iopath run` on models.
//!
//! ```text
//!   workloads ──▶ top half (direct.rs, buffered.rs) ──▶ queue, elevator ──▶ device        one volume
//!   workloads ──▶ top half ──▶ queue, elevator ──▶ device                                 another volume
//!                     └──────────── CPUs of the host ────────────┘
//! ```

mod log;

use std::path::PathBuf;
use std::sync::Arc;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{BlockDevice, Instant, LogSink, SECTOR_BYTES};
use iopath_model::{Host, Staged};
use rand_xoshiro::rand_core::RngCore;

use super::buffered::Buffered;
use super::direct::{Cut, Direct};
use super::modelled::{ModelledVolumes, Timeline};
use super::queues::SharedQueue;
use super::span::Span;
use super::system::System;
use super::unplug::Unplug;
use crate::cache::CacheSettings;
use crate::counters::DiskCounters;
use crate::engine::{JobRan, TargetRan, Worker};
use crate::error::BenchError;
use crate::job::tally::JobResult;
use crate::path::PathRow;
use crate::paths::{iopath_buffered, iopath_direct};
use crate::progress::Silent;
use crate::refusal::WorkloadError;
use crate::workload::Workload;
use iopath_report::random;
use iopath_report::result::{CacheUse, Latencies};
pub use log::{MachineLog, Memory};

/// The only repetition of a run.
const REPETITION: u32 = 1;

/// Separates the seeds of the workloads from each other.
const PURPOSE: u64 = 0x3AC81;

/// The maximum number of bios in a queue; further bios wait in their jobs.
const BIOS_MAX: u32 = 1 << 16;

/// A machine and its workloads.
pub struct Machine {
    /// The CPUs, which must be idle. Without them, CPU work takes no time.
    pub host: Option<Host>,
    /// The volumes. All of them run at the same time.
    pub volumes: Vec<VolumeSetup>,
}

/// A volume and its workloads.
pub struct VolumeSetup {
    /// The device behind the queue, with its links and controllers, but without the host.
    pub device: Box<dyn BlockDevice<Memory = Span>>,
    /// The elevator of the queue. Each volume has one queue, also with `none`.
    pub elevator: ElevatorSpec,
    /// The maximum number of requests in flight at the device; `None` means the limit of the device.
    pub device_depth: Option<u32>,
    /// The number of requests that the queue of direct I/O allocates, at least the device depth. `None` means enough
    /// for all bios. Further bios wait for a free request.
    pub requests_max: Option<u32>,
    /// The top half.
    pub top: Top,
    /// The workloads. All of them run at the same time; each begins at time zero. Path, elevator and cache are those of
    /// the volume.
    pub workloads: Vec<Workload>,
}

/// The top half of a volume.
pub enum Top {
    /// The device transfers directly from and to the memory of the caller.
    Direct {
        /// The top half cuts each transfer into bios of at most this size. `None` means that each transfer is one bio.
        bio_bytes_max: Option<u32>,
        /// Whether the bios of a transfer are in flight one after another. Otherwise all of them are submitted under
        /// one plug.
        serial: bool,
    },
    /// The page cache and readahead of the library. A job has one transfer in flight.
    Buffered {
        /// The settings of the cache.
        cache: CacheSettings,
        /// The condition to start plugged requests.
        unplug: Unplug,
    },
}

/// A function that makes a sink for the records of a queue.
pub(crate) type Sinks<'a> = &'a mut dyn FnMut() -> Box<dyn LogSink>;

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// From the start to the end of the last job.
    pub seconds: f64,
    /// The volumes, in the order of the setup.
    pub volumes: Vec<VolumeOutcome>,
    /// The CPU use; `None` without a host.
    pub cpu: Option<CpuUse>,
    /// The request log, if the run has one.
    pub log: Option<MachineLog>,
}

/// The result of a volume.
#[derive(Debug)]
pub struct VolumeOutcome {
    /// The jobs of the first workload, then those of the second, and so on.
    pub jobs: Vec<JobOutcome>,
    /// The counters of requests at the device.
    pub device: DiskCounters,
    /// The counters of the page cache; `None` without a page cache.
    #[allow(dead_code, reason = "so far, only tests read it")]
    pub(crate) cache: Option<CacheUse>,
}

/// The result of a job.
#[derive(Debug)]
pub struct JobOutcome {
    /// The number of its workload.
    pub workload: usize,
    /// The time from the start of the run to the end of the job, in seconds.
    pub ended: f64,
    /// Bytes in both directions.
    pub(crate) bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Latencies of the transfers, in nanoseconds.
    pub latency_ns: Latencies,
}

/// The use of the CPUs of a modelled host.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CpuUse {
    /// CPU time over all CPUs.
    pub busy_seconds: f64,
    /// Processors.
    pub(crate) cpus: u32,
    /// The share of CPU time that was not used, from 0 to 1.
    pub idle: f64,
}

impl Outcome {
    /// Bytes of all jobs.
    pub fn bytes(&self) -> u64 {
        self.volumes.iter().flat_map(|volume| &volume.jobs).map(|job| job.bytes).sum()
    }

    /// Bytes of all jobs a second.
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes() as f64 / self.seconds
    }
}

impl Machine {
    /// Runs all workloads to their ends. The same machine and seed give the same outcome and log on every machine. With
    /// `log`, the queues of all volumes write one request log. Queue 0 is the queue of the first volume.
    ///
    /// # Errors
    /// [`BenchError`]: a workload does not fit its volume, or a transfer failed.
    pub fn run(self, seed: u64, log: bool) -> Result<Outcome, BenchError> {
        if !log {
            return self.run_into(seed, None);
        }
        let (log, memory) = Memory::start(&self.volumes)?;
        let mut outcome = self.run_into(seed, Some(&mut || Box::new(log.add_queue())))?;
        outcome.log = Some(memory.finish(log)?);
        Ok(outcome)
    }

    /// Same as [`Machine::run`], but the caller makes a sink for the records of each queue.
    ///
    /// # Errors
    /// As [`Machine::run`].
    pub fn run_into(self, seed: u64, mut sinks: Option<Sinks<'_>>) -> Result<Outcome, BenchError> {
        let Self { host, volumes } = self;
        let busy_before = host.as_ref().map(Host::busy);
        let mut modelled = ModelledVolumes { host, ..ModelledVolumes::default() };
        let mut workers = Vec::new();
        for (number, volume) in volumes.into_iter().enumerate() {
            let seed = random::generator(seed, [PURPOSE, number as u64]).next_u64();
            workers.extend(volume.workers(seed, number)?);
            let mut system = volume.system(modelled.host.as_ref());
            if let Some(sinks) = &mut sinks {
                system.start_logs(*sinks);
            }
            modelled.volumes.push(system);
            modelled.names.push(volume_name(number));
        }
        let ran = modelled.run(&workers, REPETITION, &mut Timeline::default(), &mut Silent)?.complete()?;
        let outcome = |target: TargetRan| VolumeOutcome {
            jobs: Vec::new(),
            device: target.transferred.device.unwrap_or_default(),
            cache: target.cache,
        };
        let mut volumes: Vec<VolumeOutcome> = ran.targets.into_iter().map(outcome).collect();
        for JobRan { part, target, result, .. } in ran.jobs {
            volumes[target].jobs.push(JobOutcome::of(&result, part));
        }
        let host = modelled.host.take();
        drop(modelled);
        let ends = volumes.iter().flat_map(|volume| &volume.jobs).map(|job| job.ended);
        let seconds = ends.fold(0.0, f64::max);
        let cpu = host.zip(busy_before).map(|(host, before)| {
            let (cpus, busy_seconds) = (host.cpus(), host.busy().saturating_sub(before).as_secs_f64());
            let all_seconds = f64::from(cpus) * seconds;
            let idle = if all_seconds > 0.0 { (1.0 - busy_seconds / all_seconds).max(0.0) } else { 1.0 };
            CpuUse { busy_seconds, cpus, idle }
        });
        Ok(Outcome { seconds, volumes, cpu, log: None })
    }
}

impl VolumeSetup {
    /// The jobs of all workloads of volume `number`.
    fn workers(&self, seed: u64, number: usize) -> Result<Vec<Worker>, BenchError> {
        let limits = self.device.limits();
        let capacity_bytes = limits.capacity * SECTOR_BYTES;
        let mut workers = Vec::new();
        for (index, workload) in self.workloads.iter().enumerate() {
            let size_bytes = workload.size_bytes.unwrap_or(capacity_bytes);
            let wanted = workload.size_bytes_min().max(size_bytes);
            if wanted > capacity_bytes || workload.size_bytes_min() > size_bytes {
                let (target, has) = (volume_name(number), size_bytes.min(capacity_bytes));
                return Err(WorkloadError::TooSmall { target, has, wanted }.into());
            }
            let block_bytes = workload.block_size.bytes();
            let alignment = u64::from(limits.logical_block_bytes);
            if let Top::Direct { bio_bytes_max, .. } = self.top {
                for block_bytes in [Some(block_bytes), bio_bytes_max].into_iter().flatten().map(u64::from) {
                    if block_bytes == 0 || !block_bytes.is_multiple_of(alignment) {
                        return Err(BenchError::Unaligned {
                            block_bytes,
                            alignment,
                            target: volume_name(number),
                        });
                    }
                }
            }
            let seed = random::generator(seed ^ workload.seed, [PURPOSE, index as u64]).next_u64();
            // The path of a workload decides how many transfers a job has in flight.
            let workload = Arc::new(Workload { seed, path: self.top.path(), ..workload.clone() });
            let of_workload = Worker::of(&workload, number, size_bytes);
            workers.extend(of_workload.map(|worker| Worker { part: index, ..worker }));
        }
        Ok(workers)
    }

    /// The top half, queue and device.
    fn system(self, host: Option<&Host>) -> Box<dyn System> {
        let bios = self.workloads.iter().map(|workload| self.top.bios(workload));
        let bios_max = bios.fold(0, u32::saturating_add).min(BIOS_MAX);
        let Self { device, elevator, device_depth, requests_max, top, .. } = self;
        let threads = host.map(Host::threads);
        let (has_lock, request_bytes_max) =
            (host.is_some_and(Host::has_lock), device.limits().request_bytes_max);
        let device = match host {
            Some(host) => Box::new(Staged::new(device, host.clone())),
            None => device,
        };
        match top {
            Top::Direct { bio_bytes_max, serial } => {
                let queue = SharedQueue::new(device, bios_max, requests_max, device_depth, &elevator);
                let step_max =
                    |bytes: u32| (request_bytes_max / u64::from(bytes)).clamp(1, u64::from(u32::MAX)) as u32;
                let cut = bio_bytes_max.map(|bio_bytes_max| Cut {
                    bio_bytes_max,
                    is_serial: serial,
                    step_max: if has_lock { step_max(bio_bytes_max) } else { u32::MAX },
                });
                Box::new(Direct::new(queue, cut, threads))
            }
            Top::Buffered { cache, unplug } => {
                Box::new(Buffered::new(device, &cache, &elevator, device_depth, unplug, threads))
            }
        }
    }
}

impl Top {
    fn path(&self) -> &'static PathRow {
        match self {
            Self::Direct { .. } => &iopath_direct::ROW,
            Self::Buffered { .. } => &iopath_buffered::ROW,
        }
    }

    /// Bios that all jobs of a workload have in flight.
    fn bios(&self, workload: &Workload) -> u32 {
        let of_transfer = match *self {
            Self::Direct { bio_bytes_max: Some(bytes_max), serial: false } => {
                workload.block_size.bytes().div_ceil(bytes_max)
            }
            _ => 1,
        };
        let depth = if self.path().capabilities.synchronous { 1 } else { workload.depth.get() };
        workload.jobs.get().saturating_mul(depth).saturating_mul(of_transfer)
    }
}

impl JobOutcome {
    fn of(result: &JobResult, workload: usize) -> Self {
        let ended = Instant::from_nanos(result.ended_ns) - Instant::ZERO;
        Self {
            workload,
            ended: ended.as_secs_f64(),
            bytes: result.read_bytes + result.written_bytes,
            ios: result.ios,
            latency_ns: result.latency_ns.clone(),
        }
    }
}

fn volume_name(number: usize) -> PathBuf {
    format!("modelled volume {number}").into()
}

#[cfg(test)]
mod tests;
