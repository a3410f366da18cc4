//! Reads a trace of any format, and writes it in each output.

use std::io::{Cursor, sink};
use std::path::Path;

use iopath_log::{Filter, LogError};
use iopath_trace::{FORMATS, OUTPUTS, convert, read};

/// Reads a file with this content. It is refused with a message, or every step is valid and the summary counts it.
pub fn drive_trace(content: &[u8]) {
    let open = || read(Path::new("trace"), Box::new(Cursor::new(content.to_vec())));
    let summary = open().and_then(|log| log.summarise(&Filter::default()));
    let report = match summary {
        Ok(report) => report,
        Err(error) => return check(&error),
    };
    for output in OUTPUTS.iter().filter(|output| output.unavailable().is_none()) {
        let log = open().unwrap_or_else(|error| panic!("the second reading failed: {error}"));
        let converted = convert(log, output, Box::new(sink()));
        let converted = converted.unwrap_or_else(|error| panic!("{}: {error}", output.name));
        assert_eq!(converted.end.notes, report.notes);
    }
}

/// Whether content has the format of this name.
///
/// # Panics
/// If there is no such format.
pub fn is_format(content: &[u8], name: &str) -> bool {
    let format = FORMATS.iter().find(|format| format.name == name);
    let format = format.unwrap_or_else(|| panic!("there is no format {name}"));
    let log = read(Path::new("trace"), Box::new(Cursor::new(content.to_vec())));
    log.is_ok_and(|log| log.info().written_by == format.title)
}

/// A message names the position.
fn check(error: &LogError) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains('\n'), "{text}");
}
