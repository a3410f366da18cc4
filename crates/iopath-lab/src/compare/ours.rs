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
    root.get("runs")?.elements()?.iter().map(|run| of_run(run, common.clone())).collect()
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

fn of_run(from: &Node, mut run: Run) -> Result<Run, CompareError> {
    run.identity("path", from.get("path")?.text()?);
    run.identity("clock", from.find("clock").map_or(Ok("real"), |clock| clock.text())?);
    run.identity("rw", from.get("rw")?.text()?);
    run.identity("bs", from.get("block_bytes")?.whole()?);
    run.identity("iodepth", from.get("io_depth")?.whole()?);
    run.identity("numjobs", from.get("jobs")?.whole()?);
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
    let repeats = from.get("repeats")?.elements()?;
    let number = |metric: Metric, keys: &[&str]| -> Result<(Metric, Vec<f64>), CompareError> {
        let of = |repeat: &Node| keys.iter().try_fold(repeat.clone(), |node, key| node.get(key))?.number();
        Ok((metric, repeats.iter().map(of).collect::<Result<_, _>>()?))
    };
    run.samples.push(number(THROUGHPUT, &["bytes_per_second"])?);
    run.samples.push(number(IOPS, &["iops"])?);
    for (metric, key) in [(LATENCY, "mean"), (P50, "p50"), (P90, "p90"), (P99, "p99"), (P999, "p999")] {
        run.samples.push(number(metric, &["latency_ns", key])?);
    }
    if repeats.iter().all(|repeat| repeat.find("cpu").is_some()) {
        run.samples.push(number(CPU, &["cpu", "seconds_per_gib"])?);
    }
    Ok(run)
}
