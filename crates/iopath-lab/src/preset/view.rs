//! The tables of presets, in the form of the programs that they are named after. Does not measure.

use std::fmt::Write as _;

use comfy_table::CellAlignment;
use iopath_report::format::text::ruled;
use iopath_report::numbers::{digits, time};
use iopath_report::result::{Report, RunResult};
use iopath_report::stats::Summary;
use iopath_report::stats::fairness::jain;

const KIB: f64 = 1024.0;
const MIB: f64 = (1u64 << 20) as f64;

/// Block size, seconds of each repetition, mean, standard deviation and IOPS, as `blockdev-perftest` prints them: its
/// MB/s are 2^20 bytes a second, and its standard deviation is that of all repetitions, not of a sample.
/// `iopath compare` reads it.
pub(super) fn perftest(report: &Report) -> String {
    let mut blocks: Vec<u32> = report.runs.iter().map(|run| run.block_bytes).collect();
    blocks.dedup();
    let of = |rw: &str, block: u32| report.runs.iter().find(|run| run.rw == rw && run.block_bytes == block);
    let directions: Vec<(&str, char)> = [("read", 'R'), ("write", 'W')]
        .into_iter()
        .filter(|(rw, _)| report.runs.iter().any(|run| run.rw == *rw))
        .collect();
    let repeats = report.runs.iter().map(|run| run.repeats.len()).min().unwrap_or(0);
    let (mut head, mut units) = (format!("{:>9}", "blocksize"), format!("{:>9}", "(bytes)"));
    for (_, letter) in &directions {
        let seconds = std::iter::repeat_n((letter.to_string(), "(s)"), repeats);
        let rest = [
            (format!("{letter}(avg,"), "MB/s)"),
            (format!("{letter}(std"), "MB/s)"),
            (letter.to_string(), "(IOPS)"),
        ];
        for (name, unit) in seconds.chain(rest) {
            let _ = write!(head, " {name:>9}");
            let _ = write!(units, " {unit:>9}");
        }
    }
    let mut text = format!("{head}\n{units}");
    for block in blocks {
        let _ = write!(text, "\n{block:>9}");
        for (rw, _) in &directions {
            let Some(run) = of(rw, block) else { continue };
            for repeat in &run.repeats[..repeats] {
                let _ = write!(text, " {:>9.3}", repeat.seconds);
            }
            let rates: Vec<f64> = run.repeats.iter().map(|repeat| repeat.bytes_per_second / MIB).collect();
            let (mean, deviation) = of_all(&rates);
            let _ = write!(text, " {mean:>9.3} {deviation:>9.3} {:>9.3}", mean * MIB / f64::from(block));
        }
    }
    text
}

/// The mean and the standard deviation of all values.
fn of_all(values: &[f64]) -> (f64, f64) {
    let Some(Summary { mean, count, .. }) = Summary::of(values) else { return (0.0, 0.0) };
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, (squares / count as f64).sqrt())
}

/// One line as bonnie: KiB a second and CPU percent of each phase, and seeks a second. CPU is the user and kernel time
/// of this process over the elapsed time, as in bonnie.
pub(super) fn bonnie(report: &Report) -> String {
    let of = |name: &str| report.runs.iter().find(|run| run.job.as_ref().is_some_and(|job| job.name == name));
    let rate = |run: &RunResult| {
        // A rewrite counts each chunk once.
        let passes = if run.rw == "rewrite" { 2.0 } else { 1.0 };
        format!("{:.0}", run.bytes_per_second.mean / KIB / passes)
    };
    let cpu = |run: &RunResult| {
        let cpu = run.cpu.as_ref().map(|cpu| (cpu.user_seconds + cpu.system_seconds) / run.seconds * 100.0);
        cpu.map_or_else(|| "-".to_owned(), |percent| format!("{percent:.1}"))
    };
    let mut table = ruled();
    table.set_header([
        "",
        "output K/s",
        "%CPU",
        "rewrite K/s",
        "%CPU",
        "input K/s",
        "%CPU",
        "seeks /s",
        "%CPU",
    ]);
    let mut row = vec!["bonnie".to_owned()];
    for name in ["output", "rewrite", "input", "seeks"] {
        let Some(run) = of(name) else { return String::new() };
        row.push(if name == "seeks" { digits(run.iops.mean) } else { rate(run) });
        row.push(cpu(run));
    }
    table.add_row(row);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.trim_fmt()
}

/// The summary of ioping: requests, time in them, rates over that time, and the latencies.
pub(super) fn ping(report: &Report) -> String {
    let Some(run) = report.runs.first() else { return String::new() };
    let busy = run.latency_ns.mean * run.ios as f64 / 1e9;
    let (iops, rate) = (run.ios as f64 / busy, run.bytes as f64 / busy / MIB);
    let latency = &run.latency_ns;
    format!(
        "{} requests completed in {}, {:.2} MiB read, {} iops, {} MiB/s\nmin/p50/avg/p99/max = {} / {} / {} / {} / {}",
        run.ios,
        time((busy * 1e9) as u64),
        run.bytes as f64 / MIB,
        digits(iops),
        digits(rate),
        time(latency.min),
        time(latency.p50),
        time(latency.mean as u64),
        time(latency.p99),
        time(latency.max)
    )
}

/// The ends of all targets and the fairness of their throughputs, over the repetitions.
pub(super) fn parallel(report: &Report) -> String {
    let repeats = report.runs.iter().map(|run| run.repeats.len()).min().unwrap_or(0);
    if report.runs.len() < 2 || repeats == 0 {
        return String::new();
    }
    let mut sums = [0.0; 3];
    for number in 0..repeats {
        let of_repeat = || report.runs.iter().map(|run| &run.repeats[number]);
        let seconds: Vec<f64> = of_repeat().map(|repeat| repeat.seconds).collect();
        let rates: Vec<f64> = of_repeat().map(|repeat| repeat.bytes_per_second).collect();
        sums[0] += seconds.iter().copied().fold(f64::INFINITY, f64::min);
        sums[1] += seconds.iter().copied().fold(0.0, f64::max);
        sums[2] += jain(&rates);
    }
    let [first, last, fairness] = sums.map(|sum| sum / repeats as f64);
    format!(
        "{} targets: first done {} s, last done {} s, skew {} s; Jain's index of the throughputs {fairness:.4}",
        report.runs.len(),
        digits(first),
        digits(last),
        digits(last - first)
    )
}
