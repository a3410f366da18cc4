//! The options of `iopath run`: a workload, lists of workloads, and changes to the jobs of a job file.

use super::format::RunFormat;
use super::show::ShowArgs;
use super::values::{
    count, described, duration, elevator, elevators_help, log_file, page_bytes, percent, positive,
    positive_count, rate, rate_process, seed, signed_size, size, size_or_share,
};
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use iopath_core::elevator::ElevatorSpec;
use iopath_lab::cache::parse_readahead;
use iopath_lab::jobfile::{Amount, RunSettings};
use iopath_lab::path::PathRow;
use iopath_lab::paths::{PATHS, find_path};
use iopath_lab::{
    BlockSize, CacheSettings, Depth, DeviceDepth, Distribution, End, Engine, Jobs, LabError, LatencySampling,
    LogSettings, ModelHost, Rate, RateProcess, ReadShare, Readahead, Repetitions, Shape, Sizes, SteadyState,
    Verify, Workload,
};
use iopath_report::Rw;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Sizes are bytes, or a number with k, m, g, t (powers of 1024).
#[expect(clippy::struct_excessive_bools, reason = "flags, independent of each other")]
#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// A job file of fio: its jobs instead of one workload. --target, --size, --runtime and --path replace the keys of
    /// all jobs
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
    /// The I/O path to measure. Lists, also of --rw, --bs, --iodepth and --numjobs, measure all combinations side by
    /// side
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
    /// Several sizes of transfers, with shares in percent (4k/60:64k/40) or as a range (4k-64k); reads and writes apart
    /// after a comma
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
    /// Bytes to access from the start of the target, or percent of a file, device or model (20%); default: all of it,
    /// 1g of a scratch file
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
    /// Verify data: writes carry checksums, offsets and numbers; reads check them, and written blocks are read back
    /// after each repetition. Finds lost, stale, torn, misdirected and corrupt blocks
    #[arg(long)]
    pub(crate) verify: bool,
    /// Read the blocks back after each N writes of a job too, within the measurement
    #[arg(long, value_parser = positive_count, value_name = "N", requires = "verify")]
    pub(crate) verify_backlog: Option<NonZeroU64>,
    /// End at the first fault that --verify finds
    #[arg(long, requires = "verify")]
    pub(crate) verify_fatal: bool,
    /// End each repetition when it is steady, at --runtime at the latest: in one window, no sample deviates from the
    /// mean by more than DEVIATION, and the straight line through the samples changes by at most SLOPE, for reads and
    /// writes apart; default: iops:10%:10%
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
    /// Measure the latency of one transfer in N only. Use it for cached data on synchronous paths, where a transfer
    /// takes less time than reading the clock (compare fio's `gtod_reduce`)
    #[arg(long, default_value_t = 1, value_parser = count, value_name = "N")]
    pub(crate) latency_every: u32,
    /// Memory of the page cache of iopath-buffered; default: 256m
    #[arg(long, value_parser = size, value_name = "SIZE")]
    pub(crate) cache: Option<u64>,
    /// Page size of the page cache of iopath-buffered, 4k to 64k; default: 4k
    #[arg(long, value_parser = page_bytes, value_name = "SIZE")]
    pub(crate) page: Option<u32>,
    /// Readahead of the page cache of iopath-buffered: auto, off, a maximum size, or the windows of the Linux kernel
    /// with a maximum size (linux:128k); a size of 0 is off; default: auto
    #[arg(long, value_parser = parse_readahead, value_name = "auto|off|SIZE|linux:SIZE")]
    pub(crate) readahead: Option<Readahead>,
    /// Borrow pages of the page cache of iopath-buffered instead of copying them
    #[arg(long)]
    pub(crate) borrow: bool,
    /// Percentage of reads in rw and randrw
    #[arg(long, default_value_t = 50, value_parser = count, value_name = "PERCENT")]
    pub(crate) rwmixread: u32,
    /// How the offsets of random patterns are distributed: random (uniform), zipf:THETA, pareto:POWER, normal:PERCENT,
    /// each with an optional :CENTER from 0 to 1, or zoned:ACCESS/SIZE:... in percent
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
    /// Also log the accesses of the jobs, above the path and its page cache, for whatif with another readahead or
    /// cache. Also on kernel paths, whose log has no requests
    #[arg(long, requires = "log")]
    pub(crate) log_accesses: bool,
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
            think_every: default.think_every,
            rate: self.rate_iops.map(Rate::Ios).or(self.rate.map(Rate::Bytes)),
            rate_of_writes: None,
            rate_process: self.rate_process,
            flush_every: self.fsync,
            verify: self.verify.then_some(Verify {
                after: true,
                backlog: self.verify_backlog,
                fatal: self.verify_fatal,
                dump: false,
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
            log: self.log.clone().map(|file| LogSettings {
                file,
                limit_bytes: self.log_limit,
                accesses: self.log_accesses,
            }),
            host: self.host.as_deref().map(ModelHost::find).transpose()?,
            controls: default.controls,
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
