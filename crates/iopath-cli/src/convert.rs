//! `iopath convert`: writes a request log, or a trace of another program, in another format.

use crate::args::ConvertArgs;
use crate::destination::{self, Destination, is_stdout};
use crate::log::with_name;
use crate::stderr::note;
use anyhow::Context;
use clap::error::ErrorKind;
use iopath_bench::own_file::{Kind, OwnFile};
use iopath_log::LogError;
use iopath_report::numbers::counted;
use iopath_trace::{Converted, OUTPUTS, Output, convert, open};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// The size of the buffer before the file.
const BUFFER_BYTES: usize = 1 << 18;

pub(crate) fn run(args: &ConvertArgs) -> anyhow::Result<()> {
    let ConvertArgs { input, output: path, to, force } = args;
    let output = to.or_else(|| Output::of_path(path)).ok_or_else(|| no_format(path))?;
    if let Some(reason) = output.unavailable() {
        let message = format!("{} cannot be written as {}: {reason}", path.display(), output.name);
        return Err(clap::Error::raw(ErrorKind::ValueValidation, message).into());
    }
    if !is_stdout(path) {
        destination::check(&[Destination::converted(path, *force)], &[input])?;
    }
    let log = open(input).map_err(|error| with_name(input, error))?;
    let notes = log.info().notes.clone();
    let converted = write(path, |out| convert(log, output, out).map_err(|error| with_name(input, error)))?;
    for text in notes.iter().chain(&converted.end.notes).chain(&converted.notes) {
        note(text);
    }
    if let Some(damage) = converted.end.damage {
        note(format_args!("{}: {damage}", input.display()));
    }
    if converted.steps == 0 {
        note(format_args!("{} has no I/O", input.display()));
    }
    note(format_args!("{} written as {}", counted(converted.steps, "step"), output.title));
    Ok(())
}

/// The message for a name without a known ending.
fn no_format(path: &Path) -> clap::Error {
    let endings: Vec<&str> = OUTPUTS.iter().map(|output| output.ending).collect();
    let message = format!(
        "the format of {} is unknown: end its name in {}, or name the format (--to)",
        path.display(),
        endings.join(", ")
    );
    clap::Error::raw(ErrorKind::ValueValidation, message)
}

/// Writes to a file that replaces one of this name at the end, so a failure leaves none of it. Devices and FIFOs are
/// written directly.
fn write(
    path: &Path,
    convert: impl FnOnce(Box<dyn Write + Send>) -> anyhow::Result<Converted>,
) -> anyhow::Result<Converted> {
    if is_stdout(path) {
        return convert(Box::new(BufWriter::with_capacity(BUFFER_BYTES, io::stdout())));
    }
    let cannot_write = || Destination::converted(path, true).cannot_write();
    if path.metadata().is_ok_and(|metadata| !metadata.is_file()) {
        let file = OpenOptions::new().write(true).open(path).with_context(cannot_write)?;
        return convert(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let own = OwnFile::create(folder, Kind::New).with_context(cannot_write)?;
    let file = own.file().try_clone().with_context(cannot_write)?;
    let converted = convert(Box::new(BufWriter::with_capacity(BUFFER_BYTES, file)));
    let converted = converted.map_err(|error| match error.downcast_ref() {
        Some(LogError::Output(_)) => error.context(cannot_write()),
        _ => error,
    })?;
    own.persist(path).with_context(cannot_write)?;
    Ok(converted)
}
