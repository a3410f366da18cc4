//! The command line of `iopath replay`.

use super::values::{count, described, elevator, elevators_help, log_file, seed, size, speed, time_offset};
use super::{GeneralFormat, ShowArgs};
use clap::Args;
use clap::builder::TypedValueParser;
use clap::error::ErrorKind;
use iopath_bench::options::Named;
use iopath_bench::path::PathRow;
use iopath_bench::paths::find_path;
use iopath_bench::workload::LogSettings;
use iopath_core::elevator::ElevatorSpec;
use iopath_lab::replay::{DEPTH_MAX, ReplayRequest};
use iopath_report::replay::{ReplayFit, ReplayTiming, ReplayedEvents};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A request log, or a trace of another program
    #[arg(value_name = "TRACE")]
    pub(crate) trace: PathBuf,
    /// A file, a block device, a directory (for a temporary scratch file), a stripe, an export (nbd://...) or a
    /// modelled disk (model:NAME), which takes its modelled time; may be repeated, for several devices
    #[arg(long, required = true, value_name = "TARGET")]
    pub(crate) target: Vec<PathBuf>,
    /// The recorded device to replay (sda, 8:0); may be repeated: the first on the first target. Default: all devices,
    /// in the order of the log
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// The recorded level
    #[arg(long, default_value = "queue", value_name = "LEVEL", value_parser = named(&EVENTS))]
    pub(crate) events: ReplayedEvents,
    /// When I/Os are submitted
    #[arg(long, default_value = "recorded", value_name = "TIMING", value_parser = named(&TIMINGS))]
    pub(crate) timing: ReplayTiming,
    /// The speed: 2 halves the recorded intervals and think times
    #[arg(long, value_name = "X", value_parser = speed)]
    pub(crate) speed: Option<f64>,
    /// What happens to I/Os beyond the end of the target
    #[arg(long, default_value = "reject", value_name = "FIT", value_parser = named(&FITS))]
    pub(crate) fit: ReplayFit,
    /// The path: iopath-direct or iopath-raw
    #[arg(long, default_value = "iopath-direct", value_name = "NAME", value_parser = path)]
    pub(crate) path: &'static PathRow,
    /// The I/O scheduler (elevator), with settings: `deadline:read_expire_ms=100`; default: none
    #[arg(long, value_name = "NAME[:SETTING=N,...]", value_parser = elevator, long_help = elevators_help())]
    pub(crate) elevator: Option<ElevatorSpec>,
    /// The largest number of I/Os in flight on each target; default: 256, and 32 with --timing asap
    #[arg(long, value_name = "N", value_parser = depth)]
    pub(crate) iodepth: Option<u32>,
    /// Bytes of the target to use, from its start; default: all, and of a scratch file as many as the trace needs
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub(crate) size: Option<u64>,
    /// Only I/Os at or after this time from the start of the log (5s, 500ms; a plain number is seconds)
    #[arg(long, value_parser = time_offset, value_name = "TIME")]
    pub(crate) from: Option<Duration>,
    /// Only I/Os before this time from the start of the log
    #[arg(long, value_parser = time_offset, value_name = "TIME")]
    pub(crate) to: Option<Duration>,
    /// Replay reads only: no writes, flushes, discards and zeroes
    #[arg(long, conflicts_with = "overwrite")]
    pub(crate) reads_only: bool,
    /// Allow writing to a file or device that is not a scratch file of iopath. Destroys its content
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Seed of the contents of writes
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N")]
    pub(crate) seed: u64,
    /// Write a request log of the replay, for iopath log
    #[arg(long, value_name = "FILE", value_parser = log_file)]
    pub(crate) log: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// A value of an option, with its line in the long help.
type Value<T> = (T, Named);

const EVENTS: [Value<ReplayedEvents>; 2] = [
    (ReplayedEvents::Queue, ("queue", "bios as they were queued")),
    (ReplayedEvents::Dispatch, ("dispatch", "requests as they were dispatched to the device")),
];

const TIMINGS: [Value<ReplayTiming>; 3] = [
    (ReplayTiming::Recorded, ("recorded", "at the recorded times")),
    (
        ReplayTiming::Closed,
        ("closed", "after the completions that they followed in the recording, and the recorded think time"),
    ),
    (ReplayTiming::Asap, ("asap", "as fast as possible, with --iodepth in flight")),
];

const FITS: [Value<ReplayFit>; 3] = [
    (ReplayFit::Reject, ("reject", "refuse the replay")),
    (ReplayFit::Wrap, ("wrap", "map them to the start of the target, modulo its size")),
    (
        ReplayFit::Scale,
        ("scale", "map regions of 1 MiB of the recorded device to fewer regions of the target"),
    ),
];

fn named<T: Copy + Send + Sync + 'static>(rows: &'static [Value<T>]) -> impl TypedValueParser<Value = T> {
    let value = |name: String| rows.iter().find(|(_, (known, _))| *known == name).map(|(value, _)| *value);
    described(rows.iter().map(|(_, named)| *named))
        .map(move |name| value(name).expect("each value has a name"))
}

impl ReplayArgs {
    /// The replay of these arguments.
    pub(crate) fn request(&self) -> Result<ReplayRequest, clap::Error> {
        let time = self.from.unwrap_or_default()..self.to.unwrap_or(Duration::MAX);
        if time.is_empty() {
            let message = format!("--from {:?} is not before --to {:?}", time.start, time.end);
            return Err(clap::Error::raw(ErrorKind::ValueValidation, message));
        }
        if self.speed.is_some() && self.timing == ReplayTiming::Asap {
            let message = "--speed stretches recorded times, and --timing asap has none; omit one of them";
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message));
        }
        let log = self.log.clone();
        Ok(ReplayRequest {
            trace: self.trace.clone(),
            targets: self.target.clone(),
            devices: self.device.clone(),
            events: self.events,
            timing: self.timing,
            speed: self.speed.unwrap_or(1.0),
            fit: self.fit,
            path: self.path,
            elevator: self.elevator.clone(),
            depth: self.iodepth,
            size_bytes: self.size,
            time,
            reads_only: self.reads_only,
            overwrite: self.overwrite,
            seed: self.seed,
            log: log.map(|file| LogSettings { file, limit_bytes: None, accesses: false }),
        })
    }
}

fn path(name: &str) -> Result<&'static PathRow, String> {
    find_path(name).map_err(|error| error.to_string())
}

fn depth(text: &str) -> Result<u32, String> {
    let depth = count(text).ok().filter(|depth| (1..=DEPTH_MAX).contains(depth));
    depth.ok_or_else(|| format!("`{text}` is no depth; write 1 to {DEPTH_MAX}"))
}
