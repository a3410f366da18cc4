//! The command line of `iopath tune`.

use super::ShowArgs;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A block device (/dev/sda, sda), a partition, or a file or directory on the device
    #[arg(required_unless_present = "restore")]
    pub(crate) device: Option<PathBuf>,
    /// Settings to change, until `iopath tune --restore`. Without settings, the command shows all of them
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) changes: Vec<String>,
    /// Restore the settings of DEVICE, or of all devices, that iopath has changed
    #[arg(long, conflicts_with_all = ["changes", "keep", "json", "force"])]
    pub(crate) restore: bool,
    /// Keep the new values: --restore does not undo them. They last until the next boot
    #[arg(long, requires = "changes")]
    pub(crate) keep: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}
