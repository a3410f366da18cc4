//! The command line of `iopath record`.

use super::MetricsArgs;
use super::values::{duration, log_file, size};
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct RecordArgs {
    /// Block devices (sda, /dev/sda1), or files and directories on them; default: all devices. The devices below a
    /// device, such as those of a RAID, are recorded, too
    #[arg(value_name = "DEVICE")]
    pub(crate) devices: Vec<PathBuf>,
    /// Record for this time (30s, 5m; a plain number is seconds); default: until the command ends, or until Ctrl-C
    #[arg(long = "for", value_parser = duration, value_name = "TIME")]
    pub(crate) time: Option<Duration>,
    /// The request log to write, for iopath log; default: record.log, with --top none
    #[arg(long, short, value_name = "FILE", value_parser = log_file)]
    pub(crate) output: Option<PathBuf>,
    /// Show each device and process once per TIME, by default 1s: on a terminal as a page, else a line for each device
    #[arg(
        long,
        value_parser = duration,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "1s",
        value_name = "TIME"
    )]
    pub(crate) top: Option<Duration>,
    /// Also record the reads, writes and flushes that programs request, above the page cache: of the command and the
    /// processes that it starts, without a command of all processes. For iopath whatif --readahead and --cache
    #[arg(long, conflicts_with = "top")]
    pub(crate) accesses: bool,
    /// Maximum size of the log; default: 4g
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) log_limit: Option<u64>,
    /// Memory for events that wait to be read, for each CPU; default: 8m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) ring_size: Option<u64>,
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
    /// Replace an existing file that is not a request log
    #[arg(long)]
    pub(crate) force: bool,
    /// Run this command, and record until it ends. The exit code is that of the command
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}
