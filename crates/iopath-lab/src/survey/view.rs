//! Formats a survey: the findings, each headed by its confidence, then two tables by block size, those of random
//! transfers and of writes with fsync, and one of page caches. Does not interpret the results. `view/style.rs` breaks
//! lines and tables.

mod style;

use std::fmt::Write as _;

use comfy_table::{Cell, Color};
use iopath_report::Rw;
use iopath_report::format::{Document, Medium, View};
use iopath_report::numbers::{digits, time};
use iopath_report::result::{Clock, RunResult};
use iopath_report::section::{Section, Table};
use iopath_report::size::format_size;

use super::Survey;
use super::cell::MIXED_READS;
use super::compare::{self, Choice, CpuOf, rate};
use super::figures::{is_durable, is_ranked, is_table_run};
use super::plan::PATHS;
use crate::warnings::CV_MAX;
use style::{Style, colored, right};

const LEGEND: &str = "▲ fastest, △ not significantly different, ▼ slowest, ~ CV > 10%";
const LEGEND_MEMORY: &str = ", m served by memory, not ranked";

impl Document for Survey {
    fn text(&self, view: View) -> String {
        Self::text(self, view.is_fancy, view.width)
    }

    /// The tables of the runs.
    fn sections(&self, medium: Medium) -> Vec<Section> {
        let mut sections = self.report.sections(medium);
        let left_out = self.report.left_out.iter().map(|left_out| format!("Left out: {left_out}"));
        sections.push(Section::prose(left_out));
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
    /// The report as text for `width` columns (80 if none is given), with colours on a terminal that shows them.
    pub fn text(&self, is_fancy: bool, width: Option<u16>) -> String {
        let style = Style::new(is_fancy, width);
        let mut text = style.wrap(&self.heading(), "", "");
        text.push_str("\nFindings\n");
        for (number, finding) in (1..).zip(&self.report.findings) {
            text.push_str(&style.finding(number, finding, self.explains));
        }
        if !self.explains && !self.report.findings.is_empty() {
            text.push_str(&style.wrap(
                "Their reasons: --explain, or iopath report of the JSON (--json).",
                "",
                "  ",
            ));
        }
        if self.report.findings.is_empty() {
            text.push_str(&style.wrap("None: there is no measurement that storage served.", "", "  "));
        }
        let costs = if self.cpu_of.is_known() { ", CPU s/GiB" } else { "" };
        for (rw, title) in [(Rw::Read, "Sequential reads"), (Rw::Write, "Sequential writes, flush included")]
        {
            let runs = self.runs(rw);
            if !runs.is_empty() {
                let title = style.wrap(&format!("{title}: MB/s{costs}"), "", "  ");
                let _ = write!(text, "\n{title}{}", self.sequential(&runs, style));
            }
        }
        let mixed = format!("Random transfers of 4 KiB, {MIXED_READS}% reads, flush included");
        for (rw, title) in [
            (Rw::RandRead, "Random reads of 4 KiB"),
            (Rw::RandWrite, "Random writes of 4 KiB, flush included"),
            (Rw::RandRw, mixed.as_str()),
        ] {
            let runs = self.runs(rw);
            if !runs.is_empty() {
                let title = style.wrap(title, "", "  ");
                let _ = write!(text, "\n{title}{}", self.random(&runs, rw, style));
            }
        }
        text.push_str(&self.durable(style));
        text.push_str(&self.caches(style));
        text.push('\n');
        text.push_str(&style.wrap(&self.legend(), "", "  "));
        for left_out in &self.report.left_out {
            text.push_str(&style.wrap(&format!("Left out: {left_out}"), "", "  "));
        }
        text.pop();
        text
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
    fn sequential(&self, runs: &[&RunResult], style: Style) -> String {
        let paths: Vec<&str> =
            PATHS.into_iter().filter(|path| runs.iter().any(|run| run.path == *path)).collect();
        let mut blocks: Vec<u32> = runs.iter().map(|run| run.block_bytes).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let choice = self.choice(runs);
        let rows = blocks.into_iter().map(|block| {
            let cell = |path: &&str| {
                let run = runs.iter().find(|run| run.path == **path && run.block_bytes == block);
                run.map_or_else(|| right("-"), |run| self.figure(run, choice.as_ref()))
            };
            let first = right(format_size(block.into()));
            std::iter::once(first).chain(paths.iter().map(cell)).collect()
        });
        let header = std::iter::once("block").chain(paths.iter().copied()).map(right);
        style.table(&header.collect::<Vec<_>>(), &rows.collect::<Vec<_>>(), 1)
    }

    /// The kernel's page cache against iopath's, for the workloads measured with both.
    fn caches(&self, style: Style) -> String {
        let header = ["page caches: MB/s, CPU s/GiB", "kernel-buffered", "iopath-buffered"];
        let figures = |run: &RunResult| {
            let (mbs, cost) = (digits(rate(run) / 1e6), digits(self.cpu_of.cost(run)));
            let memory = if is_ranked(run) { ' ' } else { 'm' };
            right(format!("{mbs:>6} {cost:>6} {memory}{}", variation(run)))
        };
        let mut rows = Vec::new();
        for ours in &self.report.runs {
            let Some(cache) = &ours.cache else { continue };
            let is_alike = |run: &&RunResult| {
                let key = |run: &RunResult| (run.rw.clone(), run.block_bytes, run.warm);
                run.path == "kernel-buffered" && key(run) == key(ours)
            };
            let Some(kernel) = self.report.runs.iter().find(is_alike) else { continue };
            let kind = match (ours.rw.as_str(), ours.warm, cache.borrow) {
                (_, true, false) => "hits",
                (_, true, true) => "hits, iopath's borrowed",
                ("write", ..) => "writes, flush included",
                _ => "reads",
            };
            let name = format!("{kind}, {}", format_size(ours.block_bytes.into()));
            rows.push(vec![Cell::new(name), figures(kernel), figures(ours)]);
        }
        if rows.is_empty() {
            String::new()
        } else {
            format!("\n{}", style.table(&header.map(Cell::new), &rows, 1))
        }
    }

    fn figure(&self, run: &RunResult, choice: Option<&Choice>) -> Cell {
        let mbs = digits(rate(run) / 1e6);
        let cost = if self.cpu_of.is_known() {
            format!(" {:>5}", digits(self.cpu_of.cost(run)))
        } else {
            String::new()
        };
        let (sign, color) = mark(run, choice);
        colored(right(format!("{mbs:>5}{cost} {sign}{}", variation(run))), color)
    }

    /// One row for each path and depth; of reads, with the cost of the tool itself if it was measured. Of a mix, reads
    /// and writes have latencies of their own.
    fn random(&self, runs: &[&RunResult], rw: Rw, style: Style) -> String {
        let has_cost = self.cpu_of.is_known();
        let latencies: &[&str] = if rw == Rw::RandRw {
            &["read p50", "read p99", "write p50", "write p99"]
        } else {
            &["p50", "p99"]
        };
        let cost = has_cost.then_some("CPU µs/IO");
        let rest = ["depth", "IOPS"].iter().chain(latencies).copied().chain(cost).chain([""]);
        let header: Vec<Cell> = std::iter::once(Cell::new("path")).chain(rest.map(right)).collect();
        let choice = self.choice(runs);
        let null = self.report.runs.iter().find(|run| run.path == "null" && rw == Rw::RandRead);
        let rows = runs.iter().copied().chain(null).map(|run| {
            let (sign, color) = if run.path == "null" { (' ', None) } else { mark(run, choice.as_ref()) };
            let path = if run.path == "null" { "null (no device)" } else { &run.path };
            let mut cells = vec![run.io_depth.to_string(), digits(rate(run) / f64::from(run.block_bytes))];
            match &run.directions {
                Some(both) if rw == Rw::RandRw => {
                    for latency in [both.read.latency_ns, both.write.latency_ns] {
                        cells.extend([time(latency.p50), time(latency.p99)]);
                    }
                }
                _ => {
                    cells.extend([time(run.latency_ns.p50), time(run.latency_ns.p99)]);
                    cells.extend(std::iter::repeat_n("-".to_owned(), latencies.len() - 2));
                }
            }
            cells.extend(has_cost.then(|| digits(self.cpu_of.per_io_us(run))));
            cells.push(format!("{sign}{}", variation(run)));
            let first = std::iter::once(Cell::new(path));
            first.chain(cells.into_iter().map(right)).map(|cell| colored(cell, color)).collect()
        });
        style.table(&header, &rows.collect::<Vec<_>>(), 2)
    }

    /// One row for each path of writes with a flush after each.
    fn durable(&self, style: Style) -> String {
        let runs: Vec<&RunResult> = self.report.runs.iter().filter(|run| is_durable(run)).collect();
        if runs.is_empty() {
            return String::new();
        }
        let head = ["writes/s", "write p50", "fsync p50", "fsync p99", ""];
        let header: Vec<Cell> = std::iter::once(Cell::new("path")).chain(head.map(right)).collect();
        let choice = self.choice(&runs);
        let rows = runs.iter().copied().filter_map(|run| {
            let (sign, color) = mark(run, choice.as_ref());
            let flush = run.flushes.as_ref()?.latency_ns;
            let cells = [
                digits(rate(run) / f64::from(run.block_bytes)),
                time(run.latency_ns.p50),
                time(flush.p50),
                time(flush.p99),
                format!("{sign}{}", variation(run)),
            ];
            let first = std::iter::once(Cell::new(&run.path));
            Some(first.chain(cells.map(right)).map(|cell| colored(cell, color)).collect())
        });
        let title = style.wrap("Durable writes of 4 KiB: an fsync after each, depth 1", "", "  ");
        format!("\n{title}{}", style.table(&header, &rows.collect::<Vec<_>>(), 1))
    }
}

/// The sign and colour of a run among others.
fn mark(run: &RunResult, choice: Option<&Choice>) -> (char, Option<Color>) {
    match choice {
        _ if !is_ranked(run) => ('m', None),
        Some(choice) if std::ptr::eq(run, choice.fastest) => ('▲', Some(Color::Green)),
        Some(choice) if choice.good.iter().any(|good| std::ptr::eq(*good, run)) => ('△', Some(Color::Green)),
        Some(choice) if std::ptr::eq(run, choice.slowest) => ('▼', Some(Color::Red)),
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
            let text = survey().text(false, Some(width));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            for word in PATHS.into_iter().chain(["IOPS", "p50", "p99", "CPU", "µs/IO", "fsync", "writes/s"])
            {
                assert!(text.contains(word), "{word} at {width}:\n{text}");
            }
        }
        assert!(
            survey().text(false, Some(40)).lines().count() > survey().text(false, Some(120)).lines().count()
        );
    }

    #[test]
    fn a_run_that_memory_served_is_marked_and_not_ranked() {
        let text = survey().text(false, None);
        let line = text.lines().find(|line| line.trim_start().starts_with("4 KiB")).unwrap();
        let cells: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(cells[2..5], ["100", "0.100", "m"], "{text}");
        assert!(cells.contains(&"▲") && text.contains(", m served by"), "{text}");
    }
    #[test]
    fn findings_come_first_and_each_is_headed_by_its_confidence() {
        let text = survey().text(false, None);
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
        let text = survey.text(false, Some(80));
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
        let text = survey.text(false, None);
        assert!(text.contains("of virtual time") && !text.contains("CPU"), "{text}");
    }
}
