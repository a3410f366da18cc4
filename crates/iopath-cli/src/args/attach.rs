//! The command lines of `iopath attach` and `iopath detach`.

use super::values::{elevator, size};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use iopath_core::elevator::ElevatorSpec;
use iopath_lab::metrics::MetricsPlace;
use iopath_lab::serve::ServeMode;
use std::path::PathBuf;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of the command line, independent of each other")]
pub(crate) struct AttachArgs {
    /// Files, block devices, modelled disks (model:NAME, in real time), stripes and NBD URIs: a device for each
    #[arg(required_unless_present_any = ["list", "recover"])]
    pub(crate) target: Vec<PathBuf>,
    /// The path of the I/O. With iopath-buffered, the device does not survive a kill of this process
    #[arg(long, default_value = "iopath-direct", value_parser = PossibleValuesParser::new(ServeMode::ALL.map(ServeMode::name)).try_map(|name| name.parse::<ServeMode>()))]
    pub(crate) path: ServeMode,
    /// The I/O scheduler (elevator), with settings: `deadline:read_expire_ms=100`
    #[arg(long, value_parser = elevator, value_name = "NAME[:SETTING=N,...]")]
    pub(crate) elevator: Option<ElevatorSpec>,
    /// Memory of the page cache of iopath-buffered, for each target; default: 256m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) cache: Option<u64>,
    /// Refuse writes to the device
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Attach a device with a recognised signature, such as that of a filesystem
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) overwrite: bool,
    /// Attach a target that another program has locked, and do not lock it: the programs must coordinate their accesses
    #[arg(long)]
    pub(crate) share: bool,
    /// Queues of the device, each with a thread; default: one for each processor, at most 8, or one with an elevator,
    /// which orders the requests of a queue
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) queues: Option<u16>,
    /// The number of the first device; default: the first free one
    #[arg(long, value_name = "N", conflicts_with_all = ["recover", "list"])]
    pub(crate) device: Option<u32>,
    /// Continue device N, whose process was killed or has left it; with the target and options of that process, unless
    /// a target is named
    #[arg(long, value_name = "N")]
    pub(crate) recover: Option<u32>,
    /// List the devices
    #[arg(long, exclusive = true)]
    pub(crate) list: bool,
    /// Publish metrics in the format OpenMetrics: at http://[ADDRESS:]PORT/metrics (a port alone is that of 127.0.0.1),
    /// or in a file that is replaced every second
    #[arg(long, value_name = "[ADDRESS:]PORT|FILE")]
    pub(crate) metrics: Option<MetricsPlace>,
}

#[derive(Debug, Args)]
pub(crate) struct DetachArgs {
    /// Devices: N, or /dev/ublkbN
    #[arg(required_unless_present = "all")]
    pub(crate) device: Vec<String>,
    /// All devices of iopath
    #[arg(long, conflicts_with = "device")]
    pub(crate) all: bool,
    /// Remove a device that is in use: a mounted filesystem loses what it has not written
    #[arg(long)]
    pub(crate) force: bool,
}
