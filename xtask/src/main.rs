//! Development tasks:
//! `cargo xtask test`, `tidy`, `bench`, `torture`, `explore`, `fsx`, `fuzz`, `guest`, `sim`, `mutants`, `sanitize`,
//! `remote-experiment` and `whatif-study`.
//!
//! Contains no product code. No crate depends on it: it checks the product from outside.

mod artifact;
mod bench;
mod explore;
mod fsx;
mod fuzz;
mod guest;
mod mutants;
mod refuse;
mod remote_experiment;
mod sanitize;
mod seed;
mod sim;
mod test;
mod tidy;
mod torture;
mod whatif_study;
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
    /// Run all checks that a change must pass: format, tidy, packages, other systems, lints, docs, tests
    Test(test::Options),
    /// Check style rules that the compiler does not check
    Tidy(tidy::Options),
    /// Run the benchmark against its peers and write target/bench.json
    Bench(bench::Options),
    /// Run random operations on a volume, with faults and power failures, and compare each byte
    Torture(torture::Options),
    /// Run the blocking code under many thread schedules to find deadlocks
    Explore(explore::Options),
    /// Run fsx, in one process and in several, on a volume mounted with FUSE
    Fsx(fsx::Options),
    /// Run the fuzz targets: state machines that read bytes of a stranger
    Fuzz(fuzz::Options),
    /// Boot a Linux guest in QEMU that uses an export of `iopath serve` as its disk
    Guest(guest::Options),
    /// Read from a server over a link of 1 Gbit/s, with the settings of a published table
    RemoteExperiment(remote_experiment::Options),
    /// Simulate whole systems in virtual time, with faults and power failures, and check each byte
    Sim(sim::Options),
    /// Put deliberate bugs into a copy of the tree, and measure how soon the simulator finds each
    Mutants(mutants::Options),
    /// Compare predictions of `iopath whatif` with measurements on a loop device; needs root
    WhatifStudy(whatif_study::Options),
    /// Run tests under Miri, `ThreadSanitizer` and `AddressSanitizer`, with a nightly toolchain
    Sanitize(sanitize::Options),
    /// Run a command without access to `io_uring`
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
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Guest(options) => guest::run(&options),
        Command::RemoteExperiment(options) => remote_experiment::run(&options),
        Command::Sim(options) => sim::run(&options),
        Command::Mutants(options) => mutants::run(&options),
        Command::WhatifStudy(options) => whatif_study::run(&options),
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
