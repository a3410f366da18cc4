//! The clones of jobs as workloads: the path, the range and the pace of each. Does not open paths, and runs nothing.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;

use rand_xoshiro::rand_core::RngCore;

use super::error::JobFileError;
use super::job::{IoEngine, Job};
use super::places::{Access, Place};
use super::range::{Range, block_bytes, shape};
use crate::job::Start;
use crate::model::ModelTarget;
use crate::path::PathRow;
use crate::paths::{
    iopath_buffered, iopath_direct, kernel_buffered, kernel_direct, kernel_mmap, kernel_uring, null,
};
use crate::random;
use crate::refusal::WorkloadError;
use crate::workload::{BlockSize, Depth, Jobs, Rate, ReadShare, Workload};

/// Separates the seeds of the clones of different jobs.
const PURPOSE: u64 = 0xF10;

/// The path of a job, and a warning if it differs from the engine that the job names.
pub(super) fn path(job: &Job) -> Result<(&'static PathRow, Option<String>), JobFileError> {
    if job.is_on_model() {
        return Ok((path_on_model(job)?, None));
    }
    let row = match (job.engine, job.direct) {
        (IoEngine::Synchronous, false) => &kernel_buffered::ROW,
        (IoEngine::Synchronous, true) => &kernel_direct::ROW,
        (IoEngine::Asynchronous, true) => &kernel_uring::ROW,
        (IoEngine::Asynchronous, false) => {
            let warning = (job.depth > 1).then(|| {
                format!(
                    "{}: job `{}`: path kernel-buffered has a depth of 1: without direct=1, the kernel completes \
                     most transfers of an asynchronous engine before it returns",
                    job.at, job.name
                )
            });
            return Ok((&kernel_buffered::ROW, warning));
        }
        (IoEngine::Mapped, false) => &kernel_mmap::ROW,
        (IoEngine::Mapped, true) => {
            return Err(job.problem("a mapped file has no direct I/O; remove direct=1"));
        }
        (IoEngine::Null, _) => &null::ROW,
        (IoEngine::Path(row), _) => row,
    };
    Ok((row, None))
}

/// The path of a job on a model, which no code of the kernel can access.
fn path_on_model(job: &Job) -> Result<&'static PathRow, JobFileError> {
    Ok(match (job.engine, job.direct) {
        (IoEngine::Synchronous | IoEngine::Asynchronous, true) => &iopath_direct::ROW,
        (IoEngine::Synchronous | IoEngine::Asynchronous | IoEngine::Mapped, false) => &iopath_buffered::ROW,
        (IoEngine::Mapped, true) => {
            return Err(job.problem("a mapped file has no direct I/O; remove direct=1"));
        }
        (IoEngine::Null, _) => &null::ROW,
        (IoEngine::Path(row), _) => row,
    })
}

/// One clone of a job, ready for its thread.
#[derive(Debug)]
pub(super) struct Member {
    /// The number of its job in the file.
    pub(super) job: usize,
    pub(super) place: Place,
    /// The workload, with one thread.
    pub(super) workload: Workload,
    pub(super) end_bytes: u64,
    pub(super) start: Start,
    pub(super) ends_all: bool,
}

impl Member {
    /// Whether the blocks that it writes are read back after each repetition.
    pub(super) fn reads_back(&self) -> bool {
        self.workload.rw.writes() && self.workload.verify.is_some_and(|verify| verify.after)
    }

    /// The clone of an access to a target of `file_bytes`, which may be a model. `number` is that of the job; `base` has the settings that a job
    /// file has not.
    pub(super) fn of(
        access: &Access,
        number: usize,
        file_bytes: u64,
        model: Option<&ModelTarget>,
        base: &Workload,
    ) -> Result<Self, JobFileError> {
        let Access { job, path, clone, ref place } = *access;
        let range = Range::of(job, clone, Some(job.file_bytes.unwrap_or(file_bytes)))?;
        if range.end_bytes > file_bytes {
            return Err(job.problem(format!(
                "the range ends at byte {}, and the file or device has {file_bytes} bytes; use a smaller size or offset",
                range.end_bytes
            )));
        }
        let is_paced = !job.think.is_zero();
        // As in fio, a think time follows each transfer, so one is in flight.
        // The paths of models are not synchronous.
        let is_synchronous =
            model.is_some() && matches!(job.engine, IoEngine::Synchronous | IoEngine::Mapped);
        let depth = if is_paced || is_synchronous { 1 } else { job.depth };
        let workload = Workload {
            path,
            target: match place {
                Place::Present(file) | Place::Named(file) => Some(file.clone()),
                Place::Own(directory, ..) => Some(directory.clone()),
                Place::None(_) => None,
            },
            rw: job.rw,
            block_size: BlockSize::new(block_bytes(job)).map_err(|error| job.refused(&error))?,
            shape: shape(job),
            depth: Depth::new(depth).map_err(|error| job.refused(&error))?,
            size_bytes: Some(range.end_bytes),
            start_bytes: range.start_bytes,
            end: range.end,
            think: job.think,
            rate: rate(job)?,
            rate_process: job.rate_process,
            flush_every: job.flush_every.filter(|_| job.rw.writes()),
            verify: job.verifies.then_some(job.verify),
            steady_state: job.steady_state()?,
            warm: job.pre_read,
            seed: seed(job, number, clone),
            distribution: job.distribution.clone(),
            read_share: ReadShare::new(job.read_percent).map_err(|error| job.refused(&error))?,
            ..base.clone()
        };
        check(&workload, range.end_bytes, model).map_err(|error| job.refused(&error))?;
        Ok(Self {
            job: number,
            place: place.clone(),
            workload,
            end_bytes: range.end_bytes,
            start: Start { delay: job.start_delay, ramp: job.ramp },
            ends_all: job.exit_all,
        })
    }
}

/// The checks of a workload that need no target.
fn check(workload: &Workload, size_bytes: u64, model: Option<&ModelTarget>) -> Result<(), WorkloadError> {
    workload.check()?;
    workload.check_size(size_bytes)?;
    workload.check_warm(size_bytes)?;
    match model {
        Some(model) => workload.check_on_model(model),
        None => workload.check_on_storage(),
    }
}

/// A workload for the results of all clones of a job.
pub(super) fn of_all_clones(first: &Workload, clones: u64) -> Result<Workload, WorkloadError> {
    Ok(Workload { jobs: Jobs::new(clones)?, ..first.clone() })
}

fn seed(job: &Job, number: usize, clone: u64) -> u64 {
    let seed = match (job.seed, job.is_repeatable) {
        (Some(seed), _) => seed,
        (None, true) => 1,
        (None, false) => RandomState::new().build_hasher().finish(),
    };
    random::generator(seed, [PURPOSE + number as u64, clone]).next_u64()
}

/// The rate of the directions that the pattern has.
fn rate(job: &Job) -> Result<Option<Rate>, JobFileError> {
    let of_pattern = |limits: [Option<u64>; 2]| {
        match (job.rw.reads(), job.rw.writes()) {
        (true, true) if limits.iter().any(Option::is_some) => Err(job.problem(
            "a rate of a mixed pattern is not supported; remove it, or use one job for reads and one for writes",
        )),
        (true, true) => Ok(None),
        (true, false) => Ok(limits[0].and_then(NonZeroU64::new)),
        _ => Ok(limits[1].and_then(NonZeroU64::new)),
    }
    };
    match (of_pattern(job.rate_bytes)?, of_pattern(job.rate_ios)?) {
        (Some(_), Some(_)) => Err(job.problem("rate and rate_iops exclude each other; remove one of them")),
        (Some(bytes), None) => Ok(Some(Rate::Bytes(bytes))),
        (None, Some(ios)) => Ok(Some(Rate::Ios(ios))),
        (None, None) => Ok(None),
    }
}
