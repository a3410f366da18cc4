//! Where results go: a table for people or JSON alone on stdout, JSON in a file, errors in one line.

use crate::args::ShowArgs;
use anyhow::Context;
use iopath_lab::{Report, table};
use std::error::Error;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

/// How to show things on this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    json: Option<&'a Path>,
    is_plain: bool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(args: &'a ShowArgs) -> Self {
        Self { json: args.json.as_deref(), is_plain: args.no_color }
    }

    /// Whether stderr may have moving bars.
    pub(crate) fn has_fancy_stderr(&self) -> bool {
        !self.is_plain && table::is_fancy(&io::stderr())
    }

    /// Whether stdout may have colours.
    pub(crate) fn has_fancy_stdout(&self) -> bool {
        !self.is_plain && table::is_fancy(&io::stdout())
    }

    /// Shows a report: its text on stdout, unless `--json -` wants that for JSON alone, and JSON where it is
    /// wanted.
    pub(crate) fn show(&self, report: &Report, text: &str) -> anyhow::Result<()> {
        match self.json {
            Some(path) if path == Path::new("-") => io::stdout().write_all(report.to_json().as_bytes())?,
            Some(path) => {
                writeln!(io::stdout(), "{text}")?;
                let written = std::fs::write(path, report.to_json());
                written.with_context(|| format!("cannot write the results to {}", path.display()))?;
            }
            None => writeln!(io::stdout(), "{text}")?,
        }
        Ok(())
    }
}

/// Whether what goes to stdout is to fit a terminal there.
pub(crate) fn fits_stdout() -> bool {
    io::stdout().is_terminal()
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
