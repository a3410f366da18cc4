//! The settings that options set: a workload, and the values that need the target or other options before they are
//! values of it.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use iopath_report::result::FioOutput;

use super::control_keys::{ControlKeys, ExitWhat};
use super::value::Amount;
use crate::contents::Contents;
use crate::contents::VerifyPattern;
use crate::error::BenchError;
use crate::model_host::ModelHost;
use crate::path::PathRow;
use crate::shape::{Shape, Sizes, Zones};
use crate::steady::{Limit, SteadyMetric};
use crate::target::Target;
use crate::workload::{BlockSize, End, ThinkCount, Verify, Workload};

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

/// The values of options. Those that are values of a workload as they are stand in [`Settings::workload`].
#[expect(clippy::struct_excessive_bools, reason = "options, independent of each other")]
#[derive(Debug, Clone)]
pub struct Settings {
    /// The workload. [`Settings::to_workload`] adds the other values.
    pub workload: Workload,
    /// `ioengine`, or `--path`.
    pub engine: IoEngine,
    /// Whether transfers bypass the page cache.
    pub direct: bool,
    /// `--target`.
    pub targets: Vec<PathBuf>,
    /// `--host`: the name of a model, or a file.
    pub host: Option<String>,
    /// The sizes of reads and writes.
    pub sizes: [Sizes; 2],
    /// Whether ranges of sizes have all sizes, not the multiples of the smallest alone.
    pub is_unaligned: bool,
    /// The unit of random offsets in bytes; 0 is the smallest size.
    pub align_bytes: u64,
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
    /// Passes.
    pub loops: u64,
    /// The time limit.
    pub runtime: Option<Duration>,
    /// Whether the job repeats its range until the time limit.
    pub time_based: bool,
    /// The time before the measurement.
    pub ramp: Duration,
    /// The least and the most time between the start of the group and the start of the job.
    pub start_delay: [Duration; 2],
    /// Limits for reads and writes in bytes per second, of a job file.
    pub rate_bytes: [Option<u64>; 2],
    /// Limits for reads and writes in transfers per second, of a job file.
    pub rate_ios: [Option<u64>; 2],
    /// `thinktime_blocks_type`: the transfers that count for a pause.
    pub think_count: ThinkCount,
    /// `fsync`: writes between flushes with the metadata of the file.
    pub fsync_every: Option<NonZeroU64>,
    /// `fdatasync`: writes between flushes without it.
    pub fdatasync_every: Option<NonZeroU64>,
    /// `end_fsync`: whether the time of a writing job includes its flush at the end.
    pub end_fsync: bool,
    /// `fsync_on_close`: the same.
    pub fsync_on_close: bool,
    /// `norandommap`: whether random offsets are independent of each other.
    pub is_independent: bool,
    /// `steadystate`.
    pub steady: Option<SteadyKey>,
    /// The window of the steady state; of a job file, unset or 0 switches the detection off.
    pub steady_window: Option<Duration>,
    /// `steadystate_ramp_time`.
    pub steady_ramp: Duration,
    /// `steadystate_check_interval`.
    pub steady_interval: Duration,
    /// The content of writes.
    pub contents: ContentKeys,
    /// Whether data is verified.
    pub verifies: bool,
    /// How data is verified.
    pub verify: Verify,
    /// Whether a sequence of blocks moves on after each pass: `random_sequence_stride`.
    pub sequence_moves: bool,
    /// The zones of the range.
    pub zones: ZoneKeys,
    /// The seed; unset is that of the workload, or a random one if the job is not repeatable.
    pub seed: Option<u64>,
    /// Whether each run has the same offsets.
    pub is_repeatable: bool,
    /// `filename`; empty if each clone has a file of its own.
    pub files: Vec<String>,
    /// `opendir`: directories whose files are those of the job.
    pub open_directories: Vec<String>,
    /// `nrfiles`: the files of a clone whose job names none.
    pub file_count: u64,
    /// The order of several files.
    pub file_order: FileOrder,
    /// `ioscheduler`: the scheduler of the disks during the run.
    pub scheduler: Option<String>,
    /// `directory`; empty for the current directory.
    pub directories: Vec<String>,
    /// `filename_format`.
    pub name_format: Option<String>,
    /// Whether a file that was created is removed at the end.
    pub unlink: bool,
    /// Whether the files are created only.
    pub create_only: bool,
    /// `overwrite`: whether a new file is written before the job.
    pub overwrites: bool,
    /// `fallocate`: whether a new file that is not written is a hole.
    pub leaves_hole: bool,
    /// The name of the job in the results.
    pub name: String,
    /// Whether the job starts after the end of all jobs before it.
    pub stonewall: bool,
    /// The job after whose end it starts.
    pub wait_for: Option<String>,
    /// Whether its end ends all jobs of its group.
    pub exit_all: bool,
    /// The jobs that end then.
    pub exit_what: ExitWhat,
    /// Limits, series and thread.
    pub controls: ControlKeys,
    /// How the formats of fio show the job.
    pub output: FioOutput,
}

/// The order of the files of a job with several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileOrder {
    /// Each after this number of transfers to the one before it.
    InTurn(u64),
    /// Each after the end of the one before it.
    OneAfterAnother,
}

/// fio's default of `dedupe_working_set_percentage`.
const WORKING_SET_PERCENT: u32 = 5;

/// The values of the keys of contents.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentKeys {
    /// `zero_buffers`.
    pub is_zero: bool,
    /// `buffer_pattern`; empty without one.
    pub pattern: Vec<u8>,
    /// `buffer_compress_percentage`.
    pub compress_percent: u32,
    /// `buffer_compress_chunk`; 0 is the default.
    pub chunk_bytes: u32,
    /// `dedupe_percentage`.
    pub duplicate_percent: u32,
    /// `dedupe_working_set_percentage`, of a job with `dedupe_mode=working_set`.
    pub working_set_percent: Option<u32>,
    /// Whether `dedupe_mode` is `working_set`.
    pub has_working_set: bool,
    /// `dedupe_global`.
    pub is_global: bool,
    /// `verify_pattern`; empty without one.
    pub verified: VerifyPattern,
}

impl ContentKeys {
    /// The content of writes to a range of `blocks`.
    fn contents(&self, blocks: u64) -> Contents {
        let of = self.of_each();
        if self.duplicate_percent == 0 || self.is_zero {
            return of;
        }
        let percent = self.working_set_percent.unwrap_or(WORKING_SET_PERCENT);
        let distinct = (u128::from(blocks) * u128::from(percent) / 100) as u64;
        let distinct = self.has_working_set.then(|| NonZeroU64::new(distinct).unwrap_or(NonZeroU64::MIN));
        let (percent, is_global) = (self.duplicate_percent, self.is_global);
        Contents::Duplicates { percent, distinct, is_global, of: Box::new(of) }
    }

    /// The content of a write that is no duplicate.
    fn of_each(&self) -> Contents {
        let Self { is_zero, pattern, compress_percent, chunk_bytes, .. } = self.clone();
        match (is_zero, compress_percent, pattern.is_empty()) {
            (true, ..) => Contents::Zeroes,
            (false, 0, true) => Contents::Random,
            (false, 0, false) => Contents::Pattern(pattern),
            (false, percent, _) => {
                let chunk_bytes = if chunk_bytes == 0 { Contents::CHUNK_BYTES } else { chunk_bytes };
                Contents::Compressible { percent, chunk_bytes, pattern }
            }
        }
    }
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

impl Default for Settings {
    /// The defaults of options, and of fio for those that only job files have.
    fn default() -> Self {
        let workload = Workload::default();
        let one = || Sizes::Split(vec![(workload.block_size.bytes(), 100)]);
        Self {
            engine: IoEngine::Synchronous,
            direct: false,
            targets: Vec::new(),
            host: None,
            sizes: [one(), one()],
            is_unaligned: false,
            align_bytes: 0,
            size: None,
            io_size: None,
            file_bytes: None,
            offset: Amount::Bytes(0),
            offset_increment: Amount::Bytes(0),
            offset_align_bytes: 0,
            ios: None,
            loops: 1,
            runtime: None,
            time_based: false,
            ramp: Duration::ZERO,
            start_delay: [Duration::ZERO; 2],
            rate_bytes: [None; 2],
            rate_ios: [None; 2],
            think_count: ThinkCount::default(),
            fsync_every: None,
            fdatasync_every: None,
            end_fsync: false,
            fsync_on_close: false,
            is_independent: false,
            steady: None,
            steady_window: None,
            steady_ramp: Duration::ZERO,
            steady_interval: Duration::from_secs(1),
            contents: ContentKeys::default(),
            verifies: false,
            verify: Verify::default(),
            sequence_moves: false,
            zones: ZoneKeys::default(),
            seed: None,
            is_repeatable: true,
            files: Vec::new(),
            open_directories: Vec::new(),
            file_count: 1,
            file_order: FileOrder::InTurn(1),
            scheduler: None,
            directories: Vec::new(),
            name_format: None,
            unlink: false,
            create_only: false,
            overwrites: false,
            leaves_hole: false,
            name: String::new(),
            stonewall: false,
            wait_for: None,
            exit_all: false,
            exit_what: ExitWhat::Group,
            controls: ControlKeys::default(),
            output: FioOutput::default(),
            workload,
        }
    }
}

impl Settings {
    /// The threads of the job.
    pub fn clones(&self) -> u64 {
        self.workload.jobs.into()
    }

    /// The largest size of the transfers, in the directions that the pattern has.
    pub fn block_bytes(&self) -> u64 {
        self.used_sizes().map(Sizes::max).max().unwrap_or(1).into()
    }

    /// The content of writes to a range of this size.
    pub fn written(&self, range_bytes: u64) -> Contents {
        if self.verifies && self.verify.is_pattern {
            return Contents::Verified(self.contents.verified.clone());
        }
        self.contents.contents(range_bytes / self.block_bytes().max(1))
    }

    /// The smallest size of these transfers.
    pub fn min_bytes(&self) -> u64 {
        self.used_sizes().map(Sizes::min).min().unwrap_or(1).into()
    }

    fn used_sizes(&self) -> impl Iterator<Item = &Sizes> {
        let rw = self.workload.rw;
        self.sizes
            .iter()
            .zip([rw.reads(), rw.writes()])
            .filter(|(_, is_used)| *is_used)
            .map(|(sizes, _)| sizes)
    }

    /// The shape of the transfers; plain if all have one size, without gaps, runs and zones.
    pub fn shape(&self, zones: Option<Zones>) -> Shape {
        let (rw, raw) = (self.workload.rw, &self.workload.shape);
        let is_one = self.min_bytes() == self.block_bytes();
        let is_random = rw.is_random();
        let align_bytes =
            Some(self.align_bytes).filter(|bytes| is_random && *bytes > 0 && *bytes != self.min_bytes());
        let shape = Shape {
            sizes: (!is_one).then(|| {
                let [reads, writes] = self.sizes.clone().map(|sizes| match sizes {
                    Sizes::Range { min, max, .. } if self.is_unaligned => Sizes::Range { min, max, step: 1 },
                    sizes => sizes,
                });
                // A direction without transfers does not limit the alignment.
                match (rw.reads(), rw.writes()) {
                    (true, false) => [reads.clone(), reads],
                    (false, true) => [writes.clone(), writes],
                    _ => [reads, writes],
                }
            }),
            align_bytes,
            skip_bytes: if is_random { 0 } else { raw.skip_bytes },
            random_run: if is_random { raw.random_run } else { 1 },
            random_percent: if is_random { raw.random_percent } else { 100 },
            ios_max: None,
            zones,
        };
        let ios_max = self.ios.filter(|_| !shape.is_plain());
        Shape { ios_max, ..shape }
    }

    /// The zones of the range.
    ///
    /// # Errors
    /// In words: values that contradict each other or the sizes.
    pub fn zones(&self) -> Result<Option<Zones>, String> {
        let ZoneKeys { is_strided, size_bytes, range_bytes, skip_bytes } = self.zones;
        let range_bytes = if range_bytes == 0 { size_bytes } else { range_bytes };
        if is_strided == Some(false) && size_bytes > 0 {
            return Err("zonemode=none has no zones; remove zonesize, or use zonemode=strided".to_owned());
        }
        if !is_strided.unwrap_or(size_bytes > 0) {
            return Ok(None);
        }
        if size_bytes == 0 {
            return Err("zonemode=strided needs the bytes to transfer in a zone; add zonesize of 1 or more"
                .to_owned());
        }
        if range_bytes < self.min_bytes() {
            return Err(format!(
                "a zone of {range_bytes} bytes is smaller than a transfer; use a larger zonerange"
            ));
        }
        Ok(Some(Zones { range_bytes, transfer_bytes: size_bytes, skip_bytes }))
    }

    /// The size of the range in bytes; unset for the default. A share is a multiple of `align_bytes`, the largest
    /// block, as the last block of a pass is whole.
    ///
    /// # Errors
    /// [`BenchError`]: a target has no size of its own.
    pub fn size_bytes(&self, align_bytes: u64) -> Result<Option<u64>, BenchError> {
        Ok(match self.size {
            None => None,
            Some(Amount::Bytes(bytes)) => Some(bytes),
            Some(Amount::Percent(percent)) => Some(Target::share_bytes(&self.targets, percent, align_bytes)?),
        })
    }

    /// The workload of options of a command line. `align_bytes`: see [`Settings::size_bytes`].
    ///
    /// # Errors
    /// [`BenchError`]: a value is out of range, or a target or model cannot be examined.
    pub fn to_workload(&self, align_bytes: u64) -> Result<Workload, BenchError> {
        let base = self.workload.clone();
        let start_bytes = match self.offset {
            Amount::Bytes(bytes) => bytes,
            Amount::Percent(percent) => Target::share_bytes(&self.targets, percent, align_bytes)?,
        };
        Ok(Workload {
            target: self.targets.first().cloned(),
            more_targets: self.targets.iter().skip(1).cloned().collect(),
            block_size: BlockSize::new(self.block_bytes())?,
            shape: self.shape(None),
            size_bytes: self.size_bytes(align_bytes)?.map(|bytes| bytes.saturating_add(start_bytes)),
            start_bytes,
            end: End::new(self.runtime, None),
            flush_every: self.fsync_every.or(self.fdatasync_every),
            flush_all: self.fsync_every.is_some(),
            verify: self.verifies.then_some(self.verify),
            steady_state: base.steady_state.map(|steady| match self.steady_window {
                Some(window) => steady.in_window(window),
                None => steady,
            }),
            seed: self.seed.unwrap_or(base.seed),
            host: self.host.as_deref().map(ModelHost::find).transpose()?,
            ..base
        })
    }
}
