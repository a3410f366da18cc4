//! The commands, and the options of those with few. `args/values.rs` parses the values; each other command has a file
//! of its name.

mod attach;
mod compare;
mod convert;
mod fit;
mod flags;
mod format;
#[cfg(feature = "mpi")]
mod hosts;
mod log;
mod metrics;
mod options;
mod record;
mod replay;
mod report;
mod run;
mod serve;
mod show;
mod sweep;
mod tune;
mod values;
mod volume;
mod whatif;

pub(crate) use attach::{AttachArgs, DetachArgs};
pub(crate) use compare::CompareArgs;
pub(crate) use convert::ConvertArgs;
pub(crate) use fit::FitArgs;
pub(crate) use format::{GeneralFormat, PERFTEST, SweepFormat};
#[cfg(feature = "mpi")]
pub(crate) use hosts::HostArgs;
pub(crate) use log::{LogArgs, LogFile, SummaryArgs};
pub(crate) use metrics::MetricsArgs;
pub(crate) use record::RecordArgs;
pub(crate) use replay::ReplayArgs;
pub(crate) use report::ReportArgs;
pub(crate) use run::RunArgs;
pub(crate) use serve::{ServeArgs, TlsMode};
pub(crate) use show::{JsonArgs, ShowArgs};
pub(crate) use sweep::SweepArgs;
pub(crate) use tune::TuneArgs;
pub(crate) use volume::VolumeArgs;
pub(crate) use whatif::WhatIfArgs;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use iopath_core::mapper::Boundary;
use iopath_experiments::EXPERIMENTS;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use values::{described, read_size, survey_time};

/// Measures block I/O paths: throughput, CPU cost, request sizes, latency, and their causes.
#[derive(Debug, Parser)]
#[command(name = "iopath", version, max_term_width = 100, disable_help_subcommand = true, after_help = crate::tasks::list())]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a target on each path; recommend path, block size and depth; report CPU cost and anomalies
    Survey(SurveyArgs),
    /// Measure one workload on one path, with repetitions
    Run(Box<RunArgs>),
    /// Run a command line of fio: iopath fio --name=NAME --rw=randread --size=1g ...
    #[command(disable_help_flag = true)]
    Fio(FioArgs),
    /// Compare two results, or two commands that run alternately; exit code 3 if B is significantly worse than A
    Compare(CompareArgs),
    /// Write results and request logs as one HTML page that works offline
    Report(ReportArgs),
    /// Re-enact published effects of the I/O path on modelled hardware; compare published and modelled figures
    Experiment(ExperimentArgs),
    /// Fit a model to a target or to a request log, for runs in virtual time; state its error
    Fit(FitArgs),
    /// Replay recorded requests on a model under other elevators, depths and request sizes; compare and judge
    #[command(name = "whatif")]
    WhatIf(Box<WhatIfArgs>),
    /// Replay a recorded trace on files, devices, exports or modelled disks, in real time; compare the latencies
    Replay(Box<ReplayArgs>),
    /// Measure a matrix of paths, block sizes, depths and settings; tables and a heat map
    Sweep(Box<SweepArgs>),
    /// Show the settings of a block device; set them, restore them, or find better ones for a workload
    Tune(TuneArgs),
    /// Serve files, block devices and modelled disks over NBD
    Serve(Box<ServeArgs>),
    /// Make files, block devices and modelled disks block devices of this machine: /dev/ublkbN
    Attach(Box<AttachArgs>),
    /// Remove block devices of `iopath attach`
    Detach(DetachArgs),
    /// List the I/O schedulers (elevators) and their settings
    Elevators(ElevatorsArgs),
    /// Record the I/O of any program on the kernel's own path: requests, merges, latencies, by process and device
    Record(RecordArgs),
    /// Summarise a request log on one page, or write it as text
    #[command(args_conflicts_with_subcommands = true)]
    Log(LogArgs),
    /// Write a request log, or a trace of another program, in another format: blktrace, fio's, CSV, Perfetto
    Convert(ConvertArgs),
    /// Show the extents of a file on its device, and the requests of direct reads
    Map(MapArgs),
    /// Write a completion script for a shell to stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page of a command to stdout, or all pages to a directory
    Man(ManArgs),
    /// Show help for a command, or for a task with examples
    Help(HelpArgs),
}

#[derive(Debug, Args)]
pub(crate) struct FioArgs {
    /// The arguments of fio; --help shows them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGS")]
    pub(crate) arguments: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// The command; default: the page of iopath itself
    pub(crate) command: Option<String>,
    /// Write the pages of all commands to this directory
    #[arg(long, short, value_name = "DIR", conflicts_with = "command")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct HelpArgs {
    /// A task or a command; default: the list of both
    #[arg(value_name = "TASK|COMMAND")]
    pub(crate) topic: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SurveyArgs {
    /// A directory (survey uses a temporary scratch file there), a file or a block device (survey only reads it), or a
    /// modelled disk (model:NAME)
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// Total time (90s, 5m; a plain number is seconds)
    #[arg(long, default_value = "90s", value_parser = survey_time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// Allow writing to a file or device that is not a scratch file of iopath. Destroys its content
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// Measure and explain the tool, too: the queue without a device, the engine, iopath against the kernel
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the figures behind each finding, and the reasons to doubt it
    #[arg(long)]
    pub(crate) explain: bool,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// A regular file. Its content is not read
    pub(crate) file: PathBuf,
    /// Block sizes for which the requests of reading the whole file are counted
    #[arg(long, default_value = "4k,64k,1m", value_delimiter = ',', value_parser = read_size, value_name = "SIZE,...")]
    pub(crate) bs: Vec<u64>,
    /// How a read is split before an indirect block of a block-mapped file (ext2, ext3); default: ignore, as the
    /// kernel's direct I/O
    #[arg(long, value_parser = PossibleValuesParser::new(Boundary::ALL.map(Boundary::name)).try_map(|name| name.parse::<Boundary>()))]
    pub(crate) boundary: Option<Boundary>,
    /// Show all extents, not only the first 24
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ElevatorsArgs {
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    /// The experiments; default: all
    #[arg(value_parser = described(EXPERIMENTS.iter().map(|row| (row.id, row.title))), value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Set a parameter of one experiment, and show the prediction of the model. May be repeated. The report of an
    /// experiment lists its parameters
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) set: Vec<String>,
    /// Run on real storage: a directory for scratch files; `unplug` and `dip` also read a file or block device. Without
    /// ID, runs all experiments that can run there
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_bench::Workload;

    #[test]
    fn run_has_the_defaults_of_a_workload() {
        let Cli { command } = Cli::try_parse_from(["iopath", "run", "--path", "kernel-buffered"]).unwrap();
        let Command::Run(args) = &command else { panic!("run parses to run") };
        let (parsed, default) = (args.options.workload().unwrap(), Workload::default());
        assert_eq!(format!("{parsed:?}"), format!("{default:?}"));
    }
}
