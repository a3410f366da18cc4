//! The live view of `iopath run` on a pseudo terminal: it appears for long runs, q and signals end it, and the terminal
//! is restored. `script` of util-linux provides the terminal; without it, the tests are skipped with a line.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::becomes_true;

/// The sequences that enter and leave the alternate screen of a terminal.
const ENTER: &str = "\u{1b}[?1049h";
const LEAVE: &str = "\u{1b}[?1049l";

/// Runs a command line on a terminal that records to `record`; none without `script`.
fn on_a_terminal(record: &Path, line: &str) -> Option<Child> {
    let spawned = Command::new("script")
        .args(["--quiet", "--flush", "--return", "--command", line])
        .arg(record)
        .env("TERM", "xterm-256color")
        .env_remove("NO_COLOR")
        .env("SHELL", "/bin/sh")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    spawned.map_err(|error| eprintln!("skipped: no terminal here: script: {error}")).ok()
}

fn text(record: &Path) -> String {
    String::from_utf8_lossy(&fs::read(record).unwrap_or_default()).into_owned()
}

/// A run of a minute.
fn long_run() -> String {
    let program = env!("CARGO_BIN_EXE_iopath");
    format!("stty cols 100 rows 30; exec '{program}' run --path null --runtime 60s --repeat 1")
}

/// Asserts that the view appeared, and that its last action was to restore the terminal.
fn assert_restored(text: &str) {
    let (enter, leave) = (text.rfind(ENTER), text.rfind(LEAVE));
    assert!(enter.is_some() && leave > enter, "enter {enter:?}, leave {leave:?}: {text:?}");
}

#[test]
fn q_ends_a_long_run_and_restores_the_terminal() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = folder.path().join("record");
    let Some(mut child) = on_a_terminal(&record, &long_run()) else { return };
    let mut keyboard = child.stdin.take().unwrap();
    let has_view = becomes_true(|| text(&record).contains("IOPS"));
    keyboard.write_all(b"q").unwrap();
    keyboard.flush().unwrap();
    let has_ended = becomes_true(|| text(&record).contains(LEAVE));
    // Ends the program also if the key did not.
    drop(keyboard);
    assert!(becomes_true(|| child.try_wait().unwrap().is_some()), "the terminal does not end");
    let text = text(&record);
    assert!(has_view, "no view: {text:?}");
    assert!(has_ended, "q did not end the run: {text:?}");
    assert_restored(&text);
}

#[test]
fn q_prints_the_complete_repetitions_as_a_success() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = folder.path().join("record");
    let program = env!("CARGO_BIN_EXE_iopath");
    let run = format!("'{program}' run --path null --runtime 1s --repeat 60");
    let line = format!("stty cols 100 rows 30; {run}; echo exit code $?");
    let Some(mut child) = on_a_terminal(&record, &line) else { return };
    let mut keyboard = child.stdin.take().unwrap();
    assert!(becomes_true(|| text(&record).contains("IOPS")), "no view: {:?}", text(&record));
    // The view draws only the cells that change. This is the number in `iopath measuring, 2 of 60`: one is complete.
    let has_repetition = || text(&record).contains("\u{1b}[1;19H2");
    assert!(becomes_true(has_repetition), "no second repetition: {:?}", text(&record));
    keyboard.write_all(b"q").unwrap();
    keyboard.flush().unwrap();
    // The first line of the record has the command.
    let has_ended = becomes_true(|| text(&record).contains("exit code 0"));
    drop(keyboard);
    let _ = child.kill();
    child.wait().unwrap();
    let text = text(&record);
    let (_, after) = text.rsplit_once(LEAVE).expect("the view was left");
    assert!(has_ended && after.contains("exit code 0"), "{after:?}");
    assert!(after.contains("of 60 repetitions are complete") && after.contains("CPU s/GiB"), "{after:?}");
}

#[test]
fn a_signal_restores_the_terminal() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = folder.path().join("record");
    let number = folder.path().join("pid");
    let line = format!("echo $$ > '{}'; {}", number.display(), long_run());
    let Some(mut child) = on_a_terminal(&record, &line) else { return };
    let _keyboard = child.stdin.take().unwrap();
    let has_view = becomes_true(|| text(&record).contains("IOPS"));
    let pid = fs::read_to_string(&number).unwrap();
    assert!(Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap().success());
    let has_ended = becomes_true(|| text(&record).contains(LEAVE));
    let _ = child.kill();
    child.wait().unwrap();
    assert!(has_view && has_ended, "view {has_view}, ended {has_ended}");
    assert_restored(&text(&record));
}

#[test]
fn a_short_run_has_no_view() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let record = folder.path().join("record");
    let line = format!("exec '{}' run --path null --runtime 300ms --repeat 2", env!("CARGO_BIN_EXE_iopath"));
    let Some(mut child) = on_a_terminal(&record, &line) else { return };
    child.wait().unwrap();
    let text = text(&record);
    assert!(text.contains("null") && !text.contains(ENTER), "{text:?}");
}

#[test]
fn without_a_terminal_lines_have_the_rates() {
    let mut run = crate::support::iopath(&["run", "--path", "null", "--runtime", "6500ms", "--repeat", "1"]);
    let output = run.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    let line = stderr.lines().find(|line| line.contains("IOPS")).unwrap_or_default();
    assert!(line.starts_with("iopath: measuring, 1 of 1: ") && line.contains(" MB/s, "), "{stderr}");
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
}
