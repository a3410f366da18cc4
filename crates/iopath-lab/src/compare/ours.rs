//! Reads results of iopath, `iopath.result/1` (docs/result.md). Ignores unknown keys.

use super::data::{CPU, IOPS, LATENCY, Metric, P50, P90, P99, P999, Run, SERVED_BY, THROUGHPUT};
use super::json::Node;
use crate::compare_error::CompareError;
use crate::size::format_size;

/// The schema of results, without its version.
const SCHEMA: &str = "iopath.result/";

/// Whether a document is JSON of iopath.
pub(super) fn is_ours(root: &Node) -> bool {
    root.find("schema").is_some_and(|schema| schema.text().is_ok_and(|name| name.starts_with("iopath.")))
}

/// The runs of a result.
pub(super) fn read(root: &Node) -> Result<Vec<Run>, CompareError> {
    let schema = root.get("schema")?;
    if schema.text()? != "iopath.result/1" {
        let problem = format!("`{}` cannot be compared, only {SCHEMA}1 can", schema.text()?);
        return Err(schema.error(&problem));
    }
    let mut common = Run::default();
    common.identity("tool", "iopath");
    if let Some(host) = root.find("host") {
        of_host(&host, &mut common)?;
    }
    let target = root.find("target");
    if let Some(target) = &target {
        of_target(target, &mut common)?;
    }
    if let Some(more) = root.find("more_targets") {
        let names: Result<Vec<_>, _> = more.elements()?.iter().map(|one| one.get("path")?.text()).collect();
        common.identity("more-targets", names?.join(", "));
    }
    let runs = root.get("runs")?.elements()?;
    let names: Vec<Option<&str>> = runs.iter().map(job_name).collect::<Result<_, _>>()?;
    let mut read = Vec::new();
    for (run, name) in runs.iter().zip(&names) {
        let mut own = common.clone();
        if let Some(name) = name {
            of_job(run, name, names.iter().filter(|other| *other == &Some(*name)).count() > 1, &mut own)?;
        }
        of_run(run, own, &mut read)?;
    }
    Ok(read)
}

fn job_name<'a>(run: &Node<'a>) -> Result<Option<&'a str>, CompareError> {
    run.find("job").map(|job| job.get("name")?.text()).transpose()
}

/// A job of a job file. Its group may change with the file; it is a part of the identity of jobs with equal names only.
fn of_job(from: &Node, name: &str, has_twin: bool, run: &mut Run) -> Result<(), CompareError> {
    let job = from.get("job")?;
    let group = job.get("group")?.whole()?;
    if has_twin {
        run.identity("job", format!("{name} (group {group})"));
    } else {
        run.identity("job", name);
        run.setting("group", group);
    }
    Ok(())
}

fn of_host(host: &Node, run: &mut Run) -> Result<(), CompareError> {
    run.identity("kernel", host.get("kernel")?.text()?);
    run.identity("cpu", host.get("cpu")?.text()?);
    run.identity("cores", host.get("cores")?.whole()?);
    run.identity("memory", format_size(host.get("memory_bytes")?.whole()?));
    Ok(())
}

fn of_target(target: &Node, run: &mut Run) -> Result<(), CompareError> {
    // A scratch file has another name in each run.
    let is_scratch = target.get("scratch")?.flag()?;
    let path = target.get("path")?.text()?;
    run.identity("target", if is_scratch { "scratch file" } else { path });
    run.identity("kind", target.get("kind")?.text()?);
    run.identity("size", format_size(target.get("size_bytes")?.whole()?));
    if let Some(filesystem) = target.find("filesystem") {
        run.identity("filesystem", filesystem.text()?);
    }
    let Some(disk) = target.find("disk") else { return Ok(()) };
    run.identity("disk", disk.get("name")?.text()?);
    if let Some(model) = disk.find("model") {
        run.identity("disk-model", model.text()?);
    }
    if let Some(scheduler) = disk.find("scheduler") {
        run.setting("scheduler", scheduler.text()?);
    }
    for key in ["read_ahead_kb", "max_sectors_kb"] {
        if let Some(value) = disk.find(key) {
            run.setting(key, value.whole()?);
        }
    }
    Ok(())
}

/// Adds a run, and its reads and its writes as runs of their own if each repetition has both.
fn of_run(from: &Node, mut run: Run, read: &mut Vec<Run>) -> Result<(), CompareError> {
    run.identity("path", from.get("path")?.text()?);
    run.identity("clock", from.find("clock").map_or(Ok("real"), |clock| clock.text())?);
    run.identity("rw", from.get("rw")?.text()?);
    run.identity("bs", from.get("block_bytes")?.whole()?);
    run.identity("iodepth", from.get("io_depth")?.whole()?);
    run.identity("numjobs", from.get("jobs")?.whole()?);
    if let Some(sizes) = from.find("block_sizes") {
        run.identity("bssplit", sizes.text()?);
    }
    if let Some(steady) = from.find("steady_state") {
        run.setting("steady-state", steady.get("metric")?.text()?);
    }
    if let Some(think) = from.find("think_ns") {
        run.identity("thinktime", format!("{} ns", think.whole()?));
    }
    if let Some(rate) = from.find("rate_iops") {
        run.identity("rate-iops", rate.number()?.to_string());
    }
    run.identity("warm", from.get("warm")?.flag()?);
    if let Some(served_by) = from.find("served_by") {
        // An unknown medium may be the same.
        match served_by.text()? {
            "unknown" => {}
            medium => run.identity(SERVED_BY, medium),
        }
    }
    if let Some(host) = from.find("model_host") {
        run.identity("host", host.get("name")?.text()?);
    }
    if let Some(every) = from.find("latency_every") {
        run.setting("latency-every", every.whole()?);
    }
    if let Some(cache) = from.find("cache") {
        run.setting("cache", format_size(cache.get("cache_bytes")?.whole()?));
        run.setting("page", format_size(cache.get("page_bytes")?.whole()?));
        run.setting("readahead", cache.get("readahead")?.text()?);
        run.setting("borrow", cache.get("borrow")?.flag()?);
    }
    if let Some(workload) = from.find("workload") {
        of_workload(&workload, &mut run)?;
    }
    let repeats = from.get("repeats")?.elements()?;
    let mut whole = run.clone();
    add_samples(&repeats, &mut whole)?;
    if repeats.iter().all(|repeat| repeat.find("cpu").is_some()) {
        whole.samples.push(sample(&repeats, CPU, &["cpu", "seconds_per_gib"])?);
    }
    read.push(whole);
    if repeats.iter().all(|repeat| repeat.find("directions").is_some()) {
        for direction in ["read", "write"] {
            let parts: Result<Vec<Node>, CompareError> =
                repeats.iter().map(|repeat| repeat.get("directions")?.get(direction)).collect();
            let parts = parts?;
            let mut part = run.clone();
            part.identity("direction", direction);
            add_samples(&parts, &mut part)?;
            read.push(part);
        }
    }
    Ok(())
}

/// The settings that change the transfers are conditions, others are settings.
fn of_workload(workload: &Node, run: &mut Run) -> Result<(), CompareError> {
    if let Some(percent) = workload.find("read_percent") {
        run.identity("rwmixread", percent.whole()?);
    }
    if let Some(distribution) = workload.find("distribution") {
        run.identity("random-distribution", distribution.text()?);
    }
    // A key that is absent has its default value: a comparison names the difference.
    for (name, key) in [
        ("ba", "align_bytes"),
        ("skip", "skip_bytes"),
        ("random-run", "random_run"),
        ("percentage-random", "random_percent"),
        ("number-ios", "ios_max"),
        ("fsync", "flush_every"),
    ] {
        let value = workload.find(key).map(|value| value.signed()).transpose()?;
        run.identity(name, value.map_or_else(|| "default".to_owned(), |number| number.to_string()));
    }
    let process = workload.find("rate_process").map(|value| value.text()).transpose()?;
    run.identity("rate-process", process.unwrap_or("linear"));
    run.identity("verify", workload.find("verify").is_some());
    for key in ["elevator", "engine"] {
        if let Some(value) = workload.find(key) {
            run.setting(key, value.text()?);
        }
    }
    if let Some(depth) = workload.find("device_depth") {
        run.setting("device-depth", depth.whole()?);
    }
    Ok(())
}

/// Throughput, IOPS and latencies of each repetition.
fn add_samples(repeats: &[Node], run: &mut Run) -> Result<(), CompareError> {
    run.samples.push(sample(repeats, THROUGHPUT, &["bytes_per_second"])?);
    run.samples.push(sample(repeats, IOPS, &["iops"])?);
    for (metric, key) in [(LATENCY, "mean"), (P50, "p50"), (P90, "p90"), (P99, "p99"), (P999, "p999")] {
        run.samples.push(sample(repeats, metric, &["latency_ns", key])?);
    }
    Ok(())
}

fn sample(repeats: &[Node], metric: Metric, keys: &[&str]) -> Result<(Metric, Vec<f64>), CompareError> {
    let of = |repeat: &Node| keys.iter().try_fold(repeat.clone(), |node, key| node.get(key))?.number();
    Ok((metric, repeats.iter().map(of).collect::<Result<_, _>>()?))
}
