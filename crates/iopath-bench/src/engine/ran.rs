//! The measurements of jobs that ran at the same time: of all of them, of each workload and of each target. Does not
//! run jobs.

use std::time::Duration;

use super::{CpuSeconds, Measured, Transferred, all_verified};
use crate::counters::DiskUses;
use crate::error::BenchError;
use crate::job::tally::JobResult;
use crate::steady_detector::Outcome;
use crate::storage::Resident;
use crate::verify::Verified;
use iopath_report::result::{CacheUse, Connections, Course};

/// The measurements of one repetition.
#[derive(Debug)]
pub struct Ran {
    /// The jobs, in the order of the workers.
    pub(crate) jobs: Vec<JobRan>,
    /// The targets, each once.
    pub(crate) targets: Vec<TargetRan>,
    /// The steady states, each with the number of the workload.
    pub(crate) steady: Vec<(usize, Outcome)>,
    /// None in virtual time without a modelled host.
    pub(crate) cpu: Option<CpuSeconds>,
    /// The use of the disks, with ramps; empty in virtual time.
    pub(crate) disks: DiskUses,
    /// The time in which it was counted.
    pub(crate) counted_seconds: f64,
    /// The course over time, of all jobs together; none in virtual time.
    pub(crate) course: Option<Course>,
    /// Whether a signal ended the jobs before the ends of their plans.
    pub(crate) is_cut_off: bool,
    /// The zero of the times of the jobs on the clock of other processes, in seconds; none without any.
    pub(crate) zero_seconds: Option<f64>,
}

/// The measurements of a job.
#[derive(Debug)]
pub(crate) struct JobRan {
    /// The number of its workload.
    pub(crate) part: usize,
    /// The number of its target.
    pub(crate) target: usize,
    pub(crate) result: JobResult,
    /// The blocks that it has checked, if it verifies.
    pub(crate) verified: Option<Verified>,
    pub(crate) warnings: Vec<String>,
}

/// The transfers of a target.
#[derive(Debug, Default)]
pub(crate) struct TargetRan {
    pub(crate) transferred: Transferred,
    /// Counters of iopath's page caches above it; none without one.
    pub(crate) cache: Option<CacheUse>,
    /// The bytes that were in page caches when the repetition began; none if they were not counted.
    pub(crate) resident: Option<Resident>,
    /// Whether the device counters are of this target alone, if there are several.
    pub(crate) has_own_disk: bool,
    /// Whether threads of this process submit its I/O.
    pub(crate) is_accessed_by_process: bool,
}

impl Ran {
    /// The measurements, for a caller to which a part of a repetition is of no use.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`].
    pub fn complete(self) -> Result<Self, BenchError> {
        if self.is_cut_off { Err(BenchError::Interrupted) } else { Ok(self) }
    }

    /// All jobs together, with the counters of the system; and each target, if there are several. The times of all
    /// targets count from the start of the first job.
    pub fn measured(&self) -> Measured {
        let results = || self.jobs.iter().map(|job| &job.result);
        let all = Measured {
            cpu: self.cpu,
            course: self.course.clone(),
            disks: self.disks.clone(),
            counted_seconds: self.counted_seconds,
            cache: self.targets.iter().map(|target| target.cache).sum(),
            connections: self.connections(),
            ..self.of_jobs(|_| true)
        };
        if let [one] = &self.targets[..] {
            let Transferred { device, storage, .. } = one.transferred;
            return Measured { device, storage, ..all };
        }
        let started_ns = results().map(|job| job.started_ns).min().unwrap_or(0);
        let of_target = |(number, target): (usize, &TargetRan)| {
            let on_target =
                || self.jobs.iter().filter(move |job| job.target == number).map(|job| &job.result);
            let ended_ns = on_target().map(|job| job.ended_ns).max().unwrap_or(started_ns);
            Measured {
                seconds: Duration::from_nanos(ended_ns - started_ns).as_secs_f64(),
                device: target.transferred.device.filter(|_| target.has_own_disk),
                cache: target.cache,
                connections: target.transferred.connections,
                ..Measured::of_jobs(on_target())
            }
        };
        let targets: Vec<Measured> = self.targets.iter().enumerate().map(of_target).collect();
        // Threads of this process submit the I/O of all targets, and one counter shows it; else each target has its
        // counters.
        let of_process = self.targets.iter().all(|target| target.is_accessed_by_process);
        Measured {
            device: targets.iter().map(|target| target.device).sum(),
            storage: self.targets.first().and_then(|first| first.transferred.storage).filter(|_| of_process),
            targets,
            ..all
        }
    }

    /// The jobs of one workload. Counters of the system show them only if there is no other workload.
    pub(crate) fn part(&self, part: usize) -> Measured {
        if self.jobs.iter().all(|job| job.part == part) {
            return self.measured();
        }
        let connections = self.connections();
        Measured { connections, ..self.of_jobs(|job| job.part == part) }
    }

    /// The start and the end of the jobs of a workload that have measured anything, in nanoseconds.
    pub(crate) fn span_ns(&self, part: usize) -> [u64; 2] {
        let results = || self.jobs.iter().filter(|job| job.part == part).map(|job| &job.result);
        let is_measured = results().any(|job| job.ios > 0);
        let timed = || results().filter(|job| job.ios > 0 || !is_measured);
        let started_ns = timed().map(|job| job.started_ns).min().unwrap_or(0);
        [started_ns, timed().map(|job| job.ended_ns).max().unwrap_or(started_ns)]
    }

    /// The bytes that were in page caches of the targets of a workload when the repetition began.
    pub(crate) fn resident(&self, part: usize) -> Option<Resident> {
        let is_used = |target: usize| self.jobs.iter().any(|job| job.part == part && job.target == target);
        let used = self.targets.iter().enumerate().filter(|(target, _)| is_used(*target));
        used.filter_map(|(_, target)| target.resident).reduce(|sum, one| Resident {
            bytes: sum.bytes + one.bytes,
            bytes_beneath: sum.bytes_beneath + one.bytes_beneath,
        })
    }

    /// The lost connections of all targets; none where none is an export. They concern all jobs.
    fn connections(&self) -> Option<Connections> {
        let of_each = || self.targets.iter().filter_map(|target| target.transferred.connections);
        of_each().next().map(|_| of_each().sum())
    }

    /// What these jobs have measured themselves.
    fn of_jobs(&self, is_included: impl Fn(&JobRan) -> bool) -> Measured {
        let jobs = || self.jobs.iter().filter(|job| is_included(job));
        let mut warnings: Vec<String> = Vec::new();
        for warning in jobs().flat_map(|job| &job.warnings) {
            if !warnings.contains(warning) {
                warnings.push(warning.clone());
            }
        }
        let mut steady = self.steady.iter().filter(|(part, _)| jobs().any(|job| job.part == *part));
        Measured {
            verified: all_verified(jobs().map(|job| job.verified.as_ref())),
            steady: steady.next().map(|(_, outcome)| *outcome),
            warnings,
            is_cut_off: self.is_cut_off,
            ..Measured::of_jobs(jobs().map(|job| &job.result))
        }
    }
}
