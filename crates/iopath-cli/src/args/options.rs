//! The arguments of the options of a workload, from the rows of their table (`iopath_bench::options`). Knows no option
//! by name.

use clap::builder::{OsStringValueParser, PathBufValueParser, TypedValueParser, ValueParser};
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use iopath_bench::options::{Form, Given, OPTIONS, OptionRow, Refused, Settings, of_name, options};
use iopath_bench::place::Place;
use iopath_bench::{BenchError, Workload};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use super::values::described;

/// The positional argument and the option that replace the options of a workload by the jobs of a file.
const JOBS: [&str; 2] = ["jobfile", "preset"];

/// Options with their values, in the order of the table.
#[derive(Debug, Clone, Default)]
pub(crate) struct OptionArgs {
    given: Vec<(&'static OptionRow, Vec<OsString>)>,
}

impl OptionArgs {
    /// The options of `iopath run` after `--`.
    pub(crate) fn parse(words: &[String]) -> Result<Self, clap::Error> {
        Self::from_arg_matches(&command().try_get_matches_from(words)?)
    }

    /// The values of some options that a command line gives.
    pub(super) fn of(matches: &ArgMatches, rows: impl Iterator<Item = &'static OptionRow>) -> Self {
        let given = rows.filter_map(|row| {
            let name = row.name().filter(|name| is_given(matches, name))?;
            let values = match row.form {
                Form::Flag => vec![OsString::new()],
                // One value for reads and writes.
                Form::Pair(_) => vec![values(matches, name).join(OsStr::new(","))],
                _ => values(matches, name),
            };
            Some((row, values))
        });
        Self { given: given.collect() }
    }

    /// Adds the options of another command line, which this one lacks.
    pub(super) fn append(&mut self, other: &Self) {
        self.given.extend(other.given.iter().cloned());
    }

    /// Whether an option is given.
    pub(crate) fn has(&self, name: &str) -> bool {
        !self.values(name).is_empty()
    }

    /// The values of an option.
    pub(super) fn values(&self, name: &str) -> &[OsString] {
        self.given.iter().find(|(row, _)| row.name() == Some(name)).map_or(&[], |(_, values)| values)
    }

    /// The first option that only one workload can have.
    pub(crate) fn of_one_workload(&self) -> Option<&'static str> {
        let is_of_one = |(row, _): &&(&OptionRow, _)| row.places.contains(&Place::OneWorkload);
        self.given.iter().find(is_of_one)?.0.name()
    }

    /// The first option that the table does not permit beside one of `others`, and the latter.
    pub(super) fn conflict_with(&self, others: &[&'static str]) -> Option<[&'static str; 2]> {
        self.given.iter().find_map(|(row, _)| {
            let other = row.conflicts.iter().find(|name| others.contains(name))?;
            Some([row.name()?, *other])
        })
    }

    /// Adds a value of an option.
    pub(crate) fn set(&mut self, name: &str, value: impl Into<OsString>) {
        let row = of_name(name).expect("the table has the option");
        match self.given.iter_mut().find(|(known, _)| known.name() == row.name()) {
            Some((_, values)) => *values = vec![value.into()],
            None => self.given.push((row, vec![value.into()])),
        }
    }

    /// The settings with the first value of each list.
    pub(crate) fn settings(&self) -> anyhow::Result<Settings> {
        self.settings_with(&[])
    }

    /// The settings with these values of some options.
    fn settings_with(&self, chosen: &[(&'static OptionRow, &OsStr)]) -> anyhow::Result<Settings> {
        let mut settings = Settings::default();
        // In the order of the table: an option can refine one before it.
        for row in options() {
            let Some(name) = row.name() else { continue };
            let chosen = chosen.iter().find(|(other, _)| other.name() == Some(name)).map(|(_, value)| *value);
            let values: Vec<&OsStr> = match (chosen, self.values(name), row.form) {
                (Some(value), ..) => vec![value],
                (None, values, Form::List(..)) => {
                    values.first().map(OsString::as_os_str).into_iter().collect()
                }
                (None, values, _) => values.iter().map(OsString::as_os_str).collect(),
            };
            for value in values {
                row.set(&mut settings, &Given::on_command_line(value)).map_err(refused)?;
            }
        }
        Ok(settings)
    }

    /// All combinations of the lists, at least one.
    pub(crate) fn combinations(&self) -> anyhow::Result<Vec<Settings>> {
        let mut combinations: Vec<Vec<(&'static OptionRow, &OsStr)>> = vec![Vec::new()];
        for (row, values) in self.given.iter().filter(|(row, _)| row.is_list()) {
            let longer = |chosen: &Vec<_>| {
                let chosen = chosen.clone();
                values.iter().map(move |value| {
                    let mut chosen = chosen.clone();
                    chosen.push((*row, value.as_os_str()));
                    chosen
                })
            };
            combinations = combinations.iter().flat_map(longer).collect();
        }
        combinations.iter().map(|chosen| self.settings_with(chosen)).collect()
    }

    /// The workloads of all combinations. Each has the same share of a target, of whole blocks of the largest size.
    pub(crate) fn workloads(&self) -> anyhow::Result<Vec<Workload>> {
        let all = self.combinations()?;
        let largest = all.iter().map(Settings::block_bytes).max().unwrap_or(1);
        all.iter().map(|settings| Ok(settings.to_workload(largest)?)).collect()
    }

    /// The workload with the first value of each list.
    pub(crate) fn workload(&self) -> anyhow::Result<Workload> {
        self.workload_with(&[])
    }

    /// The workload with these values of lists.
    pub(super) fn workload_with(&self, chosen: &[(&'static OptionRow, &OsStr)]) -> anyhow::Result<Workload> {
        let settings = self.settings_with(chosen)?;
        Ok(settings.to_workload(settings.block_bytes())?)
    }

    /// The targets.
    pub(crate) fn targets(&self) -> anyhow::Result<Vec<PathBuf>> {
        self.settings().map(|settings| settings.targets)
    }

    /// The file of the request log.
    pub(crate) fn log(&self) -> anyhow::Result<Option<PathBuf>> {
        self.settings().map(|settings| settings.workload.log.map(|log| log.file))
    }

    /// The number of values of an option.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.values(name).len()
    }
}

fn refused(refused: Refused) -> anyhow::Error {
    match refused {
        Refused::Workload(error) => BenchError::from(error).into(),
        other => clap::Error::raw(ErrorKind::ValueValidation, other).into(),
    }
}

impl FromArgMatches for OptionArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self::of(matches, options()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

fn is_given(matches: &ArgMatches, name: &str) -> bool {
    matches.value_source(name) == Some(ValueSource::CommandLine)
}

fn values(matches: &ArgMatches, name: &str) -> Vec<OsString> {
    matches.get_many::<OsString>(name).into_iter().flatten().cloned().collect()
}

impl Args for OptionArgs {
    /// The options of `iopath run`, which also accepts the jobs of a file instead of them.
    fn augment_args(command: Command) -> Command {
        let of_run = |arg: Arg, row: &OptionRow| {
            let arg = if row.is_of_job_file { arg } else { arg.conflicts_with_all(JOBS) };
            if row.name() == Some("path") { arg.required_unless_present_any(JOBS) } else { arg }
        };
        let rows = OPTIONS.iter().flat_map(|topic| topic.rows.iter().map(|row| (topic.title, row)));
        command.args(rows.filter_map(|(title, row)| Some(of_run(argument(row)?.help_heading(title), row))))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A command with these options only.
fn command() -> Command {
    let command = Command::new("iopath run").no_binary_name(true).disable_help_flag(true);
    command.args(options().filter_map(argument))
}

/// The argument of an option; none if only job files have it.
pub(super) fn argument(row: &'static OptionRow) -> Option<Arg> {
    let name = row.name()?;
    let mut arg = Arg::new(name).long(name).help(row.help).value_parser(parser(row));
    arg = match row.form {
        Form::Flag => arg.action(ArgAction::SetTrue),
        Form::One(value) => arg.value_name(value),
        Form::List(value, _) => arg.value_name(value).action(ArgAction::Append).value_delimiter(','),
        Form::Repeated(value) => arg.value_name(value).action(ArgAction::Append),
        Form::Pair(value) => {
            arg.value_name(value).action(ArgAction::Append).value_delimiter(',').num_args(1..=2)
        }
        Form::Optional(value, default) => {
            arg.value_name(value).num_args(0..=1).default_missing_value(default)
        }
    };
    if let Some(more) = row.more_help {
        arg = arg.long_help(format!("{}\n{}", row.help, more()));
    }
    if let Some(default) = row.default {
        arg = arg.default_value(default);
    }
    if let Some(required) = row.requires {
        arg = arg.requires(required);
    }
    // A number can be negative, such as a gap.
    Some(arg.allow_hyphen_values(row.is_signed).conflicts_with_all(row.conflicts))
}

/// Checks the form of a value. Its range is checked when it is set, with an error that names all options.
fn parser(row: &'static OptionRow) -> ValueParser {
    if row.form == Form::Flag {
        return clap::value_parser!(bool);
    }
    if let Some(names) = row.names {
        return described(names()).map(OsString::from).into();
    }
    let check = |value: OsString| row.check(&value).map(|()| value);
    if row.is_file {
        return PathBufValueParser::new().try_map(move |file| check(file.into_os_string())).into();
    }
    OsStringValueParser::new().try_map(check).into()
}

/// Checks a value of a list of a sweep, with the message that the option of `iopath run` has.
pub(super) fn check(row: &'static OptionRow, value: &str) -> Result<(), clap::Error> {
    let flag = row.flag.unwrap_or_default();
    command().try_get_matches_from([format!("{flag}={value}")]).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_combination_of_lists_is_a_workload() {
        let words = ["--path=null", "--bs=4k,8k", "--iodepth=1,2,4", "--skip", "-8k", "--target=a,b"];
        let args = OptionArgs::parse(&words.map(str::to_owned)).unwrap();
        let all = args.workloads().unwrap();
        let sizes: Vec<_> = all.iter().map(|one| (one.block_size.bytes(), one.depth.get())).collect();
        assert_eq!(sizes, [(4096, 1), (4096, 2), (4096, 4), (8192, 1), (8192, 2), (8192, 4)]);
        assert!(all.iter().all(|one| one.shape.skip_bytes == -8192 && one.more_targets.len() == 1));
    }
}
