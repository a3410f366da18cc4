//! Habits as commands: `cargo xtask test | tidy | bench | torture | explore | fsx | sanitize`.
//!
//! Holds no code of the product and is depended on by nothing: what is checked here is checked from outside.

mod bench;
mod explore;
mod fsx;
mod refuse;
mod sanitize;
mod test;
mod tidy;
mod torture;
mod workspace;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "Checks and measures this workspace", max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Check everything that a change must pass: format, lints, docs, tidy, tests
    Test(test::Options),
    /// Check the rules of style that no compiler checks
    Tidy(tidy::Options),
    /// Measure the bench of record against its peers and write target/bench.json
    Bench(bench::Options),
    /// Do random operations on a volume, with faults and power failures, and compare each byte
    Torture(torture::Options),
    /// Run the blocking code under many thread schedules and find those that hang
    Explore(explore::Options),
    /// Run the program fsx on a volume mounted with FUSE, by one process and by several
    Fsx(fsx::Options),
    /// Run tests under Miri and the sanitizers of threads and addresses, with a nightly toolchain
    Sanitize(sanitize::Options),
    /// Run a command to which the kernel refuses `io_uring`
    #[command(hide = true)]
    WithoutIoUring {
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Test(options) => Ok(test::run(&options)),
        Command::Tidy(options) => tidy::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Torture(options) => torture::run(&options),
        Command::Explore(options) => explore::run(&options),
        Command::Fsx(options) => fsx::run(&options),
        Command::Sanitize(options) => sanitize::run(&options),
        Command::WithoutIoUring { command } => refuse::run_without_io_uring(&command),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}
