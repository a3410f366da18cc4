//! What every format shows of a survey: the findings, each headed by its confidence, then two tables by block size,
//! those of random transfers and of writes with fsync, and one of page caches. Does not interpret the results.

use std::fmt::Write as _;

use iopath_report::Rw;
use iopath_report::format::{Document, Medium, View, text};
use iopath_report::numbers::digits;
use iopath_report::result::{Clock, Finding, FlushResult, Latency, RunResult};
use iopath_report::section::{Columns, Emphasis, Fit, Line, Section, Table};
use iopath_report::size::format_size;
use iopath_report::terminal;
use iopath_report::value::{Tone, Value};

use super::Survey;
use super::cell::MIXED_READS;
use super::compare::{self, Choice, CpuOf, rate};
use super::figures::{is_durable, is_ranked, is_table_run};
use super::plan::PATHS;
use iopath_bench::warnings::CV_MAX;

/// The least width of the text.
const WIDTH_MIN: u16 = 20;

const LEGEND: &str = "▲ fastest, △ not significantly different, ▼ slowest, ~ CV > 10%";
const LEGEND_MEMORY: &str = ", m served by memory, not ranked";

/// A percentile of a latency.
type Percentile = fn(&Latency) -> u64;

/// The latency of one direction of a run.
type Side = fn(&RunResult) -> Option<&Latency>;

impl Document for Survey {
    fn text(&self, View { width, is_fancy }: View) -> String {
        let width = Some(width.unwrap_or(terminal::WIDTH).max(WIDTH_MIN));
        text::render(&self.parts(), View { width, is_fancy })
    }

    /// The figures of each run; a terminal has the tables of the paths side by side.
    fn sections(&self, medium: Medium) -> Vec<Section> {
        if medium == Medium::Text {
            return self.parts();
        }
        let mut sections = self.report.sections(medium);
        sections.push(Section::prose(self.left_out()));
        sections
    }

    fn records(&self) -> Table {
        self.report.records()
    }

    fn json(&self) -> String {
        self.report.to_json()
    }
}

impl Survey {
    /// The heading, the findings and the tables.
    fn parts(&self) -> Vec<Section> {
        let mut parts =
            vec![Section::prose([Line::paragraph(self.heading()).labelled("", "")]), self.findings()];
        let costs = if self.cpu_of.is_known() { ", CPU s/GiB" } else { "" };
        for (rw, title) in [(Rw::Read, "Sequential reads"), (Rw::Write, "Sequential writes, flush included")]
        {
            let table = self.sequential(&self.runs(rw));
            parts.push(Section::of(table).titled(format!("{title}: MB/s{costs}")));
        }
        let mixed = format!("Random transfers of 4 KiB, {MIXED_READS}% reads, flush included");
        for (rw, title) in [
            (Rw::RandRead, "Random reads of 4 KiB"),
            (Rw::RandWrite, "Random writes of 4 KiB, flush included"),
            (Rw::RandRw, mixed.as_str()),
        ] {
            parts.push(Section::of(self.random(&self.runs(rw), rw)).titled(title));
        }
        let durable = Section::of(self.durable());
        parts.push(durable.titled("Durable writes of 4 KiB: an fsync after each, depth 1"));
        parts.push(Section::of(self.caches()));
        parts.push(Section::prose([Line::paragraph(self.legend())]).with_after(self.left_out()));
        parts.retain(|part| !part.is_empty());
        parts
    }

    fn left_out(&self) -> impl Iterator<Item = Line> {
        self.report.left_out.iter().map(|left_out| Line::paragraph(format!("Left out: {left_out}")))
    }

    fn findings(&self) -> Section {
        let findings = (1..).zip(&self.report.findings);
        let mut lines: Vec<Line> =
            findings.flat_map(|(number, finding)| self.finding(number, finding)).collect();
        if lines.is_empty() {
            lines.push(Line::paragraph("None: there is no measurement that storage served."));
        } else if !self.explains {
            lines.push(Line::paragraph("Their reasons: --explain, or iopath report of the JSON (--json)."));
        }
        Section::prose(lines).titled("Findings")
    }

    /// A finding: its first sentence with its confidence, or all that is known about it.
    fn finding(&self, number: usize, finding: &Finding) -> Vec<Line> {
        let rest = "    ";
        let numbered = |text: String| Line::paragraph(text).labelled(format!("{number:>2}. "), rest);
        if !self.explains {
            let sentence = first_sentence(&finding.text);
            let level = finding.confidence.filter(|_| !finding.is_doubt());
            let confidence =
                level.map_or_else(String::new, |level| format!(" ({} confidence)", level.name()));
            return vec![numbered(format!("{sentence}{confidence}"))];
        }
        let further = |text: &str| Line::paragraph(text).labelled(rest, rest);
        let evidence = further(&finding.evidence).with_emphasis(Emphasis::Weak);
        let Some(confidence) = finding.confidence else {
            return vec![numbered(finding.text.clone()), evidence];
        };
        let name = confidence.name();
        let doubts = finding.doubts.join("; ");
        let doubts = if doubts.is_empty() { doubts } else { format!(": {doubts}") };
        let head = format!("{}{} confidence{doubts}", name[..1].to_uppercase(), &name[1..]);
        vec![numbered(head).with_emphasis(Emphasis::Strong), further(&finding.text), evidence]
    }

    /// The target and the method.
    fn heading(&self) -> String {
        let mut target = String::new();
        if let Some(facts) = &self.report.target {
            let kind = match facts.kind.as_str() {
                _ if facts.scratch => "scratch file".to_owned(),
                "model" => facts.path.clone(),
                kind => kind.to_owned(),
            };
            let _ = write!(target, "{kind} of {}", format_size(facts.size_bytes));
            if let Some(filesystem) = &facts.filesystem {
                let _ = write!(target, " on {filesystem}");
            }
            if let Some(disk) = &facts.disk {
                let _ = write!(target, ", disk {}", disk.name);
            }
        }
        let cpu = match self.cpu_of {
            CpuOf::Machine => " CPU time: of the whole machine, less its idle load.",
            CpuOf::Process => " CPU time: of this process only, because other programs use the machine.",
            CpuOf::Unknown => "",
        };
        let (rounds, took, slice) = (self.rounds, self.took.as_secs(), self.slice.as_millis());
        let how = if self.is_virtual() {
            format!("medians of {rounds} repetitions of at most {slice} ms of virtual time")
        } else {
            format!("medians of up to {rounds} rounds of {slice} ms, cold")
        };
        format!("Target: {target}. Figures: {how}.{cpu} Duration: {took} s.")
    }

    fn is_virtual(&self) -> bool {
        self.report.clock == Clock::Virtual
    }

    fn legend(&self) -> String {
        let has_memory = self.report.runs.iter().any(|run| !is_ranked(run));
        format!("{LEGEND}{}", if has_memory { LEGEND_MEMORY } else { "" })
    }

    fn runs(&self, rw: Rw) -> Vec<&RunResult> {
        self.report.runs.iter().filter(|run| is_table_run(run, rw)).collect()
    }

    /// The best and worst run of those that storage served; none if there is no such run.
    fn choice<'a>(&self, runs: &[&'a RunResult]) -> Option<Choice<'a>> {
        let ranked: Vec<&RunResult> = runs.iter().copied().filter(|run| is_ranked(run)).collect();
        Choice::of(&ranked, self.cpu_of)
    }

    /// Block sizes down, paths across.
    fn sequential(&self, runs: &[&RunResult]) -> Table {
        let paths = PATHS.into_iter().filter(|path| runs.iter().any(|run| run.path == *path));
        let mut blocks: Vec<u32> = runs.iter().map(|run| run.block_bytes).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let choice = self.choice(runs);
        let columns = Columns::of(blocks).number("block", |block| Value::Size(block.into()));
        let columns = paths.fold(columns, |columns, path| {
            columns.number(path, |block| {
                let run = runs.iter().find(|run| run.path == path && run.block_bytes == block);
                Value::known(run, |run| self.figure(run, choice.as_ref()))
            })
        });
        columns.fit(Fit::Split { keys: 1 }).into()
    }

    /// The kernel's page cache against iopath's, for the workloads measured with both.
    fn caches(&self) -> Table {
        let figures = |run: &RunResult| {
            let (mbs, cost) = (digits(rate(run) / 1e6), digits(self.cpu_of.cost(run)));
            let memory = if is_ranked(run) { ' ' } else { 'm' };
            format!("{mbs:>6} {cost:>6} {memory}{}", variation(run))
        };
        let pairs = self.report.runs.iter().filter_map(|ours| {
            let cache = ours.cache.as_ref()?;
            let is_alike = |run: &&RunResult| {
                let key = |run: &RunResult| (run.rw.clone(), run.block_bytes, run.warm);
                run.path == "kernel-buffered" && key(run) == key(ours)
            };
            let kernel = self.report.runs.iter().find(is_alike)?;
            let kind = match (ours.rw.as_str(), ours.warm, cache.borrow) {
                (_, true, false) => "hits",
                (_, true, true) => "hits, iopath's borrowed",
                ("write", ..) => "writes, flush included",
                _ => "reads",
            };
            Some((kind, kernel, ours))
        });
        Columns::of(pairs)
            .text("page caches: MB/s, CPU s/GiB", |(kind, _, ours)| {
                format!("{kind}, {}", format_size(ours.block_bytes.into()))
            })
            .number("kernel-buffered", |(_, kernel, _)| figures(kernel))
            .number("iopath-buffered", |(.., ours)| figures(ours))
            .fit(Fit::Split { keys: 1 })
            .into()
    }

    fn figure(&self, run: &RunResult, choice: Option<&Choice>) -> Value {
        let mbs = digits(rate(run) / 1e6);
        let cost = if self.cpu_of.is_known() {
            format!(" {:>5}", digits(self.cpu_of.cost(run)))
        } else {
            String::new()
        };
        let (sign, tone) = mark(run, choice);
        Value::from(format!("{mbs:>5}{cost} {sign}{}", variation(run))).toned(tone)
    }

    /// One row for each path and depth; of reads, with the cost of the tool itself if it was measured. Of a mix, reads
    /// and writes have latencies of their own.
    fn random(&self, runs: &[&RunResult], rw: Rw) -> Table {
        let choice = self.choice(runs);
        let null = self.report.runs.iter().find(|run| run.path == "null" && rw == Rw::RandRead);
        let is_null = |run: &RunResult| run.path == "null";
        let marked = |run: &RunResult| if is_null(run) { (' ', None) } else { mark(run, choice.as_ref()) };
        let toned = |run: &RunResult, value: Value| value.toned(marked(run).1);
        let rows = runs.iter().copied().chain(null.filter(|_| !runs.is_empty()));
        let mut columns = Columns::of(rows)
            .text("path", |run: &RunResult| {
                let path = if is_null(run) { "null (no device)" } else { &run.path };
                toned(run, path.into())
            })
            .number("depth", |run| toned(run, run.io_depth.into()))
            .number("IOPS", |run| toned(run, (rate(run) / f64::from(run.block_bytes)).into()));
        let percentiles: [(&str, Percentile); 2] =
            [("p50", |latency| latency.p50), ("p99", |latency| latency.p99)];
        let sides: &[(&str, Side)] = if rw == Rw::RandRw {
            &[
                ("read ", |run| run.directions.as_ref().map(|both| &both.read.latency_ns)),
                ("write ", |run| run.directions.as_ref().map(|both| &both.write.latency_ns)),
            ]
        } else {
            &[("", |run| Some(&run.latency_ns))]
        };
        for (side, of) in sides {
            for (name, percentile) in percentiles {
                columns = columns.number(format!("{side}{name}"), |run| {
                    let latency = of(run).map(|latency| percentile(latency) as f64);
                    toned(run, Value::known(latency, Value::Nanoseconds))
                });
            }
        }
        if self.cpu_of.is_known() {
            columns = columns.number("CPU µs/IO", |run| toned(run, self.cpu_of.per_io_us(run).into()));
        }
        let sign = |run: &RunResult| format!("{}{}", marked(run).0, variation(run)).into();
        columns.number("", |run| toned(run, sign(run))).fit(Fit::Split { keys: 2 }).into()
    }

    /// One row for each path of writes with a flush after each.
    fn durable(&self) -> Table {
        let runs: Vec<&RunResult> = self.report.runs.iter().filter(|run| is_durable(run)).collect();
        let choice = self.choice(&runs);
        let flush = |of: fn(&Latency) -> u64| {
            move |(_, flushes): (&RunResult, &FlushResult)| of(&flushes.latency_ns) as f64
        };
        let toned = |run: &RunResult, value: Value| value.toned(mark(run, choice.as_ref()).1);
        let (p50, p99) = (flush(|latency| latency.p50), flush(|latency| latency.p99));
        Columns::of(runs.iter().filter_map(|run| Some((*run, run.flushes.as_ref()?))))
            .text("path", |(run, _)| toned(run, (&run.path).into()))
            .number("writes/s", |(run, _)| toned(run, (rate(run) / f64::from(run.block_bytes)).into()))
            .number("write p50", |(run, _)| toned(run, Value::Nanoseconds(run.latency_ns.p50 as f64)))
            .number("fsync p50", |row| toned(row.0, Value::Nanoseconds(p50(row))))
            .number("fsync p99", |row| toned(row.0, Value::Nanoseconds(p99(row))))
            .number("", |(run, _)| {
                let (sign, _) = mark(run, choice.as_ref());
                toned(run, format!("{sign}{}", variation(run)).into())
            })
            .fit(Fit::Split { keys: 1 })
            .into()
    }
}

/// The text up to the period that ends its first sentence, without it.
fn first_sentence(text: &str) -> &str {
    let begins = |at: usize| text[at..].chars().next().is_some_and(char::is_uppercase);
    let end = text.match_indices(". ").map(|(at, _)| at).find(|at| begins(at + 2));
    end.map_or(text, |at| &text[..at]).trim_end_matches('.')
}

/// The sign and judgement of a run among others.
fn mark(run: &RunResult, choice: Option<&Choice>) -> (char, Option<Tone>) {
    match choice {
        _ if !is_ranked(run) => ('m', None),
        Some(choice) if std::ptr::eq(run, choice.fastest) => ('▲', Some(Tone::Good)),
        Some(choice) if choice.good.iter().any(|good| std::ptr::eq(*good, run)) => ('△', Some(Tone::Good)),
        Some(choice) if std::ptr::eq(run, choice.slowest) => ('▼', Some(Tone::Bad)),
        _ => (' ', None),
    }
}

fn variation(run: &RunResult) -> char {
    if compare::cv(run).is_some_and(|cv| cv > CV_MAX) { '~' } else { ' ' }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use iopath_report::fixtures::run;
    use iopath_report::fixtures::with_flushes;
    use iopath_report::result::{Confidence, Finding, Host, Report, ServedBy};

    fn survey() -> Survey {
        let host = Host {
            kernel: "6".to_owned(),
            cpu: "cpu".to_owned(),
            cores: 2,
            memory_bytes: 1,
            idle_busy_cpus: None,
        };
        let mut runs = Vec::new();
        for path in PATHS {
            runs.push(run(path, Rw::Read, 4096, 1, &[100.0, 101.0], 0.1));
            for rw in [Rw::RandRead, Rw::RandWrite, Rw::RandRw] {
                runs.push(run(path, rw, 4096, 1, &[10.0, 10.1], 0.1));
            }
            runs.push(with_flushes(run(path, Rw::Write, 4096, 1, &[1.0, 1.1], 0.1)));
        }
        runs[0].served_by = Some(ServedBy::Memory);
        let text = "a sentence of many words that does not fit on one line of a narrow terminal".to_owned();
        let finding = Finding {
            id: "best".to_owned(),
            text: text.clone(),
            evidence: text,
            confidence: Some(Confidence::Low),
            doubts: vec!["measured once".to_owned(), "no disk".to_owned()],
        };
        Survey {
            report: Report {
                findings: vec![finding],
                left_out: vec!["page caches: not enough time".to_owned()],
                ..Report::new(Some(host), None, runs)
            },
            rounds: 3,
            slice: Duration::from_millis(120),
            cpu_of: CpuOf::Process,
            took: Duration::from_secs(90),
            explains: true,
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_column_is_lost() {
        for width in [20, 40, 60, 80, 120] {
            let text = survey().text(View::plain(Some(width)));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            for word in PATHS.into_iter().chain(["IOPS", "p50", "p99", "CPU", "µs/IO", "fsync", "writes/s"])
            {
                assert!(text.contains(word), "{word} at {width}:\n{text}");
            }
        }
        assert!(
            survey().text(View::plain(Some(40))).lines().count()
                > survey().text(View::plain(Some(120))).lines().count()
        );
    }

    #[test]
    fn a_run_that_memory_served_is_marked_and_not_ranked() {
        let text = survey().text(View::plain(None));
        let line = text.lines().find(|line| line.trim_start().starts_with("4 KiB")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..5], ["100", "0.100", "m"], "{text}");
        assert!(cells.contains(&"▲") && text.contains(", m served by"), "{text}");
    }
    #[test]
    fn findings_come_first_and_each_is_headed_by_its_confidence() {
        let text = survey().text(View::plain(None));
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing:\n{text}"));
        assert!(at("Low confidence: measured once; no disk") < at("a sentence of many words"));
        assert!(at("a sentence of many words") < at("Sequential reads: MB/s"), "{text}");
        assert!(at("Durable writes of 4 KiB") < at("Left out: page caches"), "{text}");
    }

    #[test]
    fn a_finding_has_two_lines_unless_its_reasons_are_wanted() {
        let mut survey = survey();
        survey.report.findings[0].text =
            "Random reads of 4 KiB: use kernel-uring at depth 32: 70938 IOPS, p50 279 µs, \
             3.37 µs of CPU per I/O. That is 6.22 times the throughput of depth 1."
                .to_owned();
        survey.explains = false;
        let text = survey.text(View::plain(Some(80)));
        let findings: Vec<&str> = text
            .lines()
            .skip_while(|line| *line != "Findings")
            .skip(1)
            .take_while(|line| !line.is_empty())
            .collect();
        assert_eq!(
            findings,
            [
                " 1. Random reads of 4 KiB: use kernel-uring at depth 32: 70938 IOPS, p50 279 µs,",
                "    3.37 µs of CPU per I/O (low confidence)",
                "Their reasons: --explain, or iopath report of the JSON (--json).",
            ]
        );
    }

    #[test]
    fn a_survey_in_virtual_time_has_no_cpu_cost() {
        let mut survey = survey();
        survey.cpu_of = CpuOf::Unknown;
        survey.report.clock = Clock::Virtual;
        let text = survey.text(View::plain(None));
        assert!(text.contains("of virtual time") && !text.contains("CPU"), "{text}");
    }
}
