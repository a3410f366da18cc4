//! The figures of a result: spreads, latencies, CPU cost, transfers of disks, and counters of the page cache.

use serde::{Deserialize, Serialize};

/// A quantity over the repetitions.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Spread {
    /// Arithmetic mean.
    pub mean: f64,
    /// Standard deviation of the sample; none for a single repetition.
    pub stddev: Option<f64>,
    /// The 95% confidence interval of the mean (Student's t), low and high; none for a single repetition.
    pub ci95: Option<[f64; 2]>,
}

/// Latencies in nanoseconds, with three digits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

/// CPU time and context switches of threads.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ThreadUse {
    /// In user mode, in seconds.
    pub user_seconds: f64,
    /// In kernel mode, in seconds.
    pub system_seconds: f64,
    /// Context switches, voluntary or not.
    pub context_switches: u64,
}

impl std::ops::Sub for ThreadUse {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            user_seconds: (self.user_seconds - before.user_seconds).max(0.0),
            system_seconds: (self.system_seconds - before.system_seconds).max(0.0),
            context_switches: self.context_switches.saturating_sub(before.context_switches),
        }
    }
}

impl std::iter::Sum for ThreadUse {
    fn sum<I: Iterator<Item = Self>>(threads: I) -> Self {
        threads.fold(Self::default(), |sum, one| Self {
            user_seconds: sum.user_seconds + one.user_seconds,
            system_seconds: sum.system_seconds + one.system_seconds,
            context_switches: sum.context_switches + one.context_switches,
        })
    }
}

/// Transfers of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Device {
    /// Read requests it completed.
    pub reads: u64,
    /// Bytes it read.
    pub read_bytes: u64,
    /// Write requests it completed.
    pub writes: u64,
    /// Bytes it wrote.
    pub written_bytes: u64,
    /// More counters of the kernel; none in results of earlier versions, and in virtual time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<DiskQueue>,
}

/// Counters of a disk by the kernel, of all processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct DiskQueue {
    /// Reads that were merged with another one.
    pub read_merges: u64,
    /// Writes that were merged with another one.
    pub write_merges: u64,
    /// The times of all reads, in milliseconds.
    pub read_ms: u64,
    /// The times of all writes, in milliseconds.
    pub write_ms: u64,
    /// The time with a request in flight, in milliseconds.
    pub busy_ms: u64,
    /// The times of all requests, in milliseconds.
    pub waiting_ms: u64,
}

impl std::ops::Sub for DiskQueue {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            read_merges: self.read_merges.saturating_sub(before.read_merges),
            write_merges: self.write_merges.saturating_sub(before.write_merges),
            read_ms: self.read_ms.saturating_sub(before.read_ms),
            write_ms: self.write_ms.saturating_sub(before.write_ms),
            busy_ms: self.busy_ms.saturating_sub(before.busy_ms),
            waiting_ms: self.waiting_ms.saturating_sub(before.waiting_ms),
        }
    }
}

impl std::ops::Add for DiskQueue {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            read_merges: self.read_merges + other.read_merges,
            write_merges: self.write_merges + other.write_merges,
            read_ms: self.read_ms + other.read_ms,
            write_ms: self.write_ms + other.write_ms,
            busy_ms: self.busy_ms + other.busy_ms,
            waiting_ms: self.waiting_ms + other.waiting_ms,
        }
    }
}

impl Device {
    /// The mean size of a request in bytes; none without requests.
    pub fn mean_io_bytes(&self) -> Option<f64> {
        let ios = self.reads + self.writes;
        (ios > 0).then(|| (self.read_bytes + self.written_bytes) as f64 / ios as f64)
    }
}

/// Settings and counters of iopath's page cache.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
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

impl std::iter::Sum for Device {
    fn sum<I: Iterator<Item = Self>>(devices: I) -> Self {
        devices.fold(Self::default(), |sum, one| Self {
            queue: sum.queue.map_or(one.queue, |all| Some(all + one.queue.unwrap_or_default())),
            reads: sum.reads + one.reads,
            read_bytes: sum.read_bytes + one.read_bytes,
            writes: sum.writes + one.writes,
            written_bytes: sum.written_bytes + one.written_bytes,
        })
    }
}

impl std::iter::Sum for CacheUse {
    /// Adds the counters. `dirty`, `writing` and `readahead_bytes` are those of the last item.
    fn sum<I: Iterator<Item = Self>>(uses: I) -> Self {
        uses.fold(Self::default(), |sum, one| Self {
            hits: sum.hits + one.hits,
            misses: sum.misses + one.misses,
            joins: sum.joins + one.joins,
            readahead: sum.readahead + one.readahead,
            readahead_used: sum.readahead_used + one.readahead_used,
            readahead_wasted: sum.readahead_wasted + one.readahead_wasted,
            pages_read: sum.pages_read + one.pages_read,
            pages_written: sum.pages_written + one.pages_written,
            evicted: sum.evicted + one.evicted,
            ..one
        })
    }
}
