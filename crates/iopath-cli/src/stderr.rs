//! stderr: messages and the terminal of the live view. A full file, a closed pipe or a terminal that is gone never ends
//! a command, because the results do not need stderr.

use iopath_log::for_terminal;
use std::fmt::Display;
use std::io::{self, Write};

/// A writer to stderr that never fails.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = io::stderr().write_all(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let _ = io::stderr().flush();
        Ok(())
    }
}

/// Prints a line on stderr, after the name of the program.
pub(crate) fn note(line: impl Display) {
    note_after("", line);
}

/// Prints a line as [`note`] does, after a sequence that clears the line of a terminal.
pub(crate) fn note_after(clear: &str, line: impl Display) {
    // One call, so that lines of several threads do not mix.
    let _ = Stderr.write_all(format!("{clear}iopath: {}\n", plain(&line.to_string())).as_bytes());
}

/// One line for a terminal: a file name may contain ends of lines, control characters, and characters that change the
/// writing direction.
pub(crate) fn plain(line: &str) -> String {
    for_terminal(line, false).replace(['\n', '\t'], " ")
}
