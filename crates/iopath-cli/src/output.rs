//! Where results go: a table for people or JSON alone on stdout, JSON in a file, errors in one line.

use crate::args::ShowArgs;
use anyhow::{Context, ensure};
use iopath_lab::{Report, table};
use std::error::Error;
use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// How to show things on this run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output<'a> {
    json: Option<&'a Path>,
    is_plain: bool,
}

impl<'a> Output<'a> {
    /// Fails now rather than after the measurement if the results could not be written, or if they would be written
    /// over the target.
    pub(crate) fn new(args: &'a ShowArgs, target: Option<&Path>) -> anyhow::Result<Self> {
        let json = args.json.as_deref();
        if let Some(path) = json.filter(|path| *path != Path::new("-")) {
            check_writable(path, target)?;
        }
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
                fs::write(path, report.to_json()).with_context(|| cannot_write(path))?;
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

/// Whether a file can be written to. Leaves none behind that was not there.
fn check_writable(path: &Path, target: Option<&Path>) -> anyhow::Result<()> {
    let about = fs::metadata(path).ok();
    if let (Some(about), Some(target)) = (&about, target.and_then(|target| fs::metadata(target).ok())) {
        let is_target = (about.dev(), about.ino()) == (target.dev(), target.ino());
        ensure!(!is_target, "{} is the target: name another file for the results (--json)", path.display());
    }
    let kind = about.as_ref().map(Metadata::file_type);
    ensure!(
        !kind.is_some_and(|kind| kind.is_block_device()),
        "{} is a block device: name a file for the results (--json)",
        path.display()
    );
    // Whoever reads a FIFO would take this for the whole of it.
    if !kind.is_some_and(|kind| kind.is_fifo()) {
        OpenOptions::new().append(true).create(true).open(path).with_context(|| cannot_write(path))?;
    }
    if about.is_none() {
        fs::remove_file(path).with_context(|| cannot_write(path))?;
    }
    Ok(())
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the results to {}; name another file (--json)", path.display())
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
