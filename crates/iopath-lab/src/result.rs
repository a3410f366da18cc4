//! The schema of results for other programs, `iopath.result/1`; docs/result.md documents each field, and
//! docs/schema/result-1.json is its JSON Schema. Does not measure. An incompatible change needs a new version in [`SCHEMA`].

mod distribution;
mod finding;
mod origin;
mod several;
mod steady;
mod workload;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use distribution::{LatencyDistribution, PERCENTILES};
pub use finding::{Confidence, Finding};
pub use origin::Origin;
pub use several::{Skipped, TargetResult, TargetsEnd};
pub use steady::{SteadyRepeat, SteadyStateResult, SteadyWindow};
pub use workload::{VerifyFacts, WorkloadFacts};

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.result/1";

/// All results of a command: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The program and the command line; none until the program writes the report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// The clock of all times.
    #[serde(default)]
    pub clock: Clock,
    /// The machine; none in virtual time, in which the result does not depend on the machine.
    pub host: Option<Host>,
    /// The target, the first of several; none if the runs had none.
    pub target: Option<TargetFacts>,
    /// Further targets of the same runs; empty unless there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub more_targets: Vec<TargetFacts>,
    /// The measurements.
    pub runs: Vec<RunResult>,
    /// The groups of jobs of a job file; empty for other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupResult>,
    /// The combinations of lists that cannot run; empty for other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<Skipped>,
    /// Measurements that a survey left out, with the reasons; empty for other runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<String>,
    /// Their interpretation.
    pub findings: Vec<Finding>,
    /// The error that ended the measurement after some complete repetitions. Not in the JSON, in which the runs are
    /// `partial` and have a warning.
    #[serde(skip)]
    pub failure: Option<String>,
}

impl Report {
    /// A report without findings.
    pub fn new(host: Option<Host>, target: Option<TargetFacts>, runs: Vec<RunResult>) -> Self {
        let clock = runs.first().map_or(Clock::Real, |run| run.clock);
        Self {
            schema: SCHEMA.to_owned(),
            origin: None,
            clock,
            host,
            target,
            more_targets: Vec::new(),
            runs,
            groups: Vec::new(),
            skipped: Vec::new(),
            left_out: Vec::new(),
            findings: Vec::new(),
            failure: None,
        }
    }

    /// The report as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("JSON can represent all fields");
        json + "\n"
    }
}

/// The clock on which a run was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// That of the machine.
    #[default]
    Real,
    /// Virtual time: the storage is a model.
    Virtual,
}

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release, as in `uname -r`.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs that other programs kept busy before the first run; subtracted from the machine's CPU time. None without
    /// `/proc/stat`.
    pub idle_busy_cpus: Option<f64>,
}

/// The target of the runs.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct TargetFacts {
    /// The file or device, symbolic links resolved; bytes that are not UTF-8 are replaced. Of a model, its name after
    /// `model:`.
    pub path: String,
    /// `file`, `block device`, `stripe` or `model`.
    pub kind: String,
    /// Whether it was a scratch file, removed since.
    pub scratch: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The type of its filesystem; none for a block device.
    pub filesystem: Option<String>,
    /// The alignment of offsets and lengths for direct I/O, in bytes; none if direct I/O is refused.
    pub direct_align_bytes: Option<u32>,
    /// The disk beneath; none without a single disk.
    pub disk: Option<DiskFacts>,
}

/// The disk beneath a target, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The kernel's name of the disk.
    pub name: String,
    /// The model name that the drive reports.
    pub model: Option<String>,
    /// Whether the driver reports it as rotational.
    pub rotational: Option<bool>,
    /// Its logical block size, in bytes.
    pub logical_block_bytes: Option<u32>,
    /// Its physical block size: the smallest write without read-modify-write, in bytes.
    pub physical_block_bytes: Option<u32>,
    /// The kernel's I/O scheduler (elevator).
    pub scheduler: Option<String>,
    /// The kernel's readahead, in KiB.
    pub read_ahead_kb: Option<u64>,
    /// The largest request that the kernel submits, in KiB.
    pub max_sectors_kb: Option<u64>,
}

/// One workload with its repetitions.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RunResult {
    /// The job of a job file; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobFacts>,
    /// The path's name.
    pub path: String,
    /// The clock of all times.
    #[serde(default)]
    pub clock: Clock,
    /// The direction and order of transfers, by fio's name.
    pub rw: String,
    /// The size of a transfer in bytes.
    pub block_bytes: u32,
    /// The sizes of transfers with their shares in percent, or their range, for reads and writes; none if all have one
    /// size.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_sizes: Option<String>,
    /// Transfers in flight per job.
    pub io_depth: u32,
    /// Threads, on each target.
    pub jobs: u32,
    /// The time between a transfer and the next one in its place, in nanoseconds; none without a think time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub think_ns: Option<u64>,
    /// Transfers per second that each job was to start; none without a rate. Latencies count from the time at which a
    /// transfer should have started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_iops: Option<f64>,
    /// The remaining settings of the workload; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadFacts>,
    /// Whether the range had been read once before, so that caches served the run.
    pub warm: bool,
    /// The medium that served the run, by the bytes that storage transferred; none if it was warm or had no target, and
    /// in virtual time.
    #[serde(default)]
    pub served_by: Option<ServedBy>,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// Measured time, over all repetitions, in seconds; includes the final flush of a writing workload.
    pub seconds: f64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// Transfers per second.
    pub iops: Spread,
    /// One transfer in this many was timed, drawn at random. [`Latency`] covers the timed transfers, other fields cover all.
    pub latency_every: u32,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// More of these latencies; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_distribution: Option<LatencyDistribution>,
    /// From the submission to completion, of a run with a rate, over all repetitions; none for other runs. The time that
    /// transfers waited for a free slot is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop_ns: Option<Latency>,
    /// Reads and writes apart, of a run with both; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<Directions>,
    /// The flushes between transfers; none without any. The flush at the end of a writing job is not one of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flushes: Option<FlushResult>,
    /// The blocks that were checked, of a run that verifies its data; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyResult>,
    /// When the steady state was reached, of a run that ends with it; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady_state: Option<SteadyStateResult>,
    /// CPU cost, over all repetitions. In virtual time, that of the modelled host; none without one.
    pub cpu: Option<Cpu>,
    /// The modelled host; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_host: Option<ModelHostFacts>,
    /// Transfers of the disk, over all repetitions; none without a single disk.
    pub device: Option<Device>,
    /// Settings and counters of iopath's page cache over all repetitions; none on other paths.
    pub cache: Option<CacheFacts>,
    /// Each target of a run on several; empty for one. All other values cover all targets together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetResult>,
    /// Each repetition.
    pub repeats: Vec<Repeat>,
    /// The ends and the fairness of several targets; none for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets_end: Option<TargetsEnd>,
    /// Whether a signal or a failure ended the run before its last repetition: `repeats` has the complete ones.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// Reasons to doubt the figures, in words.
    pub warnings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Reads and writes apart.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Directions {
    /// The reads.
    pub read: DirectionResult,
    /// The writes.
    pub write: DirectionResult,
}

/// The transfers of one direction. The time of both directions is the same, so rates add up to those of the run.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct DirectionResult {
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// Transfers per second.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// More of these latencies; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_distribution: Option<LatencyDistribution>,
}

/// Reads and writes of one repetition.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RepeatDirections {
    /// The reads.
    pub read: RepeatDirection,
    /// The writes.
    pub write: RepeatDirection,
}

/// The transfers of one direction in one repetition.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct RepeatDirection {
    /// Bytes transferred.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Throughput, in bytes per second.
    pub bytes_per_second: f64,
    /// Transfers per second.
    pub iops: f64,
    /// From submission to completion.
    pub latency_ns: Latency,
}

/// Flushes between transfers.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct FlushResult {
    /// The writes of a job after which it flushes.
    pub every: u64,
    /// Flushes, over all repetitions.
    pub count: u64,
    /// From the last completion before the flush to its own completion, over all repetitions.
    pub latency_ns: Latency,
}

/// The blocks that were checked, over all repetitions.
#[derive(Debug, Clone, Default, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct VerifyResult {
    /// Checked blocks. A block that was read several times counts several times.
    pub blocks: u64,
    /// Checked bytes.
    pub bytes: u64,
    /// Blocks with the content from before their last write.
    pub lost: u64,
    /// Reads of an old content, although another read has returned a newer one.
    pub stale: u64,
    /// Blocks with parts of several writes.
    pub torn: u64,
    /// Blocks with the content of another offset.
    pub misdirected: u64,
    /// Blocks with a content of no write.
    pub corrupt: u64,
    /// The first faults, 20 at most.
    pub first: Vec<VerifyFault>,
}

impl VerifyResult {
    /// Faults of all kinds.
    pub fn faults(&self) -> u64 {
        self.lost + self.stale + self.torn + self.misdirected + self.corrupt
    }
}

/// A block with an unexpected content.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct VerifyFault {
    /// `lost`, `stale`, `torn`, `misdirected` or `corrupt`.
    pub kind: String,
    /// The block, in bytes from the start of the target.
    pub offset: u64,
    /// Its size in bytes.
    pub bytes: u32,
    /// The first byte that differs, from the start of the target.
    pub first_bad: u64,
    /// The number of the last write of the block; none in a run that only reads.
    pub expected: Option<u32>,
    /// The number of the write that the content is of, 0 for before the run; none for a content of no write.
    pub found: Option<u64>,
    /// The offset that the content belongs to, of a misdirected write.
    pub belongs_to: Option<u64>,
}

/// A job of a job file.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct JobFacts {
    /// Its name.
    pub name: String,
    /// Its group, from 1. The jobs of a group run at the same time.
    pub group: u32,
    /// The file or device of its first clone; none without a target.
    pub target: Option<String>,
    /// The keys of the job file that apply to it, with those of `[global]`, in their order; a bare key has the value 1.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<[String; 2]>,
}

/// Jobs of a job file that ran at the same time, together.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct GroupResult {
    /// Its number, from 1.
    pub number: u32,
    /// The names of its jobs.
    pub jobs: Vec<String>,
    /// Bytes transferred, over all repetitions.
    pub bytes: u64,
    /// Transfers, over all repetitions.
    pub ios: u64,
    /// From the start of the first job to the end of the last one, over all repetitions, in seconds.
    pub seconds: f64,
    /// Throughput.
    pub bytes_per_second: Spread,
    /// Transfers per second.
    pub iops: Spread,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// CPU cost, over all repetitions.
    pub cpu: Option<Cpu>,
    /// Transfers of the disk, over all repetitions; none without a single disk, and with several targets.
    pub device: Option<Device>,
}

/// A modelled host.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct ModelHostFacts {
    /// The name of the preset or file, as given.
    pub name: String,
    /// Its processors.
    pub cpus: u32,
    /// The share of its CPU time that was not used, from 0 to 1, over all repetitions.
    pub idle: f64,
}

/// The medium that served a cold run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// Storage transferred 90% of the bytes or more that a cold run needs.
    Storage,
    /// Storage transferred less: a cache, a hole, compression or memory served the rest.
    Memory,
    /// No counter shows the transfers of storage.
    Unknown,
}

impl ServedBy {
    /// The name in JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Storage => "storage",
            Self::Memory => "memory",
            Self::Unknown => "unknown",
        }
    }
}

/// One repetition of a workload.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Repeat {
    /// Bytes transferred.
    pub bytes: u64,
    /// Transfers.
    pub ios: u64,
    /// Measured time, in seconds.
    pub seconds: f64,
    /// The end of the first job, in seconds from the start: with `seconds`, the skew of the jobs.
    pub first_ended_seconds: f64,
    /// Throughput, in bytes per second.
    pub bytes_per_second: f64,
    /// Transfers per second.
    pub iops: f64,
    /// From submission to completion.
    pub latency_ns: Latency,
    /// Reads and writes apart; none unless every repetition of the run has both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directions: Option<RepeatDirections>,
    /// CPU cost. In virtual time, that of the modelled host; none without one.
    pub cpu: Option<Cpu>,
    /// Transfers of the disk; none without a single disk.
    pub device: Option<Device>,
    /// Counters of iopath's page cache; none on other paths.
    pub cache: Option<CacheUse>,
    /// Bytes of the target in the kernel's page cache when it began, and of files beneath a loop device; none where
    /// they were not counted (a warm run, no target).
    pub cached_before_bytes: Option<u64>,
    /// Bytes that storage read and wrote for this repeat; none where no counter shows them, and in virtual time, in
    /// which only the model serves a repeat.
    #[serde(default)]
    pub storage_read_bytes: Option<u64>,
    /// See `storage_read_bytes`.
    #[serde(default)]
    pub storage_written_bytes: Option<u64>,
}

/// A quantity over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample; none for a single repetition.
    pub stddev: Option<f64>,
    /// The 95% confidence interval of the mean (Student's t), low and high; none for a single repetition.
    pub ci95: Option<[f64; 2]>,
}

/// Latencies in nanoseconds, with three digits.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Latency {
    /// Minimum.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// 50th percentile.
    pub p50: u64,
    /// 90th percentile.
    pub p90: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
pub struct Cpu {
    /// Of this process in user mode, in seconds.
    pub user_seconds: f64,
    /// Of this process in kernel mode, in seconds.
    pub system_seconds: f64,
    /// Of the whole machine, less its idle load, in seconds. Includes interrupts and kernel threads.
    pub machine_seconds: f64,
    /// CPU seconds per GiB: of the machine, or of the process if that is more (the machine's time has a resolution of
    /// 10 ms).
    pub seconds_per_gib: f64,
    /// CPU microseconds per transfer, counted the same way.
    pub microseconds_per_io: f64,
}

/// Transfers of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct Device {
    /// Read requests it completed.
    pub reads: u64,
    /// Bytes it read.
    pub read_bytes: u64,
    /// Write requests it completed.
    pub writes: u64,
    /// Bytes it wrote.
    pub written_bytes: u64,
}

impl Device {
    /// The mean size of a request in bytes; none without requests.
    pub fn mean_io_bytes(&self) -> Option<f64> {
        let ios = self.reads + self.writes;
        (ios > 0).then(|| (self.read_bytes + self.written_bytes) as f64 / ios as f64)
    }
}

/// Settings and counters of iopath's page cache.
#[derive(Debug, Clone, PartialEq, Eq, JsonSchema, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Its memory in bytes.
    pub cache_bytes: u64,
    /// The size of a page in bytes.
    pub page_bytes: u32,
    /// `auto`, `off`, or the maximum in bytes.
    pub readahead: String,
    /// Whether reads borrowed the cached bytes instead of copying them.
    pub borrow: bool,
    /// Its counters.
    pub used: CacheUse,
}

/// Counters of iopath's page cache, in pages. They do not include open and close.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, JsonSchema, Serialize, Deserialize)]
pub struct CacheUse {
    /// Reads that found their page in the cache, counted per page.
    pub hits: u64,
    /// Reads and partial writes that did not find their page.
    pub misses: u64,
    /// Reads and writes that found a transfer of their page in flight.
    pub joins: u64,
    /// Pages read before they were requested: by readahead, or as the rest of a longer read.
    pub readahead: u64,
    /// Pages of `readahead` that were read later.
    pub readahead_used: u64,
    /// Pages of `readahead` that were evicted unread.
    pub readahead_wasted: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages written to the device.
    pub pages_written: u64,
    /// Clean pages that were evicted.
    pub evicted: u64,
    /// At the end: dirty pages.
    pub dirty: u64,
    /// At the end: pages in write-back.
    pub writing: u64,
    /// At the end: the readahead window, in bytes.
    pub readahead_bytes: u64,
}
