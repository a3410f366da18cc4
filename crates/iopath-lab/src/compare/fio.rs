//! Reads fio's JSON (`--output-format=json` and `json+`). One file is one repetition: fio has one aggregate for each job.

use super::data::{CPU, IOPS, LATENCY, NONE, P50, P90, P99, P999, Run, THROUGHPUT};
use super::json::Node;
use crate::compare_error::CompareError;
use crate::size::parse_size;

const GIB: f64 = (1u64 << 30) as f64;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// Job options that describe the workload: fio's name, the name of the fact, and fio's default.
const OPTIONS: [(&str, &str, Option<&str>); 24] = [
    ("rw", "rw", Some("read")),
    ("bs", "bs", Some("4k")),
    ("iodepth", "iodepth", Some("1")),
    ("numjobs", "numjobs", Some("1")),
    ("ioengine", "engine", None),
    ("direct", "direct", Some("0")),
    ("size", "size", None),
    ("filename", "target", None),
    ("directory", "directory", None),
    ("rwmixread", "rwmixread", Some("50")),
    ("rate_iops", "rate-iops", Some(NONE)),
    ("rate", "rate", Some(NONE)),
    ("rate_process", "rate-process", Some(NONE)),
    ("thinktime", "thinktime", Some(NONE)),
    ("bssplit", "bssplit", Some(NONE)),
    ("bsrange", "bsrange", Some(NONE)),
    ("random_distribution", "random-distribution", Some("random")),
    ("fsync", "fsync", Some(NONE)),
    ("verify", "verify", Some(NONE)),
    ("zero_buffers", "zero_buffers", Some(NONE)),
    ("buffer_compress_percentage", "buffer_compress_percentage", Some(NONE)),
    ("buffer_pattern", "buffer_pattern", Some(NONE)),
    ("dedupe_percentage", "dedupe_percentage", Some(NONE)),
    ("offset", "offset", Some("0")),
];

/// Other names of options.
const ALIASES: [(&str, &str); 2] = [("readwrite", "rw"), ("blocksize", "bs")];

/// Whether a document is fio's.
pub(super) fn is_fio(root: &Node) -> bool {
    root.find("fio version").is_some()
}

/// The runs of a file: one for each job and direction with transfers.
pub(super) fn read(root: &Node) -> Result<Vec<Run>, CompareError> {
    let version = root.get("fio version")?.text()?;
    let global = root.find("global options").map_or_else(|| Ok(Vec::new()), |options| texts(&options))?;
    let jobs = root.get("jobs")?.elements()?;
    let mut named: Vec<(String, Vec<Node>)> = Vec::new();
    for job in jobs {
        let name = job.get("jobname")?.text()?.to_owned();
        match named.iter_mut().find(|(known, _)| *known == name) {
            // Without group_reporting, fio lists each clone of `numjobs`.
            Some((_, clones)) => clones.push(job),
            None => named.push((name, vec![job])),
        }
    }
    let mut runs = Vec::new();
    for (name, clones) in &named {
        let mut run = Run::default();
        run.identity("tool", "fio");
        run.setting("fio", version);
        run.identity("job", name);
        of_options(&clones[0], &global, &mut run)?;
        of_clones(clones, &run, &mut runs)?;
    }
    if runs.is_empty() {
        return Err(root.get("jobs")?.error("no job has transferred a byte"));
    }
    Ok(runs)
}

fn texts<'a>(options: &Node<'a>) -> Result<Vec<(&'a str, &'a str)>, CompareError> {
    options.entries()?.into_iter().map(|(name, value)| Ok((name, value.text()?))).collect()
}

fn of_options(job: &Node, global: &[(&str, &str)], run: &mut Run) -> Result<(), CompareError> {
    let Some(options) = job.find("job options") else { return Ok(()) };
    let own = texts(&options)?;
    // Options of the job override those of [global].
    let value = |name: &str| {
        let is = |known: &str| known == name || ALIASES.contains(&(known, name));
        let mut all = own.iter().chain(global);
        all.find(|(known, _)| is(known)).map(|(_, value)| *value)
    };
    for (name, fact, default) in OPTIONS {
        if let Some(value) = value(name).or(default) {
            run.identity(fact, normal(name, value));
        }
    }
    Ok(())
}

/// Sizes have several spellings.
fn normal(option: &str, value: &str) -> String {
    match option {
        "bs" | "size" => parse_size(value).map_or_else(|_| value.to_owned(), |bytes| bytes.to_string()),
        _ => value.to_owned(),
    }
}

/// The runs of one job: its clones ran at the same time, so their throughputs are added.
fn of_clones(clones: &[Node], common: &Run, runs: &mut Vec<Run>) -> Result<(), CompareError> {
    for clone in clones {
        let error = clone.get("error")?;
        if error.whole()? != 0 {
            return Err(error.error(&format!("the job failed with error {}", error.whole()?)));
        }
    }
    let mut active = Vec::new();
    for direction in DIRECTIONS {
        let parts: Vec<Node> = clones.iter().filter_map(|clone| clone.find(direction)).collect();
        let bytes = sum(&parts, "io_bytes")?;
        if bytes > 0.0 {
            active.push((direction, parts, bytes));
        }
    }
    let is_only = active.len() == 1;
    for (direction, parts, bytes) in active {
        let mut run = common.clone();
        run.identity("direction", direction);
        run.sample(THROUGHPUT, Some(vec![sum(&parts, "bw_bytes")?]));
        run.sample(IOPS, Some(vec![sum(&parts, "iops")?]));
        run.sample(LATENCY, mean_latency(&parts)?.map(|mean| vec![mean]));
        if let [part] = &parts[..] {
            // Percentiles of the total latency and of the completion latency are not comparable.
            run.identity("latency-of", percentiles_of(part));
        }
        for (metric, key) in [(P50, "50.000000"), (P90, "90.000000"), (P99, "99.000000"), (P999, "99.900000")]
        {
            run.sample(metric, percentile(&parts, key)?.map(|value| vec![value]));
        }
        // fio counts the CPU time of a job over both directions.
        if is_only {
            run.sample(CPU, cpu_seconds(clones)?.map(|seconds| vec![seconds / (bytes / GIB)]));
        }
        runs.push(run);
    }
    Ok(())
}

fn sum(parts: &[Node], key: &str) -> Result<f64, CompareError> {
    parts.iter().map(|part| part.get(key)?.number()).sum()
}

/// The mean over all transfers.
fn mean_latency(parts: &[Node]) -> Result<Option<f64>, CompareError> {
    let (mut total, mut count) = (0.0, 0.0);
    for part in parts {
        let Some(latency) = part.find("lat_ns") else { return Ok(None) };
        let transfers = part.get("total_ios")?.number()?;
        total += latency.get("mean")?.number()? * transfers;
        count += transfers;
    }
    Ok((count > 0.0 && total > 0.0).then(|| total / count))
}

/// The latency whose percentiles fio recorded: total (`lat_percentiles=1`), or else of completion.
fn percentiles_of(part: &Node) -> &'static str {
    let has_total = part.find("lat_ns").is_some_and(|latency| latency.find("percentile").is_some());
    if has_total { "lat_ns" } else { "clat_ns" }
}

/// A percentile of the latency; none if fio recorded none. Percentiles of several clones have no common one.
fn percentile(parts: &[Node], key: &str) -> Result<Option<f64>, CompareError> {
    let [part] = parts else { return Ok(None) };
    let latency = part.find(percentiles_of(part));
    let value = latency.and_then(|latency| latency.find("percentile")?.find(key));
    value.map(|value| value.number()).transpose()
}

/// CPU seconds: fio gives percentages of the jobs' total time in milliseconds.
fn cpu_seconds(clones: &[Node]) -> Result<Option<f64>, CompareError> {
    let mut seconds = 0.0;
    for clone in clones {
        let (Some(user), Some(system), Some(runtime)) =
            (clone.find("usr_cpu"), clone.find("sys_cpu"), clone.find("job_runtime"))
        else {
            return Ok(None);
        };
        seconds += (user.number()? + system.number()?) / 100.0 * runtime.number()? / 1000.0;
    }
    Ok(Some(seconds))
}
