//! A workload: one path, one access pattern, its size and its repetitions. Checks are in `check.rs`; `run.rs` measures
//! it.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use iopath::Engine;
use iopath_core::elevator::ElevatorSpec;
pub use iopath_os::kernel::{Hint, Pages, Polling};

pub use crate::batches::Batches;
use crate::cache::CacheSettings;
pub use crate::contents::Contents;
pub use crate::controls::Controls;
pub use crate::distribution::{BadDistribution, Distribution, Zone};
use crate::model_host::ModelHost;
use crate::path::{Direction, Pass, PathRow};
use crate::paths::kernel_buffered;
use crate::shape::Shape;
use crate::share::Share;
use crate::steady::SteadyState;
pub use crate::sync_writes::SyncWrites;
pub use crate::values::{BlockSize, Depth, DeviceDepth, Jobs, LatencySampling, ReadShare, Repetitions};
use iopath_report::Rw;

/// The default size of a scratch file, and of a path without a target, in bytes.
pub const DEFAULT_SIZE_BYTES: u64 = 1 << 30;

/// When a repetition ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum End {
    /// After as many bytes as the workload accesses: one pass, if sequential.
    #[default]
    Pass,
    /// After this number of bytes, less or more than one pass. fio calls it `io_size`.
    Bytes(u64),
    /// After this time.
    Time(Duration),
    /// After the time or the bytes: the earlier of the two.
    TimeOrBytes(Duration, u64),
}

impl End {
    /// The condition for an optional time and an optional number of bytes.
    pub fn new(time: Option<Duration>, bytes: Option<u64>) -> Self {
        match (time, bytes) {
            (None, None) => Self::Pass,
            (None, Some(bytes)) => Self::Bytes(bytes),
            (Some(time), None) => Self::Time(time),
            (Some(time), Some(bytes)) => Self::TimeOrBytes(time, bytes),
        }
    }

    /// The limit in time.
    pub fn time(self) -> Option<Duration> {
        match self {
            Self::Pass | Self::Bytes(_) => None,
            Self::Time(time) | Self::TimeOrBytes(time, _) => Some(time),
        }
    }

    /// The limit in bytes, of all jobs together.
    pub fn bytes(self) -> Option<u64> {
        match self {
            Self::Pass | Self::Time(_) => None,
            Self::Bytes(bytes) | Self::TimeOrBytes(_, bytes) => Some(bytes),
        }
    }
}

/// The destination of the request log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSettings {
    /// The file.
    pub file: PathBuf,
    /// Its maximum size in bytes; unset is the log's own default.
    pub limit_bytes: Option<u64>,
    /// Whether it also has the accesses of the jobs, above the path.
    pub accesses: bool,
}

/// A rate at which each job starts transfers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Transfers a second.
    Ios(NonZeroU64),
    /// Bytes a second.
    Bytes(NonZeroU64),
}

impl Rate {
    /// Transfers a second, for transfers of this mean size in bytes.
    pub fn iops(self, mean_bytes: f64) -> f64 {
        match self {
            Self::Ios(ios) => ios.get() as f64,
            Self::Bytes(bytes) => bytes.get() as f64 / mean_bytes,
        }
    }
}

/// The hint that the kernel gets of the order of accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AccessHint {
    /// None.
    #[default]
    None,
    /// That of the pattern.
    Pattern,
    /// This one.
    Given(Hint),
}

/// How a workload verifies its data.
#[expect(clippy::struct_excessive_bools, reason = "options, independent of each other")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verify {
    /// Whether the written blocks are read back after each repetition, with empty caches.
    pub after: bool,
    /// The writes of a job after which it reads them back, within the measurement; unset is none.
    pub backlog: Option<NonZeroU64>,
    /// Whether the first fault ends the job.
    pub fatal: bool,
    /// Whether the first blocks with faults are written to files.
    pub dump: bool,
    /// Whether each block has [`Contents::Verified`], without checksums.
    pub is_pattern: bool,
}

impl Default for Verify {
    /// Reads all written blocks back after each repetition.
    fn default() -> Self {
        Self { after: true, backlog: None, fatal: false, dump: false, is_pattern: false }
    }
}

/// The distances between the starts of transfers with a rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RateProcess {
    /// Equal distances.
    #[default]
    Linear,
    /// Independent random distances with an exponential distribution, as of many independent clients.
    Poisson,
}

impl RateProcess {
    /// The name in options and results, as fio's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Poisson => "poisson",
        }
    }
}

/// The start of a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LatencyFrom {
    /// The time at which a rate intends the transfer; without a rate, the completion that freed its place.
    #[default]
    Due,
    /// The submission, as in fio: the job reads the clock before each one. A rate that was not kept does not show.
    Submission,
}

impl LatencyFrom {
    /// The name in options and results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Submission => "submission",
        }
    }
}

/// The transfers that count for a pause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ThinkCount {
    /// Those that were started.
    Started,
    /// Those that have completed.
    #[default]
    Completed,
}

/// One measurement. `iopath run` builds it from its arguments.
#[expect(clippy::struct_excessive_bools, reason = "options, independent of each other")]
#[derive(Debug, Clone)]
pub struct Workload {
    /// The path: a row of [`crate::paths::PATHS`], or a row of the caller's own.
    pub path: &'static PathRow,
    /// A directory (for a temporary scratch file), a file or a block device.
    pub target: Option<PathBuf>,
    /// Further targets: the workload runs on all of them at the same time. All of them, and the first, are models, or
    /// none.
    pub more_targets: Vec<PathBuf>,
    /// Direction and order of the transfers.
    pub rw: Rw,
    /// The size of each transfer.
    pub block_size: BlockSize,
    /// Further sizes, gaps, runs and limits of the transfers.
    pub shape: Shape,
    /// Transfers that each job keeps in flight. A synchronous path has 1.
    pub depth: Depth,
    /// When transfers start again after the depth was in flight.
    pub batch: Batches,
    /// Threads that run the same pattern at the same time.
    pub jobs: Jobs,
    /// The bytes to access, from offset zero; unset is all of a file or device, and [`DEFAULT_SIZE_BYTES`] of a
    /// scratch file.
    pub size_bytes: Option<u64>,
    /// The first byte to access, within [`Workload::size_bytes`]: a multiple of the alignment of direct I/O.
    pub start_bytes: u64,
    /// The share of this process in a target that it accesses together with others; unset is all of it.
    pub share: Option<Share>,
    /// When each repetition ends.
    pub end: End,
    /// The time that passes between the completion of a transfer and the start of the next one in its place. Zero for
    /// none.
    pub think: Duration,
    /// The transfers of a place before each such time.
    pub think_every: NonZeroU64,
    /// The transfers that count for a pause of the whole job, which waits for those in flight before it; unset pauses
    /// each place by itself.
    pub think_together: Option<ThinkCount>,
    /// The rate at which each job starts transfers; unset is as fast as possible. A transfer that finds all of the
    /// job's depth in flight starts late.
    pub rate: Option<Rate>,
    /// With a mixed pattern: the rate of the writes, so that [`Workload::rate`] is that of the reads. The share of
    /// reads then follows from both.
    pub rate_of_writes: Option<Rate>,
    /// With a mixed pattern: the only direction that [`Workload::rate`] limits. The other one has no rate.
    pub rate_only: Option<Direction>,
    /// The distances between the starts of transfers with a rate.
    pub rate_process: RateProcess,
    /// The start of a latency.
    pub latency_from: LatencyFrom,
    /// Whether the time of submissions is wanted, with [`LatencyFrom::Submission`]: it needs a system call for each
    /// batch of submissions, which other jobs do not have.
    pub wants_submissions: bool,
    /// The writes of a job after which it flushes, and waits for the flush before its next transfer. Unset flushes at
    /// the end only.
    pub flush_every: Option<NonZeroU64>,
    /// Whether flushes include the metadata of the file: `fsync(2)`, else `fdatasync(2)`.
    pub flush_all: bool,
    /// The writes of a job after which it flushes without the metadata of the file, where it does not flush with it.
    pub flush_data_every: Option<NonZeroU64>,
    /// Whether the time of a writing job includes its flush at the end; else the flush follows the measurement.
    pub times_final_flush: bool,
    /// Whether the offsets of a uniform random pattern are a permutation of the blocks in each pass, so that each block
    /// is accessed once; else they are independent of each other.
    pub covers: bool,
    /// When a write completes.
    pub sync: SyncWrites,
    /// The content of writes that do not carry checksums.
    pub contents: Contents,
    /// Whether writes carry checksums, offsets and generations that reads check; unset does not.
    pub verify: Option<Verify>,
    /// The criterion at which each repetition ends, before its time limit; unset ends at the limit.
    pub steady_state: Option<SteadyState>,
    /// The number of measurements.
    pub repetitions: Repetitions,
    /// If set, an unmeasured pass reads the range before the first repetition, and caches stay filled. If not, the lab
    /// drops the target's pages from the kernel's page cache, and empties iopath's page cache, before each repetition.
    pub warm: bool,
    /// Whether caches stay as they are before each repetition.
    pub keeps_caches: bool,
    /// Transfers of a job per measured latency; all transfers are counted. More than 1 is for synchronous paths, where
    /// reading the clock can take longer than a transfer.
    pub latency_sampling: LatencySampling,
    /// Seeds offsets, mixes and contents.
    pub seed: u64,
    /// How random offsets are distributed over the range.
    pub distribution: Distribution,
    /// Reads in 100 transfers of a mixed pattern.
    pub read_share: ReadShare,
    /// The elevator, on a path with a queue of iopath; unset is `none`.
    pub elevator: Option<ElevatorSpec>,
    /// Maximum requests in flight at the device, for all jobs together, on a path with a page cache of iopath or with
    /// an elevator other than `none`. Unset is the queue depth of the device. Refused with `none` on any other path.
    pub device_depth: Option<DeviceDepth>,
    /// The I/O engine, on a path with a queue of iopath; unset is [`Engine::Auto`].
    pub engine: Option<Engine>,
    /// The hint that the kernel gets of the order of accesses through its page cache.
    pub access_hint: AccessHint,
    /// Whether a job through the kernel's page cache drops the pages of its target after each pass over them.
    pub drops_each_pass: bool,
    /// How the job and the kernel find work, on a path that can poll.
    pub polling: Polling,
    /// The settings of iopath's page cache, on a path that has it.
    pub cache: CacheSettings,
    /// The request log, on a path with a queue of iopath.
    pub log: Option<LogSettings>,
    /// The modelled CPUs in front of a modelled target; unset, CPU work takes no time there.
    pub host: Option<ModelHost>,
    /// Whether a user's file or device may be written to. Scratch files need no permission.
    pub overwrite: bool,
    /// Limits, series and thread of a job.
    pub controls: Controls,
}

impl Default for Workload {
    /// A sequential, cold read of the whole target in blocks of 4 KiB with `pread(2)`, three times.
    fn default() -> Self {
        Self {
            path: &kernel_buffered::ROW,
            target: None,
            more_targets: Vec::new(),
            rw: Rw::Read,
            block_size: BlockSize::constant(4096),
            shape: Shape::default(),
            depth: Depth::constant(1),
            batch: Batches::default(),
            jobs: Jobs::constant(1),
            size_bytes: None,
            start_bytes: 0,
            share: None,
            end: End::Pass,
            think: Duration::ZERO,
            think_every: NonZeroU64::MIN,
            think_together: None,
            rate: None,
            rate_of_writes: None,
            rate_only: None,
            rate_process: RateProcess::Linear,
            latency_from: LatencyFrom::Due,
            wants_submissions: false,
            flush_every: None,
            flush_all: false,
            flush_data_every: None,
            times_final_flush: true,
            covers: false,
            sync: SyncWrites::None,
            contents: Contents::Random,
            verify: None,
            steady_state: None,
            repetitions: Repetitions::constant(3),
            warm: false,
            keeps_caches: false,
            latency_sampling: LatencySampling::ALL,
            seed: 1,
            distribution: Distribution::Uniform,
            read_share: ReadShare::constant(50),
            elevator: None,
            device_depth: None,
            engine: None,
            access_hint: AccessHint::None,
            drops_each_pass: false,
            polling: Polling::default(),
            cache: CacheSettings::default(),
            log: None,
            host: None,
            overwrite: false,
            controls: Controls::default(),
        }
    }
}

impl Workload {
    /// Whether the job measures its submissions, on a path that can.
    pub(crate) fn measures_submissions(&self) -> bool {
        self.wants_submissions && self.latency_from == LatencyFrom::Submission
    }

    /// The pages that the kernel's page cache drops between passes over a target. Random transfers that do not cover
    /// the target have no passes.
    pub(crate) fn pass(&self, size_bytes: u64) -> Option<Pass> {
        let has_passes = !self.rw.is_random() || self.covers;
        let bytes = size_bytes.saturating_sub(self.start_bytes);
        let of_job = if self.rw.is_random() { bytes } else { bytes / u64::from(self.jobs) };
        // A job of one pass ends before it would drop pages.
        let is_wanted = self.drops_each_pass && !self.stays_cached() && !self.keeps_caches && has_passes;
        (is_wanted && of_job > 0).then_some(Pass {
            start_bytes: self.start_bytes,
            bytes,
            every_bytes: of_job,
        })
    }

    /// The hint for the kernel's page cache.
    pub(crate) fn hint(&self) -> Option<Hint> {
        match self.access_hint {
            AccessHint::None => None,
            AccessHint::Pattern if self.rw.is_random() => Some(Hint::Random),
            AccessHint::Pattern => Some(Hint::Sequential),
            AccessHint::Given(hint) => Some(hint),
        }
    }

    /// The transfers in flight per job on this path.
    pub fn depth_in_flight(&self) -> u32 {
        if self.path.capabilities.synchronous { 1 } else { self.depth.get() }
    }

    /// Whether the accesses of the jobs are logged.
    pub(crate) fn logs_accesses(&self) -> bool {
        self.log.as_ref().is_some_and(|log| log.accesses)
    }

    /// Whether it has reads and writes.
    pub(crate) fn directions(&self) -> [bool; 2] {
        match (self.rw, self.read_share.get()) {
            (Rw::Rw | Rw::RandRw, share) => [share > 0, share < 100],
            (rw, _) => [rw.reads(), rw.writes()],
        }
    }

    /// Whether transfers wait for a time: a rate, a think time or other jobs.
    pub(crate) fn is_paced(&self) -> bool {
        self.rate.is_some() || !self.think.is_zero() || self.controls.waits()
    }

    /// The greatest common divisor of all sizes and of the distances between offsets, in bytes.
    pub fn unit_bytes(&self) -> u64 {
        self.shape.unit_bytes(self.block_size.bytes())
    }

    /// The transfers that each job starts in a second; none without a rate.
    pub(crate) fn rate_iops(&self) -> Option<f64> {
        // The transfers of the other direction have no rate.
        if self.rate_only.is_some() {
            return None;
        }
        let rate = self.rate?;
        Some(match self.rate_of_writes {
            None => rate.iops(self.mean_bytes()),
            Some(of_writes) => {
                rate.iops(self.mean_bytes_of(Direction::Read))
                    + of_writes.iops(self.mean_bytes_of(Direction::Write))
            }
        })
    }

    /// Whether caches stay filled before a repetition.
    pub(crate) const fn stays_cached(&self) -> bool {
        self.warm || self.keeps_caches
    }

    /// The mean size of the transfers in bytes.
    pub(crate) fn mean_bytes(&self) -> f64 {
        let share = match (self.rw.reads(), self.rw.writes()) {
            (true, true) => f64::from(self.read_share.get()) / 100.0,
            (reads, _) => f64::from(u8::from(reads)),
        };
        share * self.mean_bytes_of(Direction::Read) + (1.0 - share) * self.mean_bytes_of(Direction::Write)
    }

    /// The mean size of the transfers in one direction in bytes.
    pub(crate) fn mean_bytes_of(&self, direction: Direction) -> f64 {
        let Some([reads, writes]) = &self.shape.sizes else { return self.block_size.bytes().into() };
        match direction {
            Direction::Read => reads.mean(),
            Direction::Write | Direction::Trim => writes.mean(),
        }
    }

    /// The minimum number of bytes that the workload can access: one block per job.
    pub(crate) fn size_bytes_min(&self) -> u64 {
        u64::from(self.block_size) * u64::from(self.jobs)
    }
}
