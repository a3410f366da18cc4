//! The schema of results for other programs, `iopath.result/1`; docs/result.md documents each field, and
//! docs/schema/result-1.json is its JSON Schema. Does not measure. An incompatible change needs a new version in
//! [`SCHEMA`].

mod connections;
mod course;
mod directions;
mod distribution;
mod figures;
mod finding;
mod host;
mod hosts;
mod latencies;
mod latency_target;
mod origin;
mod path;
mod several;
mod shown;
mod steady;
mod submissions;
mod verify;
mod workload;

use serde::{Deserialize, Serialize};

use crate::size::format_size;

pub use connections::Connections;
pub use course::Course;
pub use directions::{DirectionResult, Directions, RepeatDirection, RepeatDirections};
pub use distribution::{LatencyDistribution, PERCENTILES};
pub use figures::{CacheFacts, CacheUse, Cpu, Device, DiskQueue, Latency, Spread, ThreadUse};
pub use finding::{Confidence, Finding};
pub use host::{DiskFacts, Host, ModelHostFacts, TargetFacts};
pub use hosts::{HostFacts, HostResult, HostsResult, RankResult, RanksEnd};
pub use latencies::{FIO_BINS, Latencies, fio_bin_number};
pub use latency_target::{DepthSearchResult, LatencyTargetResult};
pub use origin::Origin;
pub use path::{PATH_NAMES, WITHOUT_TARGET};
pub use several::{DiskUse, GroupResult, JobFacts, Skipped, TargetResult, TargetsEnd};
pub use shown::{FioOutput, Unified};
pub use steady::{SteadyRepeat, SteadyStateResult, SteadyWindow};
pub use submissions::Submissions;
pub use verify::{VerifyFault, VerifyResult};
pub use workload::WorkloadFacts;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.result/1";

/// All results of a command: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The hosts of a run under MPI; empty for a single process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostFacts>,
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
    /// Warnings of no single run, such as those of a job file none of whose jobs ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
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
            hosts: Vec::new(),
            runs,
            groups: Vec::new(),
            skipped: Vec::new(),
            left_out: Vec::new(),
            warnings: Vec::new(),
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// That of the machine.
    #[default]
    Real,
    /// Virtual time: the storage is a model.
    Virtual,
}

/// One workload with its repetitions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// One transfer in this many was timed, drawn at random. [`Latency`] covers the timed transfers, other fields cover
    /// all.
    pub latency_every: u32,
    /// From submission to completion, over all repetitions.
    pub latency_ns: Latency,
    /// More of these latencies; none in results of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_distribution: Option<LatencyDistribution>,
    /// From the submission to completion, of a run with a rate, over all repetitions; none for other runs. The time
    /// that transfers waited for a free slot is not part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_loop_ns: Option<Latency>,
    /// From the time at which the rate intended a transfer to its completion, of a run with a rate whose latencies are
    /// from the submission; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_ns: Option<Latency>,
    /// The parts of the latencies, of a run that measures submissions; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submissions: Option<Box<Submissions>>,
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
    /// The depths that keep a latency, of a job that searches them; none for other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latency_target: Option<LatencyTargetResult>,
    /// CPU cost, over all repetitions. In virtual time, that of the modelled host; none without one.
    pub cpu: Option<Cpu>,
    /// CPU time and context switches of the threads of the jobs alone, over all repetitions; none in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadUse>,
    /// The modelled host; none without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_host: Option<ModelHostFacts>,
    /// Transfers of the disk, over all repetitions; none without a single disk.
    pub device: Option<Device>,
    /// Settings and counters of iopath's page cache over all repetitions; none on other paths.
    pub cache: Option<CacheFacts>,
    /// Lost connections to servers, over all repetitions; none where no target is an export of a server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<Connections>,
    /// Each target of a run on several; empty for one. All other values cover all targets together.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetResult>,
    /// Each repetition.
    pub repeats: Vec<Repeat>,
    /// The ends and the fairness of several targets; none for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets_end: Option<TargetsEnd>,
    /// The hosts and ranks of a run under MPI; none for a single process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Box<HostsResult>>,
    /// Whether a signal or a failure ended the run before its last repetition: `repeats` has the complete ones, or, if
    /// there is none, the part of the first one.
    #[serde(default, skip_serializing_if = "is_false")]
    pub partial: bool,
    /// Reasons to doubt the figures, in words.
    pub warnings: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
}

/// Flushes between transfers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct FlushResult {
    /// The writes of a job after which it flushes.
    pub every: u64,
    /// Flushes, over all repetitions.
    pub count: u64,
    /// From the last completion before the flush to its own completion, over all repetitions.
    pub latency_ns: Latency,
    /// The distribution of these latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<LatencyDistribution>,
}

/// The medium that served a cold run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// Storage transferred 90% of the bytes or more that a cold run needs.
    Storage,
    /// Storage transferred less: a cache, a hole, compression or memory served the rest.
    Memory,
    /// No counter shows the transfers of storage.
    Unknown,
}

impl RunResult {
    /// Its job, or else its path.
    pub fn label(&self) -> &str {
        self.job.as_ref().map_or(&self.path, |job| &job.name)
    }

    /// The run among others, in words.
    pub fn name(&self) -> String {
        let Self { path, rw, block_bytes, io_depth, jobs, .. } = self;
        match &self.job {
            Some(job) => format!("job {}", job.name),
            None => {
                format!("{path}, {rw}, {}, depth {io_depth}, {jobs} jobs", format_size((*block_bytes).into()))
            }
        }
    }
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
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
    /// The course over time; none of a repetition below about a second, in virtual time, and of a job that runs beside
    /// others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub course: Option<Course>,
    /// Whether a signal ended the repetition: all figures are of the time up to it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cut_off: bool,
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
