//! The command line of `iopath compare`.

use super::values::{duration, percentage, seed};
use super::{GeneralFormat, ShowArgs};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use iopath_lab::compare::{Around, CompareError, CompareOptions, LiveOptions, metric_names, named};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// The base: FILE,... with the results of one workload, one repetition or more; @KEY=VALUE selects runs of a file.
    /// With --live: a shell command
    #[arg(value_name = "A")]
    pub(crate) a: String,
    /// The results that are compared with A
    #[arg(value_name = "B")]
    pub(crate) b: String,
    /// With --live: further commands, each compared with A
    #[arg(value_name = "C", requires = "live", num_args = 0..=24)]
    pub(crate) others: Vec<String>,
    /// Execute A, B and further commands alternately as shell commands, until the verdicts are clear or a limit is
    /// reached. Results are those of their JSON (`iopath run --json -`, fio's --output-format=json), or else their wall
    /// time
    #[arg(long)]
    pub(crate) live: bool,
    /// The largest difference that counts as the same
    #[arg(long, default_value = "3%", value_parser = percentage, value_name = "PERCENT")]
    pub(crate) threshold: f64,
    /// The metric that decides the exit code; default: throughput or iops, or p99 at a fixed rate
    #[arg(long, value_parser = PossibleValuesParser::new(metric_names()).map(|name| name.clone()), value_name = "METRIC")]
    pub(crate) metric: Option<String>,
    /// End with exit code 4 if a verdict is inconclusive or a workload has no partner; a regression keeps exit code 3
    #[arg(long)]
    pub(crate) strict: bool,
    /// Conditions that differ between A and B by intention (path, bs, kernel, ...), or all. Other differences are
    /// refused
    #[arg(long, value_delimiter = ',', value_name = "KEY,...", conflicts_with = "live")]
    pub(crate) vary: Vec<String>,
    /// Maximum number of executions of each command
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=10_000), value_name = "N", requires = "live")]
    pub(crate) repetitions_max: u32,
    /// Maximum time of all executions (10m, 90s; a plain number is seconds)
    #[arg(long, default_value = "10m", value_parser = duration, value_name = "TIME", requires = "live")]
    pub(crate) time_max: Duration,
    /// The name of a command in results, instead of its letter; once for each command, in their order
    #[arg(long = "name", value_parser = name, value_name = "NAME", requires = "live")]
    pub(crate) names: Vec<String>,
    /// A shell command that is executed once before all executions
    #[arg(long, value_name = "COMMAND", requires = "live")]
    pub(crate) setup: Option<String>,
    /// A shell command that is executed before each execution, for example to drop caches; its time does not count
    #[arg(long, value_name = "COMMAND", requires = "live")]
    pub(crate) prepare: Option<String>,
    /// A shell command that is executed once at the end, also after a failure or a signal
    #[arg(long, value_name = "COMMAND", requires = "live")]
    pub(crate) cleanup: Option<String>,
    /// Executions of each command before those that count
    #[arg(long, default_value_t = 0, value_name = "N", requires = "live")]
    pub(crate) warmup: u32,
    /// Write the wall time of each execution to FILE: CSV with the columns execution, side and seconds
    #[arg(long, value_name = "FILE", requires = "live")]
    pub(crate) times: Option<PathBuf>,
    /// Seed of the order within rounds of executions
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N", requires = "live")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

impl CompareArgs {
    pub(crate) fn options(&self) -> CompareOptions {
        CompareOptions {
            sides: [self.a.clone(), self.b.clone()],
            threshold: self.threshold,
            metric: self.metric.clone(),
            vary: self.vary.clone(),
        }
    }

    /// The commands of `--live`.
    pub(crate) fn live_options(&self) -> Result<LiveOptions, CompareError> {
        let texts: Vec<String> = [&self.a, &self.b].into_iter().chain(&self.others).cloned().collect();
        let commands = named(&texts, &self.names)?;
        let around = Around {
            setup: self.setup.clone(),
            prepare: self.prepare.clone(),
            cleanup: self.cleanup.clone(),
            warmup: self.warmup,
        };
        let (repetitions_max, time_max, seed) = (self.repetitions_max, self.time_max, self.seed);
        let (threshold, metric) = (self.threshold, self.metric.clone());
        Ok(LiveOptions { commands, threshold, metric, repetitions_max, time_max, seed, around })
    }
}

/// A name of a command: one short line.
fn name(text: &str) -> Result<String, String> {
    let is_valid =
        !text.trim().is_empty() && text.chars().count() <= 60 && !text.chars().any(char::is_control);
    is_valid.then(|| text.to_owned()).ok_or_else(|| "a name has 1 to 60 characters in one line".to_owned())
}
