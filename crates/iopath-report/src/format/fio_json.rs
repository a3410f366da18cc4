//! The JSON of fio (`--output-format=json`), for programs that read it.
//!
//! The entries are those of `fio_entries.rs`. fio has one aggregate of a job and samples over time; here the samples
//! of `iops_*` and `bw_*` are the repetitions, and `bw_bytes` and `iops` are their means, the figures of the table.
//! `bw` is in KiB/s, as in fio. Where the path has no submission that it could measure, as of a synchronous call,
//! `slat_ns` has no samples, and `clat_ns` and `lat_ns` are equal. Figures that iopath does not measure are left out,
//! or 0 where readers need a number (the CPU time of a model).

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::fio_entries::{Entry, Part, Times, entries};
use super::{Document, Format, View};
use crate::result::{
    DiskUse, FioOutput, JobFacts, LatencyDistribution, PERCENTILES, Report, RunResult, Unified,
};
use crate::stats::Summary;

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "fio-json",
    about: "the JSON of fio, for programs that read it",
    is_of_runs: true,
    render,
};

const KIB: f64 = 1024.0;

/// The upper bounds of fio's classes of latencies, in their units.
const BOUNDS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// Whether latencies have the classes of fio: as `json+`, or as `json`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bins {
    /// As `json`.
    No,
    /// As `json+`.
    Yes,
}

fn render(document: &dyn Document, _: View) -> String {
    let json = document.report().map_or(Value::Null, |report| root_now(report, &entries(report), Bins::No));
    serde_json::to_string_pretty(&json).expect("JSON can represent all values") + "\n"
}

/// The document with the present time.
pub(super) fn root_now(report: &Report, entries: &[Entry], bins: Bins) -> Value {
    let now = SystemTime::now();
    let ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let jobs: Vec<Value> = entries.iter().map(|entry| job(entry, bins)).collect();
    let mut root = json!({
        "fio version": format!("iopath-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": ms / 1000,
        "timestamp_ms": ms,
        "time": humantime::format_rfc3339_seconds(now).to_string(),
        "global options": {},
        "jobs": jobs,
        "disk_util": disks(report).iter().map(disk).collect::<Vec<_>>(),
    });
    if !report.warnings.is_empty() {
        root["iopath warnings"] = report.warnings.clone().into();
    }
    root
}

/// The name of the job, as fio has it, or of the run.
fn name(run: &RunResult) -> String {
    run.job.as_ref().map_or_else(|| run.name(), |job| job.name.clone())
}

/// The use of the disks in all runs. The jobs of a group use their disks together.
fn disks(report: &Report) -> Vec<DiskUse> {
    let mut all = Vec::new();
    report.groups.iter().flat_map(|group| &group.disks).for_each(|used| used.clone().add_to(&mut all));
    let disk = report.target.as_ref().and_then(|target| target.disk.as_ref());
    let of_runs = report.runs.iter().filter(|_| report.groups.is_empty());
    for (run, disk) in of_runs.filter_map(|run| Some((run, disk?))) {
        let used = |device| DiskUse { name: disk.name.clone(), device, seconds: run.seconds };
        run.device.map(used).into_iter().for_each(|used| used.add_to(&mut all));
    }
    all
}

fn disk(DiskUse { name, device, seconds }: &DiskUse) -> Value {
    let mut json = json!({
        "name": name, "read_ios": device.reads, "write_ios": device.writes,
        "read_bytes": device.read_bytes, "write_bytes": device.written_bytes,
    });
    if let Some(queue) = device.queue {
        let busy = if *seconds > 0.0 { queue.busy_ms as f64 / (seconds * 1e3) * 100.0 } else { 0.0 };
        for (key, figure) in [
            ("read_merges", queue.read_merges),
            ("write_merges", queue.write_merges),
            ("read_ticks", queue.read_ms),
            ("write_ticks", queue.write_ms),
            ("in_queue", queue.waiting_ms),
        ] {
            json[key] = figure.into();
        }
        json["util"] = busy.min(100.0).into();
    }
    json
}

fn job(entry: &Entry, bins: Bins) -> Value {
    let Entry { first, ref output, .. } = *entry;
    let name = name(first);
    let milliseconds = |seconds: f64| (seconds * 1e3).round();
    let all = entry.thread_seconds;
    let [user, system] = entry.cpu.map(|seconds| if all > 0.0 { seconds / all * 100.0 } else { 0.0 });
    let [_, completions] = entry.all.of_completions();
    let [ns, us, ms] = classes(completions.distribution.as_ref());
    let mut job = json!({
        "jobname": name,
        "groupid": entry.group,
        "error": 0,
        "eta": 0,
        "elapsed": entry.seconds.ceil() as u64,
        "job options": options(entry.last, &name),
        "job_runtime": milliseconds(all) as u64,
        "usr_cpu": user,
        "sys_cpu": system,
        "latency_ns": ns,
        "latency_us": us,
        "latency_ms": ms,
    });
    let named = ["read", "write", "trim"].into_iter().zip(&entry.parts);
    for (name, part) in named.filter(|_| output.unified != Unified::Together) {
        job[name] = direction(part, entry, bins);
    }
    if output.unified != Unified::Apart {
        job["mixed"] = direction(&entry.all, entry, bins);
    }
    if let Some(switches) = entry.context_switches {
        job["ctx"] = switches.into();
    }
    if let Some(JobFacts { group, .. }) = &first.job {
        job["iopath group"] = (*group).into();
    }
    if !entry.warnings.is_empty() {
        job["iopath warnings"] = entry.warnings.clone().into();
    }
    // As in fio.
    if output.unified != Unified::Together {
        let flushes = entry.flushes.clone().unwrap_or_default();
        let latency = latency(&flushes, output, true, bins);
        job["sync"] = json!({ "total_ios": flushes.count, "lat_ns": latency });
    }
    job
}

/// Latencies, with percentiles and classes if `has_percentiles`.
fn latency(times: &Times, output: &FioOutput, has_percentiles: bool, bins: Bins) -> Value {
    let Times { count, min, max, mean, distribution } = times;
    let stddev = distribution.as_ref().map_or(0.0, |distribution| distribution.stddev);
    let mut latency = json!({ "min": min, "max": max, "mean": mean, "stddev": stddev, "N": count });
    // As in fio, a direction without transfers has none.
    if let Some(distribution) = distribution.as_ref().filter(|_| has_percentiles && *count > 0) {
        latency["percentile"] = percentiles(distribution, output);
        if bins == Bins::Yes {
            let bins = distribution.latencies.fio_bins();
            let bins = bins.into_iter().map(|(ns, count)| (ns.to_string(), count.into()));
            latency["bins"] = bins.collect::<Map<_, _>>().into();
        }
    }
    latency
}

/// The percentiles by their names. Others than the default need the latencies, which a result that was read lacks.
fn percentiles(distribution: &LatencyDistribution, output: &FioOutput) -> Value {
    let given = output.percentiles.as_ref().filter(|_| !distribution.latencies.is_empty());
    let all: Vec<(f64, u64)> = match given {
        None => PERCENTILES.into_iter().zip(distribution.percentiles.iter().copied()).collect(),
        Some(given) => {
            let of = |percent: &f64| (*percent, distribution.latencies.quantile_ns(percent / 100.0));
            given.iter().map(of).collect()
        }
    };
    let named = all.into_iter().map(|(percent, ns)| (format!("{percent:.6}"), ns.into()));
    named.collect::<Map<String, Value>>().into()
}

/// The options of a job as texts. fio-plot needs `iodepth`, `numjobs`, `bs` and `rw`.
fn options(run: &RunResult, name: &str) -> Map<String, Value> {
    let mut options: Vec<(&str, String)> = vec![
        ("name", name.to_owned()),
        ("ioengine", engine(run).to_owned()),
        ("rw", run.rw.clone()),
        ("bs", run.block_bytes.to_string()),
        ("iodepth", run.io_depth.to_string()),
        ("numjobs", run.jobs.to_string()),
    ];
    if let Some(facts) = &run.workload {
        let number = |key| facts.whole(key);
        let start = number("start_bytes").unwrap_or(0);
        let numbers = [
            ("size", number("size_bytes").map(|end| end.saturating_sub(start))),
            ("offset", Some(start)),
            ("randseed", number("seed")),
            ("io_size", number("io_bytes")),
            ("rwmixread", number("read_percent")),
        ];
        options.extend(numbers.into_iter().filter_map(|(key, value)| Some((key, value?.to_string()))));
        options.extend(facts.number("runtime_seconds").map(|seconds| ("runtime", seconds.to_string())));
        let distribution = facts.text("distribution");
        options.extend(distribution.map(|distribution| ("random_distribution", distribution.to_owned())));
    }
    options.extend(run.rate_iops.map(|rate| ("rate_iops", rate.to_string())));
    options.extend(run.think_ns.map(|ns| ("thinktime", format!("{ns}ns"))));
    if let Some(JobFacts { target: Some(target), .. }) = &run.job {
        options.push(("filename", target.clone()));
    }
    // The keys as the file has them; the others for readers that need them.
    let given =
        run.job.iter().flat_map(|job| &job.options).map(|[key, value]| (key.clone(), value.clone().into()));
    let mut all: Map<String, Value> =
        options.iter().map(|(key, value)| ((*key).to_owned(), value.clone().into())).collect();
    all.extend(given);
    all
}

/// The engine of fio that moves bytes in the same way, or the name of the path.
fn engine(run: &RunResult) -> &str {
    match run.path.as_str() {
        "kernel-buffered" | "kernel-direct" => "psync",
        "kernel-mmap" => "mmap",
        "kernel-uring" => "io_uring",
        path => path,
    }
}

fn direction(part: &Part, entry: &Entry, bins: Bins) -> Value {
    let Part { bytes, ios, times, .. } = part;
    let [submissions, completions] = part.of_completions();
    let rates: Vec<[f64; 2]> = part.rates().collect();
    let of = |index: usize| rates.iter().map(|rate| rate[index]).collect::<Vec<f64>>();
    let [bandwidth, iops] = [0, 1].map(|index| Spread::of(&of(index)));
    let is_active = *ios > 0;
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": bandwidth.mean.round() as u64,
        "bw": (bandwidth.mean / KIB) as u64,
        "iops": iops.mean,
        "runtime": if is_active { (part.seconds * 1e3).round() as u64 } else { 0 },
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(&submissions, &entry.output, entry.output.of_submissions, bins),
        "clat_ns": latency(&completions, &entry.output, entry.output.of_completions, bins),
        "lat_ns": latency(times, &entry.output, entry.output.of_whole, bins),
        "bw_min": (bandwidth.least / KIB) as u64,
        "bw_max": (bandwidth.most / KIB) as u64,
        "bw_agg": if is_active { 100.0 } else { 0.0 },
        "bw_mean": bandwidth.mean / KIB,
        "bw_dev": bandwidth.stddev / KIB,
        "bw_samples": rates.len(),
        "iops_min": iops.least as u64,
        "iops_max": iops.most as u64,
        "iops_mean": iops.mean,
        "iops_stddev": iops.stddev,
        "iops_samples": rates.len(),
    })
}

/// Rates of repetitions.
#[derive(Default)]
struct Spread {
    mean: f64,
    stddev: f64,
    least: f64,
    most: f64,
}

impl Spread {
    fn of(values: &[f64]) -> Self {
        let Some(summary) = Summary::of(values) else { return Self::default() };
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        Self { mean: summary.mean, stddev: summary.stddev.unwrap_or(0.0), least, most }
    }
}

/// The percentages of transfers by latency: below 1 µs, below 1 ms, and the rest.
fn classes(distribution: Option<&LatencyDistribution>) -> [Value; 3] {
    let count = distribution.map_or(0, |distribution| distribution.count);
    let percent = |bound: Option<u64>| {
        let classes = distribution.into_iter().flat_map(|distribution| &distribution.classes);
        let transfers: u64 = classes.filter(|(known, _)| *known == bound).map(|(_, count)| count).sum();
        if count > 0 { transfers as f64 / count as f64 * 100.0 } else { 0.0 }
    };
    let of = |unit: u64| -> Map<String, Value> {
        BOUNDS.iter().map(|bound| (bound.to_string(), percent(Some(bound * unit)).into())).collect()
    };
    let mut milliseconds = of(1_000_000);
    milliseconds.insert("2000".to_owned(), percent(Some(2_000_000_000)).into());
    milliseconds.insert(">=2000".to_owned(), percent(None).into());
    [of(1).into(), of(1_000).into(), milliseconds.into()]
}
