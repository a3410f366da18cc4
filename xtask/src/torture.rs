//! `cargo xtask torture`: random operations on a volume, compared byte by byte. The operations are in
//! `crates/iopath/tests/torture`, and the server of the target `nbd` in `crates/iopath-nbd/tests/torture`. This file
//! sets seed, target, engine and number of operations.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::artifact::{self, Artifact};
use crate::seed;

/// Selects the engine of the tests of `iopath`, the lab and the program: `auto`, `uring` or `threads`.
pub(crate) const ENGINE_VARIABLE: &str = "IOPATH_TEST_ENGINE";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Seed of the random operations; the same seed repeats them [default: the time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// Number of operations
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub(crate) ops: u64,
    /// `memory`, `nbd` (an export of our server, with memory behind it), `tmpfs` (a file on tmpfs), or the path of a
    /// new file, which is removed at the end
    #[arg(long, value_name = "FILE|memory|nbd|tmpfs", default_value = "memory")]
    pub(crate) target: PathBuf,
    /// The I/O engine for a file: `auto`, `uring` or `threads`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) engine: String,
    /// Threads: first, each thread uses separate ranges; then all threads use the whole volume
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) threads: u32,
}

/// Runs the operations; returns whether every byte was correct.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = command(&build()?, options)?;
    command.args(["--nocapture", "--test-threads", "1"]);
    let status = command.status().context("cannot run the test program")?;
    Ok(status.success())
}

/// Builds the test programs.
pub(crate) fn build() -> Result<Vec<Artifact>> {
    artifact::build(&["test", "--no-run", "--test", "torture"])
}

/// The command of a test program for these options.
pub(crate) fn command(programs: &[Artifact], options: &Options) -> Result<Command> {
    let is = |keyword: &str| options.target.as_os_str() == keyword;
    let target = if ["memory", "nbd", "tmpfs"].into_iter().any(is) {
        options.target.clone()
    } else {
        // The working directory of the test is different.
        std::path::absolute(&options.target).context("the target has no absolute path")?
    };
    let seed = seed::or_time(options.seed)?;
    let package = if is("nbd") { "iopath-nbd" } else { "iopath" };
    let program = artifact::find(programs, package, "torture")?;
    let mut command = program.in_environment(Command::new(&program.executable));
    command
        .env("IOPATH_TORTURE_SEED", seed.to_string())
        .env("IOPATH_TORTURE_OPS", options.ops.to_string())
        .env("IOPATH_TORTURE_THREADS", options.threads.to_string())
        .env("IOPATH_TORTURE_TARGET", target)
        .env(ENGINE_VARIABLE, &options.engine);
    Ok(command)
}
