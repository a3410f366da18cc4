//! The measurements of one repetition, from the results of its jobs and the counters of the system. Does not measure.

use std::time::Duration;

use iopath_model::Host;
use iopath_report::result::{CacheUse, Connections, Course, Latencies, ThreadUse};

use crate::counters::{DiskCounters, DiskUses};
use crate::job::control::ControlEnd;
use crate::job::tally::{JobResult, OneDirection, Parts};
use crate::steady_detector::Outcome;
use crate::storage::StorageBytes;
use crate::verify::Verified;

/// The measurements of one repetition.
#[derive(Debug)]
pub struct Measured {
    pub(crate) read_bytes: u64,
    pub(crate) written_bytes: u64,
    pub(crate) trimmed_bytes: u64,
    /// The number of transfers.
    pub ios: u64,
    /// From the first job's start to the last job's end.
    pub seconds: f64,
    /// From the first job's start to the first job's end.
    pub(crate) first_ended_seconds: f64,
    /// The latencies of all transfers.
    pub latency_ns: Latencies,
    /// Reads, writes and trims, if there were at least two of them.
    pub(crate) directions: Option<[OneDirection; 3]>,
    /// The latencies of flushes between transfers.
    pub(crate) flush_ns: Latencies,
    /// The latencies of jobs with a rate from their other start.
    pub(crate) other_ns: Latencies,
    /// The parts of the latencies, of jobs that measure submissions.
    pub(crate) parts: Parts,
    /// The longest flush that followed a job, in seconds.
    pub(crate) final_flush_seconds: f64,
    /// The blocks that were checked, of a workload that verifies.
    pub(crate) verified: Option<Verified>,
    /// The course over time, of all jobs together; none in virtual time.
    pub(crate) course: Option<Course>,
    /// The observations of the controls of each job that has any.
    pub(crate) controlled: Vec<ControlEnd>,
    /// Of a workload that ends at its steady state.
    pub(crate) steady: Option<Outcome>,
    /// In virtual time, that of the modelled host; none without one.
    pub(crate) cpu: Option<CpuSeconds>,
    /// CPU time and context switches of the threads of the jobs; none in virtual time.
    pub(crate) threads: Option<ThreadUse>,
    /// The transfers of the disk: of this process if it submits them itself, else of all processes. None without a
    /// single disk.
    pub(crate) device: Option<DiskCounters>,
    /// The use of each disk by all processes, with ramps.
    pub(crate) disks: DiskUses,
    /// The time in which the use of the disks was counted.
    pub(crate) counted_seconds: f64,
    /// Bytes that the storage transferred; none where no counter shows them.
    pub(crate) storage: Option<StorageBytes>,
    /// Lost connections; none where no target is an export.
    pub(crate) connections: Option<Connections>,
    /// Counters of iopath's page cache.
    pub(crate) cache: Option<CacheUse>,
    /// With several targets: each of them, in their order.
    pub(crate) targets: Vec<Self>,
    /// Warnings of the connections.
    pub(crate) warnings: Vec<String>,
    /// Whether a signal ended the repetition: these are the measurements up to it.
    pub(crate) is_cut_off: bool,
}

/// CPU time of one repetition, in seconds.
#[derive(Debug, Clone, Copy)]
pub struct CpuSeconds {
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

impl Measured {
    /// What the jobs have measured themselves, without any counter of the system.
    pub(crate) fn of_jobs<'a>(jobs: impl IntoIterator<Item = &'a JobResult>) -> Self {
        let jobs: Vec<&JobResult> = jobs.into_iter().collect();
        // A job that ended before its measurement began has no time, unless no job has one.
        let is_measured = jobs.iter().any(|job| job.ios > 0);
        let timed = || jobs.iter().filter(|job| job.ios > 0 || !is_measured);
        let started_ns = timed().map(|job| job.started_ns).min().unwrap_or(0);
        let first_ended_ns = timed().map(|job| job.ended_ns).min().unwrap_or(0);
        let ended_ns = timed().map(|job| job.ended_ns).max().unwrap_or(0);
        Self {
            read_bytes: jobs.iter().map(|job| job.read_bytes).sum(),
            written_bytes: jobs.iter().map(|job| job.written_bytes).sum(),
            trimmed_bytes: jobs.iter().map(|job| job.trimmed_bytes).sum(),
            ios: jobs.iter().map(|job| job.ios).sum(),
            seconds: Duration::from_nanos(ended_ns - started_ns).as_secs_f64(),
            first_ended_seconds: Duration::from_nanos(first_ended_ns - started_ns).as_secs_f64(),
            latency_ns: jobs.iter().map(|job| &job.latency_ns).sum(),
            directions: directions(&jobs),
            flush_ns: jobs.iter().map(|job| &job.flush_ns).sum(),
            other_ns: jobs.iter().map(|job| &job.other_ns).sum(),
            parts: jobs.iter().map(|job| &*job.parts).sum(),
            final_flush_seconds: jobs.iter().map(|job| job.final_flush_ns).max().unwrap_or(0) as f64 / 1e9,
            verified: None,
            course: None,
            controlled: jobs.iter().filter_map(|job| Some(job.controlled.as_ref()?.end.clone())).collect(),
            steady: None,
            cpu: None,
            threads: jobs.iter().map(|job| job.thread).sum(),
            storage: None,
            connections: None,
            device: None,
            disks: DiskUses::new(),
            counted_seconds: 0.0,
            cache: None,
            targets: Vec::new(),
            warnings: Vec::new(),
            is_cut_off: false,
        }
    }

    /// Bytes of all transfers.
    pub(crate) fn bytes(&self) -> u64 {
        self.read_bytes + self.written_bytes + self.trimmed_bytes
    }
}

/// The sums of reads, of writes and of trims; none unless there are at least two of them.
fn directions(jobs: &[&JobResult]) -> Option<[OneDirection; 3]> {
    let of_job = |job: &JobResult| [job.read_bytes, job.written_bytes, job.trimmed_bytes];
    let is_used = |index: &usize| jobs.iter().any(|job| of_job(job)[*index] > 0);
    if (0..3).filter(is_used).count() < 2 {
        return None;
    }
    let mut sums: [OneDirection; 3] = Default::default();
    for job in jobs {
        if let Some(directions) = &job.directions {
            sums.iter_mut().zip(&**directions).for_each(|(sum, direction)| sum.add(direction));
            continue;
        }
        let bytes = of_job(job);
        let index = bytes.iter().position(|bytes| *bytes > 0).unwrap_or(0);
        sums[index].add(&OneDirection {
            bytes: bytes[index],
            ios: job.ios,
            latency_ns: job.latency_ns.clone(),
            parts: (*job.parts).clone(),
        });
    }
    Some(sums)
}
