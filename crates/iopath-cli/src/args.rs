//! The command line. What each argument means is in its help; what becomes of it, in the command's own file.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_core::mapper::Boundary;
use iopath_core::{Extent, Sector};
use iopath_lab::cache::parse_readahead;
use iopath_lab::field::FieldNames;
use iopath_lab::path::PathRow;
use iopath_lab::paths::{PATHS, find_path};
use iopath_lab::size::parse_size;
use iopath_lab::survey::TIME_MIN;
use iopath_lab::{
    BlockSize, CacheSettings, Depth, ELEVATORS, End, Engine, Field, Jobs, LabError, LatencySampling,
    LogSettings, ReadShare, Readahead, Repetitions, Rw, Workload,
};
use iopath_log::{event_name, event_named};
use std::path::PathBuf;
use std::time::Duration;

/// Measures block I/O paths: throughput, CPU price, request sizes, latency, and why.
#[derive(Debug, Parser)]
#[command(name = "iopath", version, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Measure a target every way: which path, block size and depth suit it, at what CPU price, and what is odd
    Survey(SurveyArgs),
    /// Measure one workload on one path, several times
    Run(Box<RunArgs>),
    /// List the elevators and what can be set in each
    Elevators,
    /// Summarise a request log on one page, or dump it
    #[command(args_conflicts_with_subcommands = true)]
    Log(LogArgs),
    /// Show where a file lies, and which requests a direct read of it becomes
    Map(MapArgs),
    /// Write a completion script for a shell to stdout
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page to stdout
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct SurveyArgs {
    /// A directory (a scratch file is made there and removed), a file or a block device (only read)
    #[arg(default_value = ".")]
    pub(crate) target: PathBuf,
    /// How long it may take in all (90s, 5m; a plain number is seconds)
    #[arg(long, default_value = "90s", value_parser = survey_time, value_name = "TIME")]
    pub(crate) time: Duration,
    /// Allow writing to a file or device that is not a scratch file of ours, and so destroying what it holds
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Sizes are bytes, or a number with k, m, g, t (powers of 1024).
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Which way the bytes go
    #[arg(long, value_parser = described(PATHS.iter().map(|row| (row.name, row.about))).try_map(|name| find_path(&name)))]
    pub(crate) path: &'static PathRow,
    /// A directory (a scratch file is made there and removed), a file or a block device
    #[arg(long, value_name = "T")]
    pub(crate) target: Option<PathBuf>,
    /// Which direction, in which order
    #[arg(long, default_value = "read", value_parser = PossibleValuesParser::new(Rw::ALL.map(Rw::name)).try_map(|name| name.parse::<Rw>()))]
    pub(crate) rw: Rw,
    /// The size of each transfer
    #[arg(long, default_value = "4k", value_parser = size, value_name = "SIZE")]
    pub(crate) bs: u64,
    /// Transfers that each job keeps in flight; paths that wait for each have 1
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) iodepth: u32,
    /// Threads that do the same at the same time
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) numjobs: u32,
    /// Bytes to touch, from the start of the target; default: all of a file or device, 1g of a scratch file
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) size: Option<u64>,
    /// How long each repeat takes (5s, 500ms, 1m; a plain number is seconds); default: until SIZE is done
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) runtime: Option<Duration>,
    /// How often to measure
    #[arg(long, default_value_t = 3, value_name = "N")]
    pub(crate) repeat: u32,
    /// Read SIZE once unmeasured and leave caches as they are; default: each repeat begins with empty ones
    #[arg(long)]
    pub(crate) warm: bool,
    /// Time one transfer in so many only (all are counted), where a path waits for each and the clock costs more than
    /// they do; fio's `gtod_reduce`
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) latency_every: u32,
    /// The memory of iopath-buffered's page cache; default: 256m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) cache: Option<u64>,
    /// The size of its pages, 4k to 64k; default: 4k
    #[arg(long, value_parser = page_bytes, value_name = "SIZE")]
    pub(crate) page: Option<u32>,
    /// How far it reads ahead: auto, off or a size; default: auto
    #[arg(long, value_parser = parse_readahead, value_name = "auto|off|SIZE")]
    pub(crate) readahead: Option<Readahead>,
    /// Borrow what is read from it instead of copying
    #[arg(long)]
    pub(crate) borrow: bool,
    /// Of 100 transfers of rw and randrw, how many read
    #[arg(long, default_value_t = 50, value_name = "PERCENT")]
    pub(crate) rwmixread: u32,
    /// The order of requests, on iopath's own paths, with settings: `deadline:read_expire_ms=100`
    #[arg(long, value_parser = elevator, value_name = "NAME[:SETTING=N,...]", long_help = elevators_help())]
    pub(crate) elevator: Option<ElevatorSpec>,
    /// How iopath's own paths do their system calls
    #[arg(long, value_parser = PossibleValuesParser::new(Engine::KNOWN.iter().map(|known| known.0)).try_map(|name| name.parse::<Engine>()), value_name = "E")]
    pub(crate) engine: Option<Engine>,
    /// Where random offsets and contents come from
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub(crate) seed: u64,
    /// Write the request log of iopath's own paths to a file, for `iopath log`
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// The most bytes of that log
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "log")]
    pub(crate) log_limit: Option<u64>,
    /// Allow writing to a file or device that is not a scratch file of ours, and so destroying what it holds
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

impl RunArgs {
    /// The workload of these arguments.
    pub(crate) fn workload(&self) -> Result<Workload, LabError> {
        Ok(Workload {
            path: self.path,
            target: self.target.clone(),
            rw: self.rw,
            block_size: BlockSize::new(self.bs)?,
            depth: Depth::new(self.iodepth)?,
            jobs: Jobs::new(self.numjobs)?,
            size_bytes: self.size,
            end: End::new(self.runtime, None),
            repetitions: Repetitions::new(self.repeat)?,
            warm: self.warm,
            latency_sampling: LatencySampling::new(self.latency_every)?,
            seed: self.seed,
            read_share: ReadShare::new(self.rwmixread)?,
            elevator: self.elevator.clone(),
            engine: self.engine,
            cache: CacheSettings {
                cache_bytes: self.cache,
                page_bytes: self.page,
                readahead: self.readahead,
                borrow: self.borrow,
            },
            log: self.log.clone().map(|file| LogSettings { file, limit_bytes: self.log_limit }),
            overwrite: self.overwrite,
        })
    }
}

impl Command {
    /// The flags of this command that set a field of a workload. Messages name these.
    pub(crate) fn flags(&self) -> FieldNames {
        match self {
            Self::Run(_) => run_flag,
            Self::Survey(_) => survey_flag,
            _ => |_| None,
        }
    }
}

fn run_flag(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::Path => "--path",
        Field::Target => "--target",
        Field::Pattern => "--rw",
        Field::BlockSize => "--bs",
        Field::Depth => "--iodepth",
        Field::Jobs => "--numjobs",
        Field::Size => "--size",
        Field::End => "--runtime",
        Field::Repetitions => "--repeat",
        Field::Warm => "--warm",
        Field::LatencySampling => "--latency-every",
        Field::ReadShare => "--rwmixread",
        Field::CacheSize => "--cache",
        Field::PageSize => "--page",
        Field::Readahead => "--readahead",
        Field::Borrow => "--borrow",
        Field::Elevator => "--elevator",
        Field::Engine => "--engine",
        Field::Log => "--log",
        Field::Overwrite => "--overwrite",
    })
}

/// A survey chooses all else itself.
fn survey_flag(field: Field) -> Option<&'static str> {
    (field == Field::Overwrite).then_some("--overwrite")
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// A regular file; it is not read
    pub(crate) file: PathBuf,
    /// The sizes of reads, from the start of the file to its end
    #[arg(long, default_value = "4k,64k,1m", value_delimiter = ',', value_parser = size, value_name = "SIZE,...")]
    pub(crate) bs: Vec<u64>,
    /// What a read does before an indirect block, in a file that is mapped by blocks (ext2, ext3); default: once
    #[arg(long, value_parser = PossibleValuesParser::new(Boundary::ALL.map(Boundary::name)).try_map(|name| name.parse::<Boundary>()))]
    pub(crate) boundary: Option<Boundary>,
    /// Show every extent, however many there are
    #[arg(long)]
    pub(crate) all: bool,
    /// Write the map as JSON to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// What to make of a log: without a subcommand, a summary.
#[derive(Debug)]
pub(crate) enum LogArgs {
    Summary(SummaryArgs),
    Dump(LogFile),
}

#[derive(Debug, Args)]
pub(crate) struct SummaryArgs {
    #[command(flatten)]
    pub(crate) what: LogFile,
    /// Write the summary as JSON to stdout
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
enum LogCommand {
    /// Write a line for each step
    Dump(LogFile),
}

/// By hand: a derived struct would have to hold a subcommand and a file that are never both there, nor both missing.
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

/// A log and what of it to look at.
#[derive(Debug, Args)]
pub(crate) struct LogFile {
    /// The log
    pub(crate) file: PathBuf,
    /// Only what happened from this long after the log began
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) from: Option<Duration>,
    /// Only what happened before this long after the log began
    #[arg(long, value_parser = humantime::parse_duration, value_name = "TIME")]
    pub(crate) to: Option<Duration>,
    /// Only this stream (the job's number); may be given several times
    #[arg(long, value_parser = stream, value_name = "N")]
    pub(crate) stream: Vec<u32>,
    /// Only what touches these sectors, first and count: 2048+8
    #[arg(long, value_parser = sectors, value_name = "FIRST+COUNT")]
    pub(crate) sectors: Option<Extent>,
    /// Only this event; may be given several times
    #[arg(long, value_parser = event, value_name = "NAME")]
    pub(crate) event: Vec<Event>,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Write the results as JSON to a file, or alone to stdout with -
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// No colours and no moving bars (as with `NO_COLOR` set)
    #[arg(long)]
    pub(crate) no_color: bool,
}

/// Names from a table, each with its line in the long help.
fn described(rows: impl Iterator<Item = (&'static str, &'static str)>) -> PossibleValuesParser {
    PossibleValuesParser::new(rows.map(|(name, about)| PossibleValue::new(name).help(about)))
}

/// An elevator with its settings.
fn elevator(text: &str) -> Result<ElevatorSpec, String> {
    text.parse::<ElevatorSpec>().map_err(|error| error.to_string())
}

fn elevators_help() -> String {
    let rows = ELEVATORS.iter().map(|row| format!("\n- {}: {}", row.name, row.about));
    format!(
        "The order of requests, on iopath's own paths, with settings: deadline:read_expire_ms=100\n{}",
        rows.collect::<String>()
    )
}

fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

fn page_bytes(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    u32::try_from(bytes).map_err(|_| format!("{bytes} bytes is more than a page can have; use 4k to 64k"))
}

fn survey_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time >= TIME_MIN {
        return Ok(time);
    }
    Err(format!(
        "{} s are too few to learn something; {} s is the least",
        time.as_secs_f64(),
        TIME_MIN.as_secs()
    ))
}

fn duration(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let parsed = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    match parsed {
        Ok(duration) if duration.is_zero() => Err("no time at all; 1s, say".to_owned()),
        Ok(duration) => Ok(duration),
        Err(_) => Err(format!("`{text}` is no time; write 5s, 500ms, 1m or a number of seconds")),
    }
}

fn stream(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is no stream; write its number"))
}

fn sectors(text: &str) -> Result<Extent, String> {
    let parts =
        text.split_once('+').and_then(|(first, count)| Some((first.parse().ok()?, count.parse().ok()?)));
    let extent = parts.and_then(|(first, count)| Extent::new(Sector(first), count));
    extent.ok_or_else(|| format!("`{text}` is no range of sectors; write the first and how many, as 2048+8"))
}

fn event(text: &str) -> Result<Event, String> {
    let known = || Event::ALL.map(event_name).join(", ");
    event_named(text).ok_or_else(|| format!("`{text}` is no event; known are {}", known()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    /// The flags of a subcommand, as `--name`.
    fn flags_of(name: &str) -> Vec<String> {
        let cli = Cli::command();
        let command = cli.find_subcommand(name).unwrap();
        command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
    }

    #[test]
    fn messages_name_only_flags_that_the_command_has() {
        let names: [(&str, FieldNames); 2] = [("run", run_flag), ("survey", survey_flag)];
        for (command, name) in names {
            let flags = flags_of(command);
            for flag in Field::ALL.into_iter().filter_map(name) {
                assert!(flags.iter().any(|known| known == flag), "{command} has no {flag}");
            }
        }
        assert!(Field::ALL.into_iter().all(|field| run_flag(field).is_some()));
    }

    #[test]
    fn the_defaults_of_run_are_those_of_a_workload() {
        let Cli { command } = Cli::try_parse_from(["iopath", "run", "--path", "kernel-buffered"]).unwrap();
        let Command::Run(args) = &command else { panic!("run parses to run") };
        let (parsed, default) = (args.workload().unwrap(), Workload::default());
        assert_eq!(format!("{parsed:?}"), format!("{default:?}"));
    }
}
