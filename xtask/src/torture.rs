//! `cargo xtask torture`: random operations on a volume, compared byte by byte. What they are is in
//! `crates/iopath/tests/torture`; this passes seed, target, engine and amount, and runs it optimised with every assertion.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};

use crate::workspace;

/// Which engine the tests of `iopath`, `iopath-lab` and the program ask for: `auto`, `uring` or `threads`.
pub(crate) const ENGINE_VARIABLE: &str = "IOPATH_TEST_ENGINE";

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// Where the random numbers begin: the same seed does the same again [default: the time]
    #[arg(long, value_name = "N")]
    pub(crate) seed: Option<u64>,
    /// How many operations
    #[arg(long, value_name = "N", default_value_t = 10_000_000)]
    pub(crate) ops: u64,
    /// `memory`, `tmpfs` for a file there, or a file that does not exist: it is made and removed again
    #[arg(long, value_name = "FILE|memory|tmpfs", default_value = "memory")]
    pub(crate) target: PathBuf,
    /// What carries out the I/O on a file: `auto`, `uring` or `threads`
    #[arg(long, value_name = "NAME", default_value = "auto")]
    pub(crate) engine: String,
    /// Threads: each has ranges of its own, then all write everywhere
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) threads: u32,
}

/// Runs it to its end; true if every byte was as it must be.
pub(crate) fn run(options: &Options) -> Result<bool> {
    let mut command = command(options)?;
    command.args(["--", "--nocapture", "--test-threads", "1"]);
    let status = command.status().context("cannot run cargo")?;
    Ok(status.success())
}

/// Cargo, told to do what the options say.
pub(crate) fn command(options: &Options) -> Result<Command> {
    let is_keyword = ["memory", "tmpfs"].iter().any(|keyword| options.target.as_os_str() == *keyword);
    let target = if is_keyword {
        options.target.clone()
    } else {
        // The test runs in another directory.
        std::path::absolute(&options.target).context("the target has no absolute path")?
    };
    let seed = match options.seed {
        Some(seed) => seed,
        None => std::time::UNIX_EPOCH.elapsed().context("the clock is before 1970")?.as_secs(),
    };
    let mut command = workspace::cargo();
    command
        .args(["test", "--quiet", "--profile", "checked", "--package", "iopath", "--test", "torture"])
        .env("IOPATH_TORTURE_SEED", seed.to_string())
        .env("IOPATH_TORTURE_OPS", options.ops.to_string())
        .env("IOPATH_TORTURE_THREADS", options.threads.to_string())
        .env("IOPATH_TORTURE_TARGET", target)
        .env(ENGINE_VARIABLE, &options.engine);
    Ok(command)
}
