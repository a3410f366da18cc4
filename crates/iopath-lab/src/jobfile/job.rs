//! A job of a job file: the values of its keys. `keys.rs` sets them; `members.rs` makes workloads of them.

use std::num::NonZeroU64;
use std::path::Path;
use std::time::Duration;

use iopath_report::Rw;

use super::control_keys::{ControlKeys, ExitWhat};
use super::error::{At, JobFileError};
use super::value::Amount;
use crate::field::Field;
use crate::model::is_model;
use crate::path::PathRow;
use crate::refusal::WorkloadError;
use crate::shape::Sizes;
use crate::steady::{Limit, SteadyMetric, SteadyState};
use crate::workload::{Distribution, RateProcess, Verify};

/// The access that `ioengine` names.
#[derive(Debug, Clone, Copy)]
pub enum IoEngine {
    /// One system call for each transfer: `psync` and its relatives.
    Synchronous,
    /// Several transfers in flight: `libaio`, `io_uring`, `posixaio`.
    Asynchronous,
    /// A mapped file.
    Mapped,
    /// No device.
    Null,
    /// A path of iopath by its own name.
    Path(&'static PathRow),
}

/// A job: what one section says, after the defaults of the `[global]` sections before it.
#[expect(clippy::struct_excessive_bools, reason = "keys of the file, independent of each other")]
#[derive(Debug, Clone)]
pub struct Job {
    /// `name`, or the name of the section.
    pub name: String,
    /// The line of the section.
    pub at: At,
    /// Whether it starts after the end of all jobs before it.
    pub stonewall: bool,
    /// The job after whose end it starts.
    pub wait_for: Option<String>,
    /// Whether its end ends all jobs of its group.
    pub exit_all: bool,
    /// The jobs that end then.
    pub exit_what: ExitWhat,
    /// `ioengine`.
    pub engine: IoEngine,
    /// Whether transfers bypass the page cache.
    pub direct: bool,
    /// Direction and order.
    pub rw: Rw,
    /// The sizes of reads and writes.
    pub sizes: [Sizes; 2],
    /// The unit of random offsets in bytes; 0 is the smallest size.
    pub align_bytes: u64,
    /// The modifier of a sequential `rw`: added after each transfer, in bytes.
    pub skip_bytes: i64,
    /// The modifier of a random `rw`: transfers for each random offset.
    pub random_run: u32,
    /// Random offsets in 100 transfers of a random pattern.
    pub random_percent: u64,
    /// The range to access, from `offset`; unset is all of a file or device.
    pub size: Option<Amount>,
    /// The bytes to transfer; unset is one pass over the range.
    pub io_size: Option<Amount>,
    /// The size of a file that does not exist, in bytes; unset is the end of the range.
    pub file_bytes: Option<u64>,
    /// The first byte to access.
    pub offset: Amount,
    /// Added to `offset` for each clone.
    pub offset_increment: Amount,
    /// The alignment of offsets in percent, in bytes; 0 is the block size.
    pub offset_align_bytes: u64,
    /// The maximum number of transfers; unset is no limit.
    pub ios: Option<u64>,
    /// Transfers in flight.
    pub depth: u64,
    /// Clones.
    pub clones: u64,
    /// Passes.
    pub loops: u64,
    /// The time limit.
    pub runtime: Option<Duration>,
    /// Whether the job repeats its range until the time limit.
    pub time_based: bool,
    /// The time before the measurement.
    pub ramp: Duration,
    /// The time between the start of the group and the start of the job.
    pub start_delay: Duration,
    /// The pause after transfers.
    pub think: Duration,
    /// The transfers before each pause.
    pub think_every: NonZeroU64,
    /// The writes between two flushes.
    pub flush_every: Option<NonZeroU64>,
    /// Whether `verify` names a checksum.
    pub verifies: bool,
    /// The settings of `do_verify`, `verify_fatal` and `verify_backlog`.
    pub verify: Verify,
    /// `steadystate`.
    pub steady: Option<SteadyKey>,
    /// `steadystate_duration`; unset or 0 switches the detection off.
    pub steady_window: Option<Duration>,
    /// `steadystate_ramp_time`.
    pub steady_ramp: Duration,
    /// `steadystate_check_interval`.
    pub steady_interval: Duration,
    /// Limits for reads and writes in bytes per second.
    pub rate_bytes: [Option<u64>; 2],
    /// Limits for reads and writes in transfers per second.
    pub rate_ios: [Option<u64>; 2],
    /// The distances between transfers with a rate.
    pub rate_process: RateProcess,
    /// How random offsets are distributed.
    pub distribution: Distribution,
    /// Whether a sequence of blocks moves on after each pass: `random_sequence_stride`.
    pub sequence_moves: bool,
    /// The zones of the range.
    pub zones: ZoneKeys,
    /// Reads in 100 transfers of a mixed pattern.
    pub read_percent: u64,
    /// Whether the range is read before the measurement.
    pub pre_read: bool,
    /// `filename`; empty if each clone has a file of its own.
    pub files: Vec<String>,
    /// `directory`; empty for the current directory.
    pub directories: Vec<String>,
    /// `randseed`.
    pub seed: Option<u64>,
    /// Limits, series and thread.
    pub controls: ControlKeys,
    /// Whether each run has the same offsets.
    pub is_repeatable: bool,
    /// The keys that were applied and their values, with those of `[global]`, in their order; a bare key has the
    /// value 1.
    pub given: Vec<[String; 2]>,
}

/// The values of the keys of zones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneKeys {
    /// Whether `zonemode` is `strided`; unset is `strided` with a `zonesize`, as in fio.
    pub is_strided: Option<bool>,
    /// `zonesize` in bytes.
    pub size_bytes: u64,
    /// `zonerange` in bytes; 0 is the size.
    pub range_bytes: u64,
    /// `zoneskip` in bytes.
    pub skip_bytes: u64,
}

/// The value of `steadystate`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyKey {
    /// The quantity.
    pub metric: SteadyMetric,
    /// Whether the limit is that of the slope, else that of the deviation from the mean.
    pub is_slope: bool,
    /// The limit; of the slope, from one sample to the next one.
    pub limit: Limit,
}

impl SteadyKey {
    /// fio's default.
    const DEFAULT: Self = Self { metric: SteadyMetric::Iops, is_slope: true, limit: Limit::Percent(0.01) };
}

/// The key for a field of a workload, or the option of `iopath run` that job files lack. Messages use these names.
pub fn key_of(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::Path => "ioengine",
        Field::Target => "filename",
        Field::Pattern => "rw",
        Field::BlockSize => "bs",
        Field::Depth => "iodepth",
        Field::Jobs => "numjobs",
        Field::Size => "size",
        Field::End => "runtime",
        Field::Think => "thinktime",
        Field::RateIops => "rate_iops",
        Field::Rate => "rate",
        Field::FlushEvery => "fsync",
        Field::Verify => "verify",
        Field::SteadyState => "steadystate",
        Field::Repetitions => "--repeat",
        Field::Warm => "pre_read",
        Field::ReadShare => "rwmixread",
        Field::CacheSize => "--cache",
        Field::PageSize => "--page",
        Field::Readahead => "--readahead",
        Field::Borrow => "--borrow",
        Field::Elevator => "--elevator",
        Field::DeviceDepth => "--device-depth",
        Field::Engine => "--engine",
        Field::Overwrite => "--overwrite",
        Field::Log => "--log",
        Field::LatencySampling | Field::Host => return None,
    })
}

impl Job {
    /// A job with the defaults of fio.
    pub(super) fn new(name: String, at: At) -> Self {
        Self {
            name,
            at,
            stonewall: false,
            wait_for: None,
            exit_all: false,
            exit_what: ExitWhat::Group,
            engine: IoEngine::Synchronous,
            direct: false,
            rw: Rw::Read,
            sizes: [Sizes::Split(vec![(4096, 100)]), Sizes::Split(vec![(4096, 100)])],
            align_bytes: 0,
            skip_bytes: 0,
            random_run: 1,
            random_percent: 100,
            size: None,
            io_size: None,
            file_bytes: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            offset_align_bytes: 0,
            ios: None,
            depth: 1,
            clones: 1,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp: Duration::ZERO,
            start_delay: Duration::ZERO,
            think: Duration::ZERO,
            think_every: NonZeroU64::MIN,
            flush_every: None,
            verifies: false,
            verify: Verify::default(),
            steady: None,
            steady_window: None,
            steady_ramp: Duration::ZERO,
            steady_interval: Duration::from_secs(1),
            rate_bytes: [None; 2],
            rate_ios: [None; 2],
            rate_process: RateProcess::Linear,
            distribution: Distribution::Uniform,
            sequence_moves: false,
            zones: ZoneKeys::default(),
            read_percent: 50,
            pre_read: false,
            files: Vec::new(),
            directories: Vec::new(),
            seed: None,
            controls: ControlKeys::default(),
            is_repeatable: true,
            given: Vec::new(),
        }
    }

    /// Whether it names a model, in virtual time.
    pub(super) fn is_on_model(&self) -> bool {
        matches!(&self.files[..], [file] if is_model(Path::new(file)))
    }

    /// The criterion that ends the job; none without a window, which is fio's default.
    pub(super) fn steady_state(&self) -> Result<Option<SteadyState>, JobFileError> {
        let Some(window) = self.steady_window.filter(|window| !window.is_zero()) else {
            return match self.steady {
                Some(_) => Err(self.problem("steadystate needs a window; add steadystate_duration")),
                None => Ok(None),
            };
        };
        let given = self.steady.unwrap_or(SteadyKey::DEFAULT);
        let settings = SteadyState {
            metric: given.metric,
            window,
            interval: self.steady_interval,
            ramp: self.steady_ramp,
            deviation: (!given.is_slope).then_some(given.limit),
            slope: None,
        };
        // The limit of fio is the change from one sample to the next one.
        let distances = settings.samples().saturating_sub(1) as f64;
        let slope = given.is_slope.then(|| given.limit.times(distances));
        Ok(Some(SteadyState { slope, ..settings }))
    }

    /// The error of a workload that its path or target refuses, with the names of keys.
    pub(super) fn refused(&self, error: &WorkloadError) -> JobFileError {
        self.problem(error.message(key_of))
    }

    /// An error of keys that are not valid together.
    pub(super) fn problem(&self, problem: impl Into<String>) -> JobFileError {
        JobFileError::Job { at: self.at.clone(), job: self.name.clone(), problem: problem.into() }
    }
}
