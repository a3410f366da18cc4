//! Results of `iopath run` for all formats.

use iopath_report::result::{Cpu, Device, Latency, Report, RunResult, ServedBy, Spread};
use iopath_report::size::format_size;
use iopath_report::table::{self, digits, interval, time};

use super::{Document, Records, Section, View, number};

/// The columns of the records. `part` is `run`, `read` or `write` of a run, one `target` of a run on several, or a
/// `group` of jobs.
const COLUMNS: [&str; 42] = [
    "part",
    "job",
    "group",
    "target",
    "path",
    "engine",
    "elevator",
    "rw",
    "block_bytes",
    "io_depth",
    "jobs",
    "think_ns",
    "rate_iops",
    "warm",
    "served_by",
    "repetitions",
    "bytes",
    "ios",
    "seconds",
    "bytes_per_second",
    "bytes_per_second_stddev",
    "bytes_per_second_low",
    "bytes_per_second_high",
    "iops",
    "iops_stddev",
    "iops_low",
    "iops_high",
    "latency_min_ns",
    "latency_mean_ns",
    "latency_p50_ns",
    "latency_p90_ns",
    "latency_p99_ns",
    "latency_p999_ns",
    "latency_max_ns",
    "cpu_seconds_per_gib",
    "cpu_microseconds_per_io",
    "device_reads",
    "device_read_bytes",
    "device_writes",
    "device_written_bytes",
    "seed",
    "warnings",
];

/// The columns that describe the workload.
const CONDITIONS: usize = 16;

impl Document for Report {
    fn text(&self, view: View) -> String {
        table::report_table(self, view.width)
    }

    fn json(&self) -> String {
        self.to_json()
    }

    fn records(&self) -> Records {
        Records::new(&COLUMNS, self.runs.iter().flat_map(of_run).chain(groups(self)))
    }

    fn sections(&self) -> Vec<Section> {
        sections(self)
    }

    fn report(&self) -> Option<&Report> {
        Some(self)
    }
}

/// The measured figures of a row.
struct Figures<'a> {
    bytes: u64,
    ios: u64,
    seconds: f64,
    rates: [&'a Spread; 2],
    latency: &'a Latency,
    cpu: Option<&'a Cpu>,
    device: Option<&'a Device>,
}

/// The figures that runs, directions, targets and groups have by the same names.
macro_rules! figures {
    ($of:expr, $seconds:expr) => {
        Figures {
            bytes: $of.bytes,
            ios: $of.ios,
            seconds: $seconds,
            rates: [&$of.bytes_per_second, &$of.iops],
            latency: &$of.latency_ns,
            cpu: None,
            device: None,
        }
    };
}

impl Figures<'_> {
    fn cells(&self) -> Vec<String> {
        let Self { bytes, ios, seconds, rates, latency, cpu, device } = self;
        let mut cells = vec![bytes.to_string(), ios.to_string(), seconds.to_string()];
        for Spread { mean, stddev, ci95 } in rates {
            cells.push(mean.to_string());
            cells.push(number(*stddev));
            cells.extend([0, 1].map(|end| number(ci95.map(|ends| ends[end]))));
        }
        let Latency { min, mean, p50, p90, p99, p999, max } = latency;
        cells.extend([min.to_string(), mean.to_string()]);
        cells.extend([p50, p90, p99, p999, max].map(ToString::to_string));
        cells.extend([
            number(cpu.map(|cpu| cpu.seconds_per_gib)),
            number(cpu.map(|cpu| cpu.microseconds_per_io)),
        ]);
        let of = |field: fn(&Device) -> u64| number(device.map(field));
        cells.extend([of(|device| device.reads), of(|device| device.read_bytes)]);
        cells.extend([of(|device| device.writes), of(|device| device.written_bytes)]);
        cells
    }
}

/// The rows of a run: itself, its directions, and its targets.
fn of_run(run: &RunResult) -> Vec<Vec<String>> {
    let facts = run.workload.as_ref();
    let conditions = |part: &str, target: Option<&str>| -> Vec<String> {
        let job = run.job.as_ref();
        let own = job.and_then(|job| job.target.as_deref());
        vec![
            part.to_owned(),
            number(job.map(|job| &job.name)),
            number(job.map(|job| job.group)),
            number(target.or(own)),
            run.path.clone(),
            number(facts.and_then(|facts| facts.engine.as_ref())),
            number(facts.and_then(|facts| facts.elevator.as_ref())),
            run.rw.clone(),
            run.block_bytes.to_string(),
            run.io_depth.to_string(),
            run.jobs.to_string(),
            number(run.think_ns),
            number(run.rate_iops),
            run.warm.to_string(),
            number(run.served_by.map(ServedBy::name)),
            run.repeats.len().to_string(),
        ]
    };
    let row = |part: &str, target: Option<&str>, figures: &Figures| {
        let ends = [number(facts.map(|facts| facts.seed)), run.warnings.join("; ")];
        [conditions(part, target), figures.cells(), ends.to_vec()].concat()
    };
    let whole = Figures { cpu: run.cpu.as_ref(), device: run.device.as_ref(), ..figures!(run, run.seconds) };
    let mut rows = vec![row("run", None, &whole)];
    if let Some(both) = &run.directions {
        for (name, part) in both.each() {
            rows.push(row(name, None, &figures!(part, run.seconds)));
        }
    }
    for target in &run.targets {
        let figures = Figures { device: target.device.as_ref(), ..figures!(target, target.seconds) };
        rows.push(row("target", Some(&target.target), &figures));
    }
    rows
}

fn groups(report: &Report) -> impl Iterator<Item = Vec<String>> {
    report.groups.iter().map(|group| {
        let mut conditions = vec![String::new(); CONDITIONS];
        "group".clone_into(&mut conditions[0]);
        conditions[1] = group.jobs.join(", ");
        conditions[2] = group.number.to_string();
        let figures = Figures {
            cpu: group.cpu.as_ref(),
            device: group.device.as_ref(),
            ..figures!(group, group.seconds)
        };
        [conditions, figures.cells(), vec![String::new(); 2]].concat()
    })
}

/// The tables of a report: runs, reads and writes apart, targets, groups of several jobs; then warnings and findings.
pub(super) fn sections(report: &Report) -> Vec<Section> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let has_jobs = report.runs.iter().any(|run| run.job.is_some());
    let first = if has_jobs { "job" } else { "path" };
    let title = |run: &RunResult| run.job.as_ref().map_or(&run.path, |job| &job.name).clone();
    let figures = |rate: &Spread, iops: &Spread, latency: &Latency| {
        let rate = [digits(rate.mean / 1e6), interval(rate)];
        [&rate[..], &[digits(iops.mean), time(latency.p50), time(latency.p99)]].concat()
    };
    let measured = ["MB/s", "±95%", "IOPS", "p50", "p99"];
    let mut runs = Section {
        head: names(&[&[first, "rw", "block", "depth", "jobs"], &measured[..], &["CPU s/GiB"]].concat()),
        texts: 2,
        ..Section::default()
    };
    let mut directions = Section {
        title: "Reads and writes".to_owned(),
        head: names(&[&[first, "direction"], &measured[..]].concat()),
        texts: 2,
        ..Section::default()
    };
    let mut targets = Section {
        title: "Targets".to_owned(),
        head: names(&[&["target"], &measured[..]].concat()),
        texts: 1,
        ..Section::default()
    };
    for run in &report.runs {
        let conditions = [
            title(run),
            run.rw.clone(),
            format_size(run.block_bytes.into()),
            run.io_depth.to_string(),
            run.jobs.to_string(),
        ];
        let cpu = run.cpu.as_ref().map_or_else(|| "-".to_owned(), |cpu| digits(cpu.seconds_per_gib));
        let rates = figures(&run.bytes_per_second, &run.iops, &run.latency_ns);
        runs.rows.push([&conditions[..], &rates, &[cpu]].concat());
        if let Some(both) = &run.directions {
            for (name, part) in both.each() {
                let rates = figures(&part.bytes_per_second, &part.iops, &part.latency_ns);
                directions.rows.push([&[title(run), format!("{name}s")], &rates[..]].concat());
            }
        }
        for target in &run.targets {
            let rates = figures(&target.bytes_per_second, &target.iops, &target.latency_ns);
            targets.rows.push([std::slice::from_ref(&target.target), &rates].concat());
        }
        runs.paragraphs.extend(run.warnings.iter().map(|warning| match report.runs.len() {
            1 => format!("Warning: {warning}"),
            _ => format!("Warning: {}: {warning}", table::name(run)),
        }));
    }
    let mut groups = Section {
        title: "Groups of jobs".to_owned(),
        head: names(&[&["group", "jobs"], &measured[..]].concat()),
        texts: 2,
        ..Section::default()
    };
    for group in report.groups.iter().filter(|group| group.jobs.len() > 1) {
        let rates = figures(&group.bytes_per_second, &group.iops, &group.latency_ns);
        groups.rows.push([&[group.number.to_string(), group.jobs.join(", ")], &rates[..]].concat());
    }
    let skipped = report.skipped.iter().map(|one| format!("Skipped: {}: {}", one.workload, one.reason));
    runs.paragraphs.extend(skipped);
    let findings = Section {
        title: if report.findings.is_empty() { String::new() } else { "Findings".to_owned() },
        paragraphs: (1..)
            .zip(&report.findings)
            .map(|(number, finding)| format!("{number}. {} ({})", finding.text, finding.evidence))
            .collect(),
        ..Section::default()
    };
    let further = [directions, targets, groups].into_iter().filter(|section| !section.rows.is_empty());
    let findings = Some(findings).filter(|section| !section.paragraphs.is_empty());
    std::iter::once(runs).chain(further).chain(findings).collect()
}
