//! The command line of `iopath tune`.

use super::values::{percentage, seed};
use super::{Cli, Command, GeneralFormat, RunArgs, ShowArgs};
use clap::{Args, Parser};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct TuneArgs {
    /// A block device (/dev/sda, sda), a partition, or a file or directory on the device
    #[arg(required_unless_present = "restore")]
    pub(crate) device: Option<PathBuf>,
    /// Settings to change, until `iopath tune --restore`. Without settings, the command shows all of them. With --try,
    /// lists of values: NAME=A,B
    #[arg(value_name = "NAME=VALUE")]
    pub(crate) changes: Vec<String>,
    /// Restore the settings of DEVICE, or of all devices, that iopath has changed
    #[arg(long, conflicts_with_all = ["changes", "keep", "json", "force", "format", "trial"])]
    pub(crate) restore: bool,
    /// Keep the new values: --restore does not undo them. They last until the next boot
    #[arg(long, requires = "changes", conflicts_with = "trial")]
    pub(crate) keep: bool,
    /// Measure candidates on a workload, and set the best one if it is better with confidence. The workload follows
    /// after --: the options of `iopath run`, or a job file. Without NAME=A,B, the candidates are common values of each
    /// setting
    #[arg(id = "trial", long = "try")]
    pub(crate) trial: bool,
    /// Maximum number of pairs that compare the best candidate with the present settings
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(2..=10_000), value_name = "N", requires = "trial")]
    pub(crate) repetitions_max: u32,
    /// The largest difference that counts as the same
    #[arg(long, default_value = "3%", value_parser = percentage, value_name = "PERCENT", requires = "trial")]
    pub(crate) threshold: f64,
    /// Seed of the order of measurements
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N", requires = "trial")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) format: GeneralFormat,
    #[command(flatten)]
    pub(crate) show: ShowArgs,
    /// The workload: options of `iopath run`, or a job file
    #[arg(last = true, value_name = "RUN OPTIONS", requires = "trial")]
    pub(crate) run: Vec<String>,
}

/// The time of a measurement, unless the options of the workload have another one.
const RUNTIME: &str = "1s";

impl TuneArgs {
    /// The workload of a trial: on DEVICE unless the options name a target.
    pub(crate) fn run_args(&self) -> anyhow::Result<Box<RunArgs>> {
        let start = ["iopath".to_owned(), "run".to_owned()];
        match Cli::try_parse_from(start.iter().chain(&self.run))?.command {
            Command::Run(mut run) if !run.options.has("log") => {
                if run.jobfile.is_none() {
                    if !run.options.has("runtime") {
                        run.options.set("runtime", RUNTIME);
                    }
                    if let Some(node) = self.node().filter(|_| !run.options.has("target")) {
                        run.options.set("target", node);
                    }
                }
                Ok(run)
            }
            _ => anyhow::bail!("a trial repeats its workload: it does not accept --log"),
        }
    }

    /// The path of DEVICE, which may be a name.
    fn node(&self) -> Option<PathBuf> {
        let device = self.device.clone()?;
        let node = Path::new("/dev").join(&device);
        Some(if !device.exists() && node.exists() { node } else { device })
    }
}
