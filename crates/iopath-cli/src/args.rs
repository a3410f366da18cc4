//! The options of `iopath run`, `survey` and `map`. `args/values.rs` parses the values, `args/log.rs` has the options
//! of `iopath log`. The commands are in `run.rs`, `survey.rs` and `map.rs`.

mod compare;
mod fit;
mod format;
mod log;
mod report;
mod serve;
mod size;
mod sweep;
mod tune;
mod values;
mod whatif;

pub(crate) use compare::CompareArgs;
pub(crate) use fit::FitArgs;
pub(crate) use format::{GeneralFormat, PERFTEST, RunFormat, SweepFormat};
pub(crate) use log::{LogArgs, LogFile, SummaryArgs};
pub(crate) use report::ReportArgs;
pub(crate) use serve::{ServeArgs, TlsMode};
pub(crate) use sweep::SweepArgs;
pub(crate) use tune::TuneArgs;
pub(crate) use whatif::WhatIfArgs;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::mapper::Boundary;
use iopath_lab::cache::parse_readahead;
use iopath_lab::experiment::EXPERIMENTS;
use iopath_lab::field::FieldNames;
use iopath_lab::jobfile::{Amount, RunSettings, key_of};
use iopath_lab::path::PathRow;
use iopath_lab::paths::{PATHS, find_path};
use iopath_lab::{
    BlockSize, CacheSettings, Depth, DeviceDepth, Distribution, End, Engine, Field, Jobs, LabError,
    LatencySampling, LogSettings, ModelHost, Rate, RateProcess, ReadShare, Readahead, Repetitions, Rw, Shape,
    Sizes, SteadyState, Verify, Workload,
};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;
use values::{
    count, described, duration, elevator, elevators_help, log_file, page_bytes, percent, positive,
    positive_count, rate, rate_process, read_size, seed, signed_size, size, size_or_share, survey_time,
};

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
    /// Measure a matrix of paths, block sizes, depths and settings; tables and a heat map
    Sweep(Box<SweepArgs>),
    /// Show the settings of a block device; set them, restore them, or find better ones for a workload
    Tune(TuneArgs),
    /// Serve files, block devices and modelled disks over NBD
    Serve(Box<ServeArgs>),
    /// List the I/O schedulers (elevators) and their settings
    Elevators(ElevatorsArgs),
    /// Summarise a request log on one page, or write it as text
    #[command(args_conflicts_with_subcommands = true)]
    Log(LogArgs),
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
    /// A directory (survey uses a temporary scratch file there), a file or a block device (survey only reads it), or a modelled
    /// disk (model:NAME)
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
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

/// Sizes are bytes, or a number with k, m, g, t (powers of 1024).
#[expect(clippy::struct_excessive_bools, reason = "flags, independent of each other")]
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A job file of fio: its jobs instead of one workload. --target, --size, --runtime and --path replace the keys of all
    /// jobs
    #[arg(value_name = "JOBFILE", conflicts_with_all = NOT_WITH_JOBFILE)]
    pub(crate) jobfile: Option<PathBuf>,
    /// The jobs of a preset instead of a job file; list shows all presets
    #[arg(long, value_name = "NAME|list", conflicts_with = "jobfile", conflicts_with_all = NOT_WITH_JOBFILE)]
    pub(crate) preset: Option<String>,
    /// Ignore keys of JOBFILE that iopath does not support, with a warning for each
    #[arg(long, requires = "jobfile")]
    pub(crate) lenient: bool,
    /// Run only this job of JOBFILE. May be repeated
    #[arg(long, value_name = "NAME", requires = "jobfile")]
    pub(crate) section: Vec<String>,
    /// The I/O path to measure. Lists, also of --rw, --bs, --iodepth and --numjobs, measure all combinations side by side
    #[arg(long, required_unless_present_any = ["jobfile", "preset"], value_delimiter = ',', value_parser = described(PATHS.iter().map(|row| (row.name, row.about))).try_map(|name| find_path(&name)))]
    pub(crate) path: Vec<&'static PathRow>,
    /// A directory (for a temporary scratch file), a file or a block device; or a modelled disk in virtual time, as
    /// model:NAME or model:FILE.toml. A list, or a repeated option, runs the workload on all targets at the same time
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Vec<PathBuf>,
    /// Direction and order of transfers
    #[arg(long, default_value = "read", value_delimiter = ',', value_parser = PossibleValuesParser::new(Rw::ALL.map(Rw::name)).try_map(|name| name.parse::<Rw>()))]
    pub(crate) rw: Vec<Rw>,
    /// The size of each transfer
    #[arg(long, default_value = "4k", value_delimiter = ',', value_parser = size, value_name = "SIZE")]
    pub(crate) bs: Vec<u64>,
    /// Several sizes of transfers, with shares in percent (4k/60:64k/40) or as a range (4k-64k); reads and writes apart after
    /// a comma
    #[arg(long, value_delimiter = ',', value_name = "SIZES", conflicts_with = "bs", num_args = 1..=2)]
    pub(crate) bssplit: Vec<Sizes>,
    /// Bytes that a sequential pattern skips after each transfer; negative from the end to the start: -8k
    #[arg(long, value_parser = signed_size, allow_hyphen_values = true, value_name = "SIZE")]
    pub(crate) skip: Option<i64>,
    /// Transfers of a random pattern at adjacent offsets, from each random offset on
    #[arg(long, default_value_t = 1, value_parser = count, value_name = "N")]
    pub(crate) random_run: u32,
    /// Transfers in 100 of a random pattern with a random offset; the others follow the transfer before them
    #[arg(long, default_value_t = 100, value_parser = percent, value_name = "PERCENT")]
    pub(crate) percentage_random: u32,
    /// Transfers in flight per job; always 1 on synchronous paths
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = count, value_name = "N")]
    pub(crate) iodepth: Vec<u32>,
    /// Threads that run the workload concurrently
    #[arg(long, default_value = "1", value_delimiter = ',', value_parser = count, value_name = "N")]
    pub(crate) numjobs: Vec<u32>,
    /// Bytes to access from the start of the target, or percent of a file, device or model (20%); default: all of it, 1g of
    /// a scratch file
    #[arg(long, value_parser = size_or_share, value_name = "SIZE")]
    pub(crate) size: Option<Amount>,
    /// The first byte to access; default: 0
    #[arg(long, default_value = "0", value_parser = size, value_name = "SIZE")]
    pub(crate) offset: u64,
    /// Time of each repetition (5s, 500ms, 1m; a plain number is seconds); default: until SIZE is transferred
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) runtime: Option<Duration>,
    /// Pause between the completion of a transfer and the start of the next transfer in its place; default: none
    #[arg(long, value_parser = duration, value_name = "TIME", conflicts_with_all = ["rate_iops", "rate"])]
    pub(crate) thinktime: Option<Duration>,
    /// Transfers that each job starts per second, at fixed times. The latency of a transfer counts from its fixed start
    /// time, so a late start increases it (no coordinated omission)
    #[arg(long, value_parser = positive, value_name = "N", conflicts_with = "rate")]
    pub(crate) rate_iops: Option<NonZeroU64>,
    /// Bytes that each job transfers per second. The transfers start at fixed times, as with --rate-iops
    #[arg(long, value_parser = rate, value_name = "SIZE")]
    pub(crate) rate: Option<NonZeroU64>,
    /// The distances between the starts of transfers with a rate: equal, or random as of independent clients (poisson)
    #[arg(long, default_value = "linear", value_parser = rate_process, value_name = "linear|poisson")]
    pub(crate) rate_process: RateProcess,
    /// Flush after each N writes of a job, with the latencies of flushes apart. A writing job always flushes at its end
    #[arg(long, value_parser = positive_count, value_name = "N")]
    pub(crate) fsync: Option<NonZeroU64>,
    /// Verify data: writes carry checksums, offsets and numbers; reads check them, and written blocks are read back after
    /// each repetition. Finds lost, stale, torn, misdirected and corrupt blocks
    #[arg(long)]
    pub(crate) verify: bool,
    /// Read the blocks back after each N writes of a job too, within the measurement
    #[arg(long, value_parser = positive_count, value_name = "N", requires = "verify")]
    pub(crate) verify_backlog: Option<NonZeroU64>,
    /// End at the first fault that --verify finds
    #[arg(long, requires = "verify")]
    pub(crate) verify_fatal: bool,
    /// End each repetition when it is steady, at --runtime at the latest: in one window, no sample deviates from the mean
    /// by more than DEVIATION, and the straight line through the samples changes by at most SLOPE, for reads and writes
    /// apart; default: iops:10%:10%
    #[arg(long, num_args = 0..=1, default_missing_value = "iops", requires = "runtime", value_parser = |text: &str| text.parse::<SteadyState>(), value_name = "iops|bw|lat[:DEVIATION[:SLOPE]]")]
    pub(crate) steady_state: Option<SteadyState>,
    /// The window of --steady-state, of ten samples; default: 10s
    #[arg(long, value_parser = duration, value_name = "TIME", requires = "steady_state")]
    pub(crate) steady_window: Option<Duration>,
    /// Number of repetitions; default: 3, and 1 of a job file
    #[arg(long, value_parser = count, value_name = "N")]
    pub(crate) repeat: Option<u32>,
    /// Read SIZE once before the measurement and keep the caches filled; default: each repetition starts with empty
    /// caches
    #[arg(long)]
    pub(crate) warm: bool,
    /// Measure the latency of one transfer in N only. Use it for cached data on synchronous paths, where a transfer takes
    /// less time than reading the clock (compare fio's `gtod_reduce`)
    #[arg(long, default_value_t = 1, value_parser = count, value_name = "N")]
    pub(crate) latency_every: u32,
    /// Memory of the page cache of iopath-buffered; default: 256m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) cache: Option<u64>,
    /// Page size of the page cache of iopath-buffered, 4k to 64k; default: 4k
    #[arg(long, value_parser = page_bytes, value_name = "SIZE")]
    pub(crate) page: Option<u32>,
    /// Readahead of the page cache of iopath-buffered: auto, off, a maximum size, or the windows of the Linux kernel with a
    /// maximum size (linux:128k); a size of 0 is off; default: auto
    #[arg(long, value_parser = parse_readahead, value_name = "auto|off|SIZE|linux:SIZE")]
    pub(crate) readahead: Option<Readahead>,
    /// Borrow pages of the page cache of iopath-buffered instead of copying them
    #[arg(long)]
    pub(crate) borrow: bool,
    /// Percentage of reads in rw and randrw
    #[arg(long, default_value_t = 50, value_parser = count, value_name = "PERCENT")]
    pub(crate) rwmixread: u32,
    /// How the offsets of random patterns are distributed: random (uniform), zipf:THETA, pareto:POWER, normal:PERCENT, each
    /// with an optional :CENTER from 0 to 1, or zoned:ACCESS/SIZE:... in percent
    #[arg(long, default_value = "random", value_parser = |text: &str| text.parse::<Distribution>(), value_name = "NAME[:NUMBER...]")]
    pub(crate) random_distribution: Distribution,
    /// The I/O scheduler (elevator) of iopath's own paths, with settings: `deadline:read_expire_ms=100`
    #[arg(long, value_parser = elevator, value_name = "NAME[:SETTING=N,...]", long_help = elevators_help())]
    pub(crate) elevator: Option<ElevatorSpec>,
    /// Maximum number of requests in flight at the device, for all jobs together. Needs path iopath-buffered, or an
    /// elevator other than none to order the waiting requests. Default: the queue depth of the disk, or 32
    #[arg(long, value_parser = count, value_name = "N")]
    pub(crate) device_depth: Option<u32>,
    /// The I/O engine of iopath's own paths
    #[arg(long, value_parser = PossibleValuesParser::new(Engine::KNOWN.iter().map(|known| known.0)).try_map(|name| name.parse::<Engine>()), value_name = "ENGINE")]
    pub(crate) engine: Option<Engine>,
    /// Seed of random offsets and content
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N")]
    pub(crate) seed: u64,
    /// Write the request log of iopath's own paths to a file, for `iopath log`
    #[arg(long, value_name = "FILE", value_parser = log_file)]
    pub(crate) log: Option<PathBuf>,
    /// Maximum size of the request log
    #[arg(long, value_parser = size, value_name = "SIZE", requires = "log")]
    pub(crate) log_limit: Option<u64>,
    /// The CPUs in front of a modelled target: a preset, or a file of parameters; default: CPU work takes no time
    #[arg(long, value_name = "NAME|FILE.toml")]
    pub(crate) host: Option<String>,
    /// Allow writing to a file or device that is not a scratch file of iopath. Destroys its content
    #[arg(long)]
    pub(crate) overwrite: bool,
    #[command(flatten)]
    pub(crate) format: RunFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

impl RunArgs {
    /// The targets. A name with commas is a list, unless a file has this name.
    pub(crate) fn targets(&self) -> Vec<PathBuf> {
        let split = |target: &PathBuf| match target.to_str() {
            Some(list) if list.contains(',') && !list.starts_with("stripe:") && !target.exists() => {
                list.split(',').map(PathBuf::from).collect()
            }
            _ => vec![target.clone()],
        };
        self.target.iter().flat_map(split).collect()
    }

    /// All combinations of the lists, at least one.
    pub(crate) fn workloads(&self) -> Result<Vec<Workload>, LabError> {
        let workloads = vary(&[self.workload()?], &self.path, |workload, path| {
            workload.path = path;
            Ok(())
        })?;
        let workloads = vary(&workloads, &self.rw, |workload, rw| {
            workload.rw = rw;
            Ok(())
        })?;
        let largest = self.bssplit.iter().map(|sizes| sizes.max().into()).max();
        let block_sizes = largest.map_or_else(|| self.bs.clone(), |bytes| vec![bytes]);
        let workloads = vary(&workloads, &block_sizes, |workload, bytes| {
            workload.block_size = BlockSize::new(bytes)?;
            Ok(())
        })?;
        let workloads = vary(&workloads, &self.iodepth, |workload, depth| {
            workload.depth = Depth::new(depth)?;
            Ok(())
        })?;
        vary(&workloads, &self.numjobs, |workload, jobs| {
            workload.jobs = Jobs::new(jobs)?;
            Ok(())
        })
    }

    /// The workload of these arguments, with the first value of each list.
    pub(crate) fn workload(&self) -> Result<Workload, LabError> {
        let default = Workload::default();
        Ok(Workload {
            path: self.path.first().copied().unwrap_or(default.path),
            target: self.targets().first().cloned(),
            more_targets: self.targets().into_iter().skip(1).collect(),
            rw: self.rw.first().copied().unwrap_or(default.rw),
            block_size: match self.bssplit.iter().map(Sizes::max).max() {
                Some(bytes) => BlockSize::new(bytes)?,
                None => self.bs.first().map_or(Ok(default.block_size), |bytes| BlockSize::new(*bytes))?,
            },
            shape: Shape {
                sizes: self
                    .bssplit
                    .first()
                    .map(|reads| [reads.clone(), self.bssplit.get(1).unwrap_or(reads).clone()]),
                skip_bytes: self.skip.unwrap_or(0),
                random_run: self.random_run,
                random_percent: self.percentage_random,
                ..Shape::default()
            },
            depth: self.iodepth.first().map_or(Ok(default.depth), |depth| Depth::new(*depth))?,
            jobs: self.numjobs.first().map_or(Ok(default.jobs), |jobs| Jobs::new(*jobs))?,
            size_bytes: self.size_bytes()?.map(|bytes| bytes.saturating_add(self.offset)),
            start_bytes: self.offset,
            end: End::new(self.runtime, None),
            think: self.thinktime.unwrap_or_default(),
            rate: self.rate_iops.map(Rate::Ios).or(self.rate.map(Rate::Bytes)),
            rate_process: self.rate_process,
            flush_every: self.fsync,
            verify: self.verify.then_some(Verify {
                after: true,
                backlog: self.verify_backlog,
                fatal: self.verify_fatal,
            }),
            steady_state: self.steady_state.map(|steady| match self.steady_window {
                Some(window) => steady.in_window(window),
                None => steady,
            }),
            repetitions: Repetitions::new(self.repeat.unwrap_or(3))?,
            warm: self.warm,
            latency_sampling: LatencySampling::new(self.latency_every)?,
            seed: self.seed,
            distribution: self.random_distribution.clone(),
            read_share: ReadShare::new(self.rwmixread)?,
            elevator: self.elevator.clone(),
            device_depth: self.device_depth.map(DeviceDepth::new).transpose()?,
            engine: self.engine,
            cache: CacheSettings {
                cache_bytes: self.cache,
                page_bytes: self.page,
                readahead: self.readahead,
                borrow: self.borrow,
            },
            log: self.log.clone().map(|file| LogSettings { file, limit_bytes: self.log_limit }),
            host: self.host.as_deref().map(ModelHost::find).transpose()?,
            overwrite: self.overwrite,
        })
    }
}

/// Each workload with each value of a list.
fn vary<T: Copy>(
    workloads: &[Workload],
    values: &[T],
    set: impl Fn(&mut Workload, T) -> Result<(), LabError>,
) -> Result<Vec<Workload>, LabError> {
    let each =
        workloads.iter().flat_map(|workload| values.iter().map(move |value| (workload.clone(), *value)));
    each.map(|(mut workload, value)| set(&mut workload, value).map(|()| workload)).collect()
}

/// The options of a workload that a job file sets itself, or does not have.
const NOT_WITH_JOBFILE: [&str; 25] = [
    "steady_state",
    "steady_window",
    "rate_process",
    "bssplit",
    "skip",
    "random_run",
    "percentage_random",
    "offset",
    "verify",
    "verify_backlog",
    "verify_fatal",
    "fsync",
    "random_distribution",
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "thinktime",
    "rate_iops",
    "rate",
    "warm",
    "latency_every",
    "rwmixread",
    "seed",
    "host",
];

impl RunArgs {
    /// The changes to the jobs of a job file.
    pub(crate) fn job_settings(&self) -> Result<RunSettings, LabError> {
        let repetitions = Repetitions::new(self.repeat.unwrap_or(1))?;
        let base = Workload { target: None, more_targets: Vec::new(), repetitions, ..self.workload()? };
        Ok(RunSettings {
            target: self.targets().first().cloned(),
            size_bytes: self.size_bytes()?,
            runtime: self.runtime,
            path: self.path.first().copied(),
            base,
        })
    }
}

impl Command {
    /// The flags of this command for the fields of a workload. Messages name these flags.
    pub(crate) fn flags(&self) -> FieldNames {
        match self {
            Self::Run(args) if args.jobfile.is_some() || args.preset.is_some() => key_of,
            Self::Run(_) | Self::Sweep(_) | Self::Tune(_) => run_flag,
            Self::Survey(_) | Self::Fit(_) => survey_flag,
            Self::Map(_) => map_flag,
            _ => |_| None,
        }
    }
}

fn map_flag(field: Field) -> Option<&'static str> {
    (field == Field::BlockSize).then_some("--bs")
}

#[expect(clippy::unnecessary_wraps, reason = "the type is that of `FieldNames`")]
pub(crate) fn run_flag(field: Field) -> Option<&'static str> {
    Some(match field {
        Field::Path => "--path",
        Field::Target => "--target",
        Field::Pattern => "--rw",
        Field::BlockSize => "--bs",
        Field::Depth => "--iodepth",
        Field::Jobs => "--numjobs",
        Field::Size => "--size",
        Field::End => "--runtime",
        Field::Think => "--thinktime",
        Field::RateIops => "--rate-iops",
        Field::Rate => "--rate",
        Field::FlushEvery => "--fsync",
        Field::Verify => "--verify",
        Field::SteadyState => "--steady-state",
        Field::Repetitions => "--repeat",
        Field::Warm => "--warm",
        Field::LatencySampling => "--latency-every",
        Field::ReadShare => "--rwmixread",
        Field::CacheSize => "--cache",
        Field::PageSize => "--page",
        Field::Readahead => "--readahead",
        Field::Borrow => "--borrow",
        Field::Elevator => "--elevator",
        Field::DeviceDepth => "--device-depth",
        Field::Engine => "--engine",
        Field::Log => "--log",
        Field::Host => "--host",
        Field::Overwrite => "--overwrite",
    })
}

/// A survey sets all other fields itself.
fn survey_flag(field: Field) -> Option<&'static str> {
    (field == Field::Overwrite).then_some("--overwrite")
}

#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// A regular file. Its content is not read
    pub(crate) file: PathBuf,
    /// Block sizes for which the requests of reading the whole file are counted
    #[arg(long, default_value = "4k,64k,1m", value_delimiter = ',', value_parser = read_size, value_name = "SIZE,...")]
    pub(crate) bs: Vec<u64>,
    /// How a read is split before an indirect block of a block-mapped file (ext2, ext3); default: once
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
    /// Run on real storage: a directory for scratch files; `unplug` and `dip` also read a file or block device. Without ID,
    /// runs all experiments that can run there
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
}

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
        let names: [(&str, FieldNames); 3] = [("run", run_flag), ("survey", survey_flag), ("map", map_flag)];
        for (command, name) in names {
            let flags = flags_of(command);
            for flag in Field::ALL.into_iter().filter_map(name) {
                assert!(flags.iter().any(|known| known == flag), "{command} has no {flag}");
            }
        }
        assert!(Field::ALL.into_iter().all(|field| run_flag(field).is_some()));
    }

    #[test]
    fn run_has_the_defaults_of_a_workload() {
        let Cli { command } = Cli::try_parse_from(["iopath", "run", "--path", "kernel-buffered"]).unwrap();
        let Command::Run(args) = &command else { panic!("run parses to run") };
        let (parsed, default) = (args.workload().unwrap(), Workload::default());
        assert_eq!(format!("{parsed:?}"), format!("{default:?}"));
    }
}
