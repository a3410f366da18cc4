//! The command lines of `iopath attach` and `iopath detach`.

use super::{MetricsArgs, VolumeArgs};
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// Files, block devices, modelled disks (model:NAME, in real time), stripes and NBD URIs: a device for each
    #[arg(required_unless_present_any = ["list", "recover"])]
    pub(crate) target: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) volume: VolumeArgs,
    /// Refuse writes to the device
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Attach a device with a recognised signature, such as that of a filesystem
    #[arg(long, conflicts_with = "read_only")]
    pub(crate) overwrite: bool,
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
    #[command(flatten)]
    pub(crate) metrics: MetricsArgs,
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
