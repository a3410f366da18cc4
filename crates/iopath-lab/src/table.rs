//! Results as a table for people. Formats; computes nothing.

use std::env;
use std::io::{self, IsTerminal};

use comfy_table::presets::UTF8_HORIZONTAL_ONLY;
use comfy_table::{CellAlignment, ContentArrangement, Table};

use crate::result::{RunResult, Spread};
use crate::size::format_size;

const COLUMNS: [&str; 13] = [
    "path",
    "rw",
    "block",
    "depth",
    "jobs",
    "MB/s",
    "±95%",
    "IOPS",
    "p50",
    "p99",
    "CPU s/GiB",
    "CPU µs/IO",
    "device I/O",
];

/// The first of [`COLUMNS`] that holds numbers.
const FIRST_NUMBER: usize = 2;

/// Whether colours and moving bars may be used on a stream: a terminal, unless `NO_COLOR` is set to anything
/// (no-color.org) or the terminal is `dumb`. The one place that decides this.
pub fn is_fancy(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// One line for each result, units in the head: MB/s is 10^6 bytes a second, GiB 2^30 bytes; `±95%` is half the 95%
/// interval of MB/s over MB/s; device I/O is the mean size of the disk's requests.
pub fn table(runs: &[RunResult]) -> String {
    let mut table = Table::new();
    table.load_preset(UTF8_HORIZONTAL_ONLY).set_header(COLUMNS);
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for run in runs {
        table.add_row(cells(run));
    }
    for column in table.column_iter_mut().skip(FIRST_NUMBER) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn cells(run: &RunResult) -> [String; COLUMNS.len()] {
    [
        run.path.clone(),
        run.rw.clone(),
        format_size(run.block_bytes.into()),
        run.io_depth.to_string(),
        run.jobs.to_string(),
        digits(run.bytes_per_second.mean / 1e6),
        interval(&run.bytes_per_second),
        digits(run.iops.mean),
        time(run.latency_ns.p50),
        time(run.latency_ns.p99),
        digits(run.cpu.seconds_per_gib),
        digits(run.cpu.microseconds_per_io),
        run.device.and_then(|device| device.mean_io_bytes()).map_or_else(|| "-".to_owned(), mean_size),
    ]
}

/// Three digits, or all before the point.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Nanoseconds in the unit that leaves few digits.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(ns as f64 / 1e6)),
        _ => format!("{} s", digits(ns as f64 / 1e9)),
    }
}

fn interval(spread: &Spread) -> String {
    let Some([low, high]) = spread.ci95 else { return "-".to_owned() };
    format!("{:.1}%", (high - low) / 2.0 / spread.mean * 100.0)
}

fn mean_size(bytes: f64) -> String {
    if bytes < 1e3 { format!("{bytes:.0} bytes") } else { format!("{} KiB", digits(bytes / 1024.0)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<String> = [0.0123, 1.234, 12.34, 123.4, 123_456.7].into_iter().map(digits).collect();
        assert_eq!(shown, ["0.012", "1.23", "12.3", "123", "123457"]);
        let shown: Vec<String> = [999, 1_234, 12_345_678, 3_000_000_000].into_iter().map(time).collect();
        assert_eq!(shown, ["999 ns", "1.23 µs", "12.3 ms", "3.00 s"]);
    }

    #[test]
    fn a_pipe_is_not_fancy() {
        let (reader, _writer) = io::pipe().unwrap();
        assert!(!is_fancy(&std::fs::File::from(std::os::fd::OwnedFd::from(reader))));
    }
}
