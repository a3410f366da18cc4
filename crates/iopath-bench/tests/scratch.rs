//! Scratch files of a process that a signal ends.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, process, thread};

use iopath_bench::Scratch;
use rustix::process::{Pid, Signal, kill_process};

/// The directory for the scratch file of the child, which is this program.
const DIRECTORY: &str = "IOPATH_TEST_DIRECTORY";
const BYTES: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
#[ignore = "the child process of the other tests"]
fn child() {
    let Some(directory) = env::var_os(DIRECTORY) else { return };
    let _scratch = Scratch::create(Path::new(&directory), BYTES, 1, &mut |_| ()).unwrap();
    thread::sleep(PATIENCE);
    process::exit(1);
}

fn files(directory: &Path) -> Vec<PathBuf> {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// Starts a child, and waits until it has a scratch file in the directory.
fn child_with_scratch(directory: &Path) -> Child {
    // Restore default actions: in a background job of a shell, ignored signals stay ignored.
    let child = Command::new("env")
        .arg("--default-signal=INT,TERM,HUP")
        .arg(env::current_exe().unwrap())
        .args(["--ignored", "--exact", "scratch::child"])
        .env(DIRECTORY, directory)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let begun = Instant::now();
    while !files(directory).iter().any(|file| file.metadata().is_ok_and(|about| about.len() == BYTES)) {
        assert!(begun.elapsed() < PATIENCE, "the child creates its file");
        thread::sleep(Duration::from_millis(5));
    }
    child
}

fn end(mut child: Child, signal: Signal) {
    kill_process(Pid::from_child(&child), signal).unwrap();
    let status = child.wait().unwrap();
    assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(signal.as_raw()), "{status}");
}

#[test]
fn ending_signals_remove_the_file() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let directory = tempfile::tempdir().unwrap();
        end(child_with_scratch(directory.path()), signal);
        assert_eq!(files(directory.path()), Vec::<PathBuf>::new(), "{signal:?}");
    }
}

#[test]
fn the_next_scratch_file_removes_one_of_a_killed_process() {
    let directory = tempfile::tempdir().unwrap();
    end(child_with_scratch(directory.path()), Signal::KILL);
    let left = files(directory.path());
    assert_eq!(left.len(), 1, "SIGKILL leaves the file");
    let scratch = Scratch::create(directory.path(), BYTES, 1, &mut |_| ()).unwrap();
    assert_eq!(files(directory.path()), [scratch.path()], "{left:?}");
}
