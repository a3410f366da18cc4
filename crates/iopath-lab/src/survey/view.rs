//! How a survey looks to people: two tables by block size, one of random reads, the findings. Computes nothing that is
//! not in the results. No line is wider than [`WIDTH`].

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table};

use super::Survey;
use super::compare::{self, Choice, CpuOf, rate};
use super::findings::is_cold;
use super::plan::PATHS;
use crate::result::RunResult;
use crate::size::format_size;
use crate::table::{digits, ruled, time};
use crate::workload::Rw;

/// Columns of text: those of a terminal that nobody has made larger.
const WIDTH: usize = 80;

/// Repeats further apart than this are marked.
const SPREAD_MAX: f64 = 0.10;

const LEGEND: &str = "▲ fastest  △ differs no more than it spreads  ▼ slowest  ~ spread above 10%";

impl Survey {
    /// The whole as text; with colours if it is for a terminal that shows them.
    pub fn text(&self, is_fancy: bool) -> String {
        let mut text = self.heading();
        for (rw, title) in [(Rw::Read, "Sequential reads"), (Rw::Write, "Sequential writes, flush included")]
        {
            let runs = self.runs(rw);
            if !runs.is_empty() {
                let table = self.sequential(&runs, is_fancy);
                let _ = write!(text, "\n{title}: MB/s, CPU s/GiB\n{table}\n");
            }
        }
        let _ = write!(text, "\n{LEGEND}\n\nRandom reads of 4 KiB\n{}\n", self.random(is_fancy));
        text.push_str(&self.caches(is_fancy));
        for left_out in &self.left_out {
            text.push_str(&wrap(&format!("Left out: {left_out}"), "", "  "));
        }
        text.push_str("\nFindings\n");
        for (number, finding) in (1..).zip(&self.report.findings) {
            text.push_str(&wrap(&finding.text, &format!("{number:>2}. "), "    "));
            let evidence = wrap(&finding.evidence, "    ", "    ");
            let (dim, plain) = if is_fancy { ("\x1b[2m", "\x1b[0m") } else { ("", "") };
            let _ = write!(text, "{dim}{evidence}{plain}");
        }
        text.pop();
        text
    }

    /// What was surveyed, and how.
    fn heading(&self) -> String {
        let mut what = String::new();
        if let Some(target) = &self.report.target {
            let kind = if target.scratch { "a scratch file" } else { &target.kind };
            let _ = write!(what, "{kind}, {}", format_size(target.size_bytes));
            let _ = match &target.filesystem {
                Some(filesystem) => write!(what, ", on {filesystem}"),
                None => Ok(()),
            };
            if let Some(disk) = &target.disk {
                let _ = write!(what, ", disk {}", disk.name);
            }
        }
        let cpu = match self.cpu_of {
            CpuOf::Machine => "CPU of the whole machine, less what it used when idle",
            CpuOf::Process => "CPU of this process only, since others use the machine",
        };
        let how = format!(
            "Surveyed: {what}. Medians of up to {} rounds of {} ms, cold; {cpu}. {} s in all.",
            self.rounds,
            self.slice.as_millis(),
            self.took.as_secs()
        );
        wrap(&how, "", "")
    }

    fn runs(&self, rw: Rw) -> Vec<&RunResult> {
        let moves = |run: &&RunResult| is_cold(run) && run.rw == rw.name() && run.path != "null";
        self.report.runs.iter().filter(moves).collect()
    }

    /// Block sizes down, paths across.
    fn sequential(&self, runs: &[&RunResult], is_fancy: bool) -> String {
        let paths: Vec<&str> =
            PATHS.into_iter().filter(|path| runs.iter().any(|run| run.path == *path)).collect();
        let mut blocks: Vec<u32> = runs.iter().map(|run| run.block_bytes).collect();
        blocks.sort_unstable();
        blocks.dedup();
        let choice = Choice::of(runs, self.cpu_of).expect("there are runs");
        let mut table = plain_table(is_fancy);
        table.set_header(std::iter::once("block").chain(paths.iter().copied()).map(right));
        for block in blocks {
            let cell = |path: &&str| {
                let run = runs.iter().find(|run| run.path == **path && run.block_bytes == block);
                run.map_or_else(|| right("-"), |run| self.figure(run, &choice))
            };
            let first = right(format_size(block.into()));
            table.add_row(std::iter::once(first).chain(paths.iter().map(cell)));
        }
        table.trim_fmt()
    }

    /// The kernel's page cache beside iopath's: what is measured of both.
    fn caches(&self, is_fancy: bool) -> String {
        let mut table = plain_table(is_fancy);
        table.set_header(["page caches: MB/s, CPU s/GiB", "kernel-buffered", "iopath-buffered"]);
        let figures = |run: &RunResult| {
            let (mbs, price) = (digits(rate(run) / 1e6), digits(self.cpu_of.price(run)));
            right(format!("{mbs:>6} {price:>6} {}", noise(run)))
        };
        let mut is_empty = true;
        for ours in &self.report.runs {
            let Some(cache) = &ours.cache else { continue };
            let is_alike = |run: &&RunResult| {
                let what = |run: &RunResult| (run.rw.clone(), run.block_bytes, run.warm);
                run.path == "kernel-buffered" && what(run) == what(ours)
            };
            let Some(kernel) = self.report.runs.iter().find(is_alike) else { continue };
            let kind = match (ours.rw.as_str(), ours.warm, cache.borrow) {
                (_, true, false) => "hits",
                (_, true, true) => "hits, ours borrowed",
                ("write", ..) => "writes, flush included",
                _ => "reads",
            };
            let name = format!("{kind}, {}", format_size(ours.block_bytes.into()));
            table.add_row([Cell::new(name), figures(kernel), figures(ours)]);
            is_empty = false;
        }
        if is_empty { String::new() } else { format!("\n{}\n", table.trim_fmt()) }
    }

    fn figure(&self, run: &RunResult, choice: &Choice) -> Cell {
        let (mbs, price) = (digits(rate(run) / 1e6), digits(self.cpu_of.price(run)));
        let (sign, color) = mark(run, choice);
        colored(right(format!("{mbs:>5} {price:>5} {sign}{}", noise(run))), color)
    }

    /// One row for each path and depth, and what the tool itself costs.
    fn random(&self, is_fancy: bool) -> String {
        let runs = self.runs(Rw::RandRead);
        let mut table = plain_table(is_fancy);
        let [first, rest @ ..] = ["path", "depth", "IOPS", "half within", "99% within", "CPU µs each", ""];
        table.set_header(std::iter::once(Cell::new(first)).chain(rest.map(right)));
        let choice = Choice::of(&runs, self.cpu_of);
        let null = self.report.runs.iter().find(|run| run.path == "null");
        for run in runs.iter().copied().chain(null) {
            let (sign, color) = match &choice {
                Some(choice) if run.path != "null" => mark(run, choice),
                _ => (' ', None),
            };
            let path = if run.path == "null" { "null (no device)" } else { &run.path };
            let cells = [
                run.io_depth.to_string(),
                digits(rate(run) / f64::from(run.block_bytes)),
                time(run.latency_ns.p50),
                time(run.latency_ns.p99),
                digits(self.cpu_of.per_io_us(run)),
                format!("{sign}{}", noise(run)),
            ];
            let first = std::iter::once(Cell::new(path));
            table.add_row(first.chain(cells.map(right)).map(|cell| colored(cell, color)));
        }
        table.trim_fmt()
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
fn mark(run: &RunResult, choice: &Choice) -> (char, Option<Color>) {
    if std::ptr::eq(run, choice.fastest) {
        ('▲', Some(Color::Green))
    } else if choice.good.iter().any(|good| std::ptr::eq(*good, run)) {
        ('△', Some(Color::Green))
    } else if std::ptr::eq(run, choice.slowest) {
        ('▼', Some(Color::Red))
    } else {
        (' ', None)
    }
}

fn noise(run: &RunResult) -> char {
    if compare::spread(run).is_some_and(|spread| spread > SPREAD_MAX) { '~' } else { ' ' }
}

/// Breaks text between words; the first line begins with one indent, the others with another.
fn wrap(text: &str, first: &str, rest: &str) -> String {
    let mut lines = String::new();
    let mut line = first.to_owned();
    let mut is_begun = false;
    for word in text.split_whitespace() {
        if is_begun && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push_str(&line);
            lines.push('\n');
            rest.clone_into(&mut line);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines + &line + "\n"
}
