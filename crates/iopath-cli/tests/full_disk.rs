//! A full disk below the page cache: `run` and the clients of `serve` get its error, and reads of other clients
//! succeed. Skipped with a line where no filesystem in memory can be mounted.

use crate::loops::{Killed, MemoryFilesystem, text};
use crate::support::{becomes_true, iopath};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// A sparse file of 64 MiB on a filesystem of 2 MiB.
struct Sparse(MemoryFilesystem);

impl Sparse {
    fn new() -> Result<Self, String> {
        let sparse = Self(MemoryFilesystem::new("size=2m")?);
        File::create(sparse.file()).and_then(|file| file.set_len(64 << 20)).map_err(|e| e.to_string())?;
        Ok(sparse)
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("disk")
    }
}

/// The output of a command, which is killed after a minute: it has hung.
fn output(command: &Command) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", "60"]).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    limited.output().unwrap()
}

fn workload(target: &str, rw: &str) -> Command {
    let mut command = iopath(&["run", "--overwrite", "--size", "64m", "--repeat", "1", "--target", target]);
    command.args(["--rw", rw, "--bs", "64k"]);
    command
}

fn assert_no_space(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.to_lowercase().contains("no space left"), "{stderr}");
}

#[test]
fn a_run_over_a_full_disk_ends_with_its_error() {
    let sparse = or_skip!(Sparse::new());
    let mut command = workload(text(&sparse.file()), "write");
    command.args(["--path", "iopath-buffered", "--cache", "4m"]);
    assert_no_space(&output(&command));
}

#[test]
fn a_client_that_fills_the_disk_of_a_server_stops_no_other() {
    let sparse = or_skip!(Sparse::new());
    let sockets = tempfile::tempdir().unwrap();
    let socket = sockets.path().join("s");
    let mut serve =
        iopath(&["serve", "--path", "iopath-buffered", "--cache", "4m", "--writable", "--overwrite"]);
    serve.arg("--unix").arg(&socket).arg(sparse.file()).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Killed(serve.spawn().unwrap());
    assert!(becomes_true(|| socket.exists()), "the server does not start");
    let target = format!("nbd+unix:///disk?socket={}", text(&socket));
    assert_no_space(&output(workload(&target, "write").args(["--path", "iopath-direct"])));
    // The pages that cannot be written stay in the cache of the server.
    let read = output(workload(&target, "read").args(["--path", "iopath-direct"]));
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert_no_space(&output(workload(&target, "write").args(["--path", "iopath-direct"])));
}
