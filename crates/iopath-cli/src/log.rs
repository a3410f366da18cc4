//! `iopath log`: a request log on one page, as JSON, or line by line.

use crate::args::{LogArgs, LogFile};
use crate::output::plain;
use anyhow::Context;
use iopath_log::{Damage, Filter, LogError, LogReader};
use std::io::{self, BufWriter, Write};
use std::time::Duration;

pub(crate) fn log(args: &LogArgs) -> anyhow::Result<()> {
    match args {
        LogArgs::Summary(args) => summary(&args.what, args.json),
        LogArgs::Dump(file) => dump(file),
    }
}

fn summary(file: &LogFile, is_json: bool) -> anyhow::Result<()> {
    let report = LogReader::open(&file.file).and_then(|log| log.summarise(&filter(file)));
    let report = report.map_err(|error| named(file, error))?;
    let text = if is_json { report.to_json() } else { report.to_string() };
    writeln!(io::stdout(), "{}", text.trim_end())?;
    warn(file, report.damage.as_ref());
    Ok(())
}

fn dump(file: &LogFile) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let end = LogReader::open(&file.file).and_then(|log| log.dump(&filter(file), &mut out));
    let end = end.map_err(|error| named(file, error))?;
    out.flush().context("cannot write the dump")?;
    warn(file, end.damage.as_ref());
    Ok(())
}

/// What is wrong with a log, and with which: readers do not know its name.
fn named(file: &LogFile, error: LogError) -> anyhow::Error {
    match error {
        LogError::Open { .. } | LogError::Output(_) => error.into(),
        of_the_log => anyhow::Error::new(of_the_log).context(file.file.display().to_string()),
    }
}

/// A log that is not whole is read up to the damage, and that is said.
fn warn(file: &LogFile, damage: Option<&Damage>) {
    if let Some(damage) = damage {
        eprintln!("iopath: {}", plain(&format!("{}: {damage}", file.file.display())));
    }
}

fn filter(file: &LogFile) -> Filter {
    let is_bounded = file.from.is_some() || file.to.is_some();
    let time = is_bounded.then(|| file.from.unwrap_or_default()..file.to.unwrap_or(Duration::MAX));
    Filter { time, streams: file.stream.clone(), sectors: file.sectors, events: file.event.clone() }
}
