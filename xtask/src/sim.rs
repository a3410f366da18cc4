//! `cargo xtask sim`: runs the simulator (`crates/iopath-sim`) on one seed, or on new seeds for some time; with `--nbd`
//! that of the NBD client and server (`crates/iopath-nbd/src/sim`).

use std::process::Command;

use anyhow::{Context, Result};

use crate::{artifact, seed, workspace};

#[allow(clippy::struct_excessive_bools, reason = "options of a command line")]
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Run only this seed, and print the coverage and a hash of its events
    #[arg(long, value_name = "N", conflicts_with_all = ["from", "minutes"])]
    pub(crate) seed: Option<u64>,
    /// The first seed; each further run uses the next number [default: the time]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Time of the simulation
    #[arg(long, value_name = "N", default_value_t = 1.0)]
    pub(crate) minutes: f64,
    /// Draw only the features of the first version of the simulator, for seeds that failed then
    #[arg(long)]
    pub(crate) first_features: bool,
    /// The same for the second version
    #[arg(long, conflicts_with = "first_features")]
    pub(crate) second_features: bool,
    /// The same for the third version
    #[arg(long, conflicts_with_all = ["first_features", "second_features"])]
    pub(crate) third_features: bool,
    /// The same for the fourth version
    #[arg(long, conflicts_with_all = ["first_features", "second_features", "third_features"])]
    pub(crate) fourth_features: bool,
    /// Threads [default: one for each processor]
    #[arg(long, value_name = "N")]
    pub(crate) jobs: Option<usize>,
    /// Simulate the NBD client and server, with unfair, slow and lying peers
    #[arg(long, conflicts_with_all = ["first_features", "second_features", "third_features", "fourth_features"])]
    pub(crate) nbd: bool,
}

/// Runs the simulator. Returns false if a run failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    Ok(command(options)?.status().context("cannot run the simulator")?.success())
}

/// Builds the simulator, and returns its command for these options.
pub(crate) fn command(options: &Options) -> Result<Command> {
    let program = if options.nbd {
        let programs = artifact::build(&["build", "--example", "simulate", "--features", "iopath-nbd/sim"])?;
        artifact::find(&programs, "iopath-nbd", "simulate")?.executable.clone()
    } else {
        // With the test program, cargo builds the simulator with the features of all tests.
        let programs = artifact::build(&["test", "--no-run", "--test", "seeds"])?;
        artifact::find(&programs, "iopath-sim", "iopath-sim")?.executable.clone()
    };
    let mut command = Command::new(&program);
    command.current_dir(workspace::root());
    if options.first_features {
        command.arg("--first-features");
    }
    if options.second_features {
        command.arg("--second-features");
    }
    if options.third_features {
        command.arg("--third-features");
    }
    if options.fourth_features {
        command.arg("--fourth-features");
    }
    if let Some(seed) = options.seed {
        command.args(["--seed", &seed.to_string()]);
        return Ok(command);
    }
    // The time is in the upper bits, so runs that start in different seconds have no seed in common.
    let from = options.from.map_or_else(|| seed::or_time(None).map(|time| time << 20), Ok)?;
    let seconds = (options.minutes.clamp(0.0, 1e6) * 60.0).ceil() as u64;
    command.args(["--from", &from.to_string(), "--seconds", &seconds.to_string()]);
    command.args(options.jobs.map(|jobs| format!("--jobs={jobs}")));
    Ok(command)
}
