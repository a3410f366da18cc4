//! Reasons why a trace cannot be replayed. The messages are complete: one line with the object, the value and the
//! remedy.

use std::io;
use std::path::PathBuf;

use iopath_bench::error::BenchError;
use iopath_bench::with_bench_error;
use iopath_log::LogError;
use iopath_report::numbers::count;
use iopath_report::size::format_size;
use thiserror::Error;

use crate::modelled::ModelledError;

/// A trace, a target or a selection that cannot be used.
#[derive(Debug, Error)]
pub enum ReplayError {
    /// The trace cannot be opened.
    #[error("cannot open {}: {source}; name a request log of iopath, or a trace", path.display())]
    Open {
        /// The trace.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The trace is a directory, a device or a FIFO.
    #[error("{} is not a regular file; name a request log of iopath, or a trace: a replay reads it twice", path.display())]
    NoTrace {
        /// The trace.
        path: PathBuf,
    },
    /// The trace cannot be read.
    #[error(transparent)]
    Log(#[from] LogError),
    /// The trace has no I/O.
    #[error(
        "{} has no I/O of a queue; record some first, or replay another level (--events). A log of a path of the kernel \
         has no queue", path.display()
    )]
    Empty {
        /// The trace.
        path: PathBuf,
    },
    /// No I/O is selected.
    #[error(
        "{} has {} I/Os, and none of them is selected; use another time (--from, --to), or omit --reads-only",
        path.display(), count(*read)
    )]
    NothingSelected {
        /// The trace.
        path: PathBuf,
        /// Its I/Os.
        read: u64,
    },
    /// The trace has no such device.
    #[error("the trace has no I/O of device {name}; name one of: {devices} (--device)")]
    NoDevice {
        /// The name.
        name: String,
        /// The devices with I/Os.
        devices: String,
    },
    /// Devices and targets are not equal in number.
    #[error(
        "{} has {count} devices for {targets} targets: {devices}; select as many devices as targets, in their order, with \
         --device NAME --target TARGET", path.display()
    )]
    Devices {
        /// The trace.
        path: PathBuf,
        /// The number of devices.
        count: usize,
        /// Their names.
        devices: String,
        /// The number of targets.
        targets: usize,
    },
    /// The trace writes, and the target is a user's.
    #[error(
        "the trace has {} writes, discards and flushes, and writing to {} destroys its contents; set --overwrite, replay \
         the reads alone (--reads-only), or name a directory for a scratch file", count(*writes), target.display()
    )]
    Overwrite {
        /// The target.
        target: PathBuf,
        /// I/Os that are no reads.
        writes: u64,
    },
    /// The trace has I/Os beyond the end of the target.
    #[error(
        "{device} has I/Os up to byte {needed} ({}), and {} has {size} bytes ({}); name a larger target, or map the I/Os to \
         this one with --fit wrap or --fit scale", format_size(*needed), target.display(), format_size(*size)
    )]
    Beyond {
        /// The recorded device.
        device: String,
        /// The end of its highest I/O.
        needed: u64,
        /// The target.
        target: PathBuf,
        /// Its usable size.
        size: u64,
    },
    /// An I/O is larger than the target, or than the largest buffer.
    #[error("{device} has a read or write of {} at byte {offset}, and the largest possible here is {}; {remedy}",
        format_size(*bytes), format_size(*largest))]
    TooLarge {
        /// The recorded device.
        device: String,
        /// The start of the I/O.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// The largest possible length.
        largest: u64,
        /// The remedy.
        remedy: &'static str,
    },
    /// The buffers do not fit in memory.
    #[error(
        "buffers for {depth} I/Os of {} exceed the available memory of {}; use a smaller --iodepth",
        format_size(*bytes), format_size(*available)
    )]
    Buffers {
        /// I/Os in flight.
        depth: u32,
        /// The largest of them.
        bytes: u64,
        /// The memory that is available.
        available: u64,
    },
    /// The trace has no completions.
    #[error(
        "{} has no completions, so dependencies are unknown; replay it at the recorded times (--timing recorded)",
        path.display()
    )]
    NoCompletions {
        /// The trace.
        path: PathBuf,
    },
    /// The path has no batches.
    #[error("path {path} does not replay: it submits no I/O without waiting for it; use {}", known.join(" or "))]
    Path {
        /// The path.
        path: &'static str,
        /// The paths that replay.
        known: Vec<&'static str>,
    },
    /// A modelled disk cannot be opened.
    #[error(transparent)]
    Modelled(#[from] ModelledError),
    /// A target cannot be used.
    #[error(transparent)]
    Bench(#[from] BenchError),
}

with_bench_error!(ReplayError);

impl ReplayError {
    /// Whether the arguments are invalid on every machine and target.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::Path { .. }) || self.bench().is_some_and(BenchError::is_usage)
    }
}
