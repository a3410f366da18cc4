//! A sweep for other programs: the records of CSV, and the classic table of block sizes (`blockdev-perftest`). JSON is
//! the results file.

use std::fmt::Write as _;

use crate::result::RunResult;
use crate::section::{Columns, Table};
use crate::stats::Summary;

use super::{Cell, SweepFile};

/// The unit of rates in the classic table, printed as MB/s.
const MIB: f64 = (1u64 << 20) as f64;

/// The direction of a run, as the columns of tables name it.
fn direction(run: &RunResult) -> [&'static str; 2] {
    if run.rw.contains("write") { ["write", "W"] } else { ["read", "R"] }
}

/// Mean and deviation of the repetitions, in MiB/s.
fn mib_per_second(run: &RunResult) -> [f64; 2] {
    let rates: Vec<f64> = run.repeats.iter().map(|repeat| repeat.bytes_per_second / MIB).collect();
    Summary::of(&rates).map_or([0.0; 2], |summary| [summary.mean, summary.stddev.unwrap_or(0.0)])
}

impl SweepFile {
    /// One record for each measured cell: the values of all axes, the block size, the seconds of each repetition, mean
    /// and standard deviation of the throughput in MiB/s, IOPS. `iopath compare` reads them as CSV.
    pub(super) fn cell_records(&self) -> Table {
        let repeats = self.runs().map(|(_, run)| run.repeats.len()).max().unwrap_or(0);
        let mut columns = Columns::of(self.runs());
        for (index, axis) in self.axes.iter().enumerate().filter(|(_, axis)| axis.name != "bs") {
            columns = columns.record(&axis.name, |(cell, _)| &cell.values[index]);
        }
        columns = columns.record("block_bytes", |(_, run)| run.block_bytes);
        for name in ["read", "write"] {
            for number in 0..repeats {
                columns = columns.record(format!("{name}{}_s", number + 1), |(_, run)| {
                    let repeat = run.repeats.get(number).filter(|_| direction(run)[0] == name);
                    repeat.map(|repeat| format!("{:.6}", repeat.seconds))
                });
            }
        }
        let rate =
            |index: usize| move |(_, run): (&Cell, &RunResult)| format!("{:.3}", mib_per_second(run)[index]);
        columns
            .record("mean_mib_per_s", rate(0))
            .record("stddev_mib_per_s", rate(1))
            .record("iops", |(_, run)| format!("{:.3}", run.iops.mean))
            .into()
    }

    /// The classic tables of block sizes, one for each combination of the other values: bytes, the seconds of each
    /// repetition, mean and standard deviation of the throughput, IOPS. `iopath compare` reads them.
    pub fn perftest(&self) -> String {
        let mut tables: Vec<(String, Vec<&RunResult>)> = Vec::new();
        for (cell, run) in self.runs() {
            let values = self.axes.iter().zip(&cell.values).filter(|(axis, _)| axis.name != "bs");
            let title =
                values.map(|(axis, value)| format!("{}={value}", axis.name)).collect::<Vec<_>>().join(" ");
            match tables.iter_mut().find(|(known, _)| *known == title) {
                Some((_, runs)) => runs.push(run),
                None => tables.push((title, vec![run])),
            }
        }
        let text: Vec<String> = tables.iter_mut().map(|(title, runs)| classic(title, runs)).collect();
        text.join("\n\n")
    }

    fn runs(&self) -> impl Iterator<Item = (&Cell, &RunResult)> {
        self.cells.iter().filter_map(|cell| Some((cell, cell.run.as_ref()?)))
    }
}

/// One classic table. The largest block is in the first line.
fn classic(title: &str, runs: &mut [&RunResult]) -> String {
    runs.sort_by_key(|run| std::cmp::Reverse(run.block_bytes));
    let repeats = runs.iter().map(|run| run.repeats.len()).max().unwrap_or(0);
    let letter = runs.first().map_or("R", |run| direction(run)[1]);
    let mut text = format!("# {title}\n{:>10}", "blocksize");
    for _ in 0..repeats {
        let _ = write!(text, " {letter:>8}");
    }
    let _ = write!(
        text,
        " {:>9} {:>9} {letter:>9}\n{:>10}",
        format!("{letter}(avg,"),
        format!("{letter}(std,"),
        "(bytes)"
    );
    for _ in 0..repeats {
        let _ = write!(text, " {:>8}", "(s)");
    }
    let _ = write!(text, " {:>9} {:>9} {:>9}", "MB/s)", "MB/s)", "(IOPS)");
    for run in runs.iter().filter(|run| run.repeats.len() == repeats) {
        let _ = write!(text, "\n{:>10}", run.block_bytes);
        for repeat in &run.repeats {
            // Short repetitions need more digits than the classic three.
            let decimals = if repeat.seconds < 1.0 { 6 } else { 3 };
            let _ = write!(text, " {:>8.decimals$}", repeat.seconds);
        }
        let [mean, stddev] = mib_per_second(run);
        let _ = write!(text, " {mean:>9.3} {stddev:>9.3} {:>9.3}", run.iops.mean);
    }
    text
}
