//! The options of all commands with results: their destination and their look.

use clap::Args;
use std::path::PathBuf;

/// The destination of results: the same options on each command that has results.
#[derive(Debug, Args)]
pub(crate) struct JsonArgs {
    /// Write the results as JSON to FILE and as text to stdout; without FILE, or with -, only as JSON to stdout
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub(crate) json: Option<PathBuf>,
    /// Replace an existing file that is not a result, log or fitted model of iopath
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// No colours and no progress bars (like `NO_COLOR`)
    #[arg(long)]
    pub(crate) no_color: bool,
    /// No progress on stderr; warnings and errors stay
    #[arg(long, short)]
    pub(crate) quiet: bool,
}
