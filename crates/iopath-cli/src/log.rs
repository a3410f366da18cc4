//! `iopath log`: a request log on one page, as JSON, or line by line.

use crate::args::{LogArgs, LogFile};
use anyhow::Context;
use iopath_log::{Damage, Filter, LogReader};
use std::io::{self, BufWriter, Write};
use std::time::Duration;

pub(crate) fn log(args: &LogArgs) -> anyhow::Result<()> {
    match args {
        LogArgs::Summary(args) => summary(&args.what, args.json),
        LogArgs::Dump(file) => dump(file),
    }
}

fn summary(file: &LogFile, is_json: bool) -> anyhow::Result<()> {
    let report = LogReader::open(&file.file)?.summarise(&filter(file))?;
    let text = if is_json { serde_json::to_string_pretty(&report)? } else { report.to_string() };
    writeln!(io::stdout(), "{}", text.trim_end())?;
    warn(file, report.damage.as_ref());
    Ok(())
}

fn dump(file: &LogFile) -> anyhow::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    let end = LogReader::open(&file.file)?.dump(&filter(file), &mut out)?;
    out.flush().context("cannot write the dump")?;
    warn(file, end.damage.as_ref());
    Ok(())
}

/// A log that is not whole is read up to the damage, and that is said.
fn warn(file: &LogFile, damage: Option<&Damage>) {
    if let Some(damage) = damage {
        eprintln!("iopath: {}: {damage}", file.file.display());
    }
}

fn filter(file: &LogFile) -> Filter {
    let is_bounded = file.from.is_some() || file.to.is_some();
    let time = is_bounded.then(|| file.from.unwrap_or_default()..file.to.unwrap_or(Duration::MAX));
    Filter { time, streams: file.stream.clone(), sectors: file.sectors, events: file.event.clone() }
}
