//! `cargo xtask test`: all checks that a change must pass, as a table of steps.

mod failures;
mod logged;
mod peers;
mod process;
mod programs;
mod progress;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::artifact::FEATURES;
use crate::{explore, sim, tidy, torture, workspace};
use logged::Logged;
use programs::TestRun;

/// Crates with real I/O. Their tests run a second time without `io_uring`.
const WITH_IO: &[&str] = &["iopath-os", "iopath", "iopath-bench", "iopath-fio", "iopath-lab", "iopath-cli"];

/// Modules of these crates whose tests have no engine, or in which it changes nothing that other tests do not show:
/// virtual time, statistics, formats, arguments, campaigns of runs, the kernel's settings, recordings and paths. The
/// pass without `io_uring` omits them. `::` precedes a module of sources, `/` one of `tests`.
const WITHOUT_ENGINE: &[&str] = &[
    "::args",
    "::compare",
    "::fit",
    "::help",
    "::map",
    "::record",
    "::simulated",
    "::trace",
    "/arguments",
    "/compare",
    "/compare_storage",
    "/convert",
    "/device_settings",
    "/experiment",
    "/fio_lines",
    "/fit",
    "/formats",
    "/help",
    "/jobfile_models",
    "/lists",
    "/map",
    "/messages",
    "/page",
    "/record",
    "/refusals",
    "/report",
    "/schema",
    "/serve_model",
    "/simulated",
    "/streams",
    "/sweep_resume",
    "/target_files",
    "/target_fixtures",
    "/target_guard",
    "/target_mounts",
    "/target_refusals",
    "/tune",
    "/usage",
    "/whatif",
    "/whatif_accesses",
];

/// The result of a step that did not fail.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// With a note, which may be empty.
    Passed(String),
    /// With the reason.
    Skipped(String),
}

/// How much the steps run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Quick,
    Normal,
    Long,
}

struct Step {
    name: &'static str,
    /// Whether `--quick` includes the step.
    quick: bool,
    run: fn(Length) -> Result<Outcome>,
}

const STEPS: &[Step] = &[
    Step { name: "peers", quick: false, run: |_| Ok(peers::install_missing()) },
    Step { name: "format", quick: true, run: |_| format() },
    Step { name: "tidy", quick: true, run: |_| tidy() },
    Step { name: "clippy", quick: true, run: |_| clippy() },
    Step { name: "docs", quick: false, run: |_| docs() },
    Step { name: "test", quick: true, run: test },
    Step { name: "torture", quick: false, run: |_| torture() },
    Step { name: "explore", quick: false, run: explore },
    Step { name: "sim", quick: false, run: sim },
    Step { name: "fsx", quick: false, run: fsx },
    Step { name: "test-without-uring", quick: false, run: |_| test_without_io_uring() },
    Step { name: "deny", quick: false, run: |_| deny() },
    Step { name: "tree", quick: true, run: |_| tree() },
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only format, tidy, clippy and the tests in the sources
    #[arg(long)]
    quick: bool,
    /// Run explore, sim and fsx for longer, with new seeds: for every night
    #[arg(long, conflicts_with = "quick")]
    long: bool,
    /// Run only the step of this name
    #[arg(long, value_name = "STEP")]
    only: Option<String>,
}

/// Runs all steps, also after a failure. Returns false if a step failed.
pub(crate) fn run(options: &Options) -> bool {
    let is_selected = |step: &&Step| match &options.only {
        Some(name) => step.name == name,
        None => step.quick || !options.quick,
    };
    let steps: Vec<&Step> = STEPS.iter().filter(is_selected).collect();
    if steps.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        let only = options.only.as_deref().unwrap_or_default();
        eprintln!("xtask: unknown step `{only}`; use one of: {}", names.join(", "));
        return false;
    }
    UNTRACKED.get_or_init(untracked);
    let started = Instant::now();
    let length = match (options.quick, options.long) {
        (true, _) => Length::Quick,
        (false, true) => Length::Long,
        (false, false) => Length::Normal,
    };
    let results: Vec<_> = steps.iter().map(|step| (step.name, run_step(step, length))).collect();
    print!("{}", summary(&results, started.elapsed()));
    results.iter().all(|(_, result)| result.is_ok())
}

fn run_step(step: &Step, length: Length) -> Result<Outcome> {
    progress::begin(step.name);
    let result = (step.run)(length);
    let seconds = progress::end(step.name).as_secs_f64();
    match &result {
        Ok(Outcome::Passed(note)) => println!("ok      {seconds:6.1} s  {note}"),
        Ok(Outcome::Skipped(reason)) => println!("skipped {seconds:6.1} s  {reason}"),
        Err(error) => println!("FAILED  {seconds:6.1} s  {error:#}"),
    }
    result
}

/// The skipped steps with their reasons, the names of the failed steps, then a line with the number of steps.
fn summary(results: &[(&str, Result<Outcome>)], elapsed: Duration) -> String {
    let mut text = String::from("\n");
    let mut skipped = 0;
    let mut failed = Vec::new();
    for (name, result) in results {
        match result {
            Ok(Outcome::Passed(_)) => {}
            Ok(Outcome::Skipped(reason)) => {
                skipped += 1;
                let _ = writeln!(text, "skipped: {name}: {reason}"); // Cannot fail.
            }
            Err(_) => failed.push(*name),
        }
    }
    let verdict = match failed.as_slice() {
        [] if skipped == 0 => "all steps passed".to_owned(),
        [] => "all steps passed, except skipped ones".to_owned(),
        [first, ..] => {
            format!("failed: {}; run again: cargo xtask test --only {first}", failed.join(", "))
        }
    };
    let passed = results.len() - failed.len() - skipped;
    let tail = if skipped == 0 { String::new() } else { format!(", {skipped} skipped") };
    let failed = failed.len();
    let seconds = elapsed.as_secs();
    let _ = write!(text, "{verdict} ({seconds} s in total)\n{passed} passed, {failed} failed{tail}\n");
    text
}

fn format() -> Result<Outcome> {
    Logged::new("format", workspace::cargo()).args(["fmt", "--all", "--check"]).run()?;
    Ok(Outcome::Passed(String::new()))
}

fn tidy() -> Result<Outcome> {
    let report = tidy::check()?;
    if report.is_clean() {
        return Ok(Outcome::Passed(report.to_string()));
    }
    println!();
    anyhow::bail!("{report}")
}

fn clippy() -> Result<Outcome> {
    Logged::new("clippy", workspace::cargo())
        .args(["clippy", "--workspace", "--all-targets", FEATURES, "--", "-D", "warnings"])
        .run()?;
    Ok(Outcome::Passed(String::new()))
}

fn docs() -> Result<Outcome> {
    Logged::new("docs", workspace::cargo())
        .args(["doc", "--workspace", "--no-deps", FEATURES])
        .env("RUSTDOCFLAGS", "-D warnings")
        .run()?;
    Ok(Outcome::Passed(String::new()))
}

/// All tests; with `--quick`, the tests in the sources.
fn test(length: Length) -> Result<Outcome> {
    let is_quick = length == Length::Quick;
    TestRun {
        name: "test",
        programs: if is_quick { &["--lib", "--bins"] } else { &[] },
        is_selected: |_| true,
        has_doc_tests: !is_quick,
        wrapper: Vec::new(),
        variable: None,
    }
    .run()
}

fn test_without_io_uring() -> Result<Outcome> {
    TestRun {
        name: "test-without-uring",
        programs: &[],
        is_selected: has_engine,
        has_doc_tests: false,
        // The running program: cargo may have put a newer xtask at its path in the meantime.
        wrapper: ["/proc/self/exe", "without-io-uring", "--"].map(Into::into).into(),
        variable: Some((torture::ENGINE_VARIABLE, "threads")),
    }
    .run()
}

/// Whether an engine can change the outcome of this group of tests.
fn has_engine(group: &str) -> bool {
    let package = group.split(['/', ':']).next().unwrap_or_default();
    WITH_IO.contains(&package) && !WITHOUT_ENGINE.iter().any(|module| group.ends_with(module))
}

/// A part of `cargo xtask torture` with a fixed seed, so that only a change of the code can cause a failure. Races of
/// threads at the end of a file need a slow device, so one file is on a disk. The path for a fast device needs tmpfs.
fn torture() -> Result<Outcome> {
    let directory = workspace::target_dir().join("xtask");
    std::fs::create_dir_all(&directory)?;
    let file = directory.join(format!("torture-{}", std::process::id()));
    let runs: [(u32, u64, PathBuf, &str); 7] = [
        (1, 700_000, "memory".into(), "auto"),
        (3, 400_000, "memory".into(), "auto"),
        (8, 400_000, "memory".into(), "auto"),
        (3, 300_000, "tmpfs".into(), "threads"),
        (3, 60_000, "tmpfs".into(), "auto"),
        (1, 10_000, file.clone(), "auto"),
        (8, 50_000, file, "auto"),
    ];
    let mut note = String::new();
    for (threads, ops, target, engine) in runs {
        let options = torture::Options { seed: Some(1), ops, target, engine: engine.to_owned(), threads };
        let log = Logged::new("torture", torture::command(&options)?)
            .args(["--show-output", "--test-threads", "1"])
            .run()?;
        for line in log.lines().filter(|line| ["seeds", "over", "skip"].iter().any(|it| line.starts_with(it)))
        {
            note.push_str("\n    ");
            note.push_str(line);
        }
    }
    anyhow::ensure!(note.contains("operations"), "no operation ran");
    Ok(Outcome::Passed(note))
}

/// A part of `cargo xtask explore` with a fixed seed, so that only a change of the code can cause a failure.
fn explore(length: Length) -> Result<Outcome> {
    let (from, seconds) = if length == Length::Long { (None, 60) } else { (Some(1), 2) };
    let options = explore::Options { seed: None, from, seconds, name: None };
    let mut counts = Vec::new();
    for command in explore::commands(&options)? {
        let log = Logged::new("explore", command).args(["--show-output"]).run()?;
        let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
        counts.extend(log.lines().filter(|line| line.starts_with("explored ")).filter_map(count));
    }
    anyhow::ensure!(!counts.is_empty(), "nothing was explored");
    let schedules = counts.iter().sum::<u64>();
    let scenarios = counts.len();
    Ok(Outcome::Passed(format!("{schedules} schedules of {scenarios} scenarios")))
}

/// A part of `cargo xtask sim` on two processors, with new seeds each time.
fn sim(length: Length) -> Result<Outcome> {
    let minutes = if length == Length::Long { 60.0 } else { 0.5 };
    let options = sim::Options { seed: None, from: None, minutes, first_features: false, jobs: Some(2) };
    let log = Logged::new("sim", sim::command(&options)?).run()?;
    let summary = log.lines().find_map(|line| line.strip_prefix("sim: "));
    Ok(Outcome::Passed(summary.ok_or_else(|| anyhow::anyhow!("no run has ended"))?.to_owned()))
}

/// A part of `cargo xtask fsx`, with new seeds each time.
fn fsx(length: Length) -> Result<Outcome> {
    let seconds = if length == Length::Long { "3600" } else { "60" };
    // The running program: cargo may have put a newer xtask at its path in the meantime.
    let mut xtask = Command::new("/proc/self/exe");
    xtask.current_dir(workspace::root());
    let log = Logged::new("fsx", xtask).args(["fsx", "--seconds", seconds]).run()?;
    if let Some(reason) = log.lines().find_map(|line| line.strip_prefix("skipped: ")) {
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    let summary = log.lines().find_map(|line| line.strip_prefix("fsx: "));
    Ok(Outcome::Passed(summary.ok_or_else(|| anyhow::anyhow!("no operation was run"))?.to_owned()))
}

fn deny() -> Result<Outcome> {
    if workspace::find_program("cargo-deny").is_none() {
        let reason = "cargo-deny is not installed: `cargo install cargo-deny` checks licences and advisories";
        return Ok(Outcome::Skipped(reason.to_owned()));
    }
    Logged::new("deny", workspace::cargo()).args(["deny", "check"]).run()?;
    Ok(Outcome::Passed(String::new()))
}

/// The untracked files of the tree when the steps began. None without a checkout of git.
static UNTRACKED: OnceLock<Option<BTreeSet<String>>> = OnceLock::new();

/// Checks that no step left a file in the tree.
fn tree() -> Result<Outcome> {
    let (Some(Some(before)), Some(after)) = (UNTRACKED.get(), untracked()) else {
        return Ok(Outcome::Skipped("git or its checkout is missing".to_owned()));
    };
    let left: Vec<_> = after.difference(before).cloned().collect();
    anyhow::ensure!(left.is_empty(), "a step left files in the tree: {}", left.join(", "));
    Ok(Outcome::Passed(String::new()))
}

/// The files that git neither tracks nor ignores. None without git or a checkout.
fn untracked() -> Option<BTreeSet<String>> {
    let arguments = ["ls-files", "--others", "--exclude-standard"];
    let output = Command::new("git").current_dir(workspace::root()).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.lines().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_steps() {
        let results = [
            ("format", Ok(Outcome::Passed(String::new()))),
            ("deny", Ok(Outcome::Skipped("not installed".to_owned()))),
        ];
        let text = summary(&results, Duration::from_secs(3));
        assert_eq!(text.lines().last(), Some("1 passed, 0 failed, 1 skipped"));
        assert!(text.contains("all steps passed, except skipped ones (3 s in total)"), "{text}");
        assert!(text.contains("skipped: deny: not installed"), "{text}");
    }

    #[test]
    fn failed_steps_are_named_with_a_command_to_run_them_again() {
        let results =
            [("format", Ok(Outcome::Passed(String::new()))), ("clippy", Err(anyhow::anyhow!("2 warnings")))];
        let text = summary(&results, Duration::from_secs(1));
        assert_eq!(text.lines().last(), Some("1 passed, 1 failed"));
        assert!(text.contains("failed: clippy; run again: cargo xtask test --only clippy"), "{text}");
    }

    #[test]
    fn tests_with_an_engine_run_without_io_uring() {
        for group in ["iopath/direct", "iopath-os::runner", "iopath-cli/run", "iopath-cli::main::jobs"] {
            assert!(has_engine(group), "{group}");
        }
        for group in ["iopath-core/model", "iopath-cli/fit", "iopath-lab::compare"] {
            assert!(!has_engine(group), "{group}");
        }
    }

    #[test]
    fn step_names_are_unique() {
        let mut names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
