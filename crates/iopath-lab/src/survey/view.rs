//! Formats a survey: two tables by block size, one of random reads, one of page caches, the findings. Does not interpret
//! the results.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table};

use super::Survey;
use super::compare::{self, Choice, CpuOf, rate};
use super::figures::{is_ranked, is_table_run};
use super::plan::PATHS;
use crate::result::RunResult;
use crate::size::format_size;
use crate::table::{self, digits, ruled, time};
use crate::warnings::CV_MAX;
use crate::workload::Rw;

/// The width without a terminal, and the range for paragraphs: longer lines are hard to read.
const WIDTH: usize = 80;
const WIDTH_MIN: usize = 40;
const WIDTH_MAX: usize = 100;

const LEGEND: &str = "▲ fastest, △ not significantly different, ▼ slowest, ~ CV > 10%";
const LEGEND_MEMORY: &str = ", m served by memory, not ranked";

impl Survey {
    /// The report as text for `width` columns (80 if none is given), with colours on a terminal that shows them.
    pub fn text(&self, is_fancy: bool, width: Option<u16>) -> String {
        let style = Style { is_fancy, width: width.map_or(WIDTH, usize::from).max(WIDTH_MIN) };
        let mut text = style.wrap(&self.heading(), "", "");
        for (rw, title) in [(Rw::Read, "Sequential reads"), (Rw::Write, "Sequential writes, flush included")]
        {
            let runs = self.runs(rw);
            if !runs.is_empty() {
                let table = self.sequential(&runs, style);
                let _ = write!(text, "\n{title}: MB/s, CPU s/GiB\n{table}");
            }
        }
        let _ = write!(
            text,
            "\n{}\nRandom reads of 4 KiB\n{}",
            style.wrap(&self.legend(), "", "  "),
            self.random(style)
        );
        text.push_str(&self.caches(style));
        for left_out in &self.left_out {
            text.push_str(&style.wrap(&format!("Left out: {left_out}"), "", "  "));
        }
        text.push_str("\nFindings\n");
        for (number, finding) in (1..).zip(&self.report.findings) {
            text.push_str(&style.wrap(&finding.text, &format!("{number:>2}. "), "    "));
            let evidence = style.wrap(&finding.evidence, "    ", "    ");
            let (dim, plain) = if is_fancy { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
            let _ = write!(text, "{dim}{evidence}{plain}");
        }
        text.pop();
        text
    }

    /// The target and the method.
    fn heading(&self) -> String {
        let mut target = String::new();
        if let Some(facts) = &self.report.target {
            let kind = if facts.scratch { "scratch file" } else { &facts.kind };
            let _ = write!(target, "{kind} of {}", format_size(facts.size_bytes));
            if let Some(filesystem) = &facts.filesystem {
                let _ = write!(target, " on {filesystem}");
            }
            if let Some(disk) = &facts.disk {
                let _ = write!(target, ", disk {}", disk.name);
            }
        }
        let cpu = match self.cpu_of {
            CpuOf::Machine => "of the whole machine, less its idle load",
            CpuOf::Process => "of this process only, because other programs use the machine",
        };
        format!(
            "Target: {target}. Figures: medians of up to {} rounds of {} ms, cold. CPU time: {cpu}. Duration: {} s.",
            self.rounds,
            self.slice.as_millis(),
            self.took.as_secs()
        )
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
        let (mbs, cost) = (digits(rate(run) / 1e6), digits(self.cpu_of.cost(run)));
        let (sign, color) = mark(run, choice);
        colored(right(format!("{mbs:>5} {cost:>5} {sign}{}", variation(run))), color)
    }

    /// One row for each path and depth, and the cost of the tool itself.
    fn random(&self, style: Style) -> String {
        let runs = self.runs(Rw::RandRead);
        let [first, rest @ ..] = ["path", "depth", "IOPS", "p50", "p99", "CPU µs/IO", ""];
        let header: Vec<Cell> = std::iter::once(Cell::new(first)).chain(rest.map(right)).collect();
        let choice = self.choice(&runs);
        let null = self.report.runs.iter().find(|run| run.path == "null");
        let rows = runs.iter().copied().chain(null).map(|run| {
            let (sign, color) = if run.path == "null" { (' ', None) } else { mark(run, choice.as_ref()) };
            let path = if run.path == "null" { "null (no device)" } else { &run.path };
            let cells = [
                run.io_depth.to_string(),
                digits(rate(run) / f64::from(run.block_bytes)),
                time(run.latency_ns.p50),
                time(run.latency_ns.p99),
                digits(self.cpu_of.per_io_us(run)),
                format!("{sign}{}", variation(run)),
            ];
            let first = std::iter::once(Cell::new(path));
            first.chain(cells.map(right)).map(|cell| colored(cell, color)).collect()
        });
        style.table(&header, &rows.collect::<Vec<_>>(), 2)
    }
}

/// The form of the output.
#[derive(Debug, Clone, Copy)]
struct Style {
    is_fancy: bool,
    /// In columns of text.
    width: usize,
}

impl Style {
    /// A table. If it is wider than the output, its columns continue in further parts below; each part has the first `keys`
    /// columns.
    fn table(self, header: &[Cell], rows: &[Vec<Cell>], keys: usize) -> String {
        let mut text = String::new();
        let mut first = keys;
        while first < header.len() {
            let part = |end: usize, is_fancy: bool| {
                let columns: Vec<usize> = (0..keys).chain(first..end).collect();
                let pick =
                    |cells: &[Cell]| columns.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>();
                let mut table = plain_table(is_fancy);
                table.set_header(pick(header)).add_rows(rows.iter().map(|row| pick(row)));
                table.trim_fmt()
            };
            let widest = |table: &str| table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
            let fits = |end: &usize| widest(&part(*end, false)) <= self.width;
            let end = (first + 1..=header.len()).rev().find(fits).unwrap_or(first + 1);
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&part(end, self.is_fancy));
            text.push('\n');
            first = end;
        }
        text
    }

    /// Breaks text between words. The first line begins with one indent, the others with another.
    fn wrap(self, text: &str, first: &str, rest: &str) -> String {
        table::wrap(text, first, rest, self.width.min(WIDTH_MAX))
    }
}

fn plain_table(is_fancy: bool) -> Table {
    let mut table = ruled();
    if is_fancy {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    table
}

fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

fn colored(cell: Cell, color: Option<Color>) -> Cell {
    match color {
        Some(color) => cell.fg(color),
        None => cell,
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

    use super::super::fixtures::run;
    use super::*;
    use crate::result::{Finding, Host, Report, ServedBy};

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
            runs.push(run(path, Rw::RandRead, 4096, 1, &[10.0, 10.1], 0.1));
        }
        runs[0].served_by = Some(ServedBy::Memory);
        let text = "a sentence of many words that does not fit on one line of a narrow terminal".to_owned();
        let finding = Finding { id: "best".to_owned(), text: text.clone(), evidence: text };
        Survey {
            report: Report { findings: vec![finding], ..Report::new(Some(host), None, runs) },
            left_out: Vec::new(),
            rounds: 3,
            slice: Duration::from_millis(120),
            cpu_of: CpuOf::Process,
            took: Duration::from_secs(90),
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_and_no_column_is_lost() {
        for width in [40, 60, 80, 120] {
            let text = survey().text(false, Some(width));
            for line in text.lines() {
                assert!(line.chars().count() <= usize::from(width), "{width}: {line}");
            }
            for word in PATHS.into_iter().chain(["IOPS", "p50", "p99", "CPU µs/IO"]) {
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
}
