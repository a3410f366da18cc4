//! A sweep for other programs: the records of CSV, and the classic table of block sizes (`blockdev-perftest`). JSON is
//! the results file.

use crate::format::perftest;
use crate::result::RunResult;
use crate::section::{Columns, Table};
use crate::stats::Summary;

use super::{Cell, SweepFile};

/// The unit of rates in the classic table, printed as MB/s.
const MIB: f64 = (1u64 << 20) as f64;

/// The direction of a run in the names of columns.
fn direction(run: &RunResult) -> &'static str {
    if run.rw.contains("write") { "write" } else { "read" }
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
                    let repeat = run.repeats.get(number).filter(|_| direction(run) == name);
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
        perftest::tables(self.runs().map(|(cell, run)| {
            let values = self.axes.iter().zip(&cell.values).filter(|(axis, _)| axis.name != "bs");
            let values = values.map(|(axis, value)| format!("{}={value}", axis.name));
            (values.collect::<Vec<_>>().join(" "), run)
        }))
    }

    fn runs(&self) -> impl Iterator<Item = (&Cell, &RunResult)> {
        self.cells.iter().filter_map(|cell| Some((cell, cell.run.as_ref()?)))
    }
}
