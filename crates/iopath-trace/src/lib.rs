//! Traces that other programs recorded, as request logs of iopath.
//!
//! [`open`] detects the format of a file by its content and returns a [`LogReader`] whose records are made while the
//! trace is read, in constant memory. [`FORMATS`] is the table of formats. [`convert`] writes a log or a trace in
//! another format: [`OUTPUTS`]. [`Ios`] are the I/Os of a log in the order of their submission, for replays.
//!
//! ```text
//!   input.rs ─▶ formats/*.rs ─▶ order.rs ─▶ join.rs ─▶ blocks.rs ─▶ source.rs ─▶ write/*.rs
//!   unpacks     parse: events   by time     records    per queue     LogReader
//! ```

mod bios;
mod blocks;
pub mod course;
mod event;
mod formats;
mod input;
mod ios;
mod join;
mod merge;
mod order;
mod reader;
mod scan;
mod source;
mod text;
mod write;

pub use formats::{CSV, FORMATS, Format, TraceClock};
pub use ios::{Io, Ios, Level};
pub use write::{Converted, OUTPUTS, Output, convert};

use std::io::{BufWriter, Read, Write};
use std::path::Path;

use iopath_log::{Dumped, Filter, LogError, LogInfo, LogReader, Position, other_encoding, starts_log};

use formats::blktrace::parts_of_name;
use formats::{BLKTRACE, detect};
use input::Input;
use source::Source;

/// A log, or a trace as a log. It may be compressed with gzip or zstd.
pub type AnyLog = LogReader<Box<dyn Read + Send>>;

/// Opens a request log of iopath, or a trace in one of [`FORMATS`].
///
/// # Errors
/// If the file cannot be opened or read, or has no known format.
pub fn open(path: &Path) -> Result<AnyLog, LogError> {
    open_input(Input::open(path)?)
}

/// Writes a line for each step that passes the filter: [`LogReader::dump`] for callers that are not optimised.
///
/// # Errors
/// As [`LogReader::dump`].
pub fn dump(log: AnyLog, filter: &Filter, out: &mut dyn Write) -> Result<Dumped, LogError> {
    log.dump(filter, &mut BufWriter::new(out))
}

/// Reads a request log or a trace from `content`. Messages name it `path`.
///
/// # Errors
/// As [`open`].
pub fn read(path: &Path, content: Box<dyn Read + Send>) -> Result<AnyLog, LogError> {
    open_input(Input::new(path, content)?)
}

fn open_input(input: Input) -> Result<AnyLog, LogError> {
    if starts_log(input.start()) {
        return LogReader::new(input.into_reader());
    }
    let Some(format) = format_of(&input) else {
        return match other_encoding(input.start()) {
            Some(what) => Err(LogError::NotALog { what }),
            None if !input.start().is_empty() => Err(unknown_format(&input)),
            None => LogReader::new(input.into_reader()),
        };
    };
    open_as(format, input)
}

/// The bytes of a file, unpacked if it is compressed with gzip or zstd.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn unpacked(path: &Path) -> Result<Box<dyn Read + Send>, LogError> {
    Ok(Input::open(path)?.into_reader())
}

/// The content of a file, by its first bytes.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    /// A request log of iopath.
    Log,
    /// A trace in this format.
    Trace(&'static Format),
    /// Neither.
    Other,
}

/// The content of a file, which may be compressed.
///
/// # Errors
/// If the file cannot be opened or read.
pub fn content_of(path: &Path) -> Result<Content, LogError> {
    let input = Input::open(path)?;
    if starts_log(input.start()) {
        return Ok(Content::Log);
    }
    Ok(format_of(&input).map_or(Content::Other, Content::Trace))
}

/// The format of a trace.
fn format_of(input: &Input) -> Option<&'static Format> {
    // blktrace writes a file for each CPU, also for those without an event.
    let is_empty = input.start().is_empty() && parts_of_name(input.path()).is_some();
    if is_empty { FORMATS.iter().find(|format| format.name == BLKTRACE) } else { detect(input.start()) }
}

fn unknown_format(input: &Input) -> LogError {
    let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
    let names = names.join(", ");
    let at = Position::Byte(0);
    input.error(at, format!("it is no request log, and no trace that iopath reads ({names}); `iopath run --log FILE` writes a log"))
}

fn open_as(format: &'static Format, input: Input) -> Result<AnyLog, LogError> {
    let path = input.path().to_owned();
    let mut source = Source::new((format.open)(input)?);
    let start_ns = source.first_ns()?.unwrap_or(0);
    let info = LogInfo {
        target: path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        clock: "recorded".to_owned(),
        start_ns,
        started_unix_ns: if format.clock == TraceClock::Unix { start_ns } else { 0 },
        written_by: format.title.to_owned(),
        source: format.source.to_owned(),
        notes: format.notes.iter().map(|note| (*note).to_owned()).collect(),
        ..LogInfo::default()
    };
    LogReader::of_blocks(info, Box::new(source))
}

/// The examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
