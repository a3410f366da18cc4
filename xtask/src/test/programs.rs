//! Runs the tests of the workspace, several groups at a time, and counts them. `cargo test` runs one program after
//! another, and most of our tests wait for devices and timers, so the processors would be idle for half of the time.
//!
//! The groups: see `../artifact.rs`. How a process is started, watched and ended: see `process.rs`.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::logged::{Logged, TestCount, log_path, skip_lines};
use super::process::{self, Ending};
use super::{Outcome, failures, progress};
use crate::artifact::{self, Artifact, FEATURES, Group};
use crate::workspace;

/// Groups that take the longest, the longest first. They start first, so that none of them runs alone at the end.
const LONGEST: &[&str] = &[
    "iopath-nbd/peers",
    "iopath-cli/survey",
    "iopath-experiments/experiment_values",
    "iopath-cli/run",
    "iopath-core/cache_model",
    "iopath-cli/fit",
    "iopath-cli/tune",
    "iopath-os/devices",
];

/// A run of the tests of some crates.
pub(super) struct TestRun {
    /// The name of its log files in `target/xtask`.
    pub(super) name: &'static str,
    /// Arguments of `cargo test` that select programs.
    pub(super) programs: &'static [&'static str],
    /// Whether a group of tests runs, by its name.
    pub(super) is_selected: fn(&str) -> bool,
    /// Whether the examples in documentation run, too.
    pub(super) has_doc_tests: bool,
    /// A program and its first arguments, which runs each test program.
    pub(super) wrapper: Vec<OsString>,
    /// A variable of the environment of the tests, and its value.
    pub(super) variable: Option<(&'static str, &'static str)>,
}

/// A process to run: a group of tests, or the doc tests of all crates.
#[derive(Debug)]
struct Program {
    name: String,
    /// The line before its output in the log, as cargo prints it. None if the program prints such lines itself.
    header: Option<String>,
    command: Command,
}

/// The output of a program that has ended.
#[derive(Debug)]
struct Ended {
    log: String,
    is_success: bool,
}

impl TestRun {
    /// Builds and runs the tests, and counts them. Fails if a test fails or none ran.
    pub(super) fn run(&self) -> Result<Outcome> {
        let build = artifact::command(&[&["test", "--no-run"], self.programs].concat());
        let messages = Logged::new(self.name, build).run()?;
        let mut programs = Vec::new();
        programs.extend(self.has_doc_tests.then(|| self.doc_tests()));
        for artifact in &artifact::of_messages(&messages) {
            let groups = artifact.groups()?.into_iter().filter(|group| (self.is_selected)(&group.name));
            programs.extend(groups.map(|group| self.program(artifact, &group)));
        }
        let directory = log_path(self.name)?.with_extension("");
        fs::create_dir_all(&directory)?;
        let ended = run_all(programs, &directory)?;

        let log = ended.iter().map(|program| program.log.as_str()).collect::<String>();
        let path = log_path(self.name)?;
        fs::write(&path, &log).with_context(|| format!("cannot write {}", path.display()))?;
        if !ended.iter().all(|program| program.is_success) {
            println!("\n{}", failures::of_log(&log).unwrap_or_default());
            bail!("tests failed; the whole log is in {}", path.display());
        }
        let count = TestCount::of(&log);
        if count.passed == 0 {
            bail!("no test ran: see {}", path.display());
        }
        let mut note = count.to_string();
        for line in skip_lines(&log) {
            write!(note, "\n    {line}")?;
        }
        Ok(Outcome::Passed(note))
    }

    fn doc_tests(&self) -> Program {
        let mut command = workspace::cargo();
        command
            .args(["test", "--workspace", "--doc", "--no-fail-fast", FEATURES])
            .env("CARGO_TERM_COLOR", "never");
        command.args(["--", "--show-output"]).envs(self.variable);
        Program { name: "doc-tests".to_owned(), header: None, command }
    }

    fn program(&self, artifact: &Artifact, group: &Group) -> Program {
        let executable = &artifact.executable;
        let command = match self.wrapper.split_first() {
            None => Command::new(executable),
            Some((wrapper, arguments)) => {
                let mut command = Command::new(wrapper);
                command.args(arguments).arg(executable);
                command
            }
        };
        let mut command = artifact.in_environment(command);
        command.envs(self.variable).args(["--show-output", "--exact"]).args(&group.tests);
        let shown = executable.strip_prefix(workspace::root()).unwrap_or(executable).display();
        let header = Some(format!("     Running {} ({shown})\n", group.name));
        Program { name: group.name.clone(), header, command }
    }
}

/// Runs the programs, one more at a time than the machine has processors, because tests wait. Returns their output in
/// the order of their ends.
fn run_all(mut programs: Vec<Program>, directory: &Path) -> Result<Vec<Ended>> {
    let rank = |name: &str| LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    programs.sort_by_key(|program| rank(&program.name));
    let count = programs.len();
    let queue = Mutex::new(VecDeque::from(programs));
    let running = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from) + 1;
    thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..workers {
            let sender = sender.clone();
            let (queue, running) = (&queue, &running);
            scope.spawn(move || work(queue, running, directory, &sender));
        }
        drop(sender);
        let mut ended = Vec::with_capacity(count);
        loop {
            match results.recv_timeout(progress::INTERVAL) {
                Ok(result) => ended.push(result?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(ended),
            }
            progress::show_if_due(|| {
                format!("{} of {count} programs ended{}", ended.len(), of_running(&running))
            });
        }
    })
}

/// The programs that run, with the times of their starts.
type Running = Mutex<Vec<(String, Instant)>>;

/// Runs programs of the queue until it is empty or the receiver of the results is gone.
fn work(
    queue: &Mutex<VecDeque<Program>>,
    running: &Running,
    directory: &Path,
    results: &mpsc::Sender<Result<Ended>>,
) {
    loop {
        // A statement of its own, so that the lock is released before the program runs.
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(program) = next else { return };
        let name = program.name.clone();
        running.lock().unwrap_or_else(PoisonError::into_inner).push((name.clone(), Instant::now()));
        let result = run(program, directory);
        running.lock().unwrap_or_else(PoisonError::into_inner).retain(|(other, _)| *other != name);
        if results.send(result).is_err() {
            return;
        }
    }
}

fn of_running(running: &Running) -> String {
    let mut text = String::new();
    for (name, started) in running.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let separator = if text.is_empty() { "; running: " } else { ", " };
        let _ = write!(text, "{separator}{name} ({} s)", started.elapsed().as_secs()); // Cannot fail.
    }
    text
}

fn run(mut program: Program, directory: &Path) -> Result<Ended> {
    let path = directory.join(format!("{}.log", program.name.replace("::", ".").replace('/', "-")));
    let ending = process::run(&mut program.command, &path)?;
    let mut log = program.header.unwrap_or_default();
    log.push_str(&String::from_utf8_lossy(&fs::read(&path)?));
    let is_success = matches!(ending, Ending::Exited(status) if status.success());
    if !is_success {
        // The form of cargo: the search for failed tests recognizes it.
        writeln!(log, "\nerror: test failed: {ending}")?;
    }
    Ok(Ended { log, is_success })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { name: name.to_owned(), header: Some(format!("     Running {name} (sh)\n")), command }
    }

    #[test]
    fn all_programs_run_and_failures_are_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let programs = vec![shell("a", "echo out; echo err >&2"), shell("b", "echo died; kill -6 $$")];
        let mut ended = run_all(programs, directory.path()).expect("they can be run");
        ended.sort_by_key(|program| !program.is_success);
        assert_eq!(ended[0].log, "     Running a (sh)\nout\nerr\n");
        assert!(ended[0].is_success && !ended[1].is_success);
        let failure = failures::of_log(&ended[1].log).expect("a program that died is a failure");
        assert!(failure.contains("died") && failure.contains("signal: 6"), "{failure}");
    }

    #[test]
    fn each_of_the_longest_groups_exists() {
        for name in LONGEST {
            let (package, group) = name.split_once('/').expect("a package and a file of its tests");
            let path = workspace::root().join("crates").join(package).join("tests").join(group);
            let is_program = path.join("main.rs").exists();
            assert!(is_program || path.with_extension("rs").exists(), "{name} is no group of tests");
        }
    }
}
