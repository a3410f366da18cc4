//! Information about a failed process: the end of its log, and the backtraces of its threads.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::workspace;

/// Writes the backtraces of a process to a file beside its log, if gdb is installed. Returns a message about them.
pub(super) fn backtrace(process: u32, log: &Path) -> String {
    let path = log.with_extension("backtrace");
    let Some(gdb) = workspace::find_program("gdb") else {
        return "gdb is not installed, so there is no backtrace".to_owned();
    };
    let written = File::create(&path).and_then(|file| {
        Command::new(gdb)
            .args(["-batch", "-ex", "thread apply all backtrace", "-p", &process.to_string()])
            .stdin(Stdio::null())
            .stdout(file)
            .stderr(Stdio::null())
            .status()
    });
    match written {
        Ok(_) => format!("the backtraces of its threads are in {}", path.display()),
        Err(error) => format!("no backtrace: {error}"),
    }
}

/// The last `count` lines of a file.
pub(super) fn last_lines(path: &Path, count: usize) -> String {
    let text = fs::read(path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
