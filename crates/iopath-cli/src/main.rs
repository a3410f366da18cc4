//! The `iopath` program: parses arguments, calls the lab, shows results.

mod args;
mod attach;
mod compare;
mod convert;
mod destination;
mod elevators;
mod experiment;
mod failure;
mod fio;
mod fit;
mod help;
mod live;
mod log;
mod man;
mod map;
#[cfg(feature = "mpi")]
mod mpi;
mod output;
mod party;
mod progress;
mod record;
mod replay;
mod report;
mod run;
mod serve;
mod shares;
mod stderr;
mod survey;
mod sweep;
mod tasks;
mod tune;
mod whatif;

use anyhow::Context;
use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use failure::{FAILURE, USAGE};
use iopath_bench::BenchError;
use iopath_experiments::ExperimentError;
use iopath_os::HugePages;
use std::io::Write;
use std::process::ExitCode;

/// Allocates the tables of large queues and logs on huge pages.
#[global_allocator]
static ALLOCATOR: HugePages = HugePages;

fn main() -> ExitCode {
    iopath_bench::survive_file_size_limit();
    if let Some(arguments) = fio::of_program_name() {
        tune::restore_after_kill();
        return fio::run(&arguments);
    }
    let command = match Cli::try_parse() {
        Ok(cli) => cli.command,
        Err(error) => return usage(&error),
    };
    match run(&command) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(error) = error.downcast_ref() {
                return usage(error);
            }
            let line = match (failure::bench(&error), error.downcast_ref()) {
                (Some(BenchError::Workload(refused)), _) => stderr::plain(&refused.message(command.flags())),
                (_, Some(ExperimentError::Parameter(refused))) => stderr::plain(&format!("--set: {refused}")),
                _ => output::one_line(&error),
            };
            stderr::note(line);
            ExitCode::from(if failure::is_usage(&error) { USAGE } else { FAILURE })
        }
    }
}

fn run(command: &Command) -> anyhow::Result<ExitCode> {
    // The restore of the command `tune --restore` includes this one.
    if !matches!(command, Command::Completions { .. } | Command::Man(_) | Command::Help(_) | Command::Tune(_))
    {
        tune::restore_after_kill();
    }
    match command {
        Command::Compare(args) => return compare::run(args),
        Command::Tune(args) => return tune::run(args),
        Command::Record(args) => return record::run(args),
        Command::Fio(args) => return Ok(fio::run(&args.arguments)),
        #[cfg(feature = "mpi")]
        Command::Run(args) if mpi::is_launched() => return mpi::run(args),
        // Shares are independent of each other, also those of mpirun.
        #[cfg(feature = "mpi")]
        Command::Sweep(args) if mpi::is_launched() && args.shard.is_none() && args.merge_parts.is_empty() => {
            return mpi::sweep(args);
        }
        Command::Run(args) => run::run(args),
        Command::Survey(args) => survey::run(args),
        Command::Report(args) => report::run(args),
        Command::Sweep(args) => sweep::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Fit(args) => fit::run(args),
        Command::WhatIf(args) => whatif::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Serve(args) => serve::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => attach::detach(args),
        Command::Elevators(args) => elevators::list(args),
        Command::Log(args) => log::log(args),
        Command::Convert(args) => convert::run(args),
        Command::Map(args) => map::run(args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "iopath", &mut script);
            output::print(&String::from_utf8(script)?)
        }
        Command::Man(args) => man::run(args),
        Command::Help(args) => help::run(args),
    }
    .map(|()| ExitCode::SUCCESS)
}

/// Requested help goes to stdout and is a success. Help for a missing command, and one line about an invalid argument,
/// go to stderr.
fn usage(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand;
    if !error.use_stderr() {
        let written = error.print().and_then(|()| std::io::stdout().flush());
        return match written.context("cannot write to stdout") {
            Err(error) if !output::is_broken_pipe(&error) => {
                stderr::note(output::one_line(&error));
                ExitCode::from(FAILURE)
            }
            _ => ExitCode::SUCCESS,
        };
    }
    if error.kind() == DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
    } else {
        let arguments: Vec<String> =
            std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
        let line = option_of_run(error).or_else(|| output::negative_value(error, &arguments));
        let line = line.unwrap_or_else(|| output::usage_line(error));
        stderr::note(line);
    }
    ExitCode::from(USAGE)
}

/// The message for an option of `iopath run` on `iopath survey`, which selects these values itself.
fn option_of_run(error: &clap::Error) -> Option<String> {
    use clap::error::{ContextKind, ContextValue, ErrorKind};
    let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) else { return None };
    let is_survey = std::env::args_os().nth(1).is_some_and(|command| command == "survey");
    let cli = Cli::command();
    let run_options = cli.find_subcommand("run")?.get_arguments().filter_map(clap::Arg::get_long);
    let is_known = run_options.into_iter().any(|long| option.strip_prefix("--") == Some(long));
    (error.kind() == ErrorKind::UnknownArgument && is_survey && is_known).then(|| {
        format!(
            "survey selects paths, block sizes and depths itself and has no {option}; use iopath run {option}"
        )
    })
}
