//! The table of `blockdev-perftest`: for each block size the seconds of each repetition, the mean and standard
//! deviation of the throughput, and IOPS. As there, MB/s are 2^20 bytes per second, and the deviation has the divisor
//! n.
//!
//! A table has the runs that differ only in their block size. The columns of reads begin with R, those of writes with
//! W.

use std::fmt::Write as _;

use crate::Rw;
use crate::result::{RepeatDirections, RunResult};

use super::{Document, Format, View};

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
    let mut tables: Vec<(String, Vec<&RunResult>)> = Vec::new();
    for run in runs {
        let title = title(run);
        match tables.iter_mut().find(|(known, _)| *known == title) {
            Some((_, rows)) => rows.push(run),
            None => tables.push((title, vec![run])),
        }
    }
    let texts: Vec<String> = tables
        .into_iter()
        .map(|(title, mut rows)| {
            // The largest block is first, as in the classic table.
            rows.sort_by_key(|run| std::cmp::Reverse(run.block_bytes));
            table(&title, &rows)
        })
        .collect();
    texts.join("\n")
}

/// All conditions of a table. No line of the head begins with a number: these are the rows.
fn title(run: &RunResult) -> String {
    let RunResult { job, path, rw, io_depth, jobs, repeats, .. } = run;
    let job = job.as_ref().map_or_else(String::new, |job| format!("job {}, ", job.name.replace('\n', " ")));
    format!("# {job}{path}, {rw}, depth {io_depth}, {jobs} jobs, {} repetitions", repeats.len())
}

fn table(title: &str, runs: &[&RunResult]) -> String {
    let letters = letters(runs[0]);
    let mut head = [format!("{:>WIDTH$}", "blocksize"), format!("{:>WIDTH$}", "(bytes)")];
    for letter in letters {
        let repeats = runs[0].repeats.len();
        let names = [format!("{letter}(avg,"), format!("{letter}(std"), letter.to_string()];
        for (name, unit) in std::iter::repeat_n((letter.to_string(), "(s)"), repeats)
            .chain(names.into_iter().zip(["MB/s)", "MB/s)", "(IOPS)"]))
        {
            let _ = write!(head[0], " {name:>WIDTH$}");
            let _ = write!(head[1], " {unit:>WIDTH$}");
        }
    }
    let mut table = format!("{title}\n{}\n{}\n", head[0], head[1]);
    for run in runs {
        let _ = write!(table, "{:>WIDTH$}", run.block_bytes);
        for letter in letters {
            for number in numbers(run, *letter) {
                let _ = write!(table, " {:>WIDTH$}", rounded(number));
            }
        }
        table.push('\n');
    }
    table
}

/// The directions of a run.
fn letters(run: &RunResult) -> &'static [char] {
    if run.directions.as_ref().is_some_and(|directions| directions.trim.is_none()) {
        return &['W', 'R'];
    }
    let reads = run.rw.parse().is_ok_and(Rw::reads);
    let has_writes = run.workload.as_ref().is_some_and(|facts| facts.read_percent == Some(0));
    if reads && !has_writes { &['R'] } else { &['W'] }
}

/// The seconds of each repetition, the mean and standard deviation of the rates in MiB/s, and the transfers per second.
fn numbers(run: &RunResult, letter: char) -> Vec<f64> {
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
    run.repeats.iter().map(|repeat| repeat.seconds).chain([mean, variance.sqrt(), iops]).collect()
}

/// Three decimals, and more for small numbers: they state seconds and rates to four digits.
fn rounded(number: f64) -> String {
    let decimals = if number == 0.0 || number >= 1.0 { 3 } else { 6 };
    format!("{number:.decimals$}")
}
