//! What every format shows of measured runs: the runs, their directions, targets and groups, with one description of
//! all columns.

use super::{Document, Medium, ends, hosts};
use crate::marks::{Mark, marks};
use crate::numbers::{half_width, percent};
use crate::result::{
    Clock, Connections, Cpu, Device, Directions, Latency, ModelHostFacts, Report, RunResult, ServedBy,
    Skipped, Spread, WorkloadFacts,
};
use crate::section::{Columns, Fit, Line, Section, Table};
use crate::value::Value;

/// The explanation of the marks.
const LEGEND: &str = "▲ fastest of its pattern, △ not significantly slower, ▼ slowest, ▽ not significantly faster; 95%, \
                      in pairs by round";

impl Document for Report {
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let mut sections = sections(&self.runs, medium);
        let groups: Vec<Part> = groups(self).filter(|part| part.jobs.len() > 1).collect();
        sections.push(medium.titled("Jobs that ran at the same time, together", columns(groups)));
        let verified = ends::verified(&self.runs).filter(|_| medium != Medium::Page);
        sections.push(Section::prose(verified));
        sections.push(Section::prose(ends::steady(&self.runs)));
        sections.push(Section::prose(ends::latency_targets(&self.runs)));
        let skipped = |Skipped { workload, reason }: &Skipped| format!("skipped: {workload}: {reason}");
        sections.push(Section::prose(self.skipped.iter().map(skipped)));
        if medium == Medium::Markdown {
            let findings = (1..).zip(&self.findings).map(|(number, finding)| {
                Line::new(format!("{} ({})", finding.text, finding.evidence))
                    .labelled(format!("{number}. "), "")
            });
            sections.push(Section::prose(findings).titled("Findings"));
        }
        sections.retain(|section| !section.is_empty());
        sections
    }

    fn records(&self) -> Table {
        let runs = self.runs.iter().flat_map(|run| {
            std::iter::once(Part::of_run(run))
                .chain(Part::of_directions(run))
                .chain(Part::of_targets(run))
                .chain(Part::of_hosts(run))
        });
        columns(runs.chain(groups(self)).collect())
    }

    fn json(&self) -> String {
        self.to_json()
    }

    fn report(&self) -> Option<&Report> {
        Some(self)
    }
}

/// The runs, their directions and their targets. MB/s is 10^6 bytes per second, GiB 2^30 bytes. `±95%` is half the 95%
/// confidence interval of MB/s, divided by MB/s. `device I/O` is the mean size of the disk's requests.
pub fn sections(runs: &[RunResult], medium: Medium) -> Vec<Section> {
    let mut whole: Vec<Part> = runs.iter().map(Part::of_run).collect();
    if runs.len() > 1 && runs.iter().all(|run| run.job.is_none()) {
        for (part, mark) in whole.iter_mut().zip(marks(runs)) {
            part.mark = Some(mark).filter(|mark| *mark != Mark::Alone);
        }
    }
    let legend = whole.iter().any(|part| part.mark.is_some()).then_some(LEGEND);
    // The program prints the warnings on stderr, and a page begins with them.
    let warned = runs.iter().filter(|_| medium == Medium::Markdown);
    let warnings = warned.flat_map(|run| {
        run.warnings.iter().map(|warning| match runs.len() {
            1 => format!("Warning: {warning}"),
            _ => format!("Warning: {}: {warning}", run.name()),
        })
    });
    let directions =
        runs.iter().flat_map(|run| Part::of_directions(run).chain(Part::of_flushes(run))).collect();
    let targets = runs.iter().flat_map(Part::of_targets).collect();
    let sections = [
        Section::of(columns(whole)).with_after(warnings),
        medium.titled("Reads and writes", columns(directions)),
        medium.titled("Targets", columns(targets)).with_after(ends::of_targets(runs)),
        Section::prose(legend),
    ];
    let sections = sections
        .into_iter()
        .chain(hosts::sections(runs, medium))
        .chain(sampling(runs))
        .chain(in_virtual_time(runs));
    sections.filter(|section| !section.is_empty()).collect()
}

/// Lines about the sampling of latencies.
fn sampling(runs: &[RunResult]) -> impl Iterator<Item = Section> {
    let mut every: Vec<u32> = runs.iter().map(|run| run.latency_every).filter(|&every| every > 1).collect();
    every.sort_unstable();
    every.dedup();
    every.into_iter().map(|every| {
        Section::prose([format!(
            "p50, p99: one I/O in {every}, drawn at random, was timed; other columns count all I/Os"
        )])
    })
}

/// The clock, if it is not that of this machine, and the modelled host.
fn in_virtual_time(runs: &[RunResult]) -> Option<Section> {
    let run = runs.iter().find(|run| run.clock == Clock::Virtual)?;
    let text = "virtual time: the target is a model, and the CPU cost of this machine does not count";
    let host = run.model_host.as_ref().map(|ModelHostFacts { name, cpus, idle }| {
        format!("CPU cost: that of the modelled host {name}; {} of its {cpus} CPUs idle", percent(*idle))
    });
    Some(Section::prose([text]).with_after(host))
}

/// A row: a run, one direction or target of it, its flushes, or a group of jobs.
#[derive(Debug, Clone, Copy)]
struct Part<'a> {
    kind: Kind<'a>,
    /// The run; none for a group.
    run: Option<&'a RunResult>,
    /// The names of the jobs of a group.
    jobs: &'a [String],
    group: Option<u32>,
    bytes: Option<u64>,
    ios: u64,
    seconds: f64,
    rate: Option<&'a Spread>,
    iops: Option<&'a Spread>,
    latency: &'a Latency,
    cpu: Option<&'a Cpu>,
    device: Option<Device>,
    connections: Option<Connections>,
    mark: Option<Mark>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind<'a> {
    Run,
    Direction(&'static str),
    /// The writes before each flush.
    Flushes(u64),
    Target(&'a str),
    Host(&'a str),
    Group,
}

/// The figures that runs, directions, targets and groups have by the same names.
macro_rules! part {
    ($kind:expr, $of:expr, $seconds:expr) => {
        Part {
            kind: $kind,
            run: None,
            jobs: &[],
            group: None,
            bytes: Some($of.bytes),
            ios: $of.ios,
            seconds: $seconds,
            rate: Some(&$of.bytes_per_second),
            iops: Some(&$of.iops),
            latency: &$of.latency_ns,
            cpu: None,
            device: None,
            connections: None,
            mark: None,
        }
    };
}

impl<'a> Part<'a> {
    fn of_run(run: &'a RunResult) -> Self {
        Self {
            run: Some(run),
            group: run.job.as_ref().map(|job| job.group),
            cpu: run.cpu.as_ref(),
            device: run.device,
            connections: run.connections,
            ..part!(Kind::Run, run, run.seconds)
        }
    }

    fn of_directions(run: &'a RunResult) -> impl Iterator<Item = Self> {
        let group = run.job.as_ref().map(|job| job.group);
        let each = run.directions.iter().flat_map(Directions::each);
        each.map(move |(name, one)| Self {
            run: Some(run),
            group,
            ..part!(Kind::Direction(name), one, run.seconds)
        })
    }

    /// The flushes between transfers.
    fn of_flushes(run: &'a RunResult) -> impl Iterator<Item = Self> {
        run.flushes.iter().map(move |flushes| Self {
            kind: Kind::Flushes(flushes.every),
            bytes: None,
            ios: flushes.count,
            rate: None,
            iops: None,
            latency: &flushes.latency_ns,
            cpu: None,
            device: None,
            connections: None,
            ..Self::of_run(run)
        })
    }

    fn of_targets(run: &'a RunResult) -> impl Iterator<Item = Self> {
        let group = run.job.as_ref().map(|job| job.group);
        run.targets.iter().map(move |target| Self {
            run: Some(run),
            group,
            device: target.device,
            connections: target.connections,
            ..part!(Kind::Target(&target.target), target, target.seconds)
        })
    }

    fn of_hosts(run: &'a RunResult) -> impl Iterator<Item = Self> {
        run.hosts
            .iter()
            .flat_map(|all| &all.hosts)
            .map(move |host| Self { run: Some(run), ..part!(Kind::Host(&host.host), host, host.seconds) })
    }

    fn is(self, kind: Kind) -> bool {
        self.kind == kind
    }

    /// The first column for readers: a job or a path.
    fn label(self) -> Value {
        match self.kind {
            Kind::Target(_) | Kind::Group => Value::Absent,
            _ => Value::present(self.run, |run| run.label().into()),
        }
    }

    /// A condition that only runs have.
    fn condition<V: Into<Value>>(self, of: impl FnOnce(&'a RunResult) -> V) -> Value {
        Value::present(self.run.filter(|_| self.is(Kind::Run)), |run| of(run).into())
    }

    /// A fact about the run, for programs.
    fn fact<V: Into<Value>>(self, of: impl FnOnce(&'a RunResult) -> V) -> Value {
        Value::present(self.run, |run| of(run).into())
    }

    /// A cost, which only runs and groups have.
    fn cost(self, of: fn(&Cpu) -> f64) -> Value {
        match self.kind {
            Kind::Run | Kind::Group => self.cpu.map(of).into(),
            _ => Value::Absent,
        }
    }

    fn latency(self, of: fn(&Latency) -> f64) -> Value {
        Value::Nanoseconds(of(self.latency))
    }

    fn direction(self) -> Value {
        match self.kind {
            Kind::Direction(name) => format!("{name}s").into(),
            Kind::Flushes(_) => "flushes".into(),
            _ => Value::Absent,
        }
    }

    /// The transfers per second; those of flushes are one figure without a spread.
    fn iops(self) -> Value {
        let of_flushes = || self.ios as f64 / self.seconds;
        Value::Number(self.iops.map_or_else(of_flushes, |iops| iops.mean))
    }

    fn device_io(self) -> Value {
        match self.kind {
            Kind::Run | Kind::Target(_) | Kind::Group => {
                Value::known(self.device.and_then(|device| device.mean_io_bytes()), Value::MeanSize)
            }
            _ => Value::Absent,
        }
    }

    fn name(self) -> &'static str {
        match self.kind {
            Kind::Run => "run",
            Kind::Direction(name) => name,
            Kind::Flushes(_) => "flushes",
            Kind::Target(_) => "target",
            Kind::Host(_) => "host",
            Kind::Group => "group",
        }
    }

    fn workload(self) -> Option<&'a WorkloadFacts> {
        self.run?.workload.as_ref()
    }

    fn target(self) -> Option<&'a str> {
        match self.kind {
            Kind::Target(name) => Some(name),
            _ => self.run?.job.as_ref()?.target.as_deref(),
        }
    }
}

fn groups(report: &Report) -> impl Iterator<Item = Part<'_>> {
    report.groups.iter().map(|group| Part {
        jobs: &group.jobs,
        group: Some(group.number),
        cpu: group.cpu.as_ref(),
        device: group.device,
        ..part!(Kind::Group, group, group.seconds)
    })
}

/// All columns. Rows of one kind leave out the columns that only others have. For programs, `part` is `run`, `read`,
/// `write` or `trim` of a run, one `target` or `host` of a run on several, or a `group` of jobs.
#[expect(clippy::too_many_lines, reason = "a list: a line for each column")]
fn columns(parts: Vec<Part>) -> Table {
    let has_jobs = parts.iter().any(|part| part.run.is_some_and(|run| run.job.is_some()));
    let has_losses =
        parts.iter().any(|part| part.connections.is_some_and(|connections| connections.lost > 0));
    let lost = |of: fn(&Connections) -> u64| {
        move |part: Part| if has_losses { part.connections.map(|one| of(&one)).into() } else { Value::Absent }
    };
    let rate = |of: fn(&Spread) -> Option<f64>| move |part: Part| part.rate.and_then(of);
    let iops = |of: fn(&Spread) -> Option<f64>| move |part: Part| part.iops.and_then(of);
    let device = |of: fn(&Device) -> u64| move |part: Part| part.device.map(|device| of(&device));
    let mut table = Columns::of(parts)
        .record("part", |part: Part| part.name())
        .record("job", |part| match part.kind {
            Kind::Group => part.jobs.join(", ").into(),
            _ => part.fact(|run| run.job.as_ref().map(|job| &job.name)),
        })
        .text("group", |part| if part.is(Kind::Group) { part.group.into() } else { Value::Absent })
        .record("group", |part| part.group)
        .record("target", Part::target)
        .text(if has_jobs { "job" } else { "path" }, Part::label)
        .text("path", |part| if has_jobs { part.condition(|run| &run.path) } else { Value::Absent })
        .detail()
        .record("path", |part| part.fact(|run| &run.path))
        .record("engine", |part| part.workload().and_then(|facts| facts.text("engine")))
        .record("elevator", |part| part.workload().and_then(|facts| facts.text("elevator")))
        .text("direction", Part::direction)
        .text("target", |part| match part.kind {
            Kind::Target(name) => name.into(),
            _ => Value::Absent,
        })
        .text("after", |part| match part.kind {
            Kind::Flushes(every) => format!("{every} writes").into(),
            _ => Value::Absent,
        })
        .detail()
        .text("rw", |part| part.condition(|run| &run.rw))
        .number("block", |part| part.condition(|run| Value::Size(run.block_bytes.into())))
        .number("depth", |part| part.condition(|run| run.io_depth))
        .number("jobs", |part| part.condition(|run| run.jobs))
        .record("rw", |part| part.fact(|run| &run.rw))
        .record("block_bytes", |part| part.fact(|run| run.block_bytes))
        .record("io_depth", |part| part.fact(|run| run.io_depth))
        .record("jobs", |part| part.fact(|run| run.jobs))
        .record("think_ns", |part| part.fact(|run| run.think_ns))
        .record("rate_iops", |part| part.fact(|run| run.rate_iops))
        .record("warm", |part| part.fact(|run| run.warm))
        .record("served_by", |part| part.fact(|run| run.served_by.map(ServedBy::name)))
        .record("repetitions", |part| part.fact(|run| run.repeats.len()))
        .record("bytes", |part| part.bytes)
        .number("I/Os", |part| part.ios)
        .detail()
        .recorded("ios")
        .record("seconds", |part| part.seconds)
        .number("MB/s", |part| {
            let rate = Value::known(part.rate, |rate| Value::Rate(rate.mean));
            match part.mark {
                Some(mark) => rate.marked(format!(" {}", mark.sign())),
                None => rate,
            }
        })
        .recorded("bytes_per_second")
        .record("bytes_per_second_stddev", rate(|rate| rate.stddev))
        .record("bytes_per_second_low", rate(|rate| rate.ci95.map(|[low, _]| low)))
        .record("bytes_per_second_high", rate(|rate| rate.ci95.map(|[_, high]| high)))
        .number("±95%", |part| Value::known(part.rate.and_then(half_width), Value::Percent))
        .number("IOPS", Part::iops)
        .recorded("iops")
        .record("iops_stddev", iops(|iops| iops.stddev))
        .record("iops_low", iops(|iops| iops.ci95.map(|[low, _]| low)))
        .record("iops_high", iops(|iops| iops.ci95.map(|[_, high]| high)));
    table = table
        .record("latency_min_ns", |part| part.latency(|latency| latency.min as f64))
        .number("mean", |part| part.latency(|latency| latency.mean))
        .detail()
        .recorded("latency_mean_ns")
        .number("p50", |part| part.latency(|latency| latency.p50 as f64))
        .recorded("latency_p50_ns")
        .record("latency_p90_ns", |part| part.latency(|latency| latency.p90 as f64))
        .number("p99", |part| part.latency(|latency| latency.p99 as f64))
        .recorded("latency_p99_ns")
        .number("p99.9", |part| part.latency(|latency| latency.p999 as f64))
        .detail()
        .recorded("latency_p999_ns")
        .number("max", |part| part.latency(|latency| latency.max as f64))
        .detail()
        .recorded("latency_max_ns")
        .number("seconds", |part| match part.kind {
            Kind::Target(_) | Kind::Group => part.seconds.into(),
            _ => Value::Absent,
        })
        .number("CPU s/GiB", |part| part.cost(|cpu| cpu.seconds_per_gib))
        .recorded("cpu_seconds_per_gib")
        .number("CPU µs/IO", |part| part.cost(|cpu| cpu.microseconds_per_io))
        .recorded("cpu_microseconds_per_io")
        .number("device I/O", Part::device_io)
        .record("device_reads", device(|device| device.reads))
        .record("device_read_bytes", device(|device| device.read_bytes))
        .record("device_writes", device(|device| device.writes))
        .record("device_written_bytes", device(|device| device.written_bytes));
    table
        .text("served by", |part| part.condition(|run| run.served_by.map(ServedBy::name)))
        .detail()
        .text("warm", |part| part.condition(|run| if run.warm { "yes".into() } else { Value::Absent }))
        .detail()
        .number("lost connections", lost(|connections| connections.lost))
        .number("reconnected", lost(|connections| connections.reconnected))
        .text("jobs", |part| if part.is(Kind::Group) { part.jobs.join(", ").into() } else { Value::Absent })
        .record("seed", |part| part.workload().and_then(|facts| facts.whole("seed")))
        .record("warnings", |part| part.fact(|run| run.warnings.join("; ")))
        .record("connections_lost", |part| part.connections.map(|connections| connections.lost))
        .record("connections_reconnected", |part| part.connections.map(|connections| connections.reconnected))
        .record("host", |part| match part.kind {
            Kind::Host(name) => name.into(),
            _ => Value::Absent,
        })
        .fit(Fit::Turn { corner: None })
        .into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{run, with_flushes};
    use crate::format::{View, page, text};
    use crate::pattern::Rw;

    fn result() -> RunResult {
        let run = run("kernel-direct", Rw::RandRead, 4096, 1, &[100.0, 110.0], 1.25);
        let latency_ns = Latency { p50: 76_700, p99: 1_300_000, ..run.latency_ns };
        let device = Some(Device { reads: 2, read_bytes: 16384, ..Device::default() });
        RunResult { latency_ns, device, ..run }
    }

    fn shown(runs: &[RunResult], width: Option<u16>) -> String {
        text::render(&sections(runs, Medium::Text), View::plain(width))
    }

    #[test]
    fn every_column_has_its_number_and_unit() {
        let text = shown(&[RunResult { device: None, ..result() }, result()], None);
        let cells = |line: &str| -> Vec<String> {
            line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
        };
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        let heads = ["path", "rw", "block", "depth", "jobs", "MB/s", "±95%", "IOPS", "p50", "p99"];
        assert_eq!(lines[0], [&heads[..], &["CPU s/GiB", "CPU µs/IO", "device I/O"]].concat());
        assert_eq!(lines[2][..6], ["kernel-direct", "randread", "4 KiB", "1", "1", "105"]);
        assert_eq!(lines[3][8..11], ["76.7 µs", "1.30 ms", "1.25"]);
        assert_eq!([lines[2].last().unwrap(), lines[3].last().unwrap()], ["-", "8.00 KiB"], "{text}");
    }

    #[test]
    fn a_table_names_the_sampling_of_latencies() {
        assert!(!shown(&[result()], None).contains("drawn"));
        let text = shown(&[RunResult { latency_every: 16, ..result() }], None);
        let note = "\n\np50, p99: one I/O in 16, drawn at random, was timed; other columns count all I/Os";
        assert!(text.ends_with(note), "{text}");
    }

    #[test]
    fn no_word_is_broken_on_a_narrow_terminal() {
        let runs = [result(), result()];
        let wide = shown(&runs, Some(125));
        assert_eq!(wide, shown(&runs, None));
        let narrow = shown(&runs, Some(80));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let line = narrow.lines().find(|line| line.contains("CPU s/GiB"));
        assert_eq!(line.map(|line| line.matches("1.25").count()), Some(2), "{narrow}");
    }

    #[test]
    fn notes_below_the_table_fit_a_narrow_terminal() {
        let host = ModelHostFacts { name: "pc-2001".to_owned(), cpus: 2, idle: 0.5 };
        let runs =
            [RunResult { clock: Clock::Virtual, model_host: Some(host), latency_every: 16, ..result() }];
        let note = "virtual time: the target is a model, and the CPU cost of this machine does not count";
        assert!(shown(&runs, None).contains(note) && shown(&runs, Some(120)).contains(note));
        let narrow = shown(&runs, Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("\n\nvirtual time: the target is a model, and\n  the CPU cost"), "{narrow}");
    }

    #[test]
    fn flushes_have_a_row_of_their_own_in_each_medium() {
        let mut flushing = with_flushes(result());
        flushing.flushes.as_mut().unwrap().latency_ns.p99 = 7_000_000;
        let runs = [flushing];
        let text = shown(&runs, None);
        let line = text.lines().find(|line| line.contains(" flushes ")).unwrap();
        assert!(line.contains("7.00 ms") && line.contains('-'), "{text}");
        let html = page::sections(&sections(&runs, Medium::Page)).into_string();
        assert!(
            html.contains(">flushes<") && html.contains(">7.00 ms<") && html.contains(">1 writes<"),
            "{html}"
        );
    }

    #[test]
    fn lost_connections_have_columns_in_each_format_if_there_are_any() {
        let connected = |lost| {
            let connections = Some(Connections { lost, reconnected: lost / 2 });
            Report::new(None, None, vec![RunResult { connections, ..result() }])
        };
        let (quiet, losing) = (connected(0), connected(6));
        assert!(!quiet.text(View::plain(None)).contains("lost"));
        for format in super::super::FORMATS.iter().filter(|format| !format.is_of_runs) {
            let text = (format.render)(&losing, View::plain(None));
            assert!(text.contains("lost") && text.contains("reconnected"), "{}: {text}", format.name);
        }
        let html = page::sections(&losing.sections(Medium::Page)).into_string();
        assert!(html.contains(">lost connections<") && html.contains("<td>6</td><td>3</td>"), "{html}");
    }
}
