//! Where results go: a table for people or JSON alone on stdout, JSON in a file, errors in one line.

use crate::args::ShowArgs;
use anyhow::Context;
use iopath_lab::{Report, table};
use std::error::Error;
use std::io::{self, Write};
use std::path::Path;

/// How to show things on this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    is_json_alone: bool,
    is_plain: bool,
}

impl Output {
    pub(crate) fn of(args: &ShowArgs) -> Self {
        Self { is_json_alone: is_stdout(args.json.as_deref()), is_plain: args.no_color }
    }

    /// Whether stdout is for JSON and nothing else.
    pub(crate) const fn is_json_alone(self) -> bool {
        self.is_json_alone
    }

    /// Whether stderr may have moving bars.
    pub(crate) fn is_fancy_stderr(self) -> bool {
        !self.is_plain && table::is_fancy(&io::stderr())
    }

    /// Whether stdout may have colours.
    pub(crate) fn is_fancy_stdout(self) -> bool {
        !self.is_plain && table::is_fancy(&io::stdout())
    }
}

/// Writes text to stdout.
pub(crate) fn print(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

fn is_stdout(json: Option<&Path>) -> bool {
    json == Some(Path::new("-"))
}

/// Writes the report where `--json` says, if it does.
pub(crate) fn write_json(args: &ShowArgs, report: &Report) -> anyhow::Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    let mut text = serde_json::to_string_pretty(report)?;
    text.push('\n');
    if is_stdout(Some(path)) {
        return Ok(io::stdout().write_all(text.as_bytes())?);
    }
    std::fs::write(path, text).with_context(|| format!("cannot write the results to {}", path.display()))
}

/// The error and its causes on one line, each said once.
pub(crate) fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let text = cause.to_string();
        if !line.contains(&text) {
            line = if line.is_empty() { text } else { format!("{line}: {text}") };
        }
    }
    line.replace('\n', " ")
}

/// Whether whoever read our output has gone: no failure of ours.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_broken)
}
