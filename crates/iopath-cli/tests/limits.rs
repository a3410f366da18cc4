//! `iopath run` under limits of the process, and on targets that store no files: an error in one line that names the
//! limit and the remedy, without a panic and without waiting.

use crate::support::becomes_true;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// The user `nobody`: limits of processes do not apply to root.
const NOBODY: u32 = 65534;

/// The shells' options for the limit of processes: bash and POSIX have `-u`, dash has `-p`.
const PROCESSES: &str = "ulimit -u 20 2>/dev/null || ulimit -p 20";

/// Runs the program as an unprivileged user, under the limit that the shell command `limit` sets. Returns the exit code
/// and the last line of stderr; none where this machine does not permit it.
fn limited(limit: &str, args: &[&str]) -> Option<(Option<i32>, String)> {
    let script = format!("{{ {limit}; }} && exec \"$0\" \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_iopath")]).args(args).env("NO_COLOR", "1");
    if rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            eprintln!("skipped: the program cannot run as another user here: {error}");
            return None;
        }
    };
    let ended = becomes_true(|| is_zombie(child.id()));
    if !ended {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(ended, "the program hangs under {limit}: {stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
    if stderr.contains("ermission denied") {
        eprintln!("skipped: user {NOBODY} may not run the program: {stderr}");
        return None;
    }
    Some((output.status.code(), stderr.lines().last().unwrap_or_default().to_owned()))
}

/// Whether a child has ended and waits to be reaped.
fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z'))
}

fn file_of_1_mib() -> tempfile::NamedTempFile {
    use std::os::unix::fs::PermissionsExt;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
    std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
    file
}

#[test]
fn too_many_jobs_for_the_limit_of_threads_is_an_error_that_names_it() {
    let file = file_of_1_mib();
    let target = file.path().to_str().unwrap();
    for path in ["kernel-buffered", "kernel-mmap"] {
        let args = ["run", "--path", path, "--target", target, "--numjobs", "64", "--runtime", "1s"];
        let Some((code, line)) = limited(PROCESSES, &args) else { return };
        assert_eq!(code, Some(1), "{line}");
        let named = ["iopath: cannot start the thread of job ", " of 64: ", "ulimit -u"];
        assert!(named.iter().all(|part| line.contains(part)), "{line}");
    }
}

#[test]
fn too_many_jobs_for_the_limit_of_open_files_is_an_error_that_names_it() {
    let file = file_of_1_mib();
    let target = file.path().to_str().unwrap();
    for (path, jobs) in [("kernel-buffered", "64"), ("kernel-uring", "16"), ("kernel-uring", "64")] {
        let args = ["run", "--path", path, "--target", target, "--numjobs", jobs, "--runtime", "1s"];
        let Some((code, line)) = limited("ulimit -n 30", &args) else { return };
        if line.contains("direct I/O") || line.contains("io_uring is refused") {
            eprintln!("skipped {path}: {line}");
            continue;
        }
        assert_eq!(code, Some(1), "{path}: {line}");
        assert!(line.contains("ulimit -n") && !line.contains("seccomp"), "{path}: {line}");
    }
}

#[test]
fn a_filesystem_that_stores_no_files_is_not_reported_as_full() {
    for (directory, filesystem) in [("/proc", "proc"), ("/sys", "sysfs")] {
        let target = ["--target", directory, "--size", "1m"];
        let run =
            crate::support::iopath(&["run", "--path", "kernel-buffered"]).args(target).output().unwrap();
        let stderr = String::from_utf8_lossy(&run.stderr);
        let line = stderr.lines().last().unwrap_or_default();
        assert_eq!(run.status.code(), Some(1), "{line}");
        let begin = format!("iopath: no scratch file can be created in {directory}: ");
        let reason = format!("filesystem {filesystem} stores no files; name a directory on a disk");
        assert!(line.starts_with(&begin) && line.ends_with(&reason), "{line}");
    }
}

#[test]
fn a_pipe_is_refused_as_a_target_without_being_opened() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR).unwrap();
    for args in [&["run", "--path", "kernel-buffered", "--target"][..], &["survey"], &["map"]] {
        let mut child = crate::support::iopath(args).arg(&pipe).stderr(Stdio::piped()).spawn().unwrap();
        let ended = becomes_true(|| is_zombie(child.id()));
        if !ended {
            child.kill().unwrap();
        }
        let output = child.wait_with_output().unwrap();
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(ended && line.contains("is a pipe") && line.contains("a regular file"), "{args:?}: {line}");
    }
}
