//! Where results go: a table for people or JSON alone on stdout, JSON in a file, errors in one line.

use crate::args::ShowArgs;
use crate::destination::{self, Destination};
use anyhow::Context;
use iopath_lab::{Report, table};
use std::error::Error;
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// How to show things on this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    json: Option<&'a Path>,
    is_plain: bool,
}

impl<'a> Output<'a> {
    /// Fails now rather than after the measurement if the results or the log could not be written, or if they would be
    /// written over the target or over each other.
    pub(crate) fn new(args: &'a ShowArgs, target: Option<&Path>, log: Option<&Path>) -> anyhow::Result<Self> {
        let json = args.json.as_deref();
        let results = json.filter(|path| *path != Path::new("-")).map(Destination::results);
        let wanted: Vec<Destination> = results.into_iter().chain(log.map(Destination::log)).collect();
        destination::check(&wanted, target)?;
        Ok(Self { json, is_plain: args.no_color })
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
            Some(path) if path == Path::new("-") => print(&report.to_json())?,
            Some(path) => {
                print(&format!("{text}\n"))?;
                fs::write(path, report.to_json())
                    .with_context(|| Destination::results(path).cannot_write())?;
            }
            None => print(&format!("{text}\n"))?,
        }
        Ok(())
    }
}

/// Writes to stdout, which may be full or closed.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to stdout")
}

/// A line as a terminal may be sent it: names of files are anybody's.
pub(crate) fn plain(line: &str) -> String {
    let escape = |char: char| match char {
        '\n' => " ".to_owned(),
        control if control.is_control() => control.escape_default().to_string(),
        other => other.to_string(),
    };
    line.chars().map(escape).collect()
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
    plain(&line)
}

/// What is wrong with the arguments on one line, as clap says it on several.
pub(crate) fn usage_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines = lines.filter(|line| !line.starts_with("For more information"));
    let mut said = String::new();
    for line in lines {
        let is_continued = said.ends_with(':') || line.starts_with('[');
        if !said.is_empty() {
            said.push_str(if is_continued { " " } else { "; " });
        }
        said.push_str(line);
    }
    format!("{}; see --help", said.trim_start_matches("error: "))
}

/// Whether whoever read our output has gone: no failure of ours.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let is_broken = |cause: &(dyn Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    error.chain().any(is_broken)
}
