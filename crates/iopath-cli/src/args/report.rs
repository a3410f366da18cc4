//! The command line of `iopath report`.

use super::values::percentage;
use clap::Args;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Results (--json FILE of run, survey, compare or experiment; the file of sweep) and request logs (run --log
    /// FILE). Several results are compared with the first one
    #[arg(required = true, value_name = "RESULT")]
    pub(crate) results: Vec<PathBuf>,
    /// The page; - is stdout
    #[arg(short, long, default_value = "report.html", value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// The title of the page; default: the target
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// The largest difference between results that counts as the same
    #[arg(long, default_value = "3%", value_parser = percentage, value_name = "PERCENT")]
    pub(crate) threshold: f64,
    /// Conditions in which compared results differ by intention (path, bs, kernel, ...), or all
    #[arg(long, value_delimiter = ',', value_name = "KEY,...")]
    pub(crate) vary: Vec<String>,
    /// Replace an existing file that is not a page of iopath
    #[arg(long)]
    pub(crate) force: bool,
}
