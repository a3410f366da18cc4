//! Runs the programs that `cargo test` builds, several at a time, and counts their tests. Cargo runs one program after
//! another, and most of our tests wait for devices and timers, so the processors would be idle for half of the time.
//!
//! How one program is started, watched and ended: see `process.rs`.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::logged::{Logged, TestCount, log_path, skip_lines};
use super::process::{self, Ending};
use super::{Outcome, failures, progress};
use crate::workspace;

/// Programs that take the longest, the longest first. They start first, so that none of them runs alone at the end.
const LONGEST: &[&str] = &["iopath_lab", "peers", "experiment_values", "survey", "floods"];

/// A run of the tests of some crates.
#[derive(Debug, Default)]
pub(super) struct TestRun {
    /// The name of its log files in `target/xtask`.
    pub(super) name: &'static str,
    /// Arguments of `cargo test` that choose crates.
    pub(super) selection: Vec<&'static str>,
    /// The profile of cargo, if it is not the default.
    pub(super) profile: Option<&'static str>,
    /// A program and its first arguments, which runs each test program.
    pub(super) wrapper: Vec<OsString>,
    /// A variable of the environment of the tests, and its value.
    pub(super) variable: Option<(&'static str, &'static str)>,
    /// Tests whose name contains one of these parts do not run.
    pub(super) skipped: &'static [&'static str],
}

/// A program to run: the tests of a target, or the doc tests of all crates.
#[derive(Debug)]
struct Program {
    /// The line before its output in the log, as cargo prints it. None if the program prints such lines itself.
    header: Option<String>,
    /// The name of the file for its output.
    file: String,
    command: Command,
}

/// The output of a program that has ended.
#[derive(Debug)]
struct Ended {
    log: String,
    is_success: bool,
}

impl Program {
    /// Whether this is the test program of this name. The name of the file ends with a hash.
    fn is(&self, name: &str) -> bool {
        self.file.rsplit_once('-').is_some_and(|(own, _)| own == name)
    }
}

impl TestRun {
    /// Builds and runs the tests, and counts them. Fails if a test fails or none ran.
    pub(super) fn run(&self) -> Result<Outcome> {
        let artifacts = self.build()?;
        let mut programs = Vec::new();
        programs.extend(self.doc_tests(&artifacts));
        programs.extend(artifacts.iter().map(|artifact| self.program(artifact)));
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

    fn build(&self) -> Result<Vec<Artifact>> {
        let build = Logged::new(self.name, workspace::cargo())
            .args(["test", "--no-run", "--message-format", "json-render-diagnostics"])
            .args(self.profile_arguments())
            .args(&self.selection);
        Ok(build.run()?.lines().filter_map(Artifact::from_message).collect())
    }

    fn profile_arguments(&self) -> Vec<&'static str> {
        self.profile.map_or_else(Vec::new, |profile| vec!["--profile", profile])
    }

    /// The doc tests of the crates with a library. None if there is none.
    fn doc_tests(&self, artifacts: &[Artifact]) -> Option<Program> {
        let libraries: BTreeSet<&str> = artifacts
            .iter()
            .filter(|artifact| artifact.is_library)
            .map(|artifact| artifact.package.as_str())
            .collect();
        if libraries.is_empty() {
            return None;
        }
        let cargo = workspace::cargo();
        let mut command = self.wrapped(cargo.get_program());
        command.current_dir(workspace::root()).args(["test", "--doc", "--no-fail-fast"]);
        command.args(self.profile_arguments());
        command.args(libraries.iter().flat_map(|package| ["--package", package]));
        self.finish(&mut command);
        Some(Program { header: None, file: "doc-tests".to_owned(), command })
    }

    fn program(&self, artifact: &Artifact) -> Program {
        let mut command = self.wrapped(artifact.executable.as_os_str());
        // Cargo runs a test in the directory of its crate, with these variables.
        let directory = artifact.manifest.parent().unwrap_or_else(|| workspace::root());
        command.current_dir(directory).env("CARGO_MANIFEST_DIR", directory);
        command.env("CARGO_PKG_NAME", &artifact.package);
        self.finish(&mut command);
        let shown = |path: &Path, base: &Path| path.strip_prefix(base).unwrap_or(path).display().to_string();
        let source = shown(&artifact.source, directory);
        let executable = shown(&artifact.executable, workspace::root());
        let file = artifact.executable.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Program { header: Some(format!("     Running {source} ({executable})\n")), file, command }
    }

    fn wrapped(&self, program: &std::ffi::OsStr) -> Command {
        let Some((wrapper, arguments)) = self.wrapper.split_first() else { return Command::new(program) };
        let mut command = Command::new(wrapper);
        command.args(arguments).arg(program);
        command
    }

    fn finish(&self, command: &mut Command) {
        command.stdin(Stdio::null()).env("CARGO_TERM_COLOR", "never").envs(self.variable);
        let is_cargo = command.get_args().any(|argument| argument == "--doc");
        command.args(is_cargo.then_some("--")).arg("--show-output");
        command.args(self.skipped.iter().flat_map(|part| ["--skip", part]));
    }
}

/// Runs the programs, as many at a time as the machine has processors. Returns their output in the order of their ends.
fn run_all(mut programs: Vec<Program>, directory: &Path) -> Result<Vec<Ended>> {
    programs.sort_by_key(|program| LONGEST.iter().position(|name| program.is(name)).unwrap_or(LONGEST.len()));
    let count = programs.len();
    let queue = Mutex::new(VecDeque::from(programs));
    let running = Mutex::new(Vec::new());
    let workers = thread::available_parallelism().map_or(1, usize::from);
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
        let name = program.file.clone();
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
    let path = directory.join(format!("{}.log", program.file));
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

/// A test program that cargo has built.
#[derive(Debug, PartialEq, Eq)]
struct Artifact {
    package: String,
    manifest: PathBuf,
    source: PathBuf,
    executable: PathBuf,
    is_library: bool,
}

impl Artifact {
    /// Reads a line of `cargo --message-format json`. None for any other line than that of a test program.
    fn from_message(line: &str) -> Option<Self> {
        let message: Value = serde_json::from_str(line).ok()?;
        if !message["profile"]["test"].as_bool()? {
            return None;
        }
        let path = |value: &Value| value.as_str().map(PathBuf::from);
        let manifest = path(&message["manifest_path"])?;
        let target = &message["target"];
        Some(Self {
            package: package(message["package_id"].as_str()?)?,
            source: path(&target["src_path"])?,
            executable: path(&message["executable"])?,
            is_library: target["kind"].as_array()?.iter().any(|kind| kind == "lib"),
            manifest,
        })
    }
}

/// The name in the identifier of a package: `path+file:///directory#name@version`, or `path+file:///name#version`.
fn package(id: &str) -> Option<String> {
    let (path, fragment) = id.rsplit_once('#')?;
    let name = match fragment.split_once('@') {
        Some((name, _)) => name,
        None => path.rsplit('/').next()?,
    };
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MESSAGE: &str = r#"{"reason":"compiler-artifact","package_id":"path+file:///p/crates/demo#0.1.0",
        "manifest_path":"/p/crates/demo/Cargo.toml","target":{"kind":["lib"],"name":"demo","src_path":"/p/crates/demo/src/lib.rs"},
        "profile":{"test":true},"executable":"/p/target/debug/deps/demo-1"}"#;

    #[test]
    fn test_programs_are_read_from_the_messages_of_cargo() {
        let artifact = Artifact::from_message(MESSAGE).expect("the message of a test program");
        assert_eq!(artifact.package, "demo");
        assert_eq!(artifact.manifest, Path::new("/p/crates/demo/Cargo.toml"));
        assert_eq!(artifact.executable, Path::new("/p/target/debug/deps/demo-1"));
        assert!(artifact.is_library);
        assert_eq!(Artifact::from_message(&MESSAGE.replace("true", "false")), None, "no test");
        assert_eq!(Artifact::from_message("   Compiling demo v0.1.0"), None);
        assert_eq!(package("path+file:///p/x#named@0.1.0").as_deref(), Some("named"));
    }

    fn shell(name: &str, script: &str) -> Program {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Program { header: Some(format!("     Running {name} (sh)\n")), file: name.to_owned(), command }
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
    fn each_of_the_longest_programs_exists() {
        let exists = |name: &str| {
            let directories =
                fs::read_dir(workspace::root().join("crates")).expect("it has crates").flatten();
            directories.map(|entry| entry.path()).any(|directory| {
                let is_library = directory.file_name().is_some_and(|file| file == &*name.replace('_', "-"));
                is_library || directory.join("tests").join(name).with_extension("rs").exists()
            })
        };
        for name in LONGEST {
            assert!(exists(name), "{name} is no test program of the workspace");
        }
        assert!(shell("peers-0123456789abcdef", "").is("peers"));
        assert!(!shell("more_peers-0123456789abcdef", "").is("peers"));
    }
}
