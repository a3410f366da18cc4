//! Runs a command with its output in a log file. If the command fails, shows the output of the tests that failed, or
//! else the end of the log.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{failures, progress};
use crate::workspace;

/// The interval at which a command is checked for its end.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The number of lines to print from the log of a command that failed without a failed test.
const TAIL_LINES: usize = 120;

/// A command whose output goes to `target/xtask/NAME.log`, without standard input.
#[derive(Debug)]
pub(super) struct Logged {
    name: &'static str,
    command: Command,
}

impl Logged {
    pub(super) fn new(name: &'static str, mut command: Command) -> Self {
        command.stdin(Stdio::null()).env("CARGO_TERM_COLOR", "never");
        Self { name, command }
    }

    pub(super) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    pub(super) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs the command and returns the log. If the command fails, prints the output of failed tests, or else the end
    /// of the log, and returns an error.
    pub(super) fn run(mut self) -> Result<String> {
        let path = log_path(self.name)?;
        let log = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        self.command.stdout(log.try_clone()?).stderr(log);
        let mut child = self
            .command
            .spawn()
            .with_context(|| format!("cannot run {}", self.command.get_program().display()))?;
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            progress::show_if_due(|| progress::last_line(&path));
            thread::sleep(CHECK_INTERVAL);
        };
        let text = String::from_utf8_lossy(&fs::read(&path)?).into_owned();
        if status.success() {
            return Ok(text);
        }
        println!("\n{}", failures::of_log(&text).unwrap_or_else(|| tail(&text, TAIL_LINES)));
        bail!("{status}; the whole log is in {}", self.shown_path())
    }

    fn shown_path(&self) -> String {
        format!("target/xtask/{}.log", self.name)
    }
}

/// The file for the log of this name: `target/xtask/NAME.log`.
pub(super) fn log_path(name: &str) -> Result<PathBuf> {
    let dir = workspace::target_dir().join("xtask");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    Ok(dir.join(format!("{name}.log")))
}

/// The sums of the lines `test result: …` of a run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct TestCount {
    pub(super) passed: u64,
    failed: u64,
    ignored: u64,
}

impl TestCount {
    pub(super) fn of(log: &str) -> Self {
        let mut sum = Self::default();
        for line in log.lines().filter(|line| line.starts_with("test result: ")) {
            sum.passed += number_before(line, " passed");
            sum.failed += number_before(line, " failed");
            sum.ignored += number_before(line, " ignored");
        }
        sum
    }
}

impl fmt::Display for TestCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tests", self.passed + self.failed)?;
        if self.ignored > 0 {
            write!(f, ", {} ignored", self.ignored)?;
        }
        Ok(())
    }
}

fn number_before(line: &str, word: &str) -> u64 {
    let before = line.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// The distinct lines in which tests report skipped checks.
pub(super) fn skip_lines(log: &str) -> BTreeSet<&str> {
    let is_skip = |line: &&str| {
        line.starts_with("skipped") || line.starts_with("skipping") || line.starts_with("skip:")
    };
    log.lines().map(str::trim).filter(is_skip).collect()
}

fn tail(text: &str, lines_max: usize) -> String {
    // Not the messages of cargo for programs.
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    lines[lines.len().saturating_sub(lines_max)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
running 3 tests
test a ... ok
---- a stdout ----
skipped: no loop devices here (needs root)
test result: ok. 2 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
skipped: no loop devices here (needs root)
test result: FAILED. 10 passed; 1 failed; 0 ignored; 0 measured; 4 filtered out; finished in 0.11s
";

    #[test]
    fn all_test_binaries_are_counted() {
        assert_eq!(TestCount::of(LOG), TestCount { passed: 12, failed: 1, ignored: 1 });
        assert_eq!(TestCount::of(LOG).to_string(), "13 tests, 1 ignored");
        assert_eq!(TestCount::of("error: could not compile"), TestCount::default());
    }

    #[test]
    fn each_reason_to_skip_is_shown_once() {
        let lines: Vec<_> = skip_lines(LOG).into_iter().collect();
        assert_eq!(lines, ["skipped: no loop devices here (needs root)"]);
    }

    #[test]
    fn the_end_of_a_long_log_is_kept() {
        assert_eq!(tail("1\n2\n3\n", 2), "2\n3");
        assert_eq!(tail("1\n", 2), "1");
    }

    #[test]
    fn a_failing_command_is_an_error_and_a_successful_one_returns_its_output() {
        let shell =
            |script: &str| Logged::new("logged-unit-test", Command::new("sh")).args(["-c", script]).run();
        assert_eq!(shell("echo out; echo err >&2").expect("it succeeds"), "out\nerr\n");
        let error = shell("exit 3").expect_err("it fails").to_string();
        assert!(error.contains("exit status: 3") && error.contains("logged-unit-test.log"), "{error}");
    }
}
