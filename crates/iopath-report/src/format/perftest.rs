//! The table of `blockdev-perftest`: for each block size the seconds of each repetition, the mean and standard
//! deviation of the throughput, and IOPS. As there, MB/s are 2^20 bytes per second, and the deviation has the divisor
//! n. `iopath compare` reads it.
//!
//! A table has the runs that differ only in their block size or direction. The columns of reads begin with R, those of
//! writes with W.

use std::fmt::Write as _;

use super::{Document, Format, View};
use crate::Rw;
use crate::result::{RepeatDirections, RunResult, WorkloadFacts};

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "perftest",
    about: "the table of blockdev-perftest: block size, seconds of each repetition, mean, standard deviation, IOPS",
    is_of_runs: true,
    render,
};

const MIB: f64 = (1u64 << 20) as f64;

/// The width of a column.
const WIDTH: usize = 9;

fn render(document: &dyn Document, _: View) -> String {
    let runs = document.report().map_or(&[][..], |report| &report.runs);
    tables(runs.iter().map(|run| (title(run), run)))
}

/// All conditions of a table. No line of the head begins with a number: these are the rows.
fn title(run: &RunResult) -> String {
    let RunResult { job, path, rw, io_depth, jobs, repeats, .. } = run;
    let job = job.as_ref().map_or_else(String::new, |job| format!("job {}, ", job.name.replace('\n', " ")));
    format!("{job}{path}, {rw}, depth {io_depth}, {jobs} jobs, {} repetitions", repeats.len())
}

/// A table for each title, and a further one with a number for each run whose row another run has already.
pub fn tables<'a>(runs: impl Iterator<Item = (String, &'a RunResult)>) -> String {
    let mut tables: Vec<(String, Vec<&RunResult>)> = Vec::new();
    for (title, run) in runs {
        let has_row = |rows: &[&RunResult]| {
            let letters = letters_of(run);
            let mut same = rows.iter().filter(|row| row.block_bytes == run.block_bytes);
            same.any(|row| letters_of(row).iter().any(|letter| letters.contains(letter)))
        };
        match tables.iter_mut().find(|(known, rows)| *known == title && !has_row(rows)) {
            Some((_, rows)) => rows.push(run),
            None => tables.push((title, vec![run])),
        }
    }
    let text = |(index, (title, runs)): (usize, &(String, Vec<&RunResult>))| {
        let number = match tables[..index].iter().filter(|(known, _)| known == title).count() {
            0 => String::new(),
            before => format!(" ({})", before + 1),
        };
        format!("# {title}{number}\n{}", table(runs))
    };
    tables.iter().enumerate().map(text).collect::<Vec<_>>().join("\n")
}

/// A table without a title, of runs that differ in their block size or direction. The largest block is first, as in the
/// classic table. The directions have the order of the runs.
pub fn table(runs: &[&RunResult]) -> String {
    let mut letters: Vec<char> = Vec::new();
    let mut blocks: Vec<u32> = runs.iter().map(|run| run.block_bytes).collect();
    blocks.sort_unstable_by(|a, b| b.cmp(a));
    blocks.dedup();
    for letter in runs.iter().flat_map(|run| letters_of(run)) {
        if !letters.contains(letter) {
            letters.push(*letter);
        }
    }
    // A cut-off run has fewer repetitions.
    let repeats = runs.iter().map(|run| run.repeats.len()).min().unwrap_or(0);
    let mut names = format!("{:>WIDTH$}", "blocksize");
    let mut units = format!("{:>WIDTH$}", "(bytes)");
    for letter in &letters {
        let figures = [
            (format!("{letter}(avg,"), "MB/s)"),
            (format!("{letter}(std"), "MB/s)"),
            (letter.to_string(), "(IOPS)"),
        ];
        for (name, unit) in std::iter::repeat_n((letter.to_string(), "(s)"), repeats).chain(figures) {
            let _ = write!(names, " {name:>WIDTH$}");
            let _ = write!(units, " {unit:>WIDTH$}");
        }
    }
    let mut table = format!("{names}\n{units}\n");
    for block in blocks {
        let find = |letter: &char| {
            runs.iter().find(|run| run.block_bytes == block && letters_of(run).contains(letter))
        };
        // A row without one of its directions would have figures under the wrong heads.
        let Some(of_letters) = letters.iter().map(find).collect::<Option<Vec<_>>>() else { continue };
        let _ = write!(table, "{block:>WIDTH$}");
        for (letter, run) in letters.iter().zip(of_letters) {
            for number in numbers(run, *letter, repeats) {
                let _ = write!(table, " {:>WIDTH$}", rounded(number));
            }
        }
        table.push('\n');
    }
    table
}

/// The directions of a run.
fn letters_of(run: &RunResult) -> &'static [char] {
    if run.directions.as_ref().is_some_and(|directions| directions.trim.is_none()) {
        return &['W', 'R'];
    }
    let reads = run.rw.parse().is_ok_and(Rw::reads);
    let has_writes = run.workload.as_ref().is_some_and(WorkloadFacts::has_no_reads);
    if reads && !has_writes { &['R'] } else { &['W'] }
}

/// The seconds of each repetition, the mean and standard deviation of the rates in MiB/s, and the transfers per second.
fn numbers(run: &RunResult, letter: char, repeats: usize) -> Vec<f64> {
    let rate = |index: usize| {
        let repeat = &run.repeats[index];
        match repeat.directions {
            Some(RepeatDirections { read, .. }) if letter == 'R' => read.bytes_per_second,
            Some(RepeatDirections { write, .. }) => write.bytes_per_second,
            None => repeat.bytes_per_second,
        }
    };
    let rates: Vec<f64> = (0..run.repeats.len()).map(|index| rate(index) / MIB).collect();
    let mean = rates.iter().sum::<f64>() / rates.len() as f64;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / rates.len() as f64;
    let iops = mean * MIB / f64::from(run.block_bytes);
    let seconds = run.repeats.iter().take(repeats).map(|repeat| repeat.seconds);
    seconds.chain([mean, variance.sqrt(), iops]).collect()
}

/// Three decimals, and more for small numbers: they state seconds and rates to four digits.
fn rounded(number: f64) -> String {
    let decimals = if number == 0.0 || number >= 1.0 { 3 } else { 6 };
    format!("{number:.decimals$}")
}
