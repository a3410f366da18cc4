//! Settings of a job beside its transfers: its share of the I/Os of several jobs, a latency that it must keep, a rate
//! that it must reach, series of its figures over time, and its thread. Options set them; `job/control.rs` follows
//! them.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use crate::path::Direction;
use crate::thread_settings::{IoPriority, ThreadSettings};

/// The settings of a job beside its transfers. The default has none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Controls {
    /// The share of the I/Os of all jobs with the same group.
    pub flow: Option<Flow>,
    /// The latency that limits the depth.
    pub latency_target: Option<LatencyTarget>,
    /// The longest latency; the job ends above it.
    pub latency_max: Option<Duration>,
    /// The least rate; the job ends below it.
    pub rate_min: Option<RateMin>,
    /// Series of figures over time, in files.
    pub series: Option<Series>,
    /// The priorities of single transfers; empty for the priority of the thread.
    pub priorities: Vec<PriorityShare>,
    /// The CPUs, the memory and the priority of its thread.
    pub thread: ThreadSettings,
}

/// A share of the transfers that has a priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityShare {
    /// The direction of the transfers.
    pub direction: Direction,
    /// Their size in bytes; unset is any.
    pub bytes: Option<u32>,
    /// Their share of the transfers of this direction and size, in percent.
    pub percent: u32,
    /// The priority.
    pub priority: IoPriority,
}

/// A share of the I/Os of several jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flow {
    /// The number of the group. Jobs of different groups do not affect each other.
    pub group: u64,
    /// The weight of the job.
    pub weight: NonZeroU64,
    /// The time after which a job that is ahead of its share tries again.
    pub sleep: Duration,
}

/// The search for the largest depth at which transfers keep a latency.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LatencyTarget {
    /// The latency to keep, from the submission to the completion.
    pub limit: Duration,
    /// The time at each depth.
    pub window: Duration,
    /// The transfers in a million that must keep it.
    pub per_million: u32,
    /// Whether the job continues with that depth. If not, it ends.
    pub continues: bool,
}

/// The least rate of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateMin {
    /// Bytes a second of reads and of writes.
    pub bytes: [Option<NonZeroU64>; 2],
    /// Transfers a second of reads and of writes.
    pub ios: [Option<NonZeroU64>; 2],
    /// The time between two checks.
    pub cycle: Duration,
}

impl RateMin {
    /// The interval of checks if none is given, as in fio.
    pub const CYCLE: Duration = Duration::from_secs(1);
}

/// Series over time, in the format of fio's logs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Series {
    /// The start of the names of the files: of throughput, of latencies, and of transfers a second.
    pub throughput: Option<PathBuf>,
    /// See `throughput`.
    pub latency: Option<PathBuf>,
    /// See `throughput`.
    pub iops: Option<PathBuf>,
    /// Of histograms.
    pub histograms: Option<PathBuf>,
    /// The time that a histogram covers; zero for none.
    pub histogram_interval: Duration,
    /// Two to this power classes of fio are one of a histogram.
    pub coarseness: u32,
    /// The time that one line covers; zero for a line for each transfer.
    pub average: Duration,
    /// Whether the series of several jobs and clones go to one file, without a number in its name. This one then begins
    /// the file, or is added to it.
    pub joined: Option<bool>,
    /// Whether lines have the offset.
    pub has_offset: bool,
    /// Whether lines have the priority as a number, else whether it is the highest class.
    pub has_priority: bool,
    /// Whether files of the user are replaced.
    pub overwrite: bool,
}

impl Series {
    /// Whether a file is written.
    pub fn is_used(&self) -> bool {
        self.throughput.is_some()
            || self.latency.is_some()
            || self.iops.is_some()
            || self.histograms.is_some()
    }

    /// The files of the job with this number, from 1 on in its file: `NAME_KIND.NUMBER.log`, as in fio; of several
    /// clones `NAME_KIND.log`. In the order of throughput, latency, latency from the submission, transfers a second,
    /// and histograms.
    pub fn files(&self, number: usize) -> [Option<PathBuf>; 5] {
        let Self { throughput, latency, iops, histograms, .. } = self;
        let number = self.joined.map_or_else(|| format!(".{number}"), |_| String::new());
        let kinds = [
            (throughput, "bw"),
            (latency, "lat"),
            (latency, "clat"),
            (iops, "iops"),
            (histograms, "clat_hist"),
        ];
        kinds.map(|(name, kind)| {
            let mut file = name.as_ref()?.as_os_str().to_owned();
            file.push(format!("_{kind}{number}.log"));
            Some(file.into())
        })
    }
}

impl Controls {
    /// Whether a transfer may have to wait for other jobs.
    pub(crate) fn waits(&self) -> bool {
        self.flow.is_some()
    }
}
