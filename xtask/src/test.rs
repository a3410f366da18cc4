//! `cargo xtask test`: all checks that a change must pass, as a table of steps.
//!
//! A step is a check, or it builds programs. The programs of neighbouring steps run together after the last build, so
//! that the processors are busy while some of them wait.

mod checks;
mod failures;
mod logged;
mod packages;
mod peers;
mod process;
mod programs;
mod progress;
mod suites;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use programs::{Ended, Program};

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

/// Reads the outcome of a step from the output of its programs.
type ReadOutcome = fn(&str) -> Result<Outcome>;

/// What a step does.
#[derive(Clone, Copy)]
enum Work {
    Check(fn(Length) -> Result<Outcome>),
    /// Builds programs, and reads the outcome from their output if all of them succeed.
    Programs(fn(Length) -> Result<Vec<Program>>, ReadOutcome),
}

#[derive(Clone, Copy)]
struct Step {
    name: &'static str,
    /// Whether `--quick` includes the step.
    quick: bool,
    work: Work,
}

impl Step {
    const fn check(name: &'static str, quick: bool, check: fn(Length) -> Result<Outcome>) -> Self {
        Self { name, quick, work: Work::Check(check) }
    }

    const fn programs(
        name: &'static str,
        quick: bool,
        build: fn(Length) -> Result<Vec<Program>>,
        outcome: ReadOutcome,
    ) -> Self {
        Self { name, quick, work: Work::Programs(build, outcome) }
    }
}

const STEPS: &[Step] = &[
    Step::check("peers", false, |_| Ok(peers::install_missing())),
    Step::check("format", true, checks::format),
    Step::check("tidy", true, checks::tidy),
    Step::check("clippy", true, checks::clippy),
    // After clippy, which downloads all dependencies: `packages` is offline.
    Step::check("packages", true, packages::packages),
    Step::check("other-systems", true, packages::other_systems),
    Step::programs("test", true, suites::test, suites::tests_of),
    Step::programs("docs", false, |_| Ok(suites::docs()), suites::tests_of),
    Step::programs("test-without-uring", false, suites::test_without_io_uring, suites::tests_of),
    Step::programs("torture", false, suites::torture, suites::torture_of),
    Step::programs("sim", false, suites::sim, suites::sim_of),
    Step::programs("fsx", false, |length| Ok(suites::fsx(length)), suites::fsx_of),
    Step::programs("explore", false, suites::explore, suites::explore_of),
    Step::check("deny", false, checks::deny),
    Step::check("tree", true, checks::tree),
];

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only format, tidy, packages, other systems, clippy and the tests in the sources
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
    let steps: Vec<Step> = STEPS.iter().filter(is_selected).copied().collect();
    if steps.is_empty() {
        let names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        let only = options.only.as_deref().unwrap_or_default();
        eprintln!("xtask: unknown step `{only}`; use one of: {}", names.join(", "));
        return false;
    }
    checks::begin();
    let started = Instant::now();
    let length = match (options.quick, options.long) {
        (true, _) => Length::Quick,
        (false, true) => Length::Long,
        (false, false) => Length::Normal,
    };
    let mut results = Vec::new();
    for steps in steps.chunk_by(|a, b| [a, b].iter().all(|step| matches!(step.work, Work::Programs(..)))) {
        match steps {
            [Step { name, work: Work::Check(check), .. }] => {
                progress::begin(name);
                let result = check(length);
                let time = progress::end(name);
                report(&result, time);
                results.push((*name, result));
            }
            _ => results.extend(run_programs(steps, length)),
        }
    }
    print!("{}", summary(&results, started.elapsed()));
    results.iter().all(|(_, result)| result.is_ok())
}

/// Builds the programs of all steps, runs them together, and reports each step with the sum of the times of its
/// programs.
fn run_programs(steps: &[Step], length: Length) -> Vec<(&'static str, Result<Outcome>)> {
    let mut programs = Vec::new();
    let mut built_steps = Vec::new();
    for step in steps {
        let Work::Programs(build, read) = step.work else { unreachable!("a check runs alone") };
        let title = format!("build {}", step.name);
        progress::begin(&title);
        let result = build(length).map(|built| {
            let count = built.len();
            programs.extend(built.into_iter().map(|program| (step.name, program)));
            Outcome::Passed(format!("programs: {count}"))
        });
        report(&result, progress::end(&title));
        built_steps.push((step.name, read, result.err()));
    }
    progress::begin("run");
    let count = programs.len();
    let ended = programs::run_all(programs).map_err(|error| format!("{error:#}"));
    let result = ended.as_ref().map_or_else(
        |error| Err(anyhow::anyhow!("{error}")),
        |_| Ok(Outcome::Passed(format!("programs: {count}; their times are in target/xtask/programs.txt"))),
    );
    report(&result, progress::end("run"));
    let of_step = |(name, read, failure): (&'static str, ReadOutcome, Option<anyhow::Error>)| {
        let result = match (failure, &ended) {
            (Some(error), _) => Err(error.context("not built")),
            (None, Err(error)) => Err(anyhow::anyhow!("{error}")),
            (None, Ok(ended)) => {
                let ended: Vec<&Ended> = ended.iter().filter(|program| program.step == name).collect();
                progress::begin(name);
                let result = outcome(name, read, &ended);
                progress::end(name);
                report(&result, ended.iter().map(|program| program.time).sum());
                result
            }
        };
        (name, result)
    };
    built_steps.into_iter().map(of_step).collect()
}

/// Writes the log of a step, and reads its outcome from it. Prints the output of failed tests.
fn outcome(step: &'static str, read: ReadOutcome, ended: &[&Ended]) -> Result<Outcome> {
    let log: String = ended.iter().map(|program| program.log.as_str()).collect();
    let path = logged::log_path(step)?;
    std::fs::write(&path, &log)?;
    if !ended.iter().all(|program| program.is_success) {
        println!("\n{}", failures::of_log(&log).unwrap_or_default());
        bail!("tests failed; the whole log is in {}", path.display());
    }
    read(&log)
}

/// Completes the line of a step.
fn report(result: &Result<Outcome>, time: Duration) {
    let seconds = time.as_secs_f64();
    match result {
        Ok(Outcome::Passed(note)) => println!("ok      {seconds:6.1} s  {note}"),
        Ok(Outcome::Skipped(reason)) => println!("skipped {seconds:6.1} s  {reason}"),
        Err(error) => println!("FAILED  {seconds:6.1} s  {error:#}"),
    }
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
    fn step_names_are_unique() {
        let mut names: Vec<_> = STEPS.iter().map(|step| step.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), STEPS.len());
    }
}
