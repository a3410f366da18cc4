//! Helpers of the tests: how to call the program, and where it may write.

pub(crate) mod schema;

use serde_json::Value;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// The program with these arguments, and with output as wide as its lines. `IOPATH_TEST_ENGINE` selects the engine of
/// iopath's own paths; models have none.
pub(crate) fn iopath(args: &[&str]) -> Command {
    let mut command = iopath_without_engine(args);
    let is_ours = args.iter().any(|arg| ["iopath-direct", "iopath-raw"].contains(arg));
    // Models and exports have no engine.
    let has_choice = !args
        .iter()
        .any(|arg| *arg == "--engine" || ["model:", "nbd"].iter().any(|start| arg.starts_with(start)));
    if let (Ok(engine), true) = (std::env::var("IOPATH_TEST_ENGINE"), is_ours && has_choice) {
        command.args(["--engine", &engine]);
    }
    command
}

/// [`iopath`] for targets that the arguments name later, and that have no engine.
pub(crate) fn iopath_without_engine(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_iopath"));
    command.args(args).env("NO_COLOR", "1").env("COLUMNS", "1000");
    command
}

/// The same command with the default actions of SIGINT, SIGTERM and SIGHUP. `nohup` and background jobs of a shell
/// start the tests with some of these signals ignored, and the program would leave them ignored.
pub(crate) fn with_default_signals(command: &Command) -> Command {
    let mut wrapped = Command::new("env");
    wrapped.arg("--default-signal=INT,TERM,HUP").arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        wrapped.env(name, value.unwrap_or_default());
    }
    wrapped
}

/// A directory on a filesystem that supports direct I/O; `None` with a line on stderr if there is none.
pub(crate) fn scratch_directory() -> Option<tempfile::TempDir> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let probe = iopath(&["run", "--path", "kernel-direct", "--size", "64k", "--repeat", "1", "--target"])
        .arg(directory.path())
        .output()
        .unwrap();
    if probe.status.success() {
        return Some(directory);
    }
    eprintln!("skipped: no direct I/O here: {}", String::from_utf8_lossy(&probe.stderr));
    None
}

/// The JSON that is alone on stdout.
pub(crate) fn json_of(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}\n{stderr}"))
}

/// Whether a condition becomes true within the limit that guards against hangs.
pub(crate) fn becomes_true(mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(120);
    while Instant::now() < end {
        if holds() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    false
}
