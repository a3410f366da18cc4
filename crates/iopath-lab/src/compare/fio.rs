//! Reads fio's JSON (`--output-format=json` and `json+`). One file is one repetition: fio has one aggregate for each
//! job.

use super::data::{CLONES, CPU, IOPS, LATENCY, LATENCY_OF, P50, P90, P99, P999, Run, THROUGHPUT};
use super::error::CompareError;
use super::fio_options;
use super::json::Node;

const KIB: f64 = 1024.0;
const GIB: f64 = (1u64 << 30) as f64;

const DIRECTIONS: [&str; 3] = ["read", "write", "trim"];

/// Whether a document is fio's.
pub(super) fn is_fio(root: &Node) -> bool {
    root.find("fio version").is_some()
}

/// The runs of a file: one for each job and direction with transfers.
pub(super) fn read(root: &Node) -> Result<Vec<Run>, CompareError> {
    let version = root.get("fio version")?.text()?;
    let global = root.find("global options").map_or_else(|| Ok(Vec::new()), |options| texts(&options))?;
    let jobs = jobs(root)?;
    let mut known: Vec<(Section, Vec<Node>)> = Vec::new();
    for job in jobs {
        let section = Section::of(&job)?;
        match known.iter_mut().find(|(other, _)| *other == section) {
            // Without group_reporting, fio lists each clone of `numjobs`.
            Some((_, clones)) => clones.push(job),
            None => known.push((section, vec![job])),
        }
    }
    let mut runs = Vec::new();
    for (section, clones) in &known {
        let mut run = Run::default();
        run.identity("tool", "fio");
        run.setting("fio", version);
        run.identity("job", section.name);
        // The groups of iopath begin at 1.
        run.setting("group", section.group + 1);
        if let Some(client) = section.client {
            run.identity("client", client);
        }
        let options: Vec<_> = global.iter().chain(&section.options).copied().collect();
        if !options.is_empty() {
            fio_options::conditions(&options, &mut run);
        }
        of_clones(clones, &mut run, &mut runs)?;
    }
    if runs.is_empty() {
        return Err(root.error("no job has transferred a byte"));
    }
    Ok(runs)
}

/// The jobs: of this machine, or of the servers of a client without their sum.
fn jobs<'a>(root: &Node<'a>) -> Result<Vec<Node<'a>>, CompareError> {
    let Some(of_clients) = root.find("client_stats") else { return root.get("jobs")?.elements() };
    let mut jobs = of_clients.elements()?;
    let is_sum = |job: &Node| {
        job.find("jobname").is_some_and(|name| name.text().is_ok_and(|name| name == "All clients"))
    };
    jobs.retain(|job| !is_sum(job));
    Ok(jobs)
}

/// What distinguishes the sections of a job file in its results. Several sections may have one name.
#[derive(Debug, PartialEq)]
struct Section<'a> {
    name: &'a str,
    group: u64,
    /// The server that ran it.
    client: Option<&'a str>,
    options: Vec<(&'a str, &'a str)>,
}

impl<'a> Section<'a> {
    fn of(job: &Node<'a>) -> Result<Self, CompareError> {
        Ok(Self {
            name: job.get("jobname")?.text()?,
            group: job.find("groupid").map_or(Ok(0), |group| group.whole())?,
            client: job.find("hostname").map(|name| name.text()).transpose()?,
            options: job.find("job options").map_or_else(|| Ok(Vec::new()), |options| texts(&options))?,
        })
    }
}

fn texts<'a>(options: &Node<'a>) -> Result<Vec<(&'a str, &'a str)>, CompareError> {
    options.entries()?.into_iter().map(|(name, value)| Ok((name, value.text()?))).collect()
}

/// The runs of one job: its clones ran at the same time, so their throughputs are added.
fn of_clones(clones: &[Node], common: &mut Run, runs: &mut Vec<Run>) -> Result<(), CompareError> {
    for clone in clones {
        let error = clone.get("error")?;
        if error.whole()? != 0 {
            return Err(error.error(&format!("the job failed with error {}", error.whole()?)));
        }
    }
    // With group_reporting, one entry has all clones.
    let listed = clones.len() as u64;
    let all = common.fact("numjobs").and_then(|number| number.parse().ok()).unwrap_or(1);
    common.identity(CLONES, if listed > 1 { listed } else { all });
    let mut active = Vec::new();
    for direction in DIRECTIONS {
        let parts: Vec<Node> = clones.iter().filter_map(|clone| clone.find(direction)).collect();
        let bytes = total(&parts, transferred)?;
        if bytes > 0.0 {
            active.push((direction, parts, bytes));
        }
    }
    let is_only = active.len() == 1;
    for (direction, parts, bytes) in active {
        let mut run = common.clone();
        run.identity("direction", direction);
        run.sample(THROUGHPUT, Some(vec![total(&parts, bandwidth)?]));
        run.sample(IOPS, Some(vec![total(&parts, |part| part.get("iops")?.number())?]));
        run.sample(LATENCY, mean_latency(&parts)?.map(|mean| vec![mean]));
        if let [part] = &parts[..] {
            // Percentiles of the total latency and of the completion latency are not comparable.
            run.identity(LATENCY_OF, percentiles_of(part));
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

fn total(parts: &[Node], of: impl Fn(&Node) -> Result<f64, CompareError>) -> Result<f64, CompareError> {
    parts.iter().map(of).sum()
}

/// Bytes. fio 2 states KiB under this name.
fn transferred(part: &Node) -> Result<f64, CompareError> {
    let bytes = part.get("io_bytes")?.number()?;
    Ok(if is_fio_2(part) { bytes * KIB } else { bytes })
}

/// Bytes per second. fio 2 states KiB only.
fn bandwidth(part: &Node) -> Result<f64, CompareError> {
    match part.find("bw_bytes") {
        Some(bytes) => bytes.number(),
        None => Ok(part.get("bw")?.number()? * KIB),
    }
}

fn is_fio_2(part: &Node) -> bool {
    part.find("bw_bytes").is_none()
}

/// A latency by its name without a unit, and the nanoseconds of its unit: fio 2 has microseconds.
fn latency<'a>(part: &Node<'a>, name: &str) -> Option<(Node<'a>, f64)> {
    let nanoseconds = part.find(&format!("{name}_ns")).map(|latency| (latency, 1.0));
    nanoseconds.or_else(|| part.find(name).map(|latency| (latency, 1000.0)))
}

/// The mean over all transfers.
fn mean_latency(parts: &[Node]) -> Result<Option<f64>, CompareError> {
    let (mut total, mut count) = (0.0, 0.0);
    for part in parts {
        let Some((latency, unit)) = latency(part, "lat") else { return Ok(None) };
        let Some(transfers) = part.find("total_ios") else { return Ok(None) };
        let transfers = transfers.number()?;
        total += latency.get("mean")?.number()? * unit * transfers;
        count += transfers;
    }
    Ok((count > 0.0 && total > 0.0).then(|| total / count))
}

/// The latency whose percentiles fio recorded: total (`lat_percentiles=1`), or else of completion.
fn percentiles_of(part: &Node) -> &'static str {
    let has_total = latency(part, "lat").is_some_and(|(latency, _)| latency.find("percentile").is_some());
    if has_total { "lat" } else { "clat" }
}

/// A percentile of the latency; none if fio recorded none. Percentiles of several clones have no common one.
fn percentile(parts: &[Node], key: &str) -> Result<Option<f64>, CompareError> {
    let [part] = parts else { return Ok(None) };
    let Some((latency, unit)) = latency(part, percentiles_of(part)) else { return Ok(None) };
    let value = latency.find("percentile").and_then(|all| all.find(key));
    value.map(|value| Ok(value.number()? * unit)).transpose()
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
