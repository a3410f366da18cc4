//! Reads results of iopath, `iopath.result/1` (docs/result.md) and `iopath.sweep/1` (docs/sweep.md). Ignores unknown
//! keys.

use iopath_report::result;
use iopath_report::size::format_size;

use super::data::{
    CPU, DIRECT, GROUP, IOPS, LATENCY, Metric, P50, P90, P99, P999, Run, SCRATCH, SERVED_BY, THROUGHPUT,
    only_direction, range,
};
use super::error::CompareError;
use super::json::Node;
use iopath_bench::options::{Difference, NONE, options};
use iopath_bench::paths::find_path;

/// Whether a document is JSON of iopath.
pub(super) fn is_ours(root: &Node) -> bool {
    root.find("schema").is_some_and(|schema| schema.text().is_ok_and(|name| name.starts_with("iopath.")))
}

/// The runs of a result or a sweep.
pub(super) fn read(root: &Node) -> Result<Vec<Run>, CompareError> {
    let schema = root.get("schema")?;
    match schema.text()? {
        result::SCHEMA => of_result(root),
        iopath_report::sweep::SCHEMA => of_sweep(root),
        other => {
            let known = [result::SCHEMA, iopath_report::sweep::SCHEMA].join(" and ");
            Err(schema.error(&format!("`{other}` cannot be compared, only {known} can")))
        }
    }
}

fn of_result(root: &Node) -> Result<Vec<Run>, CompareError> {
    let mut common = common(root)?;
    if let Some(target) = root.find("target") {
        of_target(&target, &mut common)?;
        of_disk(&target, &mut common)?;
    }
    let more = root.find("more_targets").map_or_else(|| Ok(Vec::new()), |more| more.elements())?;
    let names: Vec<_> = more.iter().map(|one| one.get("path")?.text()).collect::<Result<_, _>>()?;
    common.identity("more-targets", if names.is_empty() { NONE.to_owned() } else { names.join(", ") });
    let runs = root.get("runs")?.elements()?;
    let mut read = Vec::new();
    for run in &runs {
        let mut own = common.clone();
        if let Some(job) = run.find("job") {
            own.identity("job", job.get("name")?.text()?);
            own.setting(GROUP, job.get("group")?.whole()?);
        }
        of_run(run, own, &mut read)?;
    }
    Ok(read)
}

/// The measured cells. The value of each list is a condition: the settings of the device are not in the runs.
fn of_sweep(root: &Node) -> Result<Vec<Run>, CompareError> {
    let mut common = common(root)?;
    if let Some(target) = root.find("target") {
        of_target(&target, &mut common)?;
    }
    let axes = root.get("axes")?.elements()?;
    let axes: Vec<&str> = axes.iter().map(|axis| axis.get("name")?.text()).collect::<Result<_, _>>()?;
    let mut read = Vec::new();
    for cell in root.get("cells")?.elements()? {
        let Some(run) = cell.find("run") else { continue };
        let first = read.len();
        of_run(&run, common.clone(), &mut read)?;
        let values = cell.get("values")?.elements()?;
        if values.len() != axes.len() {
            return Err(cell.error("its values are not those of the lists"));
        }
        for (name, value) in
            axes.iter().zip(&values).filter(|(name, _)| !iopath_report::sweep::OF_WORKLOAD.contains(name))
        {
            let value = value.text()?;
            read[first..].iter_mut().for_each(|run| run.replace(name, value));
        }
    }
    if read.is_empty() { Err(root.get("cells")?.error("no cell is measured")) } else { Ok(read) }
}

/// The tool and the machine.
fn common(root: &Node) -> Result<Run, CompareError> {
    let mut common = Run::default();
    common.identity("tool", "iopath");
    if let Some(host) = root.find("host") {
        of_host(&host, &mut common)?;
    }
    Ok(common)
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
    run.identity("target", if is_scratch { SCRATCH } else { path });
    run.identity("kind", target.get("kind")?.text()?);
    run.identity("size", format_size(target.get("size_bytes")?.whole()?));
    if let Some(filesystem) = target.find("filesystem") {
        run.identity("filesystem", filesystem.text()?);
    }
    if let Some(disk) = target.find("disk") {
        run.identity("disk", disk.get("name")?.text()?);
        if let Some(model) = disk.find("model") {
            run.identity("disk-model", model.text()?);
        }
    }
    Ok(())
}

/// The settings of the disk that people vary.
fn of_disk(target: &Node, run: &mut Run) -> Result<(), CompareError> {
    let Some(disk) = target.find("disk") else { return Ok(()) };
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
    let path = from.get("path")?.text()?;
    of_options(from, &mut run)?;
    if let Ok(row) = find_path(path) {
        run.identity(DIRECT, row.capabilities.direct);
    }
    run.identity("clock", from.find("clock").map_or(Ok("real"), |clock| clock.text())?);
    let rw = from.get("rw")?.text()?;
    if let Some(served_by) = from.find("served_by") {
        // An unknown medium may be the same.
        match served_by.text()? {
            "unknown" => {}
            medium => run.identity(SERVED_BY, medium),
        }
    }
    let range_of = from.find("workload").and_then(|all| all.find("start_bytes").zip(all.find("size_bytes")));
    if let Some((start, end)) = range_of {
        run.identity("range", range(start.whole()?, end.whole()?));
    }
    let repeats = from.get("repeats")?.elements()?;
    let is_cut_off = repeats.iter().any(|repeat| repeat.find("cut_off").is_some());
    run.identity("ended", if is_cut_off { "by a signal" } else { "complete" });
    let mut whole = run.clone();
    whole.identity("direction", only_direction(Some(rw)).unwrap_or("both"));
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

/// The values of options, as the rows of their table state. Results of earlier versions lack `workload`.
fn of_options(from: &Node, run: &mut Run) -> Result<(), CompareError> {
    for (row, fact) in options().filter_map(|row| Some((row, row.fact?))) {
        let Some(object) = (if fact.is_stated() { from.find("workload") } else { Some(from.clone()) }) else {
            continue;
        };
        let value = fact.key.split('.').try_fold(object, |object, key| object.find(key));
        let (name, text) = (row.compared_name(), value.map(|value| value.option(fact.kind)).transpose()?);
        match (fact.difference, text) {
            (Difference::Ignored, _) | (Difference::RefusedIfKnown, None) => {}
            (Difference::Shown, text) => text.into_iter().for_each(|text| run.setting(&name, text)),
            (Difference::Refused | Difference::RefusedIfKnown | Difference::RefusedOr(_), Some(text)) => {
                run.identity(&name, text);
            }
            (Difference::RefusedOr(absent), None) => run.identity(&name, absent),
            (Difference::Refused, None) => drop(from.get(fact.key)?),
        }
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
