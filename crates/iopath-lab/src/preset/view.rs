//! The tables of presets, in the form of the programs that they are named after. Does not measure.

use iopath_report::format::{View, perftest, text};
use iopath_report::numbers::{digits, time};
use iopath_report::result::{Report, RunResult};
use iopath_report::section::{Columns, Section};
use iopath_report::stats::fairness::jain;

const KIB: f64 = 1024.0;
const MIB: f64 = (1u64 << 20) as f64;

/// The table of `blockdev-perftest`: the runs differ in their block size and direction.
pub(super) fn perftest(report: &Report) -> String {
    perftest::table(&report.runs.iter().collect::<Vec<_>>())
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
    let mut columns = Columns::of([()]).text("", |()| "bonnie");
    for (name, head) in
        [("output", "output K/s"), ("rewrite", "rewrite K/s"), ("input", "input K/s"), ("seeks", "seeks /s")]
    {
        let Some(run) = of(name) else { return String::new() };
        let shown = if name == "seeks" { digits(run.iops.mean) } else { rate(run) };
        columns = columns.number(head, |()| shown.clone()).number("%CPU", |()| cpu(run));
    }
    text::render(&[Section::of(columns)], View::plain(None))
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
