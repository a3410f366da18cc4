//! `iopath log`: a request log on one page, as JSON, or line by line.

use crate::args::{LogArgs, LogFile, SummaryArgs};
use crate::output::Output;
use crate::stderr::note;
use anyhow::anyhow;
use clap::error::ErrorKind;
use iopath_log::{Damage, Filter, LogError};
use iopath_report::format::log;
use iopath_trace::AnyLog;
use std::io;
use std::path::Path;
use std::time::Duration;

pub(crate) fn log(args: &LogArgs) -> anyhow::Result<()> {
    match args {
        LogArgs::Summary(args) => summary(args),
        LogArgs::Dump(file) => dump(file),
    }
}

fn summary(args: &SummaryArgs) -> anyhow::Result<()> {
    let file = &args.file;
    let filter = filter(file)?;
    let output = Output::plain(&args.json, &[&file.file])?.in_format(args.format.format)?;
    let report =
        open(file).and_then(|log| log.summarise(&filter)).map_err(|error| with_name(&file.file, error))?;
    output.present(&report)?;
    if let Some(contents) = report.nothing_passed().filter(|_| output.is_alone()) {
        note(log::contents(contents));
    }
    warn(file, report.damage.as_ref());
    Ok(())
}

fn dump(file: &LogFile) -> anyhow::Result<()> {
    let filter = filter(file)?;
    let dumped = open(file).and_then(|log| iopath_trace::dump(log, &filter, &mut io::stdout().lock()));
    let dumped = dumped.map_err(|error| with_name(&file.file, error))?;
    if let Some(contents) = dumped.contents.filter(|_| dumped.lines == 0) {
        note(log::contents(&contents));
    }
    warn(file, dumped.end.damage.as_ref());
    Ok(())
}

fn open(file: &LogFile) -> Result<AnyLog, LogError> {
    let is_stdin = file.file == Path::new("-");
    iopath_trace::open(if is_stdin { Path::new("/dev/stdin") } else { &file.file })
}

/// Adds the name of the log and a remedy where the error has none.
pub(crate) fn with_name(file: &Path, error: LogError) -> anyhow::Error {
    let name = file.display();
    match error {
        LogError::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            anyhow!("log {name} does not exist; `iopath run --log FILE` and `iopath record` write logs")
        }
        LogError::Read { source, .. } if source.kind() == io::ErrorKind::IsADirectory => {
            anyhow!(
                "{name} is a directory; name a log, which `iopath run --log FILE` or `iopath record` writes"
            )
        }
        LogError::Open { .. } | LogError::Trace { .. } | LogError::Output(_) => error.into(),
        other => anyhow::Error::new(other).context(name.to_string()),
    }
}

/// Warns about damage. The log is read up to the damage.
fn warn(file: &LogFile, damage: Option<&Damage>) {
    if let Some(damage) = damage {
        note(format_args!("{}: {damage}", file.file.display()));
    }
}

fn filter(file: &LogFile) -> anyhow::Result<Filter> {
    let LogFile { from, to, stream, sectors, event, device, repeat, .. } = file;
    let time = from.unwrap_or_default()..to.unwrap_or(Duration::MAX);
    if time.is_empty() {
        let message = format!("--from {:?} is not before --to {:?}", time.start, time.end);
        return Err(clap::Error::raw(ErrorKind::ValueValidation, message).into());
    }
    Ok(Filter {
        time: (from.is_some() || to.is_some()).then_some(time),
        streams: stream.clone(),
        sectors: *sectors,
        events: event.clone(),
        devices: device.clone(),
        repeats: repeat.clone(),
    })
}
