//! The command line of `iopath fit`.

use super::values::{fit_time, model_output};
use super::{GeneralFormat, ShowArgs};
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct FitArgs {
    /// A directory (fit uses a temporary scratch file there), a file, a block device or a model (model:NAME); or a
    /// request log of iopath
    #[arg(value_name = "TARGET|LOG")]
    pub(crate) source: PathBuf,
    /// The model file to write, for --target model:FILE.toml
    #[arg(long, short, value_name = "FILE", value_parser = model_output)]
    pub(crate) output: PathBuf,
    /// Total time for a target (90s, 5m; a plain number is seconds). A shorter time also shortens the search
    #[arg(long, default_value = "75s", value_parser = fit_time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// Allow writing to a file or device that is not a scratch file of iopath. Destroys its content
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}
