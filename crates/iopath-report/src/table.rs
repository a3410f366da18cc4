//! Formats results as a table of text.

mod ends;

use std::env;
use std::fmt::Write as _;
use std::io::IsTerminal;

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, Table, TableComponent};

use crate::marks::{Mark, marks};
use crate::result::{
    Clock, Cpu, Directions, FlushResult, GroupResult, ModelHostFacts, Report, RunResult, Skipped, Spread,
    TargetResult,
};
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

/// The one of [`COLUMNS`] by which runs are compared.
const THROUGHPUT: usize = 5;

/// The explanation of the marks.
const LEGEND: &str = concat!(
    "\n\n",
    "▲ fastest of its pattern, △ not significantly slower, ▼ slowest, ▽ not significantly faster; 95%, in pairs by round"
);

/// Whether a stream may have colours and progress bars: a terminal, unless `NO_COLOR` is set and not empty
/// (no-color.org) or the terminal is `dumb`. All output uses this function.
pub fn is_fancy(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// One line for each result, with units in the head. MB/s is 10^6 bytes per second, GiB 2^30 bytes. `±95%` is half the
/// 95% confidence interval of MB/s, divided by MB/s. `device I/O` is the mean size of the disk's requests, `-` without
/// requests.
///
/// If only a sample of latencies was measured, a line below the table states it.
///
/// If a line is wider than `width`, each result has a column instead.
pub fn table(runs: &[RunResult], width: Option<u16>) -> String {
    let mut rows: Vec<_> = runs.iter().map(cells).collect();
    let mut columns = COLUMNS;
    let mut legend = "";
    if runs.iter().any(|run| run.job.is_some()) {
        columns[0] = "job";
    } else if runs.len() > 1 {
        legend = mark(runs, &mut rows);
    }
    let lines = one_line_each(&columns, &rows);
    let widest = lines.lines().map(|line| line.chars().count()).max();
    let table =
        if widest > width.map(usize::from).or(widest) { one_column_each(&columns, &rows) } else { lines };
    let notes = legend.to_owned() + &sampling(runs) + &in_virtual_time(runs);
    table + &directions(runs) + &targets(runs) + &wrapped(&notes, width)
}

/// Marks the throughput of the best and the worst. Returns the explanation.
fn mark(runs: &[RunResult], rows: &mut [[String; COLUMNS.len()]]) -> &'static str {
    let marks = marks(runs);
    if marks.iter().all(|mark| *mark == Mark::Alone) {
        return "";
    }
    for (row, mark) in rows.iter_mut().zip(marks) {
        row[THROUGHPUT].push(' ');
        row[THROUGHPUT].push(mark.sign());
    }
    LEGEND
}

/// [`table`] of all runs of a report, the combinations that were skipped, and a table of the groups of several jobs.
pub fn report_table(report: &Report, width: Option<u16>) -> String {
    let mut table = ruled();
    table.set_header(["group", "MB/s", "±95%", "IOPS", "p50", "p99", "seconds", "CPU s/GiB", "jobs"]);
    let rows: Vec<_> = report.groups.iter().filter(|group| group.jobs.len() > 1).collect();
    for GroupResult { number, jobs, seconds, bytes_per_second, iops, latency_ns, cpu, .. } in &rows {
        table.add_row([
            number.to_string(),
            digits(bytes_per_second.mean / 1e6),
            interval(bytes_per_second),
            digits(iops.mean),
            time(latency_ns.p50),
            time(latency_ns.p99),
            digits(*seconds),
            cpu.as_ref().map_or_else(|| "-".to_owned(), |cpu| digits(cpu.seconds_per_gib)),
            jobs.join(", "),
        ]);
    }
    for column in table.column_iter_mut().skip(1).take(7) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let groups = if rows.is_empty() { String::new() } else { format!("\n\n{}", table.trim_fmt()) };
    let skipped =
        report.skipped.iter().map(|Skipped { workload, reason }| format!("\nskipped: {workload}: {reason}"));
    let skipped: String = skipped.collect();
    let skipped = if skipped.is_empty() { skipped } else { format!("\n{skipped}") };
    let ends = wrapped(&(ends::steady(&report.runs) + &ends::latency_targets(&report.runs)), width);
    self::table(&report.runs, width) + &groups + &verified(&report.runs) + &ends + &wrapped(&skipped, width)
}

/// A run among others, in words.
pub fn name(run: &RunResult) -> String {
    let RunResult { path, rw, block_bytes, io_depth, jobs, .. } = run;
    match &run.job {
        Some(job) => format!("job {}", job.name),
        None => {
            format!("{path}, {rw}, {}, depth {io_depth}, {jobs} jobs", format_size((*block_bytes).into()))
        }
    }
}

/// A line for each run that verifies its data.
fn verified(runs: &[RunResult]) -> String {
    let mut lines = String::new();
    for run in runs {
        let Some(verify) = &run.verify else { continue };
        let name = run.job.as_ref().map_or(&run.path, |job| &job.name);
        let faults = match verify.faults() {
            0 => "no fault".to_owned(),
            _ => format!(
                "{} lost, {} stale, {} torn, {} misdirected, {} corrupt",
                verify.lost, verify.stale, verify.torn, verify.misdirected, verify.corrupt
            ),
        };
        let blocks = verify.blocks;
        let bytes = format_size(verify.bytes);
        lines.extend(["\nverified ", name, &format!(": {blocks} blocks, {bytes}: {faults}")]);
    }
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

/// A table of reads, writes and trims of the runs with at least two of them, and of flushes between transfers.
fn directions(runs: &[RunResult]) -> String {
    let mut table = ruled();
    let first = if runs.iter().any(|run| run.job.is_some()) { "job" } else { "path" };
    table.set_header([first, "direction", "MB/s", "±95%", "IOPS", "p50", "p99"]);
    for run in runs {
        for (name, direction) in run.directions.iter().flat_map(Directions::each) {
            table.add_row([
                run.job.as_ref().map_or(&run.path, |job| &job.name).clone(),
                format!("{name}s"),
                digits(direction.bytes_per_second.mean / 1e6),
                interval(&direction.bytes_per_second),
                digits(direction.iops.mean),
                time(direction.latency_ns.p50),
                time(direction.latency_ns.p99),
            ]);
        }
        if let Some(FlushResult { count, latency_ns, .. }) = &run.flushes {
            table.add_row([
                run.job.as_ref().map_or(&run.path, |job| &job.name).clone(),
                "flushes".to_owned(),
                "-".to_owned(),
                "-".to_owned(),
                digits(*count as f64 / run.seconds),
                time(latency_ns.p50),
                time(latency_ns.p99),
            ]);
        }
    }
    for column in table.column_iter_mut().skip(FIRST_NUMBER) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if table.row_count() == 0 { String::new() } else { format!("\n\n{}", table.trim_fmt()) }
}

/// A table of the targets of a run on several.
fn targets(runs: &[RunResult]) -> String {
    let mut table = ruled();
    table.set_header(["target", "MB/s", "±95%", "IOPS", "p50", "p99", "seconds", "device I/O"]);
    let rows: Vec<_> = runs.iter().flat_map(|run| &run.targets).collect();
    for TargetResult { target, seconds, bytes_per_second, iops, latency_ns, device, .. } in &rows {
        table.add_row([
            target.clone(),
            digits(bytes_per_second.mean / 1e6),
            interval(bytes_per_second),
            digits(iops.mean),
            time(latency_ns.p50),
            time(latency_ns.p99),
            digits(*seconds),
            device.and_then(|device| device.mean_io_bytes()).map_or_else(|| "-".to_owned(), mean_size),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n\n{}", table.trim_fmt());
    for end in runs.iter().filter_map(|run| run.targets_end) {
        let _ = write!(
            text,
            "\nfirst done {} s, last done {} s, skew {} s; Jain's index of the throughputs {:.4}",
            digits(end.first_done_seconds),
            digits(end.last_done_seconds),
            digits(end.skew_seconds),
            end.jain
        );
    }
    text
}

/// Lines about the sampling of latencies.
fn sampling(runs: &[RunResult]) -> String {
    let mut every: Vec<u32> = runs.iter().map(|run| run.latency_every).filter(|&every| every > 1).collect();
    every.sort_unstable();
    every.dedup();
    let lines = every.iter().map(|every| {
        format!("\n\np50, p99: one I/O in {every}, drawn at random, was timed; other columns count all I/Os")
    });
    lines.collect()
}

/// The clock, if it is not that of this machine, and the modelled host.
fn in_virtual_time(runs: &[RunResult]) -> String {
    let Some(run) = runs.iter().find(|run| run.clock == Clock::Virtual) else { return String::new() };
    let text = "\n\nvirtual time: the target is a model, and the CPU cost of this machine does not count";
    let host = run.model_host.as_ref().map(|ModelHostFacts { name, cpus, idle }| {
        format!("\nCPU cost: that of the modelled host {name}; {:.1}% of its {cpus} CPUs idle", idle * 100.0)
    });
    text.to_owned() + &host.unwrap_or_default()
}

fn one_line_each(columns: &[&str; COLUMNS.len()], rows: &[[String; COLUMNS.len()]]) -> String {
    let mut table = ruled();
    table.set_header(columns).add_rows(rows);
    for column in table.column_iter_mut().skip(FIRST_NUMBER) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

fn one_column_each(columns: &[&str; COLUMNS.len()], rows: &[[String; COLUMNS.len()]]) -> String {
    let mut table = ruled();
    for (index, name) in columns.iter().enumerate() {
        table.add_row(std::iter::once(*name).chain(rows.iter().map(|row| row[index].as_str())));
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// A table with a rule below its head and no other rules.
pub fn ruled() -> Table {
    let mut table = Table::new();
    table.load_preset(NOTHING).set_style(TableComponent::HeaderLines, '─');
    table
}

/// The width of text without a terminal, in characters.
pub const WIDTH: u16 = 80;

/// The width of the output in characters: the environment variable `COLUMNS` if set, else the width of the terminal on
/// stdout, else `WIDTH`.
pub fn terminal_width() -> u16 {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    columns.filter(|columns| *columns > 0).or_else(|| Table::new().width()).unwrap_or(WIDTH)
}

fn cells(run: &RunResult) -> [String; COLUMNS.len()] {
    [
        run.job.as_ref().map_or(&run.path, |job| &job.name).clone(),
        run.rw.clone(),
        format_size(run.block_bytes.into()),
        run.io_depth.to_string(),
        run.jobs.to_string(),
        digits(run.bytes_per_second.mean / 1e6),
        interval(&run.bytes_per_second),
        digits(run.iops.mean),
        time(run.latency_ns.p50),
        time(run.latency_ns.p99),
        cost(run, |cpu| cpu.seconds_per_gib),
        cost(run, |cpu| cpu.microseconds_per_io),
        run.device.and_then(|device| device.mean_io_bytes()).map_or_else(|| "-".to_owned(), mean_size),
    ]
}

/// A CPU cost; `-` in virtual time.
fn cost(run: &RunResult, of: fn(&Cpu) -> f64) -> String {
    run.cpu.as_ref().map_or_else(|| "-".to_owned(), |cpu| digits(of(cpu)))
}

/// Three digits, or all digits before the decimal point.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A time in nanoseconds, with three digits in the largest suitable unit.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(ns as f64 / 1e6)),
        _ => format!("{} s", digits(ns as f64 / 1e9)),
    }
}

/// Half the 95% confidence interval, divided by the mean.
pub fn interval(spread: &Spread) -> String {
    let Some([low, high]) = spread.ci95 else { return "-".to_owned() };
    format!("{:.1}%", (high - low) / 2.0 / spread.mean * 100.0)
}

/// A mean size in bytes: bytes below 1000, and KiB with three digits above.
pub fn mean_size(bytes: f64) -> String {
    if bytes < 1e3 { format!("{bytes:.0} bytes") } else { format!("{} KiB", digits(bytes / 1024.0)) }
}

/// The lines of a text, each of at most `width` columns.
pub fn wrapped(text: &str, width: Option<u16>) -> String {
    let Some(width) = width.map(usize::from) else { return text.to_owned() };
    let fitted = |line: &str| match line.chars().count() {
        chars if chars > width => wrap(line, "", "  ", width).trim_end().to_owned(),
        _ => line.to_owned(),
    };
    text.split('\n').map(fitted).collect::<Vec<_>>().join("\n")
}

/// Breaks a text between words into lines of at most `width` columns. The first line begins with `first`, the others
/// with `rest`.
pub fn wrap(text: &str, first: &str, rest: &str, width: usize) -> String {
    let (mut lines, mut line, mut is_begun) = (String::new(), first.to_owned(), false);
    for word in text.split_whitespace() {
        if is_begun && line.chars().count() + 1 + word.chars().count() > width {
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

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::result::{Device, Latency};

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<String> = [0.0123, 1.234, 12.34, 123.4, 123_456.7].into_iter().map(digits).collect();
        assert_eq!(shown, ["0.012", "1.23", "12.3", "123", "123457"]);
        let shown: Vec<String> = [999, 1_234, 12_345_678, 3_000_000_000].into_iter().map(time).collect();
        assert_eq!(shown, ["999 ns", "1.23 µs", "12.3 ms", "3.00 s"]);
    }

    pub(in crate::table) fn result() -> RunResult {
        let rate =
            |mean: f64| Spread { mean, stddev: Some(mean / 10.0), ci95: Some([mean * 0.9, mean * 1.1]) };
        RunResult {
            job: None,
            directions: None,
            flushes: None,
            steady_state: None,
            latency_target: None,
            verify: None,
            closed_loop_ns: None,
            block_sizes: None,
            path: "kernel-direct".to_owned(),
            clock: Clock::Real,
            rw: "randread".to_owned(),
            block_bytes: 4096,
            io_depth: 1,
            jobs: 2,
            think_ns: None,
            rate_iops: None,
            workload: None,
            latency_distribution: None,
            model_host: None,
            targets: Vec::new(),
            targets_end: None,
            connections: None,
            warm: false,
            served_by: None,
            latency_every: 1,
            bytes: 1 << 30,
            ios: 1 << 18,
            seconds: 10.0,
            bytes_per_second: rate(107.4e6),
            iops: rate(26_214.4),
            latency_ns: Latency {
                min: 1,
                mean: 2.0,
                p50: 76_700,
                p90: 80_000,
                p99: 1_300_000,
                p999: 9,
                max: 9,
            },
            cpu: Some(Cpu {
                user_seconds: 0.5,
                system_seconds: 0.5,
                machine_seconds: 1.25,
                seconds_per_gib: 1.25,
                microseconds_per_io: 4.77,
            }),
            device: Some(Device { reads: 2, read_bytes: 16384, writes: 0, written_bytes: 0 }),
            repeats: Vec::new(),
            cache: None,
            partial: false,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn every_column_has_its_number_and_unit() {
        let text = table(&[result(), RunResult { device: None, ..result() }], None);
        let cells = |line: &str| -> Vec<String> {
            line.split("  ").map(|cell| cell.trim().to_owned()).filter(|cell| !cell.is_empty()).collect()
        };
        let lines: Vec<Vec<String>> = text.lines().map(cells).collect();
        assert_eq!(lines[0], COLUMNS);
        let numbers = ["1", "2", "107", "10.0%", "26214", "76.7 µs", "1.30 ms", "1.25", "4.77", "8.00 KiB"];
        assert_eq!(lines[2][..3], ["kernel-direct", "randread", "4 KiB"]);
        assert_eq!(lines[2][3..], numbers);
        assert_eq!(lines[3].last().map(String::as_str), Some("-"), "{text}");
    }

    #[test]
    fn a_table_names_the_sampling_of_latencies() {
        assert!(!table(&[result()], None).contains("drawn"));
        let text = table(&[RunResult { latency_every: 16, ..result() }], None);
        assert!(
            text.ends_with(
                "\n\np50, p99: one I/O in 16, drawn at random, was timed; other columns count all I/Os"
            ),
            "{text}"
        );
    }

    #[test]
    fn no_word_is_broken_on_a_narrow_terminal() {
        let runs = [result(), result()];
        let wide = table(&runs, Some(120));
        assert_eq!(wide, table(&runs, None));
        let narrow = table(&runs, Some(80));
        assert!(narrow.lines().all(|line| line.chars().count() <= 80), "{narrow}");
        let line = narrow.lines().find(|line| line.contains("CPU µs/IO"));
        assert_eq!(line.map(|line| line.matches("4.77").count()), Some(2), "{narrow}");
    }

    #[test]
    fn notes_below_the_table_fit_a_narrow_terminal() {
        let host = ModelHostFacts { name: "pc-2001".to_owned(), cpus: 2, idle: 0.5 };
        let runs =
            [RunResult { clock: Clock::Virtual, model_host: Some(host), latency_every: 16, ..result() }];
        let note = "virtual time: the target is a model, and the CPU cost of this machine does not count";
        assert!(table(&runs, None).contains(note) && table(&runs, Some(120)).contains(note));
        let narrow = table(&runs, Some(40));
        assert!(narrow.lines().all(|line| line.chars().count() <= 40), "{narrow}");
        assert!(narrow.contains("\n\nvirtual time: the target is a model, and\n  the CPU cost"), "{narrow}");
    }

    #[test]
    fn a_pipe_is_not_fancy() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_fancy(&std::fs::File::from(std::os::fd::OwnedFd::from(reader))));
    }
}
