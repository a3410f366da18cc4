//! Runs the programs of steps, several at a time. `cargo test` runs one program after another, and most of our tests
//! wait for devices and timers, so the processors would be idle for half of the time.
//!
//! The groups of tests: see `../artifact.rs`. How a process is started, watched and ended: see `process.rs`.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::logged::log_path;
use super::process::{self, Ending};
use super::progress;

/// Groups that take the longest, the longest first. They start first, so that none of them runs alone at the end.
const LONGEST: &[&str] = &[
    "iopath-nbd/peers",
    "fsx",
    "iopath-experiments/experiment_values",
    "iopath-core/cache_model",
    "iopath-cli/fio_lines",
    "sim",
    "iopath-cli/survey",
    "iopath-log/extreme_values",
    "iopath-lab::fit",
    "explore-1",
    "doc-tests",
    "torture-1",
    "iopath-cli/run",
    "iopath-cli/fit",
    "iopath-cli/tune",
    "iopath-os/devices",
];

/// A process to run.
#[derive(Debug)]
pub(super) struct Program {
    pub(super) name: String,
    /// The line before its output in the log, as cargo prints it. None if the program prints such lines itself.
    pub(super) header: Option<String>,
    pub(super) command: Command,
}

/// The output of a program that has ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) step: &'static str,
    name: String,
    pub(super) log: String,
    pub(super) is_success: bool,
    pub(super) time: Duration,
    /// The processor time of the program and of the processes that it waited for.
    cpu: Duration,
}

impl Program {
    /// A program of its own, with a header that has its name.
    pub(super) fn of_step(name: String, command: Command) -> Self {
        let header = Some(format!("     Running {name} ({})\n", command.get_program().display()));
        Self { name, header, command }
    }
}

/// Runs the programs of steps, two more at a time than the machine has processors, because tests wait. Programs of one
/// name do not run at the same time: they may use the same devices. Returns their output in the order of their ends.
pub(super) fn run_all(mut programs: Vec<(&'static str, Program)>) -> Result<Vec<Ended>> {
    let rank = |name: &str| LONGEST.iter().position(|longest| *longest == name).unwrap_or(LONGEST.len());
    programs.sort_by_key(|(_, program)| rank(&program.name));
    let count = programs.len();
    let state = Mutex::new(State { queue: programs, running: Vec::new() });
    let workers = thread::available_parallelism().map_or(1, usize::from) + 2;
    let ended = thread::scope(|scope| {
        let (sender, results) = mpsc::channel();
        for _ in 0..workers {
            let sender = sender.clone();
            let state = &state;
            scope.spawn(move || work(state, &sender));
        }
        drop(sender);
        let mut ended = Vec::with_capacity(count);
        loop {
            match results.recv_timeout(progress::INTERVAL) {
                Ok(result) => ended.push(result?),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return anyhow::Ok(ended),
            }
            progress::show_if_due(|| format!("{} of {count} programs ended{}", ended.len(), running(&state)));
        }
    })?;
    fs::write(log_path("programs")?.with_extension("txt"), times(&ended))?;
    Ok(ended)
}

/// A line for each program with its times, the largest first.
fn times(ended: &[Ended]) -> String {
    let mut ended: Vec<&Ended> = ended.iter().collect();
    ended.sort_by_key(|program| Reverse(program.cpu));
    let mut text = String::from("processor s   total s  step and program\n");
    for Ended { step, name, time, cpu, .. } in ended {
        let _ = writeln!(text, "{:11.2} {:9.2}  {step} {name}", cpu.as_secs_f64(), time.as_secs_f64()); // Cannot fail.
    }
    text
}

/// The programs that have not ended.
#[derive(Debug)]
struct State {
    queue: Vec<(&'static str, Program)>,
    /// Their names, with the times of their starts.
    running: Vec<(String, Instant)>,
}

impl State {
    /// Removes the first program of the queue that may run now.
    fn next(&mut self) -> Option<(&'static str, Program)> {
        let is_running = |name: &str| self.running.iter().any(|(other, _)| other == name);
        let next = self.queue.iter().position(|(_, program)| !is_running(&program.name))?;
        let (step, program) = self.queue.remove(next);
        self.running.push((program.name.clone(), Instant::now()));
        Some((step, program))
    }
}

/// Runs programs of the queue until none is left that may run, or the receiver of the results is gone. A program whose
/// name is running waits for the worker of that name.
fn work(state: &Mutex<State>, results: &mpsc::Sender<Result<Ended>>) {
    loop {
        // A statement of its own, so that the lock is released before the program runs.
        let next = state.lock().unwrap_or_else(PoisonError::into_inner).next();
        let Some((step, program)) = next else { return };
        let name = program.name.clone();
        let result = run(step, program);
        state.lock().unwrap_or_else(PoisonError::into_inner).running.retain(|(other, _)| *other != name);
        if results.send(result).is_err() {
            return;
        }
    }
}

fn running(state: &Mutex<State>) -> String {
    let mut text = String::new();
    for (name, started) in &state.lock().unwrap_or_else(PoisonError::into_inner).running {
        let separator = if text.is_empty() { "; running: " } else { ", " };
        let _ = write!(text, "{separator}{name} ({} s)", started.elapsed().as_secs()); // Cannot fail.
    }
    text
}

fn run(step: &'static str, mut program: Program) -> Result<Ended> {
    let directory = log_path(step)?.with_extension("");
    fs::create_dir_all(&directory)?;
    let path = directory.join(format!("{}.log", program.name.replace("::", ".").replace('/', "-")));
    let started = Instant::now();
    let (ending, cpu) = process::run(&mut program.command, &path)?;
    let mut log = program.header.unwrap_or_default();
    log.push_str(&String::from_utf8_lossy(&fs::read(&path)?));
    let is_success = matches!(ending, Ending::Exited(status) if status.success());
    if !is_success {
        // The form of cargo: the search for failed tests recognizes it.
        writeln!(log, "\nerror: test failed: {ending}")?;
    }
    Ok(Ended { step, name: program.name, log, is_success, time: started.elapsed(), cpu })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::{failures, suites};

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program::of_step(name.to_owned(), command)
    }

    #[test]
    fn all_programs_run_and_failures_are_kept() {
        let programs = vec![
            ("unit-test", shell("a", "echo out; echo err >&2")),
            ("unit-test", shell("b", "echo died; kill -6 $$")),
        ];
        let mut ended = run_all(programs).expect("they can be run");
        ended.sort_by_key(|program| !program.is_success);
        assert_eq!(ended[0].log, "     Running a (sh)\nout\nerr\n");
        assert!(ended[0].is_success && !ended[1].is_success);
        let failure = failures::of_log(&ended[1].log).expect("a program that died is a failure");
        assert!(failure.contains("died") && failure.contains("signal: 6"), "{failure}");
    }

    #[test]
    fn each_of_the_longest_groups_exists() {
        for name in LONGEST {
            let is_step = ["sim", "fsx", "explore-1", "doc-tests", "torture-1"].contains(name);
            assert!(is_step || suites::group_exists(name), "{name} is no group of tests");
        }
    }
}
