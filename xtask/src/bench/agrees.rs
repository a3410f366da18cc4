//! Whether a command line of fio measures with `iopath fio` what it measures with fio: one table of workloads, each run
//! by both programs with the same arguments. Latencies are those from the start of a transfer (`lat`).

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::figures::Goal;
use super::report::Figure;
use super::side::{TargetFile, number};
use super::turns::alternate;
use crate::workspace;

/// The start of the names of all rows, for `--only`.
pub(super) const NAME: &str = "fio-agrees";

/// The figures of both programs differ by at most this share.
const DISTANCE: f64 = 0.05;

/// fio runs twice in each round: the second time in the place of iopath, to show how far fio agrees with itself.
const SIDES: usize = 3;

/// Arguments of all workloads. Threads, as `iopath fio` has them; percentiles of `lat`.
const COMMON: &[&str] = &[
    "--name=agrees",
    "--thread",
    "--group_reporting",
    "--time_based",
    "--lat_percentiles=1",
    "--clat_percentiles=0",
    "--output-format=json",
];

/// Name and arguments, separated by spaces.
const WORKLOADS: &[(&str, &str)] = &[
    ("psync, 4 KiB reads", "--ioengine=psync --direct=1 --rw=read --bs=4k"),
    ("psync, 64 KiB reads", "--ioengine=psync --direct=1 --rw=read --bs=64k"),
    ("psync, 1 MiB reads", "--ioengine=psync --direct=1 --rw=read --bs=1m"),
    ("psync, 4 KiB random reads", "--ioengine=psync --direct=1 --rw=randread --bs=4k"),
    ("psync, 4 KiB random reads, 2 jobs", "--ioengine=psync --direct=1 --rw=randread --bs=4k --numjobs=2"),
    ("psync, 4 KiB random writes", "--ioengine=psync --direct=1 --rw=randwrite --bs=4k"),
    ("psync, 1 MiB writes", "--ioengine=psync --direct=1 --rw=write --bs=1m"),
    ("psync, 4 KiB random mix", "--ioengine=psync --direct=1 --rw=randrw --rwmixread=70 --bs=4k"),
    (
        "psync, 4 KiB to 64 KiB random reads",
        "--ioengine=psync --direct=1 --rw=randread --bssplit=4k/60:64k/40",
    ),
    (
        "psync, 4 KiB random reads at 500/s",
        "--ioengine=psync --direct=1 --rw=randread --bs=4k --rate_iops=500",
    ),
    ("psync, 64 KiB writes at 16 MiB/s", "--ioengine=psync --direct=1 --rw=write --bs=64k --rate=16m"),
    (
        "psync, 4 KiB random reads, 1 ms thinktime",
        "--ioengine=psync --direct=1 --rw=randread --bs=4k --thinktime=1000",
    ),
    ("psync, 8 KiB writes, fdatasync each", "--ioengine=psync --rw=write --bs=8k --fdatasync=1"),
    ("psync, 4 KiB durable writes", "--ioengine=psync --direct=1 --rw=randwrite --bs=4k --sync=dsync"),
    ("buffered, 4 KiB reads", "--ioengine=psync --rw=read --bs=4k"),
    ("buffered, 128 KiB reads", "--ioengine=psync --rw=read --bs=128k"),
    ("buffered, 4 KiB random reads", "--ioengine=psync --rw=randread --bs=4k"),
    ("mmap, 4 KiB reads", "--ioengine=mmap --rw=read --bs=4k"),
    ("mmap, 4 KiB random reads", "--ioengine=mmap --rw=randread --bs=4k"),
    ("io_uring, 4 KiB random reads, depth 1", "--ioengine=io_uring --direct=1 --rw=randread --bs=4k"),
    (
        "io_uring, 4 KiB random reads, depth 4",
        "--ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=4",
    ),
    (
        "io_uring, 4 KiB random reads, depth 32",
        "--ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=32",
    ),
    (
        "io_uring, 16 KiB random reads, depth 8",
        "--ioengine=io_uring --direct=1 --rw=randread --bs=16k --iodepth=8",
    ),
    ("io_uring, 1 MiB reads, depth 4", "--ioengine=io_uring --direct=1 --rw=read --bs=1m --iodepth=4"),
    (
        "io_uring, 4 KiB random writes, depth 16",
        "--ioengine=io_uring --direct=1 --rw=randwrite --bs=4k --iodepth=16",
    ),
    ("io_uring, 64 KiB writes, depth 8", "--ioengine=io_uring --direct=1 --rw=write --bs=64k --iodepth=8"),
    (
        "io_uring, 4 KiB random reads at 4,000/s, depth 8",
        "--ioengine=io_uring --direct=1 --rw=randread --bs=4k --iodepth=8 --rate_iops=4000",
    ),
    (
        "libaio, 4 KiB random reads, depth 32",
        "--ioengine=libaio --direct=1 --rw=randread --bs=4k --iodepth=32",
    ),
    ("libaio, 64 KiB reads, depth 8", "--ioengine=libaio --direct=1 --rw=read --bs=64k --iodepth=8"),
    ("libaio, 4 KiB random mix, depth 16", "--ioengine=libaio --direct=1 --rw=randrw --bs=4k --iodepth=16"),
];

/// What both programs report, of reads and writes together. NaN: no direction has transfers.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Reported {
    iops: f64,
    bytes_per_second: f64,
    /// Percentiles of the direction with more transfers.
    p50_us: f64,
    p99_us: f64,
}

/// Name, unit and value of a figure.
type Metric = (&'static str, &'static str, fn(&Reported) -> f64);

const METRICS: &[Metric] = &[
    ("IOPS", "I/O/s", |reported| reported.iops),
    ("bandwidth", "MB/s", |reported| reported.bytes_per_second / 1e6),
    ("p50", "µs", |reported| reported.p50_us),
    ("p99", "µs", |reported| reported.p99_us),
];

/// The names of the rows.
pub(super) fn names() -> impl Iterator<Item = String> {
    WORKLOADS.iter().map(|(name, _)| format!("{NAME}, {name}"))
}

pub(super) fn is_selected(only: Option<&str>) -> bool {
    names().any(|name| only.is_none_or(|text| name.contains(text)))
}

/// Runs the workloads whose name contains `only`, each for a second: thirty rows of seven rounds take a quarter of an
/// hour.
pub(super) fn measure(
    only: Option<&str>,
    rounds: u32,
    target: impl FnOnce() -> Result<TargetFile>,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if workspace::find_program("fio").is_none() {
        eprintln!("skipped: {NAME}: fio is not installed (package fio)");
        return Ok(figures);
    }
    let target = target()?;
    for (name, (_, arguments)) in names().zip(WORKLOADS) {
        if only.is_some_and(|text| !name.contains(text)) {
            continue;
        }
        let turns = alternate(&name, rounds, SIDES, |side| {
            let command = command(if side == 0 { Program::Iopath } else { Program::Fio }, arguments, &target);
            run(command).with_context(|| name.clone())
        })?;
        for (metric, unit, value) in METRICS {
            let samples = |side| turns.samples(side, value);
            let figure = |what: &str, ours, goal| Figure {
                name: format!("{name}: {metric}{what}"),
                unit,
                peer: "fio",
                value: samples(ours),
                peer_value: samples(1),
                goal,
                others: Some(turns.others),
            };
            figures.push(figure("", 0, Goal::Within(DISTANCE)));
            figures.push(figure(", fio against itself", 2, Goal::Free));
        }
    }
    Ok(figures)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Program {
    Iopath,
    Fio,
}

fn command(program: Program, arguments: &str, target: &TargetFile) -> Command {
    let mut command = match program {
        Program::Fio => Command::new("fio"),
        Program::Iopath => {
            let mut command = workspace::iopath();
            // The scratch file is of fio.
            command.args(["fio", "--allow-overwrite"]);
            command
        }
    };
    command.args(COMMON).args(arguments.split(' ')).arg("--runtime=1");
    command.arg(format!("--filename={}", target.path.display())).arg(format!("--size={}m", target.mib));
    command
}

fn run(mut command: Command) -> Result<Reported> {
    let output = command.stdin(Stdio::null()).output()?;
    if !output.status.success() {
        bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&output.stdout).with_context(|| format!("in the JSON of {command:?}"))
}

fn parse(output: &[u8]) -> Result<Reported> {
    let result: Value = serde_json::from_slice(output)?;
    let job = result.pointer("/jobs/0").context("no jobs")?;
    let mut sum = Reported { iops: 0.0, bytes_per_second: 0.0, p50_us: f64::NAN, p99_us: f64::NAN };
    let mut most = 0.0;
    for direction in ["read", "write"] {
        let part = job.pointer(&format!("/{direction}")).with_context(|| format!("no {direction}"))?;
        let ios = number(part, "/total_ios")?;
        if ios == 0.0 {
            continue;
        }
        sum.iops += number(part, "/iops")?;
        sum.bytes_per_second += number(part, "/bw_bytes")?;
        if ios > most {
            most = ios;
            sum.p50_us = number(part, "/lat_ns/percentile/50.000000")? / 1e3;
            sum.p99_us = number(part, "/lat_ns/percentile/99.000000")? / 1e3;
        }
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_workloads_differ_in_name_and_arguments() {
        for part in [0, 1] {
            let of = |(name, arguments): &(&'static str, &'static str)| [*name, *arguments][part];
            let mut all: Vec<_> = WORKLOADS.iter().map(of).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 30);
        }
        assert!(
            is_selected(None) && is_selected(Some("fio-agrees")) && !is_selected(Some("fio-agrees, nbd"))
        );
    }

    #[test]
    fn both_programs_get_the_same_arguments() {
        let target = TargetFile { path: "t/x".into(), mib: 64 };
        let arguments = |program| {
            let command = command(program, WORKLOADS[0].1, &target);
            command.get_args().map(|text| text.to_string_lossy().into_owned()).collect::<Vec<_>>()
        };
        assert_eq!(arguments(Program::Iopath)[2..], arguments(Program::Fio));
    }

    #[test]
    fn the_direction_with_more_transfers_has_the_percentiles() {
        let part = |ios: u64, p50: u64| {
            serde_json::json!({"total_ios": ios, "iops": ios, "bw_bytes": ios * 4096,
                "lat_ns": {"percentile": {"50.000000": p50 * 1000, "99.000000": p50 * 2000}}})
        };
        let none = serde_json::json!({"total_ios": 0});
        let json = |read, write| serde_json::json!({"jobs": [{"read": read, "write": write}]}).to_string();
        let mixed = parse(json(part(70, 50), part(30, 90)).as_bytes()).expect("both directions");
        let expected = Reported { iops: 100.0, bytes_per_second: 409_600.0, p50_us: 50.0, p99_us: 100.0 };
        assert_eq!(mixed, expected);
        let writes = parse(json(none, part(10, 7)).as_bytes()).expect("writes alone");
        assert!((writes.p50_us - 7.0).abs() < 1e-9 && (writes.iops - 10.0).abs() < 1e-9);
        assert!(parse(b"{\"jobs\": []}").is_err());
    }
}
