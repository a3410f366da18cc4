//! The form of results for other programs: `iopath.result/1`, documented field by field in docs/result.md. Computes
//! nothing. A change here that a reader could stumble over needs a new version in [`SCHEMA`].

use serde::{Deserialize, Serialize};

/// The name and version of the form.
pub const SCHEMA: &str = "iopath.result/1";

/// Everything one command measured, the whole of what `--json` writes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The machine.
    pub host: Host,
    /// What was read and written; none if nothing was.
    pub target: Option<TargetFacts>,
    /// The measurements.
    pub runs: Vec<RunResult>,
    /// What they mean.
    pub findings: Vec<Finding>,
}

impl Report {
    /// A report without findings.
    pub fn new(host: Host, target: Option<TargetFacts>, runs: Vec<RunResult>) -> Self {
        Self { schema: SCHEMA.to_owned(), host, target, runs, findings: Vec::new() }
    }

    /// The report as JSON, indented, ending in a newline.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string_pretty(self).expect("strings and numbers have a form in JSON");
        json + "\n"
    }
}

/// The machine that measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's release, as `uname -r` says.
    pub kernel: String,
    /// The CPU's model.
    pub cpu: String,
    /// CPUs that this process may use.
    pub cores: u32,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// CPUs that other programs kept busy in the moment before the first run, which is taken off the machine's CPU
    /// time; none where `/proc/stat` is not to be had.
    pub idle_busy_cpus: Option<f64>,
}

/// What was read and written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetFacts {
    /// The file or device, symbolic links followed; what is no UTF-8 in it is replaced.
    pub path: String,
    /// `file` or `block device`.
    pub kind: String,
    /// Whether it was a scratch file of ours, removed since.
    pub scratch: bool,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The type of the filesystem it lies on; none for a block device.
    pub filesystem: Option<String>,
    /// What offsets and lengths of direct I/O are multiples of, in bytes; none where there is no direct I/O.
    pub direct_align_bytes: Option<u32>,
    /// The disk beneath; none where there is no single one.
    pub disk: Option<DiskFacts>,
}

/// The disk beneath a target, as sysfs describes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFacts {
    /// The kernel's name of it.
    pub name: String,
    /// What the drive calls itself.
    pub model: Option<String>,
    /// Whether it turns, as far as the driver knows.
    pub rotational: Option<bool>,
    /// The smallest unit it addresses, in bytes.
    pub logical_block_bytes: Option<u32>,
    /// The smallest unit it writes without reading, in bytes.
    pub physical_block_bytes: Option<u32>,
    /// The kernel's elevator in charge.
    pub scheduler: Option<String>,
    /// The kernel's readahead, in KiB.
    pub read_ahead_kb: Option<u64>,
    /// The largest request the kernel sends, in KiB.
    pub max_sectors_kb: Option<u64>,
}

/// One workload, measured several times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunResult {
    /// The path's name.
    pub path: String,
    /// Which way and order, as fio names it.
    pub rw: String,
    /// The size of a transfer in bytes.
    pub block_bytes: u32,
    /// Transfers that each job kept in flight.
    pub io_depth: u32,
    /// Threads.
    pub jobs: u32,
    /// Whether the range had been read once before, so that caches served the run.
    pub warm: bool,
    /// The medium that served the run, by the bytes that storage transferred; none if it was warm or had no target.
    #[serde(default)]
    pub served_by: Option<ServedBy>,
    /// Bytes moved, over all repeats.
    pub bytes: u64,
    /// Transfers made, over all repeats.
    pub ios: u64,
    /// Time measured, over all repeats, in seconds; the final flush of a writing workload is in it.
    pub seconds: f64,
    /// Bytes moved for each second.
    pub bytes_per_second: Spread,
    /// Transfers for each second.
    pub iops: Spread,
    /// Of so many transfers of a job one was timed, drawn at random: [`Latency`] is of those only, all else of all.
    pub latency_every: u32,
    /// From submission to completion, over all repeats.
    pub latency_ns: Latency,
    /// What it cost, over all repeats.
    pub cpu: Cpu,
    /// What the disk did, over all repeats; none if there is no single disk.
    pub device: Option<Device>,
    /// The page cache of a path that has one of iopath's, and what it did over all repeats; none elsewhere.
    pub cache: Option<CacheFacts>,
    /// Each repeat by itself.
    pub repeats: Vec<Repeat>,
    /// What makes the figures doubtful, in words.
    pub warnings: Vec<String>,
}

impl RunResult {
    /// The mean size of the disk's requests, in bytes; none without requests, and where other programs made most of
    /// them: the counters of a disk include the I/O of all programs.
    pub fn mean_device_io_bytes(&self) -> Option<f64> {
        let device = self.device?;
        let by_run: Option<u64> = self
            .repeats
            .iter()
            .map(|repeat| Some(repeat.storage_read_bytes? + repeat.storage_written_bytes?))
            .sum();
        let by_run = by_run.filter(|_| !self.repeats.is_empty());
        let is_own = by_run.is_none_or(|bytes| 2 * bytes >= device.read_bytes + device.written_bytes);
        device.mean_io_bytes().filter(|_| is_own)
    }
}

/// The medium that served a cold run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServedBy {
    /// Storage transferred 90% of the bytes or more that a cold run needs.
    Storage,
    /// It transferred less: a cache, a hole, compression or memory served the rest.
    Memory,
    /// No counter shows it.
    Unknown,
}

/// One repeat of a workload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    /// Bytes moved.
    pub bytes: u64,
    /// Transfers made.
    pub ios: u64,
    /// Time measured, in seconds.
    pub seconds: f64,
    /// When the first of the jobs had ended, in seconds: how far apart they end.
    pub first_ended_seconds: f64,
    /// Bytes moved for each second.
    pub bytes_per_second: f64,
    /// Transfers for each second.
    pub iops: f64,
    /// From submission to completion.
    pub latency_ns: Latency,
    /// What it cost.
    pub cpu: Cpu,
    /// What the disk did; none if there is no single disk.
    pub device: Option<Device>,
    /// What a page cache of iopath's did; none where there is none.
    pub cache: Option<CacheUse>,
    /// Bytes of the target in the kernel's page cache when it began, and of files beneath a loop device; none where
    /// they were not counted (a warm run, no target).
    pub cached_before_bytes: Option<u64>,
    /// Bytes that storage read and wrote for this repeat; none where no counter shows them.
    #[serde(default)]
    pub storage_read_bytes: Option<u64>,
    /// See `storage_read_bytes`.
    #[serde(default)]
    pub storage_written_bytes: Option<u64>,
}

/// A quantity over the repeats.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample; none for a single repeat.
    pub stddev: Option<f64>,
    /// The 95% interval of the mean (Student's t), low and high; none for a single repeat.
    pub ci95: Option<[f64; 2]>,
}

/// Latencies in nanoseconds, to three digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Least.
    pub min: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Half of the transfers took no longer.
    pub p50: u64,
    /// 90% took no longer.
    pub p90: u64,
    /// 99%.
    pub p99: u64,
    /// 99.9%.
    pub p999: u64,
    /// Most.
    pub max: u64,
}

/// CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Cpu {
    /// Of this process in the program, in seconds.
    pub user_seconds: f64,
    /// Of this process in the kernel, in seconds.
    pub system_seconds: f64,
    /// Of the whole machine, less what it used when idle, in seconds: interrupts and kernel threads cost too.
    pub machine_seconds: f64,
    /// CPU seconds for each GiB moved. Counted is the machine's time, or the process's where that is more (the
    /// machine's is known to 10 ms only).
    pub seconds_per_gib: f64,
    /// CPU microseconds for each transfer, counted the same way.
    pub microseconds_per_io: f64,
}

/// What a disk did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The mean size of a request in bytes; none if there was none.
    pub fn mean_io_bytes(&self) -> Option<f64> {
        let ios = self.reads + self.writes;
        (ios > 0).then(|| (self.read_bytes + self.written_bytes) as f64 / ios as f64)
    }
}

/// A page cache of iopath's.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheFacts {
    /// Its memory in bytes.
    pub cache_bytes: u64,
    /// The size of a page in bytes.
    pub page_bytes: u32,
    /// `auto`, `off`, or the most bytes read ahead.
    pub readahead: String,
    /// Whether reads borrowed the cached bytes instead of copying them.
    pub borrow: bool,
    /// What it did.
    pub used: CacheUse,
}

/// What a page cache of iopath's did, in pages. Opening it is not measured, and neither is what closing it does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct CacheUse {
    /// Reads that found their page, one for each page.
    pub hits: u64,
    /// Reads, and writes of a part, that did not.
    pub misses: u64,
    /// Reads and writes that found their page on its way.
    pub joins: u64,
    /// Pages read before a reader came to them: ahead, or as the rest of a longer read.
    pub readahead: u64,
    /// Of those, the ones that were used.
    pub readahead_used: u64,
    /// Of those, the ones that left the cache unused.
    pub readahead_wasted: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages written to the device.
    pub pages_written: u64,
    /// Clean pages that made room for others.
    pub evicted: u64,
    /// At the end: pages whose bytes are nowhere else.
    pub dirty: u64,
    /// At the end: pages on their way to the device.
    pub writing: u64,
    /// At the end: how far ahead it reads, in bytes, as found by then.
    pub readahead_bytes: u64,
}

/// What the measurements mean.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// Which finding, the same in every version.
    pub id: String,
    /// What was found, in words.
    pub text: String,
    /// The figures that show it.
    pub evidence: String,
}
