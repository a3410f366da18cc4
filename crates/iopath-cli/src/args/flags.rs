//! The flags of commands for the fields of a workload, as messages name them.

use super::Command;
use iopath_bench::Field;
use iopath_bench::field::FieldNames;
use iopath_bench::options::{flag_of, key_of};

impl Command {
    /// The flags of this command for the fields of a workload. Messages name these flags.
    pub(crate) fn flags(&self) -> FieldNames {
        match self {
            Self::Run(args) if args.jobfile.is_some() || args.preset.is_some() => key_of,
            Self::Run(_) | Self::Sweep(_) | Self::Tune(_) => flag_of,
            Self::Survey(_) | Self::Fit(_) => survey_flag,
            Self::Map(_) => map_flag,
            Self::Replay(_) => replay_flag,
            _ => |_| None,
        }
    }
}

fn map_flag(field: Field) -> Option<&'static str> {
    (field == Field::BLOCK_SIZE).then_some("--bs")
}

/// A replay has the sizes of its trace.
fn replay_flag(field: Field) -> Option<&'static str> {
    let fields = [Field::TARGET, Field::PATH, Field::ELEVATOR, Field::SIZE, Field::OVERWRITE];
    flag_of(field).filter(|_| fields.contains(&field))
}

/// A survey sets all other fields itself.
fn survey_flag(field: Field) -> Option<&'static str> {
    (field == Field::OVERWRITE).then_some("--overwrite")
}

#[cfg(test)]
mod tests {
    use super::super::Cli;
    use super::*;
    use clap::CommandFactory;
    use iopath_bench::options::options;

    /// The flags of a subcommand, as `--name`.
    fn flags_of(name: &str) -> Vec<String> {
        let cli = Cli::command();
        let command = cli.find_subcommand(name).unwrap();
        command.get_arguments().filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect()
    }

    #[test]
    fn messages_name_only_flags_that_the_command_has() {
        let names: [(&str, FieldNames); 4] =
            [("run", flag_of), ("survey", survey_flag), ("map", map_flag), ("replay", replay_flag)];
        for (command, name) in names {
            let flags = flags_of(command);
            for flag in options().filter_map(|row| name(row.field?)) {
                assert!(flags.iter().any(|known| known == flag), "{command} has no {flag}");
            }
        }
    }
}
