//! The command line of `iopath sweep`: lists of values, and the options of `iopath run` that all cells share.

use super::{Cli, Command, JsonArgs, RunArgs, SweepFormat};
use crate::args::values::seed;
use clap::{Args, Parser};
use iopath_lab::device_settings::{Change, SettingName};
use iopath_lab::sweep::{Axis, Planned, product, set_on_model};
use iopath_lab::{LabError, SweepError};
use std::path::PathBuf;

/// Lists have commas, and ranges that double: 4k..64m, 1..32. The command measures each combination.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    /// The paths to measure
    #[arg(long, value_name = "PATH,...", required_unless_present = "resume")]
    pub(crate) path: Option<String>,
    /// A directory (for a temporary scratch file), a file or a block device; or model:NAME or model:FILE.toml
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<PathBuf>,
    /// Directions and orders of transfers
    #[arg(long, value_name = "RW,...", default_value = "read")]
    pub(crate) rw: String,
    /// Sizes of transfers
    #[arg(long, value_name = "SIZE,...", default_value = "4k")]
    pub(crate) bs: String,
    /// Transfers in flight per job
    #[arg(long, value_name = "N,...", default_value = "1")]
    pub(crate) iodepth: String,
    /// Numbers of threads
    #[arg(long, value_name = "N,...", default_value = "1")]
    pub(crate) numjobs: String,
    /// A setting with its values: one of `iopath tune` for the device of the target, which is restored at the end; of a
    /// model readahead, elevator, `max_sectors`, or a parameter of the model. May be repeated
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub(crate) set: Vec<String>,
    /// Bytes to access from the start of the target; default: all of a file or device, 1g of a scratch file
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<String>,
    /// Time of each repetition; default: until SIZE is transferred
    #[arg(long, value_name = "TIME")]
    pub(crate) runtime: Option<String>,
    /// Number of repetitions of each cell
    #[arg(long, value_name = "N", default_value = "3")]
    pub(crate) repeat: String,
    /// Seed of the order of cells, of random offsets and of content
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N")]
    pub(crate) seed: u64,
    /// Allow writing to a file or device that is not a scratch file of iopath. Destroys its content
    #[arg(long)]
    pub(crate) overwrite: bool,
    /// The file with the results, updated after each cell
    #[arg(long, short, value_name = "FILE", default_value = "iopath-sweep.json")]
    pub(crate) output: PathBuf,
    /// Continue an interrupted sweep: the options are those of FILE. Shows the results of a complete one
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) resume: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: SweepFormat,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
    /// No colours and no progress bars (like `NO_COLOR`)
    #[arg(long)]
    pub(crate) no_color: bool,
    /// No progress on stderr; warnings and errors stay
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Further options of `iopath run` for all cells, after --
    #[arg(last = true, value_name = "RUN OPTIONS")]
    pub(crate) run: Vec<String>,
}

/// The matrix of a sweep.
pub(crate) struct Matrix {
    pub(crate) axes: Vec<Axis>,
    /// The values of each cell.
    pub(crate) values: Vec<Vec<String>>,
    /// The cells, or the reason why one cannot run.
    pub(crate) cells: Vec<Result<Planned, String>>,
}

impl SweepArgs {
    /// The matrix of these arguments.
    pub(crate) fn matrix(&self) -> anyhow::Result<Matrix> {
        let lab = |error: SweepError| anyhow::Error::from(LabError::from(error));
        let mut axes = Vec::new();
        let path = self.path.as_deref().unwrap_or_default();
        let lists = [
            ("path", path),
            ("rw", &self.rw),
            ("bs", &self.bs),
            ("iodepth", &self.iodepth),
            ("numjobs", &self.numjobs),
        ];
        for (name, list) in lists {
            axes.push(Axis::parse(name, list).map_err(lab)?);
        }
        let of_workload = axes.len();
        for text in &self.set {
            let setting = self.set_axis(text)?;
            if axes.iter().any(|known| known.name == setting.name) {
                return Err(lab(SweepError::Twice(setting.name)));
            }
            axes.push(setting);
        }
        let mut matrix = Matrix { values: Vec::new(), cells: Vec::new(), axes };
        for indices in product(&matrix.axes).map_err(lab)? {
            let values: Vec<String> =
                matrix.axes.iter().zip(&indices).map(|(axis, index)| axis.values[*index].clone()).collect();
            matrix.cells.push(self.cell(&matrix.axes, &values, of_workload)?);
            matrix.values.push(values);
        }
        Ok(matrix)
    }

    fn is_model(&self) -> bool {
        self.target.as_ref().and_then(|target| target.to_str()).is_some_and(|name| name.starts_with("model:"))
    }

    /// The axis of a setting. Values of devices have the form that the kernel shows.
    fn set_axis(&self, text: &str) -> anyhow::Result<Axis> {
        let form = || LabError::from(iopath_lab::SettingsError::Form(text.to_owned()));
        let (name, list) = text.split_once('=').ok_or_else(form)?;
        let (name, list) = (name.trim(), list.trim());
        if self.is_model() {
            return Ok(Axis::parse(name, list).map_err(LabError::from)?);
        }
        let setting = SettingName::find(name).map_err(LabError::from)?;
        let mut axis = Axis::parse(setting.as_str(), list).map_err(LabError::from)?;
        for value in &mut axis.values {
            *value = setting.parse(value).map_err(LabError::from)?;
        }
        Ok(axis)
    }

    /// A cell. A value that no workload can have is an error; a combination that cannot run is a reason.
    fn cell(
        &self,
        axes: &[Axis],
        values: &[String],
        of_workload: usize,
    ) -> anyhow::Result<Result<Planned, String>> {
        let run = self.run_args(axes, &values[..of_workload])?;
        let mut workload = match run.workload() {
            Ok(workload) => workload,
            Err(LabError::Workload(error)) => return Ok(Err(error.message(super::run_flag))),
            Err(error) => return Err(error.into()),
        };
        let mut settings = Vec::new();
        for (axis, value) in axes.iter().zip(values).skip(of_workload) {
            if self.is_model() {
                set_on_model(&mut workload, &axis.name, value).map_err(LabError::from)?;
            } else {
                let name = SettingName::find(&axis.name).map_err(LabError::from)?;
                settings.push(Change { name, value: value.clone() });
            }
        }
        Ok(Ok(Planned { workload, settings }))
    }

    /// The options of `iopath run` for a cell.
    fn run_args(&self, axes: &[Axis], values: &[String]) -> anyhow::Result<Box<RunArgs>> {
        let mut args = vec!["iopath".to_owned(), "run".to_owned()];
        for (axis, value) in axes.iter().zip(values) {
            args.push(format!("--{}={value}", axis.name));
        }
        for (name, value) in [("size", &self.size), ("runtime", &self.runtime)] {
            args.extend(value.as_ref().map(|value| format!("--{name}={value}")));
        }
        args.push(format!("--repeat={}", self.repeat));
        args.push(format!("--seed={}", self.seed));
        args.extend(self.overwrite.then(|| "--overwrite".to_owned()));
        args.extend(self.run.iter().cloned());
        let mut args: Vec<std::ffi::OsString> = args.into_iter().map(Into::into).collect();
        if let Some(target) = &self.target {
            args.extend(["--target".into(), target.as_os_str().to_owned()]);
        }
        match Cli::try_parse_from(args)?.command {
            Command::Run(run) if run.jobfile.is_none() && run.log.is_none() => Ok(run),
            _ => anyhow::bail!("a sweep has workloads of its own: it accepts neither a job file nor --log"),
        }
    }

    /// The arguments of an interrupted sweep.
    pub(crate) fn of(arguments: &[String]) -> anyhow::Result<Self> {
        let program = std::iter::once("iopath".to_owned());
        match Cli::try_parse_from(program.chain(arguments.iter().cloned()))?.command {
            Command::Sweep(args) => Ok(*args),
            _ => anyhow::bail!("the arguments in the file are not those of a sweep"),
        }
    }
}
