//! The JSON of fio (`--output-format=json`), for programs that read it.
//!
//! Each run is a job. fio has one aggregate of a job and samples over time; here the samples of `iops_*` and `bw_*` are
//! the repetitions, and `bw_bytes` and `iops` are their means, the figures of the table. `bw` is in KiB/s, as in fio.
//! iopath measures latencies from submission to completion: `slat_ns` has no samples, and `clat_ns` and `lat_ns` are
//! equal. Figures that iopath does not measure are left out, or 0 where readers need a number (the CPU time of a
//! model).

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

use super::{Document, Format, View};
use crate::Rw;
use crate::result::{
    FlushResult, JobFacts, Latency, LatencyDistribution, PERCENTILES, RepeatDirection, Report, RunResult,
    Spread, WorkloadFacts,
};

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

fn render(document: &dyn Document, _: View) -> String {
    let json = document.report().map_or(Value::Null, |report| root(report, SystemTime::now()));
    serde_json::to_string_pretty(&json).expect("JSON can represent all values") + "\n"
}

/// The document with the present time.
pub(super) fn root_now(report: &Report) -> Value {
    root(report, SystemTime::now())
}

fn root(report: &Report, now: SystemTime) -> Value {
    let ms = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let jobs: Vec<Value> = report.runs.iter().map(|run| job(run, &name(run))).collect();
    let disks: Vec<Value> = report.runs.iter().filter_map(|run| disk(report, run)).collect();
    let mut root = json!({
        "fio version": format!("iopath-{}", env!("CARGO_PKG_VERSION")),
        "timestamp": ms / 1000,
        "timestamp_ms": ms,
        "time": humantime::format_rfc3339_seconds(now).to_string(),
        "global options": {},
        "jobs": jobs,
        "disk_util": disks,
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

/// The transfers of the disk, if a run has them. iopath does not measure its utilisation.
fn disk(report: &Report, run: &RunResult) -> Option<Value> {
    let (disk, device) = (report.target.as_ref()?.disk.as_ref()?, run.device.as_ref()?);
    Some(json!({
        "name": disk.name, "read_ios": device.reads, "write_ios": device.writes,
        "read_bytes": device.read_bytes, "write_bytes": device.written_bytes,
    }))
}

fn job(run: &RunResult, name: &str) -> Value {
    let milliseconds = (run.seconds * 1e3).round();
    let percent = |seconds: f64| {
        let all = run.seconds * f64::from(run.jobs);
        if all > 0.0 { seconds / all * 100.0 } else { 0.0 }
    };
    let [user, system] = run.cpu.map_or([0.0; 2], |cpu| [cpu.user_seconds, cpu.system_seconds]).map(percent);
    let [ns, us, ms] = classes(run.latency_distribution.as_ref());
    let [read, write, trim] = directions(run);
    let mut job = json!({
        "jobname": name,
        "groupid": run.job.as_ref().map_or(0, |job| job.group.saturating_sub(1)),
        "error": 0,
        "eta": 0,
        "elapsed": run.seconds.ceil() as u64,
        "job options": options(run, name),
        "read": read,
        "write": write,
        "trim": trim,
        "job_runtime": (milliseconds * f64::from(run.jobs)) as u64,
        "usr_cpu": user,
        "sys_cpu": system,
        "latency_ns": ns,
        "latency_us": us,
        "latency_ms": ms,
    });
    if let Some(JobFacts { group, .. }) = &run.job {
        job["iopath group"] = (*group).into();
    }
    if !run.warnings.is_empty() {
        job["iopath warnings"] = run.warnings.clone().into();
    }
    job["sync"] = flushes(run.flushes.as_ref());
    job
}

/// The section of flushes, which fio has also without any.
fn flushes(flushes: Option<&FlushResult>) -> Value {
    let Some(FlushResult { count, latency_ns, distribution, .. }) = flushes else {
        return json!({ "total_ios": 0, "lat_ns": no_latency() });
    };
    let stddev = distribution.as_ref().map_or(0.0, |distribution| distribution.stddev);
    let mut latency = json!({
        "min": latency_ns.min, "max": latency_ns.max, "mean": latency_ns.mean, "stddev": stddev, "N": count,
    });
    if let Some(distribution) = distribution {
        latency["percentile"] = percentiles(distribution);
    }
    json!({ "total_ios": count, "lat_ns": latency })
}

fn no_latency() -> Value {
    json!({ "min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0 })
}

/// The percentiles by their names.
fn percentiles(distribution: &LatencyDistribution) -> Value {
    let named = PERCENTILES.iter().zip(&distribution.percentiles);
    named.map(|(percent, ns)| (format!("{percent:.6}"), (*ns).into())).collect::<Map<String, Value>>().into()
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

/// The transfers of one direction.
struct Part<'a> {
    bytes: u64,
    ios: u64,
    rate: Option<[&'a Spread; 2]>,
    latency: Option<(&'a Latency, Option<&'a LatencyDistribution>)>,
    /// Bytes and transfers per second of each repetition.
    repeats: Vec<[f64; 2]>,
}

impl Part<'_> {
    fn none() -> Self {
        Self { bytes: 0, ios: 0, rate: None, latency: None, repeats: Vec::new() }
    }
}

/// The sections of reads, of writes and of trims.
fn directions(run: &RunResult) -> [Value; 3] {
    if let Some(both) = &run.directions {
        let of = |index: usize| {
            let Some(part) = [Some(&both.read), Some(&both.write), both.trim.as_ref()][index] else {
                return direction(&Part::none(), run);
            };
            let rates = run.repeats.iter().filter_map(|repeat| {
                let RepeatDirection { bytes_per_second, iops, .. } = repeat
                    .directions
                    .and_then(|both| [Some(both.read), Some(both.write), both.trim][index])?;
                Some([bytes_per_second, iops])
            });
            let part = Part {
                bytes: part.bytes,
                ios: part.ios,
                rate: Some([&part.bytes_per_second, &part.iops]),
                latency: Some((&part.latency_ns, part.latency_distribution.as_ref())),
                repeats: rates.collect(),
            };
            direction(&part, run)
        };
        return [of(0), of(1), of(2)];
    }
    let all = Part {
        bytes: run.bytes,
        ios: run.ios,
        rate: Some([&run.bytes_per_second, &run.iops]),
        latency: Some((&run.latency_ns, run.latency_distribution.as_ref())),
        repeats: run.repeats.iter().map(|repeat| [repeat.bytes_per_second, repeat.iops]).collect(),
    };
    let (all, none) = (direction(&all, run), || direction(&Part::none(), run));
    if run.rw.parse().is_ok_and(Rw::trims) {
        return [none(), none(), all];
    }
    let reads = run.rw.parse().is_ok_and(Rw::reads);
    let has_no_reads = run.workload.as_ref().is_some_and(WorkloadFacts::has_no_reads);
    if reads && !has_no_reads { [all, none(), none()] } else { [none(), all, none()] }
}

fn direction(part: &Part, run: &RunResult) -> Value {
    let Part { bytes, ios, rate, repeats, .. } = part;
    let is_active = rate.is_some();
    let [bandwidth, iops] = rate.map_or([0.0; 2], |rates| rates.map(|rate| rate.mean));
    let stddev = rate.map_or([0.0; 2], |rates| rates.map(|rate| rate.stddev.unwrap_or(0.0)));
    let bounds = |index: usize| {
        let values = || repeats.iter().map(|repeat| repeat[index]);
        let first = repeats.first().map_or(0.0, |repeat| repeat[index]);
        [values().fold(first, f64::min), values().fold(first, f64::max)]
    };
    let [bandwidths, rates] = [bounds(0), bounds(1)];
    let samples = if is_active { repeats.len() } else { 0 };
    let total = latency(part);
    let mut completion = total.clone();
    if let Some((_, Some(distribution))) = part.latency {
        completion["percentile"] = percentiles(distribution);
    }
    json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": bandwidth.round() as u64,
        "bw": (bandwidth / KIB) as u64,
        "iops": iops,
        "runtime": if is_active { (run.seconds * 1e3).round() as u64 } else { 0 },
        "total_ios": ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": no_latency(),
        "clat_ns": completion,
        "lat_ns": total,
        "bw_min": (bandwidths[0] / KIB) as u64,
        "bw_max": (bandwidths[1] / KIB) as u64,
        "bw_agg": if is_active { 100.0 } else { 0.0 },
        "bw_mean": bandwidth / KIB,
        "bw_dev": stddev[0] / KIB,
        "bw_samples": samples,
        "iops_min": rates[0] as u64,
        "iops_max": rates[1] as u64,
        "iops_mean": iops,
        "iops_stddev": stddev[1],
        "iops_samples": samples,
    })
}

fn latency(part: &Part) -> Value {
    let Some((latency, distribution)) = part.latency else {
        return no_latency();
    };
    let (stddev, count) =
        distribution.map_or((0.0, part.ios), |distribution| (distribution.stddev, distribution.count));
    json!({ "min": latency.min, "max": latency.max, "mean": latency.mean, "stddev": stddev, "N": count })
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
