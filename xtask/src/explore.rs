//! `cargo xtask explore`: runs the blocking code under a scheduler that controls its threads. The scenarios are the
//! tests `explore` of `iopath-os` and `iopath`. This file builds them with `--cfg iopath_explore`, and sets their
//! seeds and time.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{artifact, seed, workspace};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Run only this schedule again, and print the stack of each thread if it hangs
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// The first seed; each further schedule uses the next number [default: the time]
    #[arg(long, value_name = "N", conflicts_with = "seed")]
    pub(crate) from: Option<u64>,
    /// Time for each scenario
    #[arg(long, value_name = "SECONDS", default_value_t = 20, conflicts_with = "seed")]
    pub(crate) seconds: u64,
    /// Explore only the scenarios whose name contains this
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,
}

/// Runs the scenarios. Returns false if a schedule failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let (mut scenarios, mut is_ok) = (0, true);
    for mut command in commands(options)? {
        command.args(["--nocapture"]).args(&options.name).stdout(Stdio::piped());
        let mut child = command.spawn().context("cannot run the test program")?;
        let output = child.stdout.take().context("the test program has no output")?;
        for line in BufReader::new(output).lines() {
            let line = line.context("cannot read the output of the test program")?;
            scenarios += u32::from(line.contains("explored "));
            println!("{line}");
        }
        is_ok &= child.wait().context("cannot wait for the test program")?.success();
    }
    anyhow::ensure!(
        scenarios > 0 || !is_ok,
        "no scenario has `{}` in its name",
        options.name.as_deref().unwrap_or("")
    );
    Ok(is_ok)
}

/// Builds the test programs, and returns their commands for these options.
pub(crate) fn commands(options: &Options) -> Result<Vec<Command>> {
    // The time is in the upper bits, so runs that start in different seconds have no seed in common.
    let from = options.from.map_or_else(|| seed::or_time(None).map(|time| time << 20), Ok)?;
    let programs = artifact::build_with(&["test", "--no-run", "--test", "explore"], |cargo| {
        cargo.env("RUSTC_WORKSPACE_WRAPPER", workspace::root().join("xtask/explored-rustc"));
    })?;
    ["iopath-os", "iopath"]
        .into_iter()
        .map(|package| {
            let program = artifact::find(&programs, package, "explore")?;
            let mut command = program.in_environment(Command::new(&program.executable));
            command
                .env("IOPATH_EXPLORE_FROM", from.to_string())
                .env("IOPATH_EXPLORE_SECONDS", options.seconds.to_string());
            match options.seed {
                Some(seed) => {
                    command.env("IOPATH_EXPLORE_SEED", seed.to_string()).env("SHUTTLE_CAPTURE_BACKTRACE", "1")
                }
                None => command.env_remove("IOPATH_EXPLORE_SEED"),
            };
            Ok(command)
        })
        .collect()
}
