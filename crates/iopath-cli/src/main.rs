//! The `iopath` program: arguments in, the lab called, results shown. No logic of its own.

mod args;
mod log;
mod output;
mod progress;
mod run;
mod survey;

use args::{Cli, Command};
use clap::{CommandFactory, Parser};
use std::process::ExitCode;

/// What went wrong lies with the arguments (2) or with anything else (1).
const FAILURE: u8 = 1;
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let done = match cli.command {
        Command::Run(args) => run::run(&args),
        Command::Survey(args) => survey::run(&args),
        Command::Log(args) => log::log(&args),
        Command::Completions { shell } => {
            clap_complete::generate(shell, &mut Cli::command(), "iopath", &mut std::io::stdout());
            Ok(())
        }
        Command::Man => {
            clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout()).map_err(Into::into)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("iopath: {}", output::one_line(&error));
            ExitCode::from(FAILURE)
        }
    }
}

/// Help goes to stdout and is no failure; a wrong argument is one line on stderr.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let _ = error.print();
    ExitCode::from(USAGE)
}
