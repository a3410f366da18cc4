//! Compares the buffered path with the kernel's and with direct I/O: whole passes over a cold file, hits in a warm
//! file, all block sizes, several readers. [`DUELS`] lists the comparisons. A pass is too short for observation of its
//! middle: the CPU time is that reported by the programs, and that of the whole process with its start.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cpu;
use super::figures::Goal;
use super::report::Figure;
use super::samples::Samples;
use super::side::{Side, TargetFile, number};
use super::turns::{Turns, alternate};
use crate::workspace;

/// Two programs, one file, and the figures to compare.
#[derive(Debug)]
struct Duel {
    name: &'static str,
    ours: Program,
    peer: Program,
    goals: &'static [(Metric, Goal)],
}

/// A program that reads or writes.
#[derive(Debug, Clone, Copy)]
enum Program {
    /// `iopath run` on a path with these arguments, over the whole file once or for some seconds.
    Iopath { path: &'static str, arguments: &'static str, is_timed: bool },
    /// `fio` with direct I/O, over the whole file once.
    Fio { label: &'static str, arguments: &'static str },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Metric {
    Bandwidth,
    Iops,
    /// CPU time of the whole machine without its idle load, or of the process if that is more. Includes write-back and
    /// interrupts.
    MachineCpu,
    /// CPU time of the process alone, while it transfers.
    ProcessCpu,
    /// CPU time of the process alone, from its start to its end.
    WholeProcessCpu,
    /// The run time of the first job to end, as a share of the run time of the last.
    FirstEnded,
}

const fn pass(path: &'static str, arguments: &'static str) -> Program {
    Program::Iopath { path, arguments, is_timed: false }
}

const fn timed(path: &'static str, arguments: &'static str) -> Program {
    Program::Iopath { path, arguments, is_timed: true }
}

const READS: &[(Metric, Goal)] = &[
    (Metric::Bandwidth, Goal::AtLeast(1.3)),
    (Metric::MachineCpu, Goal::AtMost(0.25)),
    (Metric::ProcessCpu, Goal::Free),
];
/// With the start of the program, which allocates the cache.
const WRITES: &[(Metric, Goal)] = &[
    (Metric::Bandwidth, Goal::AtLeast(2.0)),
    (Metric::MachineCpu, Goal::Free),
    (Metric::WholeProcessCpu, Goal::AtMost(0.30)),
];

/// Hits in a file of this size. Both sides measure one latency in 64, because reading the clock takes as long as a hit.
macro_rules! hits {
    ($size:literal) => {
        concat!("--rw randread --bs 4k --warm --latency-every 64 --size ", $size)
    };
}

/// Shows the cost of a path: the pages are in the CPU caches.
const HITS_OF_1_MIB: &str = hits!("1m");
/// Shows the cost of memory accesses.
const HITS_OF_64_MIB: &str = hits!("64m");

const DUELS: &[Duel] = &[
    Duel {
        name: "buffered, 16 KiB sequential read",
        ours: pass("iopath-buffered", "--rw read --bs 16k"),
        peer: pass("kernel-buffered", "--rw read --bs 16k"),
        goals: READS,
    },
    Duel {
        name: "buffered, 16 KiB sequential read, tuned for streams",
        ours: pass("iopath-buffered", "--rw read --bs 16k --page 16k --cache 32m"),
        peer: pass("kernel-buffered", "--rw read --bs 16k"),
        goals: READS,
    },
    Duel {
        name: "buffered, 16 KiB sequential read against direct 512 KiB, depth 8",
        ours: pass("iopath-buffered", "--rw read --bs 16k"),
        peer: Program::Fio {
            label: "fio io_uring direct",
            arguments: "--rw=read --bs=512k --ioengine=io_uring --iodepth=8",
        },
        goals: &[(Metric::Bandwidth, Goal::AtLeast(0.95))],
    },
    Duel {
        name: "buffered, 4 KiB hit in 1 MiB, copied",
        ours: timed("iopath-buffered", HITS_OF_1_MIB),
        peer: timed("kernel-buffered", HITS_OF_1_MIB),
        goals: &[(Metric::Iops, Goal::AtLeast(3.0))],
    },
    Duel {
        name: "buffered, 4 KiB hit in 1 MiB, borrowed",
        ours: timed("iopath-buffered", concat!(hits!("1m"), " --borrow")),
        peer: timed("kernel-buffered", HITS_OF_1_MIB),
        goals: &[(Metric::Iops, Goal::AtLeast(10.0))],
    },
    Duel {
        name: "buffered, 4 KiB hit in 1 MiB, 2 threads against 1",
        ours: timed("iopath-buffered", concat!(hits!("1m"), " --numjobs 2")),
        peer: timed("iopath-buffered", HITS_OF_1_MIB),
        goals: &[(Metric::Iops, Goal::AtLeast(1.9))],
    },
    Duel {
        name: "buffered, 4 KiB hit in 1 MiB, copied, a bare copy",
        ours: timed("iopath-buffered", HITS_OF_1_MIB),
        peer: timed("kernel-mmap", HITS_OF_1_MIB),
        goals: &[(Metric::Iops, Goal::AtLeast(1.0))],
    },
    // Both sides wait for memory; the reader of a borrowed page waits for its first byte.
    Duel {
        name: "buffered, 4 KiB hit in 64 MiB, copied",
        ours: timed("iopath-buffered", HITS_OF_64_MIB),
        peer: timed("kernel-buffered", HITS_OF_64_MIB),
        goals: &[(Metric::Iops, Goal::Free)],
    },
    Duel {
        name: "buffered, 4 KiB hit in 64 MiB, borrowed",
        ours: timed("iopath-buffered", concat!(hits!("64m"), " --borrow")),
        peer: timed("kernel-buffered", HITS_OF_64_MIB),
        goals: &[(Metric::Iops, Goal::Free)],
    },
    Duel {
        name: "buffered, 4 KiB hit in 64 MiB, 2 threads against 1",
        ours: timed("iopath-buffered", concat!(hits!("64m"), " --numjobs 2")),
        peer: timed("iopath-buffered", HITS_OF_64_MIB),
        goals: &[(Metric::Iops, Goal::Free)],
    },
    Duel {
        name: "buffered, 16 KiB sequential write with final flush",
        ours: pass("iopath-buffered", "--rw write --bs 16k --overwrite"),
        peer: pass("kernel-buffered", "--rw write --bs 16k --overwrite"),
        goals: WRITES,
    },
    Duel {
        name: "buffered, 16 KiB sequential write with final flush, tuned for streams",
        ours: pass("iopath-buffered", "--rw write --bs 16k --overwrite --page 16k --cache 32m"),
        peer: pass("kernel-buffered", "--rw write --bs 16k --overwrite"),
        goals: WRITES,
    },
    Duel {
        name: "buffered, 8 sequential readers against 1",
        ours: pass("iopath-buffered", "--rw read --bs 16k --numjobs 8"),
        peer: pass("iopath-buffered", "--rw read --bs 16k"),
        goals: &[(Metric::Bandwidth, Goal::AtLeast(0.9)), (Metric::FirstEnded, Goal::AtLeast(0.95))],
    },
    // A cache too small for any hit.
    Duel {
        name: "buffered, 4 KiB random read, cold, 1 job",
        ours: timed("iopath-buffered", "--rw randread --bs 4k --cache 16m"),
        peer: timed("kernel-direct", "--rw randread --bs 4k"),
        goals: &[(Metric::Iops, Goal::AtLeast(0.95)), (Metric::MachineCpu, Goal::Free)],
    },
    Duel {
        name: "buffered, 4 KiB random read, cold, 8 jobs",
        ours: timed("iopath-buffered", "--rw randread --bs 4k --cache 16m --numjobs 8"),
        peer: timed("kernel-direct", "--rw randread --bs 4k --numjobs 8"),
        goals: &[(Metric::Iops, Goal::AtLeast(0.95)), (Metric::MachineCpu, Goal::Free)],
    },
];

/// The sweeps over block sizes, on the scratch file and on a modelled disk, whose rounds are equal: their names, the
/// sizes and the time of each, and the minimum ratio of the slowest to the fastest.
const SWEEP: &str = "buffered, sequential read, slowest against fastest block of 4 KiB to 64 MiB";
const MODELLED_SWEEP: &str =
    "buffered, modelled flash, sequential read, slowest against fastest block of 4 KiB to 64 MiB";
const SWEEP_MODEL: &str = "model:ssd-nvme";
const SWEEP_SIZES: &[&str] = &["4k", "16k", "64k", "256k", "512k", "1m", "4m", "16m", "64m"];
const SWEEP_TIME: &str = "300ms";
const SWEEP_GOAL: Goal = Goal::AtLeast(0.95);

/// All names for `--only`.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    DUELS.iter().map(|duel| duel.name).chain([SWEEP, MODELLED_SWEEP])
}

pub(super) fn is_selected(only: Option<&str>) -> bool {
    names().any(|name| is_match(name, only))
}

fn is_match(name: &str, only: Option<&str>) -> bool {
    only.is_none_or(|text| name.contains(text))
}

/// Runs the duels whose name contains `only`.
pub(super) fn measure(
    only: Option<&str>,
    rounds: u32,
    seconds: u32,
    target: &TargetFile,
) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for duel in DUELS.iter().filter(|duel| is_match(duel.name, only)) {
        if matches!(duel.peer, Program::Fio { .. }) && workspace::find_program("fio").is_none() {
            eprintln!("skipped: {}: fio is not installed (package fio)", duel.name);
            continue;
        }
        let commands = [duel.ours, duel.peer].map(|program| move || program.command(target, seconds));
        let turns = in_turns(duel.name, rounds, &commands, |index, output, cpu| {
            match [duel.ours, duel.peer][index] {
                Program::Iopath { .. } => RunReport::of_iopath(output, cpu),
                Program::Fio { .. } => RunReport::of_fio(output),
            }
        })?;
        figures.extend(duel.goals.iter().map(|&(metric, goal)| {
            let of = |side: usize| turns.samples(side, |report| report.value(metric));
            // A share is compared with 1 for every peer.
            let is_share = metric == Metric::FirstEnded;
            Figure {
                name: format!("{}: {}", duel.name, metric.name()),
                unit: metric.unit(),
                peer: if is_share { "all at once" } else { duel.peer.label() },
                value: of(0),
                peer_value: if is_share { Samples::constant(1.0) } else { of(1) },
                goal,
                others: Some(turns.others),
            }
        }));
    }
    if is_match(SWEEP, only) {
        figures.push(sweep(SWEEP, rounds, target)?);
    }
    if is_match(MODELLED_SWEEP, only) {
        let model = TargetFile { path: SWEEP_MODEL.into(), ..*target };
        figures.push(sweep(MODELLED_SWEEP, 1, &model)?);
    }
    Ok(figures)
}

fn sweep(name: &str, rounds: u32, target: &TargetFile) -> Result<Figure> {
    let commands: Vec<_> = SWEEP_SIZES
        .iter()
        .map(|size| {
            let arguments = ["--rw", "read", "--bs", size, "--runtime", SWEEP_TIME];
            move || iopath("iopath-buffered", &arguments, None, target)
        })
        .collect();
    // A modelled disk has no CPU time.
    let turns = in_turns(name, rounds, &commands, |_, output, _| {
        let result: Value = serde_json::from_slice(output)?;
        number(&result, "/runs/0/bytes_per_second/mean")
    })?;
    let rates: Vec<_> = (0..SWEEP_SIZES.len())
        .map(|size| turns.samples(size, |bytes_per_second| bytes_per_second / f64::from(1 << 20)))
        .collect();
    for (size, rate) in SWEEP_SIZES.iter().zip(&rates) {
        eprintln!("{name}: {size}: {:.0} MiB/s", rate.median());
    }
    let by_median = |one: &&Samples, other: &&Samples| one.median().total_cmp(&other.median());
    let slowest = rates.iter().min_by(by_median).context("no sizes")?;
    let fastest = rates.iter().max_by(by_median).context("no sizes")?;
    Ok(Figure {
        name: name.to_owned(),
        unit: Metric::Bandwidth.unit(),
        peer: "iopath-buffered",
        value: slowest.clone(),
        peer_value: fastest.clone(),
        goal: SWEEP_GOAL,
        others: Some(turns.others),
    })
}

/// Runs all commands in alternating order. `parse` also has the CPU time of the process.
fn in_turns<T>(
    name: &str,
    rounds: u32,
    commands: &[impl Fn() -> Command],
    parse: impl Fn(usize, &[u8], f64) -> Result<T>,
) -> Result<Turns<T>> {
    alternate(name, rounds, commands.len(), |side| {
        let mut command = commands[side]();
        let before = cpu::children_seconds()?;
        let output =
            command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
        if !output.status.success() {
            bail!("{command:?}: {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
        }
        parse(side, &output.stdout, cpu::children_seconds()? - before)
    })
}

impl Program {
    fn label(self) -> &'static str {
        match self {
            Self::Iopath { path, .. } => path,
            Self::Fio { label, .. } => label,
        }
    }

    fn command(self, target: &TargetFile, seconds: u32) -> Command {
        match self {
            Self::Iopath { path, arguments, is_timed } => {
                let arguments: Vec<&str> = arguments.split(' ').collect();
                iopath(path, &arguments, is_timed.then_some(seconds), target)
            }
            Self::Fio { arguments, .. } => {
                let mut command = Command::new("fio");
                command.args([
                    "--name=bench",
                    "--thread",
                    "--direct=1",
                    "--readonly",
                    "--output-format=json",
                ]);
                command.args(arguments.split(' ')).arg(format!("--filename={}", target.path.display()));
                command.arg(format!("--size={}m", target.mib));
                command
            }
        }
    }
}

fn iopath(path: &str, arguments: &[&str], seconds: Option<u32>, target: &TargetFile) -> Command {
    let mut command = workspace::iopath();
    command.args(["run", "--path", path]).args(arguments).arg("--target").arg(&target.path);
    if !arguments.contains(&"--size") {
        command.args(["--size", &format!("{}m", target.mib)]);
    }
    if let Some(seconds) = seconds {
        command.args(["--runtime", &format!("{seconds}s")]);
    }
    command.args(["--repeat", "1", "--json", "-"]);
    command
}

/// The report of a program about its run.
#[derive(Debug, Clone, Copy, PartialEq)]
struct RunReport {
    bytes_per_second: f64,
    iops: f64,
    machine_seconds_per_gib: f64,
    process_seconds_per_gib: f64,
    whole_process_seconds_per_gib: f64,
    first_ended_share: f64,
}

impl RunReport {
    /// Parses schema `iopath.result/1`: one run of one repetition.
    fn of_iopath(output: &[u8], cpu_seconds: f64) -> Result<Self> {
        let result: Value = serde_json::from_slice(output)?;
        let run = result.pointer("/runs/0").context("no runs")?;
        let process = number(run, "/cpu/user_seconds")? + number(run, "/cpu/system_seconds")?;
        let gib = number(run, "/bytes")? / f64::from(1 << 30);
        Ok(Self {
            bytes_per_second: number(run, "/bytes_per_second/mean")?,
            iops: number(run, "/iops/mean")?,
            machine_seconds_per_gib: number(run, "/cpu/seconds_per_gib")?,
            process_seconds_per_gib: process / gib,
            whole_process_seconds_per_gib: cpu_seconds / gib,
            first_ended_share: number(run, "/repeats/0/first_ended_seconds")? / number(run, "/seconds")?,
        })
    }

    /// fio reports the CPU time of its process only. No comparison here uses it.
    fn of_fio(output: &[u8]) -> Result<Self> {
        let report = Side::fio("fio", "read", "512k", &[]).parse(output)?;
        Ok(Self {
            bytes_per_second: report.bytes_per_second,
            iops: report.iops,
            machine_seconds_per_gib: f64::NAN,
            process_seconds_per_gib: f64::NAN,
            whole_process_seconds_per_gib: f64::NAN,
            first_ended_share: f64::NAN,
        })
    }

    fn value(&self, metric: Metric) -> f64 {
        match metric {
            Metric::Bandwidth => self.bytes_per_second / f64::from(1 << 20),
            Metric::Iops => self.iops,
            Metric::MachineCpu => self.machine_seconds_per_gib,
            Metric::ProcessCpu => self.process_seconds_per_gib,
            Metric::WholeProcessCpu => self.whole_process_seconds_per_gib,
            Metric::FirstEnded => self.first_ended_share,
        }
    }
}

impl Metric {
    const fn name(self) -> &'static str {
        match self {
            Self::Bandwidth => "bandwidth",
            Self::Iops => "IOPS",
            Self::MachineCpu => "CPU per GiB, machine",
            Self::ProcessCpu => "CPU per GiB, process",
            Self::WholeProcessCpu => "CPU per GiB, whole process",
            Self::FirstEnded => "first ended",
        }
    }

    const fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "MiB/s",
            Self::Iops => "I/O/s",
            Self::MachineCpu | Self::ProcessCpu | Self::WholeProcessCpu => "s",
            Self::FirstEnded => "share",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(command: &Command) -> String {
        command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn names_are_unique_and_selected_by_a_part() {
        let all: Vec<_> = names().collect();
        let mut unique = all.clone();
        unique.sort_unstable();
        unique.dedup();
        assert_eq!(unique.len(), all.len());
        assert!(is_selected(None) && is_selected(Some("4 KiB hit")) && !is_selected(Some("zram")));
    }

    #[test]
    fn a_pass_covers_the_file_and_hits_have_their_own_size() {
        let target = TargetFile { path: "t/x".into(), mib: 1024 };
        let of = |program: Program| arguments(&program.command(&target, 3));
        assert_eq!(
            of(pass("iopath-buffered", "--rw read --bs 16k")),
            "run --path iopath-buffered --rw read --bs 16k --target t/x --size 1024m --repeat 1 --json -"
        );
        assert_eq!(
            of(timed("kernel-buffered", "--size 64m --warm")),
            "run --path kernel-buffered --size 64m --warm --target t/x --runtime 3s --repeat 1 --json -"
        );
        let fio = of(Program::Fio { label: "fio", arguments: "--rw=read --bs=512k" });
        assert!(
            fio.contains("--readonly") && fio.ends_with("--bs=512k --filename=t/x --size=1024m"),
            "{fio}"
        );
    }

    #[test]
    fn the_report_of_a_run_is_parsed() {
        let output = br#"{"runs":[{"bytes":536870912,"seconds":2.0,"iops":{"mean":5.0},
            "bytes_per_second":{"mean":1048576.0},"repeats":[{"first_ended_seconds":1.5}],
            "cpu":{"user_seconds":0.25,"system_seconds":0.5,"seconds_per_gib":2.0}}]}"#;
        let report = RunReport::of_iopath(output, 1.0).expect("the documented schema");
        let of = [
            Metric::Bandwidth,
            Metric::Iops,
            Metric::MachineCpu,
            Metric::ProcessCpu,
            Metric::WholeProcessCpu,
            Metric::FirstEnded,
        ];
        let values = of.map(|metric| (report.value(metric) * 100.0).round() as u32);
        assert_eq!(values, [100, 500, 200, 150, 200, 75]);
        let error = RunReport::of_iopath(br#"{"runs":[{}]}"#, 1.0).expect_err("no figures");
        assert!(error.to_string().contains("/cpu/user_seconds"), "{error}");
    }
}
