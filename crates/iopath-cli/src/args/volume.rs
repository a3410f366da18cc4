//! The arguments of commands that serve targets: how a target is opened.

use super::values::{elevator, size};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use iopath_core::elevator::ElevatorSpec;
use iopath_lab::serve::{ServeMode, VolumeRequest};

#[derive(Debug, Args)]
pub(crate) struct VolumeArgs {
    /// The path of the I/O
    #[arg(long, default_value = "iopath-direct", value_parser = PossibleValuesParser::new(ServeMode::ALL.map(ServeMode::name)).try_map(|name| name.parse::<ServeMode>()))]
    pub(crate) path: ServeMode,
    /// The I/O scheduler (elevator), with settings: `deadline:read_expire_ms=100`
    #[arg(long, value_parser = elevator, value_name = "NAME[:SETTING=N,...]")]
    pub(crate) elevator: Option<ElevatorSpec>,
    /// Memory of the page cache of iopath-buffered, for each target; default: 256m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) cache: Option<u64>,
    /// Accept a target that another program has locked, and do not lock it: the programs must coordinate their accesses
    #[arg(long)]
    pub(crate) share: bool,
}

impl VolumeArgs {
    pub(crate) fn request(&self, is_writable: bool, overwrite: bool) -> VolumeRequest {
        VolumeRequest {
            mode: self.path,
            elevator: self.elevator.clone(),
            cache_bytes: self.cache,
            is_writable,
            overwrite,
            is_shared: self.share,
        }
    }
}
