//! A running `iopath serve`, for tests.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::support::{iopath, with_default_signals};

/// A running `iopath serve`.
pub(crate) struct Serving {
    pub(crate) child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Serving {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        Self::spawn(with_default_signals(&iopath(arguments)))
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        Self { child, stdout }
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Ends the process and returns its exit code and messages.
    pub(crate) fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let mut stderr = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        (self.child.wait().unwrap().code(), stderr)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The output of a client; `None`, with a line, if it is not installed.
pub(crate) fn client(program: &str, arguments: &[&str]) -> Option<Output> {
    // Its files in the current directory, such as the verify state of fio, are outside of the tree.
    let output = Command::new(program).args(arguments).current_dir(env!("CARGO_TARGET_TMPDIR")).output();
    if output.is_err() {
        eprintln!("skipped: {program} is not installed");
    }
    output.ok()
}

/// The output of a client that must succeed.
pub(crate) fn succeeds(program: &str, arguments: &[&str]) -> Option<String> {
    let output = client(program, arguments)?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {text}{errors}");
    Some(text)
}
