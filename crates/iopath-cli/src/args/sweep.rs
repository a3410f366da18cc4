//! The command line of `iopath sweep`: lists of values, and the options of `iopath run` that all cells share.

use super::options::{OptionArgs, argument, check};
use super::values::{seed, shard};
use super::{Cli, Command, JsonArgs, SweepFormat};
use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Args, FromArgMatches, Parser};
use iopath_bench::BenchError;
use iopath_bench::device_settings::{Change, SettingName, SettingsError};
use iopath_bench::options::{Form, OptionRow, flag_of, of_name, options};
use iopath_lab::sweep::{Planned, SweepError, parse_axis, product, set_on_model};
use iopath_report::shard::Shard;
use iopath_report::sweep::Axis;
use std::ffi::OsStr;
use std::path::PathBuf;

/// Lists have commas, and ranges that double: 4k..64m, 1..32. The command measures each combination.
#[derive(Debug, Args)]
pub(crate) struct SweepArgs {
    #[command(flatten)]
    pub(crate) lists: ListArgs,
    /// A directory (for a temporary scratch file), a file or a block device; or model:NAME or model:FILE.toml
    #[arg(long, value_name = "TARGET")]
    pub(crate) target: Option<PathBuf>,
    /// A setting with its values: one of `iopath tune` for the device of the target, which is restored at the end; of
    /// a model readahead, elevator, `max_sectors`, or a parameter of the model. May be repeated
    #[arg(long, value_name = "NAME=VALUE,...")]
    pub(crate) set: Vec<String>,
    /// Seed of the order of cells, of random offsets and of content
    #[arg(long, default_value_t = 1, value_parser = seed, value_name = "N")]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) shared: SharedArgs,
    /// The file with the results, updated after each cell
    #[arg(long, short, value_name = "FILE", default_value = "iopath-sweep.json")]
    pub(crate) output: PathBuf,
    /// Continue an interrupted sweep: the options are those of FILE. Shows the results of a complete one
    #[arg(long, value_name = "FILE", exclusive = true)]
    pub(crate) resume: Option<PathBuf>,
    /// Measure only a share of the cells, for --merge-parts: 1/4, or auto for the rank, array or job index of MPI,
    /// Slurm and Kubernetes. In names of files, {shard} becomes the number of the share
    #[arg(long, value_name = "I/N|auto", value_parser = shard)]
    pub(crate) shard: Option<Shard>,
    /// Join the results files of all shares to --output
    #[arg(long, value_name = "PART", num_args = 1.., conflicts_with_all = NOT_WITH_PARTS)]
    pub(crate) merge_parts: Vec<PathBuf>,
    #[cfg(feature = "mpi")]
    #[command(flatten)]
    pub(crate) hosts: super::HostArgs,
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

/// The options without an effect on results that are measured already.
const NOT_WITH_PARTS: [&str; 14] = [
    "path",
    "rw",
    "bs",
    "iodepth",
    "numjobs",
    "size",
    "runtime",
    "repeat",
    "overwrite",
    "target",
    "set",
    "seed",
    "shard",
    "run",
];

/// The options of `iopath run` that are options of a sweep, too. All cells share their values.
const SHARED: [&str; 4] = ["size", "runtime", "repeat", "overwrite"];

/// The lists of values, each with its option: the axes of the matrix.
#[derive(Debug, Clone, Default)]
pub(crate) struct ListArgs(Vec<(&'static OptionRow, String)>);

impl FromArgMatches for ListArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut lists = Self::default();
        lists.update_from_arg_matches(matches)?;
        Ok(lists)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let list = |row: &'static OptionRow| Some((row, matches.get_one::<String>(row.name()?)?.clone()));
        self.0 = options().filter(|row| row.is_list()).filter_map(list).collect();
        Ok(())
    }
}

impl Args for ListArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        let list = |row: &'static OptionRow| {
            let (Some(name), Form::List(_, value)) = (row.name(), row.form) else { return None };
            let arg = Arg::new(name).long(name).value_name(value).help(row.help);
            Some(match row.default {
                Some(default) => arg.default_value(default),
                None => arg.required_unless_present_any(["resume", "merge_parts"]),
            })
        };
        command.args(options().filter_map(list))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

/// The options of [`SHARED`].
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedArgs(OptionArgs);

impl FromArgMatches for SharedArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(OptionArgs::of(matches, SHARED.iter().filter_map(|name| of_name(name)))))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for SharedArgs {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.args(SHARED.iter().filter_map(|name| argument(of_name(name)?)))
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
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
        let options = self.options()?;
        let mut axes = Vec::new();
        for (row, list) in &self.lists.0 {
            let listed = parse_axis(row.name().unwrap_or_default(), list)?;
            listed.values.iter().try_for_each(|value| check(row, value))?;
            axes.push(listed);
        }
        for text in &self.set {
            let setting = self.set_axis(text)?;
            if axes.iter().any(|known| known.name == setting.name) {
                return Err(SweepError::Twice(setting.name).into());
            }
            axes.push(setting);
        }
        let mut matrix = Matrix { values: Vec::new(), cells: Vec::new(), axes };
        for indices in product(&matrix.axes)? {
            let values: Vec<String> =
                matrix.axes.iter().zip(&indices).map(|(axis, index)| axis.values[*index].clone()).collect();
            matrix.cells.push(self.cell(&options, &matrix.axes, &values)?);
            matrix.values.push(values);
        }
        Ok(matrix)
    }

    fn is_model(&self) -> bool {
        self.target.as_ref().and_then(|target| target.to_str()).is_some_and(|name| name.starts_with("model:"))
    }

    /// The axis of a setting. Values of devices have the form that the kernel shows.
    fn set_axis(&self, text: &str) -> anyhow::Result<Axis> {
        let form = || SettingsError::Form(text.to_owned());
        let (name, list) = text.split_once('=').ok_or_else(form)?;
        let (name, list) = (name.trim(), list.trim());
        if self.is_model() {
            return Ok(parse_axis(name, list)?);
        }
        let setting = SettingName::find(name)?;
        let mut axis = parse_axis(setting.as_str(), list)?;
        for value in &mut axis.values {
            *value = setting.parse(value)?;
        }
        Ok(axis)
    }

    /// A cell. A value that no workload can have is an error; a combination that cannot run is a reason.
    fn cell(
        &self,
        options: &OptionArgs,
        axes: &[Axis],
        values: &[String],
    ) -> anyhow::Result<Result<Planned, String>> {
        let rows = self.lists.0.iter().map(|(row, _)| *row);
        let chosen: Vec<_> = rows.zip(values).map(|(row, value)| (row, OsStr::new(value))).collect();
        let mut workload = match options.workload_with(&chosen) {
            Ok(workload) => workload,
            Err(error) => match error.downcast_ref() {
                Some(BenchError::Workload(refused)) => return Ok(Err(refused.message(flag_of))),
                _ => return Err(error),
            },
        };
        let mut settings = Vec::new();
        for (axis, value) in axes.iter().zip(values).skip(self.lists.0.len()) {
            if self.is_model() {
                set_on_model(&mut workload, &axis.name, value)?;
            } else {
                let name = SettingName::find(&axis.name)?;
                settings.push(Change { name, value: value.clone() });
            }
        }
        Ok(Ok(Planned { workload, settings }))
    }

    /// The options that all cells share.
    fn options(&self) -> anyhow::Result<OptionArgs> {
        // Options after -- may require a run time, which is an option of the sweep.
        let runtime = self.shared.0.values("runtime").first();
        let mut words = self.run.clone();
        words.extend(runtime.map(|time| format!("--runtime={}", time.display())));
        let mut options = OptionArgs::parse(&words)?;
        if let Some(name) = options.of_one_workload() {
            anyhow::bail!("a sweep has workloads of its own: it accepts neither a job file nor --{name}");
        }
        let axes: Vec<_> = self.lists.0.iter().filter_map(|(row, _)| row.name()).collect();
        if let Some([given, axis]) = options.conflict_with(&axes) {
            let message = format!("--{given} cannot be used with --{axis}, which is an axis of a sweep");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message).into());
        }
        let mut own = axes.into_iter().chain(SHARED).chain(["seed"]);
        if let Some(name) = own.find(|name| options.has(name) && !(*name == "runtime" && runtime.is_some())) {
            let message = format!("--{name} is an option of the sweep itself; write it before --");
            return Err(clap::Error::raw(ErrorKind::ArgumentConflict, message).into());
        }
        options.append(&self.shared.0);
        options.set("seed", self.seed.to_string());
        if let Some(target) = &self.target {
            options.set("target", target);
        }
        Ok(options)
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
