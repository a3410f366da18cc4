//! The two sides of a contest: their commands, and parsers of their JSON output. Does not run them.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::workspace;

/// One side of a contest.
#[derive(Debug)]
pub(super) enum Side {
    /// `iopath run` with this path and number of threads, and more arguments.
    Iopath { path: &'static str, workload: Workload, jobs: u32, more: &'static [&'static str] },
    /// `fio` with these arguments, with direct I/O and read-only.
    Fio { label: &'static str, workload: Workload, more: &'static [&'static str] },
    /// A published figure; nothing runs.
    Published { source: &'static str, iops: f64 },
}

/// The workload, in terms common to fio and iopath.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workload {
    rw: &'static str,
    block_size: &'static str,
}

/// The file or device that both sides read.
#[derive(Debug, Clone)]
pub(super) struct TargetFile {
    pub(super) path: PathBuf,
    pub(super) mib: u64,
}

/// The report of a program about its run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct SideReport {
    pub(super) iops: f64,
    pub(super) bytes_per_second: f64,
    /// The median latency of reads and writes together; NaN if the program reports none of both.
    pub(super) p50_us: f64,
    /// User and system time of the process per I/O, in microseconds.
    pub(super) process_us_per_io: f64,
}

impl SideReport {
    /// Of a figure that no program reports.
    pub(super) const UNKNOWN: Self =
        Self { iops: f64::NAN, bytes_per_second: f64::NAN, p50_us: f64::NAN, process_us_per_io: f64::NAN };
}

impl Side {
    pub(super) const fn iopath(
        path: &'static str,
        rw: &'static str,
        block_size: &'static str,
        more: &'static [&'static str],
    ) -> Self {
        Self::Iopath { path, workload: Workload { rw, block_size }, jobs: 1, more }
    }

    /// The same side on several threads.
    pub(super) const fn on_threads(self, jobs: u32) -> Self {
        match self {
            Self::Iopath { path, workload, more, .. } => Self::Iopath { path, workload, jobs, more },
            Self::Fio { .. } | Self::Published { .. } => {
                panic!("only iopath's own sides run on several threads")
            }
        }
    }

    pub(super) const fn fio(
        label: &'static str,
        rw: &'static str,
        block_size: &'static str,
        more: &'static [&'static str],
    ) -> Self {
        Self::Fio { label, workload: Workload { rw, block_size }, more }
    }

    pub(super) fn label(&self) -> &'static str {
        match self {
            Self::Iopath { path, .. } => path,
            Self::Fio { label, .. } => label,
            Self::Published { source, .. } => source,
        }
    }

    pub(super) fn needs_fio(&self) -> bool {
        matches!(self, Self::Fio { .. })
    }

    /// The command that reads `target` for `seconds` and writes JSON to stdout; none if nothing runs.
    pub(super) fn command(&self, target: Option<&TargetFile>, seconds: u32) -> Option<Command> {
        match self {
            Self::Iopath { path, workload, jobs, more } => {
                Some(iopath(path, *workload, *jobs, more, target, seconds))
            }
            Self::Fio { workload, more, .. } => Some(fio(*workload, more, target, seconds)),
            Self::Published { .. } => None,
        }
    }

    /// Parses the output of the command.
    pub(super) fn parse(&self, output: &[u8]) -> Result<SideReport> {
        match self {
            Self::Iopath { .. } => parse_iopath(output).context("in the JSON of iopath"),
            Self::Fio { .. } => parse_fio(output).context("in the JSON of fio"),
            Self::Published { source, .. } => bail!("nothing runs for `{source}`"),
        }
    }
}

fn iopath(
    path: &str,
    workload: Workload,
    jobs: u32,
    more: &[&str],
    target: Option<&TargetFile>,
    seconds: u32,
) -> Command {
    let mut command = workspace::iopath();
    command.args(["run", "--path", path, "--rw", workload.rw, "--bs", workload.block_size]).args(more);
    if let Some(target) = target {
        command.arg("--target").arg(&target.path).args(["--size", &format!("{}m", target.mib)]);
    }
    command.args(["--numjobs", &jobs.to_string(), "--runtime", &format!("{seconds}s")]);
    command.args(["--repeat", "1", "--json", "-"]);
    command
}

/// With `--thread`, so that the process that xtask observes does the I/O, and with all latency measurements on.
fn fio(workload: Workload, more: &[&str], target: Option<&TargetFile>, seconds: u32) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=bench", "--thread", "--direct=1", "--readonly", "--gtod_reduce=0", "--time_based"]);
    command.args(["--norandommap", "--randrepeat=0", "--output-format=json"]);
    command.arg(format!("--rw={}", workload.rw)).arg(format!("--bs={}", workload.block_size)).args(more);
    command.arg(format!("--runtime={seconds}"));
    if let Some(target) = target {
        command.arg(format!("--filename={}", target.path.display())).arg(format!("--size={}m", target.mib));
    }
    command
}

/// Parses schema `iopath.result/1` with one run.
fn parse_iopath(output: &[u8]) -> Result<SideReport> {
    let result: Value = serde_json::from_slice(output)?;
    let run = result.pointer("/runs/0").context("no runs")?;
    let cpu_seconds = number(run, "/cpu/user_seconds")? + number(run, "/cpu/system_seconds")?;
    Ok(SideReport {
        iops: number(run, "/iops/mean")?,
        bytes_per_second: number(run, "/bytes_per_second/mean")?,
        p50_us: number(run, "/latency_ns/p50")? / 1e3,
        process_us_per_io: cpu_seconds * 1e6 / number(run, "/ios")?,
    })
}

/// fio's `usr_cpu` and `sys_cpu` are percentages of `job_runtime`, which is in milliseconds.
fn parse_fio(output: &[u8]) -> Result<SideReport> {
    let result: Value = serde_json::from_slice(output)?;
    let job = result.pointer("/jobs/0").context("no jobs")?;
    if number(job, "/error")? != 0.0 {
        bail!("fio reports error {}", job["error"]);
    }
    let cpu_share = (number(job, "/usr_cpu")? + number(job, "/sys_cpu")?) / 100.0;
    Ok(SideReport {
        iops: number(job, "/read/iops")?,
        bytes_per_second: number(job, "/read/bw_bytes")?,
        p50_us: f64::NAN,
        process_us_per_io: cpu_share * number(job, "/job_runtime")? * 1e3 / number(job, "/read/total_ios")?,
    })
}

pub(super) fn number(value: &Value, pointer: &str) -> Result<f64> {
    value.pointer(pointer).and_then(Value::as_f64).with_context(|| format!("no number at {pointer}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIO: &[u8] = include_bytes!("../../samples/fio-3.33.json");
    const IOPATH: &[u8] = include_bytes!("../../samples/iopath-result-1.json");

    fn arguments(command: &Command) -> String {
        command.get_args().map(|argument| argument.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_json_of_fio_3_33_is_parsed() {
        let report = parse_fio(FIO).expect("a real sample");
        assert!((report.iops - 91_772.227_772).abs() < 1e-6, "{report:?}");
        assert!((report.bytes_per_second - 375_899_044.0).abs() < 1e-6);
        // (3.3 % + 22.4 %) of 1000 ms, over 91,864 reads
        assert!((report.process_us_per_io - 257_000.0 / 91_864.0).abs() < 1e-9);
    }

    #[test]
    fn the_json_of_iopath_is_parsed() {
        let report = parse_iopath(IOPATH).expect("the documented schema");
        let expected = SideReport {
            iops: 100_000.0,
            bytes_per_second: 409_600_000.0,
            p50_us: 230.0,
            process_us_per_io: 2.5,
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn a_missing_field_is_named() {
        let error = parse_iopath(br#"{"runs":[{"ios":1}]}"#).expect_err("no cpu");
        assert!(error.to_string().contains("/cpu/user_seconds"), "{error}");
        assert!(parse_iopath(b"").is_err());
        assert!(
            parse_fio(br#"{"jobs":[{"error":5}]}"#).expect_err("an error").to_string().contains("error 5")
        );
    }

    #[test]
    fn both_sides_read_the_same_bytes_of_the_same_file_for_the_same_time() {
        let target = TargetFile { path: "t/x".into(), mib: 64 };
        let ours = Side::iopath("kernel-uring", "randread", "4k", &["--iodepth", "32"]);
        let ours = ours.command(Some(&target), 3).expect("a command");
        assert_eq!(
            arguments(&ours),
            "run --path kernel-uring --rw randread --bs 4k --iodepth 32 --target t/x --size 64m \
             --numjobs 1 --runtime 3s --repeat 1 --json -"
        );
        let fio = Side::fio("fio", "randread", "4k", &["--ioengine=psync"]).command(Some(&target), 3);
        let fio = arguments(&fio.expect("a command"));
        for argument in
            ["--rw=randread", "--bs=4k", "--filename=t/x", "--size=64m", "--runtime=3", "--readonly"]
        {
            assert!(fio.split(' ').any(|word| word == argument), "{argument} in {fio}");
        }
    }

    #[test]
    fn nothing_runs_for_a_published_figure() {
        let published = Side::Published { source: "someone", iops: 1e6 };
        assert!(published.command(None, 1).is_none());
        assert_eq!(published.label(), "someone");
    }
}
