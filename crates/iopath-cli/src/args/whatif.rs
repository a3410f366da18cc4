//! The command line of `iopath whatif`: inputs, lists of alternatives, and shares of a study.

use super::values::{count, elevators_help, shard, size, speed};
use super::{GeneralFormat, ShowArgs};
use clap::Args;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use iopath_bench::Readahead;
use iopath_bench::cache::parse_readahead;
use iopath_core::elevator::ElevatorSpec;
use iopath_lab::whatif::{Axes, DEFAULT_SEEDS, Priorities, WhatIf, parse_elevators, parse_max_sectors};
use iopath_report::shard::Shard;
use iopath_report::whatif::Metric;
use std::path::PathBuf;

/// Lists have commas; each combination of their values is an alternative.
#[derive(Debug, Args)]
pub(crate) struct WhatIfArgs {
    /// Request logs of iopath, and CSV files with the columns `time_ns`, op, sector, sectors and, optionally, stream,
    /// disk and `latency_ns`
    #[arg(value_name = "LOG|CSV", required_unless_present = "merge_parts")]
    pub(crate) inputs: Vec<PathBuf>,
    /// Models: model:NAME or model:FILE.toml; default: the model on which a log was recorded, or a model fitted to the
    /// log
    #[arg(long, value_name = "MODEL,...", value_delimiter = ',')]
    pub(crate) target: Vec<PathBuf>,
    /// I/O schedulers (elevators), with settings: `none,deadline:read_expire_ms=100,fair`; default: the recorded one
    #[arg(long, value_name = "NAME[:SETTING=N,...],...", value_parser = elevators, long_help = elevators_help())]
    pub(crate) elevator: Option<Elevators>,
    /// Largest requests at the device
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = parse_max_sectors)]
    pub(crate) max_sectors: Vec<u64>,
    /// Readahead of the page cache. Needs accesses: a CSV file with the columns offset and bytes
    #[arg(long, value_name = "auto|off|SIZE|linux:SIZE,...", value_delimiter = ',', value_parser = parse_readahead)]
    pub(crate) readahead: Vec<Readahead>,
    /// Memory of the page cache. Needs accesses, as --readahead
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size)]
    pub(crate) cache: Vec<u64>,
    /// Maximum numbers of requests in flight at the device
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = depth)]
    pub(crate) depth: Vec<u32>,
    /// Whether adjacent requests merge
    #[arg(long, value_name = "on|off,...", value_delimiter = ',', value_parser = switch())]
    pub(crate) merge: Vec<bool>,
    /// Priorities rt, be and idle of streams, reads or writes: `same,0=rt+writes=idle`
    #[arg(long, value_name = "same|SELECTOR=CLASS+...,...", value_delimiter = ',', value_parser = |text: &str| text.parse::<Priorities>())]
    pub(crate) priority: Vec<Priorities>,
    /// The speed of the replay: 0.1 stretches the recorded times by ten
    #[arg(long, value_name = "X", default_value = "1", value_parser = speed)]
    pub(crate) speed: f64,
    /// Submit each request after the completion that it followed in the recording, after the same think time. Default:
    /// at the recorded time
    #[arg(long)]
    pub(crate) closed: bool,
    /// Seeds of the model: each alternative is replayed with each seed
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SEEDS, value_parser = seeds)]
    pub(crate) seeds: u32,
    /// The figure that decides the verdict; default: mean, and throughput with --closed
    #[arg(long, value_name = "FIGURE", value_parser = metric())]
    pub(crate) by: Option<&'static Metric>,
    /// Map sectors beyond the end of the model to its start; default: they are an error
    #[arg(long)]
    pub(crate) wrap: bool,
    /// Run only a share of the cells, for --merge-parts: 1/4, or auto for the rank, array or job index of MPI, Slurm
    /// and Kubernetes. In names of files, {shard} becomes the number of the share
    #[arg(long, value_name = "I/N|auto", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
    /// Join the parts of a study that processes with --shard have written with --json
    #[arg(long, value_name = "PART", num_args = 1.., conflicts_with_all = ["inputs", "target", "elevator", "max_sectors", "readahead", "cache", "depth", "merge", "priority", "closed", "by", "wrap", "shard"])]
    pub(crate) merge_parts: Vec<PathBuf>,
    /// Number of threads; default: that of the CPUs. The results do not depend on it
    #[arg(long, value_name = "N", value_parser = threads)]
    pub(crate) threads: Option<usize>,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// Write one line of JSON for each alternative to FILE; with -, to stdout instead of the text
    #[arg(long, value_name = "FILE|-")]
    pub(crate) json_lines: Option<PathBuf>,
}

/// A list of elevators.
#[derive(Debug, Clone)]
pub(crate) struct Elevators(Vec<ElevatorSpec>);

impl WhatIfArgs {
    /// The study of these arguments.
    pub(crate) fn study(&self) -> WhatIf {
        WhatIf {
            inputs: self.inputs.clone(),
            axes: Axes {
                targets: self.target.clone(),
                elevators: self.elevator.clone().map_or_else(Vec::new, |list| list.0),
                max_sectors_bytes: self.max_sectors.clone(),
                depths: self.depth.clone(),
                merges: self.merge.clone(),
                priorities: self.priority.clone(),
                readaheads: self.readahead.clone(),
                caches_bytes: self.cache.clone(),
            },
            speed: self.speed,
            closed: self.closed,
            seeds: self.seeds,
            by: self.by,
            wrap: self.wrap,
            shard: self.shard,
            threads: self.threads,
        }
    }
}

fn elevators(text: &str) -> Result<Elevators, String> {
    parse_elevators(text).map(Elevators)
}

fn switch() -> impl TypedValueParser<Value = bool> {
    PossibleValuesParser::new(["on", "off"]).map(|text| text == "on")
}

fn metric() -> impl TypedValueParser<Value = &'static Metric> {
    let values: Vec<PossibleValue> =
        Metric::for_verdicts().map(|metric| PossibleValue::new(metric.name)).collect();
    PossibleValuesParser::new(values)
        .map(|name| Metric::find(&name).expect("each value is the name of a figure"))
}

fn depth(text: &str) -> Result<u32, String> {
    count(text)
        .ok()
        .filter(|depth| *depth > 0)
        .ok_or_else(|| format!("`{text}` is no depth; write 32, for example"))
}

fn seeds(text: &str) -> Result<u32, String> {
    let seeds = count(text).ok().filter(|seeds| (1..=1000).contains(seeds));
    seeds.ok_or_else(|| format!("`{text}` is no number of seeds; write 1 to 1000"))
}

fn threads(text: &str) -> Result<usize, String> {
    let threads = count(text).ok().filter(|threads| (1..=4096).contains(threads));
    threads
        .map(|threads| threads as usize)
        .ok_or_else(|| format!("`{text}` is no number of threads; write 1 to 4096"))
}
