//! `cargo xtask whatif-study`: predictions of `iopath whatif` against measurements on a loop device, under the kernel's
//! I/O schedulers and under the elevators of iopath. Writes Markdown for docs/whatif-study.md.
//!
//! Each workload is recorded once, under one elevator. `iopath whatif` predicts the others from this log, on a preset
//! or on a model that `iopath fit` fits to the device. Then each setting is measured, in several rounds that alternate
//! between the settings. `device.rs` makes the loop device, `agreement.rs` compares the order.
//!
//! Not a step of `cargo xtask test`, because it takes most of an hour.

mod agreement;
mod device;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;
use agreement::{Agreement, Figures, Measured};
use device::{Backing, Device};

/// The elevator of the recorded run.
const RECORDED: &str = "deadline";

/// Requests in flight at the loop device, so that the schedulers have requests to order.
const DEVICE_DEPTH: u32 = 4;

/// The model of the predictions is fitted to the device.
const FIT: &str = "fit";

/// The time of the fit of a model.
const FIT_SECONDS: &str = "150";

/// The kernel's schedulers, each with the elevator that decides by the same rule.
const KERNEL: [(&str, &str); 3] = [("none", "none"), ("mq-deadline", "deadline"), ("bfq", "fair")];

/// The elevators of iopath.
const ELEVATORS: [&str; 6] = ["none", "ascend", "two-list", "closest", "deadline", "fair"];

/// A workload: several readers and a writer, as a job file.
struct Workload {
    name: &'static str,
    about: &'static str,
    keys: &'static str,
}

const WORKLOADS: [Workload; 3] = [
    Workload {
        name: "random",
        about: "Three random readers of 16 KiB, 8 in flight each, and a random writer of 16 KiB, 8 in flight",
        keys: "[global]\nbs=16k\niodepth=8\n[reader]\nrw=randread\nnumjobs=3\nnumber_ios=700\n[writer]\nrw=randwrite\nnumber_ios=700\n",
    },
    Workload {
        name: "streams",
        about: "Three sequential readers of 64 KiB at distant places, 4 in flight each, and a random writer of 16 KiB, 4 in flight",
        keys: "[global]\niodepth=4\n[reader]\nrw=read\nbs=64k\nnumjobs=3\noffset_increment=2g\nsize=2g\nnumber_ios=800\n[writer]\nrw=randwrite\nbs=16k\nnumber_ios=800\n",
    },
    Workload {
        name: "log",
        about: "Two random readers of 4 KiB, 16 in flight each, and a sequential writer of 32 KiB, 4 in flight, as a database with its log",
        keys: "[global]\n[reader]\nrw=randread\nbs=4k\niodepth=16\nnumjobs=2\nnumber_ios=1200\n[writer]\nrw=write\nbs=32k\niodepth=4\noffset=7g\nsize=512m\nnumber_ios=500\n",
    },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Rounds; each measures all settings once
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..))]
    rounds: u32,
    /// Backing of the loop device: `disk` is a file on this machine, `model:NAME` a modelled disk in real time
    #[arg(long, value_name = "BACKING", default_value = "model:fc15k-2002")]
    backing: Backing,
    /// Model of the predictions: a preset, or `fit` for one that is fitted to the device
    #[arg(long, value_name = "NAME", default_value = "fit")]
    model: String,
    /// Only workloads whose name contains this text
    #[arg(long, value_name = "NAME", default_value = "")]
    only: String,
    /// The Markdown file
    #[arg(short, long, value_name = "FILE", default_value = "target/whatif-study.md")]
    output: PathBuf,
}

/// Measures all settings, and writes the tables. Returns whether the order agrees wherever measurements differ.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let folder = workspace::target_dir().join("xtask/whatif-study");
    std::fs::create_dir_all(&folder)?;
    if let Some(missing) = device::missing(&options.backing) {
        println!("skipped: {missing}");
        return Ok(true);
    }
    workspace::build_iopath()?;
    let iopath = workspace::iopath_path();
    let device = Device::start(&options.backing, &iopath, &folder)?;
    let study = Study { options, iopath, device, folder };
    if options.model == FIT {
        println!("{}", study.fit()?);
    }
    let mut text = String::new();
    let mut agrees = true;
    for workload in WORKLOADS.iter().filter(|workload| workload.name.contains(&options.only)) {
        let table = study.workload(workload)?;
        agrees &= table.agreement.disagreeing.is_empty();
        text += &table.text;
        std::fs::write(&options.output, &text).with_context(|| options.output.display().to_string())?;
        print!("{}", table.text);
    }
    println!("written to {}", options.output.display());
    Ok(agrees)
}

struct Study<'a> {
    options: &'a Options,
    iopath: PathBuf,
    device: Device,
    folder: PathBuf,
}

/// A scheduler of the kernel or an elevator of iopath.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Kernel(&'static str, &'static str),
    Elevator(&'static str),
}

impl Setting {
    fn all() -> Vec<Self> {
        let kernel = KERNEL.into_iter().map(|(name, elevator)| Self::Kernel(name, elevator));
        kernel.chain(ELEVATORS.into_iter().map(Self::Elevator)).collect()
    }

    fn name(self) -> String {
        match self {
            Self::Kernel(name, _) => format!("kernel `{name}`"),
            Self::Elevator(name) => format!("iopath `{name}`"),
        }
    }

    /// The elevator that predicts it.
    const fn elevator(self) -> &'static str {
        match self {
            Self::Kernel(_, elevator) | Self::Elevator(elevator) => elevator,
        }
    }
}

struct Table {
    text: String,
    agreement: Agreement,
}

impl Study<'_> {
    /// Fits a model to the device; returns the text of the fit.
    fn fit(&self) -> Result<String> {
        self.device.set_scheduler("none", DEVICE_DEPTH)?;
        let mut fit = Command::new(&self.iopath);
        fit.arg("fit")
            .arg(self.device.file())
            .args(["--time", FIT_SECONDS, "--force", "-o"])
            .arg(self.fitted());
        let output = fit.output()?;
        ensure!(output.status.success(), "fit: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn fitted(&self) -> PathBuf {
        self.folder.join("model.toml")
    }

    fn target(&self) -> String {
        match self.options.model.as_str() {
            FIT => format!("model:{}", self.fitted().display()),
            preset => format!("model:{preset}"),
        }
    }

    fn workload(&self, workload: &Workload) -> Result<Table> {
        let jobs = self.folder.join(format!("{}.fio", workload.name));
        let file = self.device.file().display();
        // Each job has a fixed number of transfers, so all settings execute the requests that the replay has.
        let global = format!("[global]\nfilename={file}\ndirect=1\nioengine=io_uring\nsize=8g\n");
        std::fs::write(&jobs, format!("{global}{}", workload.keys))?;
        let log = self.folder.join(format!("{}.log", workload.name));
        self.measure(&jobs, Setting::Elevator(RECORDED), 0, Some(&log))?;
        let predicted = self.predict(&log)?;
        let settings = Setting::all();
        let mut measured: Vec<Measured> = settings.iter().map(|_| Measured::default()).collect();
        for round in 1..=self.options.rounds {
            // Each round begins with another setting, so that a drift of the machine affects all of them.
            for index in 0..settings.len() {
                let index = (index + round as usize) % settings.len();
                eprintln!("{}, round {round}: {}", workload.name, settings[index].name());
                measured[index].push(self.measure(&jobs, settings[index], round, None)?);
            }
        }
        let of = |setting: Setting| {
            let found = predicted.iter().find(|(name, _)| *name == setting.elevator());
            found.map(|(_, figures)| *figures).context("whatif has no such alternative")
        };
        let rows: Vec<(Setting, Measured, Figures)> = settings
            .iter()
            .zip(measured)
            .map(|(setting, measured)| Ok((*setting, measured, of(*setting)?)))
            .collect::<Result<_>>()?;
        let figures: Vec<_> = rows
            .iter()
            .map(|(setting, measured, predicted)| (setting.name(), measured, predicted.mb_per_s))
            .collect();
        let agreement = Agreement::of(&figures);
        let mut text = format!("### {}\n\n{}.\n\n", workload.name, workload.about);
        text += "| setting | MB/s, median (range) | predicted | deviation | p99, ms | predicted |\n|---|---:|---:|---:|---:|---:|\n";
        for (setting, measured, predicted) in &rows {
            let (rate, [low, high]) = (measured.rate(), measured.rates());
            let _ = writeln!(
                text,
                "| {} | {rate:.2} ({low:.2}–{high:.2}) | {:.2} | {:+.1}% | {:.0} | {:.0} |",
                setting.name(),
                predicted.mb_per_s,
                (predicted.mb_per_s / rate - 1.0) * 100.0,
                measured.p99_ms(),
                predicted.p99_ms,
            );
        }
        let _ = writeln!(text, "\n{agreement}\n");
        Ok(Table { text, agreement })
    }

    /// Throughput in MB/s and p99 in ms of one measurement.
    fn measure(&self, jobs: &Path, setting: Setting, round: u32, log: Option<&Path>) -> Result<Figures> {
        let json = self.folder.join("run.json");
        let mut run = Command::new(&self.iopath);
        run.arg("run").arg(jobs).arg("--overwrite").arg("--json").arg(&json);
        match setting {
            Setting::Kernel(scheduler, _) => self.device.set_scheduler(scheduler, DEVICE_DEPTH)?,
            Setting::Elevator(elevator) => {
                self.device.set_scheduler("none", DEVICE_DEPTH)?;
                run.args(["--path", "iopath-direct", "--elevator", elevator]);
                if elevator != "none" {
                    run.arg("--device-depth").arg(DEVICE_DEPTH.to_string());
                }
            }
        }
        if let Some(log) = log {
            run.arg("--log").arg(log);
        }
        let output = run.output()?;
        let lines = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} in round {round}: {lines}", setting.name());
        let report: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
        let group = &report["groups"][0];
        let number =
            |pointer: &str| group.pointer(pointer).and_then(Value::as_f64).context(pointer.to_owned());
        Ok(Figures {
            mb_per_s: number("/bytes_per_second/mean")? / 1e6,
            p99_ms: number("/latency_ns/p99")? / 1e6,
        })
    }

    /// The predictions of all elevators from a log.
    fn predict(&self, log: &Path) -> Result<Vec<(String, Figures)>> {
        let json = self.folder.join("whatif.json");
        let mut whatif = Command::new(&self.iopath);
        whatif
            .arg("whatif")
            .arg(log)
            .args(["--target", &self.target()])
            .args(["--closed", "--elevator", &ELEVATORS.join(","), "--json"])
            .arg(&json);
        let output = whatif.output()?;
        ensure!(output.status.success(), "whatif: {}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
        let cells = report.pointer("/inputs/0/cells").and_then(Value::as_array).context("no cells")?;
        let of_cell = |cell: &Value| {
            let number = |name: &str| cell["figures"][name].as_f64().with_context(|| name.to_owned());
            let elevator = cell["elevator"].as_str().context("elevator")?.to_owned();
            Ok((
                elevator,
                Figures { mb_per_s: number("bytes_per_s")? / 1e6, p99_ms: number("p99_ns")? / 1e6 },
            ))
        };
        cells.iter().map(of_cell).collect()
    }
}
