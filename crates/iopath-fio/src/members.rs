//! The clones of jobs as workloads: the path, the range and the pace of each. Does not open paths, and runs nothing.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::num::NonZeroU64;
use std::time::Duration;

use rand_xoshiro::rand_core::RngCore;

use super::controls::controls;
use super::error::JobFileError;
use super::job::Job;
use super::place::{Access, Place};
use super::range::Range;
use iopath_bench::job::Start;
use iopath_bench::model::ModelTarget;
use iopath_bench::options::IoEngine;
use iopath_bench::path::{Direction, PathRow};
use iopath_bench::paths::{iopath_buffered, iopath_direct, null};
use iopath_bench::refusal::WorkloadError;
use iopath_bench::workload::{BlockSize, Depth, Distribution, Jobs, Rate, Workload};
use iopath_report::random;

/// Separates the seeds of the clones of different jobs.
const PURPOSE: u64 = 0xF10;

/// Separates the delays of clones from their offsets.
const PURPOSE_OF_DELAY: u64 = 0xF10D;

/// The path of a job, and a warning if it differs from the engine that the job names.
pub(super) fn path(job: &Job) -> Result<(&'static PathRow, Option<String>), JobFileError> {
    if job.is_on_model() {
        return Ok((path_on_model(job)?, None));
    }
    if let (true, IoEngine::Asynchronous, true) = (job.has_several_files(), job.engine, job.direct) {
        let warning = format!(
            "{}: job `{}`: several files with several transfers in flight are accessed by path iopath-direct, as one stripe",
            job.at, job.name
        );
        return Ok((&iopath_direct::ROW, Some(warning)));
    }
    let row = job.engine.path(job.direct).ok_or_else(|| mapped_direct(job))?;
    let is_limited =
        matches!(job.engine, IoEngine::Asynchronous) && !job.direct && job.workload.depth.get() > 1;
    let warning = is_limited.then(|| {
        format!(
            "{}: job `{}`: path {} has a depth of 1: without direct=1, the kernel completes most transfers of an \
             asynchronous engine before it returns",
            job.at, job.name, row.name
        )
    });
    Ok((row, warning))
}

fn mapped_direct(job: &Job) -> JobFileError {
    job.problem("a mapped file has no direct I/O; remove direct=1")
}

/// The path of a job on a model, which no code of the kernel can access.
fn path_on_model(job: &Job) -> Result<&'static PathRow, JobFileError> {
    Ok(match (job.engine, job.direct) {
        (IoEngine::Synchronous | IoEngine::Asynchronous, true) => &iopath_direct::ROW,
        (IoEngine::Synchronous | IoEngine::Asynchronous | IoEngine::Mapped, false) => &iopath_buffered::ROW,
        (IoEngine::Mapped, true) => return Err(mapped_direct(job)),
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
    /// The clone of an access to a target of `file_bytes`, which may be a device or a model. `number` is that of the
    /// job; `base` has the settings that a job file has not.
    pub(super) fn of(
        access: &Access,
        number: usize,
        file_bytes: u64,
        is_device: bool,
        model: Option<&ModelTarget>,
        base: &Workload,
    ) -> Result<Self, JobFileError> {
        let Access { job, path, clone, ref place } = *access;
        let range = Range::within(job, clone, Some(file_bytes), is_device)?;
        if range.end_bytes > file_bytes {
            return Err(job.problem(format!(
                "the range ends at byte {}, and the file or device has {file_bytes} bytes; use a smaller size or offset",
                range.end_bytes
            )));
        }
        let own = &job.workload;
        // The paths of models are not synchronous.
        let is_synchronous =
            model.is_some() && matches!(job.engine, IoEngine::Synchronous | IoEngine::Mapped);
        let rates = rates(job)?;
        let flushes = job.fsync_every.or(job.fdatasync_every);
        let data_flushes = job.fdatasync_every.filter(|_| job.fsync_every.is_some());
        if job.verifies && job.verify.is_pattern && job.contents.verified.is_empty() {
            return Err(job.problem("verify=pattern needs the bytes of a block; add verify_pattern"));
        }
        let zones = job.zones().map_err(|problem| job.problem(problem))?;
        let workload = Workload {
            path,
            target: match place {
                Place::Present(file) | Place::Several(file, _) | Place::Named(file) | Place::Kept(file) => {
                    Some(file.clone())
                }
                Place::Own(directory, ..) => Some(directory.clone()),
                Place::SeveralKept(..) => place.stripe().map(|stripe| stripe.target()),
                Place::None(_) => None,
            },
            block_size: BlockSize::new(job.block_bytes()).map_err(|error| job.refused(&error))?,
            shape: job.shape(zones),
            depth: if is_synchronous { Depth::constant(1) } else { own.depth },
            think_together: (!own.think.is_zero()).then_some(job.think_count),
            jobs: Jobs::constant(1),
            size_bytes: Some(range.end_bytes),
            start_bytes: range.start_bytes,
            end: range.end,
            rate: rates.first,
            rate_of_writes: rates.of_writes,
            rate_only: rates.only,
            flush_every: flushes.filter(|_| own.rw.writes()),
            flush_all: job.fsync_every.is_some(),
            flush_data_every: data_flushes.filter(|_| own.rw.writes()),
            times_final_flush: job.end_fsync || job.fsync_on_close,
            wants_submissions: job.output.of_submissions,
            covers: !job.is_independent,
            verify: job.verifies.then_some(job.verify),
            steady_state: job.steady_state(),
            seed: seed(job, number, clone),
            distribution: distribution(job),
            controls: controls(job, base.overwrite)?,
            contents: job.written(range.end_bytes - range.start_bytes),
            // The options of the command line for all jobs.
            repetitions: base.repetitions,
            elevator: base.elevator.clone(),
            device_depth: base.device_depth,
            engine: base.engine,
            cache: base.cache,
            log: base.log.clone(),
            host: base.host.clone(),
            overwrite: base.overwrite,
            latency_sampling: base.latency_sampling,
            share: base.share,
            ..own.clone()
        };
        if workload.controls.series.is_some() && workload.repetitions.get() > 1 {
            return Err(job.problem("a series over time (write_bw_log, write_lat_log, write_iops_log) has one repetition; remove --repeat"));
        }
        let delay = start_delay(job, workload.seed);
        check(&workload, range.end_bytes, model).map_err(|error| job.refused(&error))?;
        Ok(Self {
            job: number,
            place: place.clone(),
            workload,
            end_bytes: range.end_bytes,
            start: Start { delay, ramp: job.ramp },
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

/// The distribution of random offsets.
fn distribution(job: &Job) -> Distribution {
    match &job.workload.distribution {
        Distribution::Sequence { blocks, .. } => {
            Distribution::Sequence { blocks: blocks.clone(), moves: job.sequence_moves }
        }
        other => other.clone(),
    }
}

/// The rates of a job.
#[derive(Debug, Default)]
pub(super) struct Rates {
    /// Of all transfers, or of the reads of a mixed pattern.
    pub(super) first: Option<Rate>,
    /// Of the writes of a mixed pattern whose reads have a rate, too.
    pub(super) of_writes: Option<Rate>,
    /// The only direction of a mixed pattern that has a rate.
    pub(super) only: Option<Direction>,
}

/// The rates of the directions that the pattern has.
pub(super) fn rates(job: &Job) -> Result<Rates, JobFileError> {
    let nonzero = |limits: [Option<u64>; 2]| limits.map(|limit| limit.and_then(NonZeroU64::new));
    let (bytes, ios) = (nonzero(job.rate_bytes), nonzero(job.rate_ios));
    let is_used = [job.workload.rw.reads(), job.workload.rw.writes()];
    let mut rates = [None; 2];
    for (direction, rate) in rates.iter_mut().enumerate().filter(|(direction, _)| is_used[*direction]) {
        *rate = match (bytes[direction], ios[direction]) {
            (Some(_), Some(_)) => {
                return Err(job.problem("rate and rate_iops exclude each other; remove one of them"));
            }
            (Some(bytes), None) => Some(Rate::Bytes(bytes)),
            (None, Some(ios)) => Some(Rate::Ios(ios)),
            (None, None) => None,
        };
    }
    let is_mixed = is_used == [true, true];
    Ok(match rates {
        [first @ Some(_), None] if is_mixed => Rates { first, of_writes: None, only: Some(Direction::Read) },
        [None, first @ Some(_)] if is_mixed => Rates { first, of_writes: None, only: Some(Direction::Write) },
        [None, first] => Rates { first, ..Rates::default() },
        [first, of_writes] => Rates { first, of_writes, only: None },
    })
}

/// The time between the start of the group and the start of a clone: drawn from the range of the job.
fn start_delay(job: &Job, seed: u64) -> Duration {
    let [least, most] = job.start_delay;
    let range_ns = u64::try_from(most.saturating_sub(least).as_nanos()).unwrap_or(u64::MAX);
    let mut generator = random::generator(seed, [PURPOSE_OF_DELAY, 0]);
    least + Duration::from_nanos(if range_ns == 0 { 0 } else { generator.next_u64() % range_ns })
}
