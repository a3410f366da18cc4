//! The programs of the steps that run tests, and what their output says.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::logged::{Logged, TestCount, skip_lines};
use super::programs::Program;
use super::{Length, Outcome};
use crate::artifact::{self, Artifact, FEATURES, Group};
use crate::{explore, sim, torture, workspace};

/// The tests that run a second time without `io_uring`: of crates that touch the kernel, all; of the lab and the
/// program, the groups that measure, serve and fail on real files. The other groups have no engine, or they show
/// nothing of it that these do not show.
const WITH_ENGINE: &[&str] = &[
    "iopath-bench/device_io",
    "iopath-bench/engine",
    "iopath-bench/paths",
    "iopath-bench::paths",
    "iopath-bench::verify",
    "iopath-cli/bad_days",
    "iopath-cli/fio",
    "iopath-cli/full_disk",
    "iopath-cli/interrupted",
    "iopath-cli/jobfile",
    "iopath-cli/live",
    "iopath-cli/replay",
    "iopath-cli/run",
    "iopath-cli/served",
    "iopath-cli/survey",
    "iopath-cli/targets",
    "iopath-fio/jobfile",
    "iopath-lab/verify",
];

/// All tests; with `--quick`, the tests in the sources.
pub(super) fn test(length: Length) -> Result<Vec<Program>> {
    let quick = ["--lib", "--bins"];
    let all = ["--lib", "--bins", "--tests"];
    let selected: &[&str] = if length == Length::Quick { &quick } else { &all };
    test_programs(selected, |_| true, |executable| Command::new(executable))
}

/// The documentation of each crate, and the tests in it.
pub(super) fn docs() -> Vec<Program> {
    let mut command = artifact::cargo();
    command
        .args(["test", "--workspace", "--doc", "--no-fail-fast", FEATURES, "--", "--show-output"])
        .env("RUSTDOC", workspace::root().join("xtask/documented-rustdoc"))
        .env("IOPATH_RUSTDOC", workspace::beside_cargo("rustdoc"))
        .env("IOPATH_DOCS", workspace::target_dir().join("doc"))
        .env("CARGO_TERM_COLOR", "never");
    vec![Program { name: "doc-tests".to_owned(), header: None, command }]
}

/// The tests in which an engine can change the outcome, without `io_uring`.
pub(super) fn test_without_io_uring(_: Length) -> Result<Vec<Program>> {
    let mut programs = test_programs(&["--lib", "--bins", "--tests"], has_engine, |executable| {
        // The running program: cargo may have put a newer xtask at its path in the meantime.
        let mut command = Command::new("/proc/self/exe");
        command.args(["without-io-uring", "--"]).arg(executable);
        command
    })?;
    for program in &mut programs {
        program.command.env(torture::ENGINE_VARIABLE, "threads");
    }
    Ok(programs)
}

/// Builds the tests that `arguments` of cargo select, and returns their groups, each run by the command of `run`.
fn test_programs(
    arguments: &[&str],
    is_selected: fn(&str) -> bool,
    run: impl Fn(&Path) -> Command,
) -> Result<Vec<Program>> {
    let build = artifact::command(&[&["test", "--no-run"], arguments].concat());
    let artifacts = artifact::of_messages(&Logged::new("build", build).run()?);
    let mut programs = Vec::new();
    for artifact in &artifacts {
        let groups = artifact.groups()?.into_iter().filter(|group| is_selected(&group.name));
        programs.extend(groups.map(|group| test_program(artifact, group, run(&artifact.executable))));
    }
    Ok(programs)
}

fn test_program(artifact: &Artifact, group: Group, command: Command) -> Program {
    let mut command = artifact.in_environment(command);
    command.args(["--show-output", "--exact"]).args(&group.tests);
    let shown = artifact.executable.strip_prefix(workspace::root()).unwrap_or(&artifact.executable).display();
    let header = Some(format!("     Running {} ({shown})\n", group.name));
    Program { name: group.name, header, command }
}

/// The number of tests, and the lines of skipped ones.
pub(super) fn tests_of(log: &str) -> Result<Outcome> {
    let count = TestCount::of(log);
    ensure!(count.passed > 0, "no test ran");
    let lines: Vec<&str> = skip_lines(log).into_iter().collect();
    Ok(Outcome::Passed(format!("{count}{}", indented(&lines))))
}

fn indented(lines: &[&str]) -> String {
    lines.iter().flat_map(|line| ["\n    ", line]).collect()
}

/// Whether this group of tests runs without `io_uring`.
fn has_engine(group: &str) -> bool {
    let crates = ["iopath-os", "iopath"];
    crates.contains(&group.split(['/', ':']).next().unwrap_or_default()) || WITH_ENGINE.contains(&group)
}

/// A part of `cargo xtask torture` with a fixed seed, so that only a change of the code can cause a failure. Races of
/// threads at the end of a file need a slow device, so one file is on a disk. The path for a fast device needs tmpfs.
pub(super) fn torture(_: Length) -> Result<Vec<Program>> {
    let directory = workspace::target_dir().join("xtask");
    std::fs::create_dir_all(&directory)?;
    let file = |name: &str| directory.join(format!("torture-{}-{name}", std::process::id()));
    let runs: [(u32, u64, PathBuf, &str); 7] = [
        (1, 700_000, "memory".into(), "auto"),
        (3, 400_000, "memory".into(), "auto"),
        (8, 400_000, "memory".into(), "auto"),
        (3, 300_000, "tmpfs".into(), "threads"),
        (3, 60_000, "tmpfs".into(), "auto"),
        (1, 10_000, file("a"), "auto"),
        (8, 50_000, file("b"), "auto"),
    ];
    let built = torture::build()?;
    let program = |(number, (threads, ops, target, engine)): (usize, (u32, u64, PathBuf, &str))| {
        let options = torture::Options { seed: Some(1), ops, target, engine: engine.to_owned(), threads };
        let mut command = torture::command(&built, &options)?;
        command.args(["--show-output", "--test-threads", "1"]);
        Ok(Program::of_step(format!("torture-{number}"), command))
    };
    (1..).zip(runs).map(program).collect()
}

pub(super) fn torture_of(log: &str) -> Result<Outcome> {
    let is_shown = |line: &&str| ["seeds", "over", "skip"].iter().any(|start| line.starts_with(start));
    let lines: Vec<&str> = log.lines().filter(is_shown).collect();
    ensure!(lines.iter().any(|line| line.contains("operations")), "no operation ran");
    Ok(Outcome::Passed(indented(&lines)))
}

/// A part of `cargo xtask explore` with a fixed seed, so that only a change of the code can cause a failure.
pub(super) fn explore(length: Length) -> Result<Vec<Program>> {
    let (from, seconds) = if length == Length::Long { (None, 60) } else { (Some(1), 1) };
    let options = explore::Options { seed: None, from, seconds, name: None };
    let program = |(number, mut command): (usize, Command)| {
        command.args(["--show-output", "--test-threads", "1"]);
        Program::of_step(format!("explore-{number}"), command)
    };
    Ok((1..).zip(explore::commands(&options)?).map(program).collect())
}

pub(super) fn explore_of(log: &str) -> Result<Outcome> {
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let counts: Vec<_> = log.lines().filter(|line| line.starts_with("explored ")).filter_map(count).collect();
    ensure!(!counts.is_empty(), "nothing was explored");
    let schedules = counts.iter().sum::<u64>();
    Ok(Outcome::Passed(format!("{schedules} schedules of {} scenarios", counts.len())))
}

/// A part of `cargo xtask sim`, and of the same with `--nbd`, with new seeds each time.
pub(super) fn sim(length: Length) -> Result<Vec<Program>> {
    let is_long = length == Length::Long;
    let options = |minutes, nbd| sim::Options {
        seed: None,
        from: None,
        minutes,
        first_features: false,
        second_features: false,
        third_features: false,
        fourth_features: false,
        jobs: Some(1),
        nbd,
    };
    let core = sim::command(&options(if is_long { 60.0 } else { 1.0 }, false))?;
    let nbd = sim::command(&options(if is_long { 15.0 } else { 0.25 }, true))?;
    Ok(vec![Program::of_step("sim".to_owned(), core), Program::of_step("sim-nbd".to_owned(), nbd)])
}

pub(super) fn sim_of(log: &str) -> Result<Outcome> {
    let summaries: Vec<_> = log.lines().filter_map(|line| line.strip_prefix("sim: ")).collect();
    ensure!(!summaries.is_empty(), "no run has ended");
    Ok(Outcome::Passed(summaries.join("; ")))
}

/// A part of `cargo xtask fsx`, with new seeds each time.
pub(super) fn fsx(length: Length) -> Vec<Program> {
    let seconds = if length == Length::Long { "3600" } else { "60" };
    // The running program: cargo may have put a newer xtask at its path in the meantime.
    let mut command = Command::new("/proc/self/exe");
    command.current_dir(workspace::root()).args(["fsx", "--jobs", "1", "--seconds", seconds]);
    vec![Program::of_step("fsx".to_owned(), command)]
}

pub(super) fn fsx_of(log: &str) -> Result<Outcome> {
    if let Some(reason) = log.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let summary = log.lines().find_map(|line| line.strip_prefix("fsx: "));
    Ok(Outcome::Passed(summary.context("no operation was run")?.to_owned()))
}

/// Whether the sources have a file for this group.
#[cfg(test)]
pub(super) fn group_exists(group: &str) -> bool {
    let (package, file) = match group.split_once("::") {
        Some((package, module)) => (package, format!("src/{module}")),
        None => group
            .split_once('/')
            .map(|(package, file)| (package, format!("tests/{file}")))
            .unwrap_or_default(),
    };
    let path = workspace::root().join("crates").join(package).join(file);
    path.join("main.rs").exists() || path.with_extension("rs").exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_groups_of_the_kernel_and_the_named_ones_run_without_io_uring() {
        for group in ["iopath/direct", "iopath-os::runner", "iopath-cli/run"] {
            assert!(has_engine(group), "{group}");
        }
        for group in ["iopath-core/model", "iopath-cli/fit", "iopath-lab::compare"] {
            assert!(!has_engine(group), "{group}");
        }
    }

    #[test]
    fn each_named_group_exists() {
        for group in WITH_ENGINE {
            assert!(group_exists(group), "{group} is no group of tests");
        }
    }

    #[test]
    fn a_step_without_output_of_its_tests_fails() {
        for outcome in [tests_of, torture_of, explore_of, sim_of, fsx_of] {
            assert!(outcome("nothing\n").is_err());
        }
    }
}
