//! The options of `iopath log`. The command is in `log.rs` of the crate.

use super::values::{event, repeat, sectors, stream, time_offset};
use super::{GeneralFormat, JsonArgs};
use clap::{ArgMatches, Args, FromArgMatches, Subcommand};
use iopath_core::Extent;
use iopath_core::log::Event;
use std::path::PathBuf;
use std::time::Duration;

/// `iopath log FILE` prints a summary, `iopath log dump FILE` prints the events.
#[derive(Debug)]
pub(crate) enum LogArgs {
    Summary(SummaryArgs),
    Dump(LogFile),
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub(crate) file: LogFile,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Write one line for each event
    Dump(LogFile),
}

/// Not derived: a derived struct cannot express a command line with either a subcommand or a file.
impl Args for LogArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        LogCommand::augment_subcommands(SummaryArgs::augment_args(command))
            .subcommand_required(false)
            .arg_required_else_help(false)
            .subcommand_negates_reqs(true)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for LogArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        if matches.subcommand_name().is_none() {
            return SummaryArgs::from_arg_matches(matches).map(Self::Summary);
        }
        LogCommand::from_arg_matches(matches).map(|LogCommand::Dump(file)| Self::Dump(file))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// A log and a filter.
#[derive(Debug, Args)]
pub(crate) struct LogFile {
    /// The log; - is stdin
    pub(crate) file: PathBuf,
    /// Only events at or after this time from the start of the log (5s, 500ms; a plain number is seconds)
    #[arg(long, value_parser = time_offset, value_name = "TIME")]
    pub(crate) from: Option<Duration>,
    /// Only events before this time from the start of the log
    #[arg(long, value_parser = time_offset, value_name = "TIME")]
    pub(crate) to: Option<Duration>,
    /// Only events of this stream (the number of the job, from 0); may be repeated
    #[arg(long, value_parser = stream, value_name = "N")]
    pub(crate) stream: Vec<u32>,
    /// Only events that overlap these sectors, first and count: 2048+8
    #[arg(long, value_parser = sectors, value_name = "FIRST+COUNT")]
    pub(crate) sectors: Option<Extent>,
    /// Only events of this kind; may be repeated
    #[arg(long, value_parser = event, value_name = "NAME")]
    pub(crate) event: Vec<Event>,
    /// Only events of this device of a recording (sda, 8:0); may be repeated
    #[arg(long, value_name = "NAME")]
    pub(crate) device: Vec<String>,
    /// Only events of this repetition of a run, from 1; may be repeated
    #[arg(long, value_parser = repeat, value_name = "N")]
    pub(crate) repeat: Vec<u32>,
}
