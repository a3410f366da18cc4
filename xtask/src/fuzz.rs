//! `cargo xtask fuzz`: builds the targets of `fuzz/` with the coverage instrumentation of LLVM, and runs them with
//! libFuzzer.
//!
//! Uses a stable toolchain without a sanitizer: the fuzzed code has no `unsafe` of its own, so panics, failed
//! assertions, hangs and memory are the defects to find. Needs a C++ compiler for libFuzzer, and a registry at the
//! first build.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{seed, workspace};

/// The targets. A target of a format of traces runs the program `trace` and rejects inputs of other formats.
const TARGETS: [&str; 14] = [
    "nbd-server",
    "nbd-client",
    "vhost-queue",
    "trace-blktrace",
    "trace-iolog",
    "trace-csv",
    "trace-biosnoop",
    "trace-blkparse",
    "trace-tracepoints",
    "trace-msr",
    "trace-alibaba",
    "trace-tencent",
    "trace-fiu",
    "trace-systor17",
];

/// The environment variable that names the format of the program `trace`.
const FORMAT: &str = "IOPATH_FUZZ_FORMAT";

/// The program of a target, which is also the name of its folder of seeds, and its format of traces.
fn program(target: &str) -> (&str, Option<&str>) {
    match target.strip_prefix("trace-") {
        Some(format) => ("trace", Some(format)),
        None => (target, None),
    }
}

/// Memory of a target, in MiB. A target that exceeds it fails.
const MEMORY_MIB: u32 = 512;

/// Seconds for one input. A target that exceeds it fails. An input takes less than a millisecond; the limit is that of
/// the clock, so a busy machine must not reach it.
const INPUT_SECONDS: u32 = 60;

/// Longest input in bytes: longer than any recorded session.
const INPUT_MAX: u32 = 64 << 10;

/// Edge counters with comparisons, and all assertions of the release profile of `fuzz/`.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
     -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only this target
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    only: Option<String>,
    /// Duration of each target
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Seed of the mutations [default: the time]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Runs the targets one after another. Returns false if one failed.
pub(crate) fn run(options: &Options) -> Result<bool> {
    if !["c++", "g++", "clang++"].iter().any(|program| workspace::find_program(program).is_some()) {
        println!("skipped: no C++ compiler, which libFuzzer needs; install the package g++");
        return Ok(true);
    }
    let binaries = build()?;
    let seed = seed::or_time(options.seed)? as u32;
    let mut is_ok = true;
    for target in TARGETS.iter().filter(|target| options.only.as_deref().is_none_or(|only| only == **target))
    {
        println!("{target}: {} s, seed {seed}", options.seconds);
        let status = command(target, &binaries, options.seconds, seed)?.status()?;
        if !status.success() {
            println!("FAILED: {target}: {status}; the line above names the file with the input");
            is_ok = false;
        }
    }
    Ok(is_ok)
}

/// Builds all targets. Returns the folder of the programs.
fn build() -> Result<PathBuf> {
    let host = host()?;
    let status = workspace::cargo()
        .current_dir(workspace::root().join("fuzz"))
        .args(["build", "--release", "--bins", "--target", &host])
        .env("CARGO_TARGET_DIR", target_dir())
        .env("RUSTFLAGS", FLAGS)
        .status()?;
    if !status.success() {
        bail!("cannot build the fuzz targets: {status}");
    }
    Ok(target_dir().join(host).join("release"))
}

fn target_dir() -> PathBuf {
    workspace::target_dir().join("fuzz")
}

/// The name of this machine for `--target`, so that the flags do not apply to build scripts.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot run rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc -vV names no host")
}

/// The command of a target. Its inputs grow in a folder below the build output, from the recorded sessions on.
fn command(target: &str, binaries: &std::path::Path, seconds: u32, seed: u32) -> Result<Command> {
    let inputs = target_dir().join("inputs").join(target);
    let failures = target_dir().join("failures");
    for folder in [&inputs, &failures] {
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let (program, format) = program(target);
    let mut command = Command::new(binaries.join(program));
    command
        .envs(format.map(|format| (FORMAT, format)))
        .arg(inputs)
        .arg(workspace::root().join("fuzz/seeds").join(program))
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-seed={seed}"))
        .arg(format!("-rss_limit_mb={MEMORY_MIB}"))
        .arg(format!("-timeout={INPUT_SECONDS}"))
        .arg(format!("-max_len={INPUT_MAX}"))
        .arg(format!("-artifact_prefix={}/{target}-", failures.display()))
        .args(["-print_final_stats=1", "-use_value_profile=1"]);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_target_has_a_program_and_seeds() {
        let folder = workspace::root().join("fuzz");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("a manifest");
        for target in TARGETS {
            let (program, _) = program(target);
            assert!(manifest.contains(&format!("name = \"{program}\"")), "{program} is no program of fuzz/");
            let seeds = std::fs::read_dir(folder.join("seeds").join(program)).expect("seeds").count();
            assert!(seeds > 5, "{target} has {seeds} seeds");
        }
    }
}
