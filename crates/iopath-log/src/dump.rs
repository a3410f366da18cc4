//! Writes one line for each step, in columns like blkparse's. It does not join steps: see `summary.rs`.
//!
//! ```text
//! queue       time s  event      subject  op sectors        stream  details
//!     0  0.000001500  G get          r12  R  2048 + 8            0  for b3
//! ```

use crate::block::{Block, Entry};
use crate::error::LogError;
use crate::filter::{Filter, Matcher};
use crate::names::{event_letter, event_name, op_letter, reason_name};
use crate::reader::{End, LogReader};
use crate::summary::{Contents, Seen};
use crate::text::Plain;
use iopath_core::Record;
use iopath_core::log::{Event, Step, Subject};
use std::fmt::{self, Write as _};
use std::io::{Read, Write};

/// The result of a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dumped {
    /// Lines written.
    pub lines: u64,
    /// The content of the whole log, if a filter was given.
    pub contents: Option<Contents>,
    /// The end of the log.
    pub end: End,
}

impl<R: Read> LogReader<R> {
    /// Writes a line to `out` for each step that passes the filter, in file order. The steps of each queue are in time
    /// order. A bio is printed as `b` and its number, a request as `r`, an access as `a`.
    ///
    /// # Errors
    /// If the log cannot be read, or `out` cannot be written ([`LogError::Output`]).
    pub fn dump(mut self, filter: &Filter, out: &mut impl Write) -> Result<Dumped, LogError> {
        let start_ns = self.info().start_ns;
        let matcher = Matcher::new(filter, start_ns);
        let mut seen = (!matcher.passes_all()).then(Seen::default);
        let mut block = Block::default();
        let mut lines = 0;
        let mut line = String::new();
        while self.read_block(&mut block)? {
            let is_selected = matcher.passes_queue(&block);
            for entry in block.entries() {
                if let Some(seen) = &mut seen {
                    seen.note(&entry);
                }
                if is_selected && matcher.passes(&entry) {
                    lines += 1;
                    line.clear();
                    // Writing to a string cannot fail.
                    let _ = write!(line, "{}", Line { entry, start_ns });
                    writeln!(out, "{}", line.trim_end()).map_err(LogError::Output)?;
                }
            }
        }
        out.flush().map_err(LogError::Output)?;
        let end = self.end().cloned().unwrap_or_default();
        Ok(Dumped { lines, contents: seen.map(|seen| seen.report(start_ns)), end })
    }
}

/// One step as a line.
struct Line {
    entry: Entry,
    start_ns: u64,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Entry { queue, time, record, .. } = self.entry;
        let nanos = time.as_nanos().saturating_sub(self.start_ns);
        write!(f, "{queue:>5} {:>5}.{:09}  ", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        match record.step() {
            Ok(step) => line(f, &step, record),
            Err(unknown) => write!(f, "? {unknown}"),
        }
    }
}

fn line(f: &mut fmt::Formatter<'_>, step: &Step, record: Record) -> fmt::Result {
    let subject = match step.subject {
        Subject::Queue => "-".to_owned(),
        Subject::Bio(number) if matches!(step.event, Event::Access | Event::AccessEnd) => {
            format!("a{number}")
        }
        Subject::Bio(number) => format!("b{number}"),
        Subject::Request(number) => format!("r{number}"),
    };
    let fua = if step.is_fua { 'F' } else { ' ' };
    let letter = event_letter(step.event);
    let name = event_name(step.event);
    let op = op_letter(step.op);
    write!(f, "{letter} {name:<11} {subject:>8}  ")?;
    if step.subject == Subject::Queue {
        write!(f, "{:<33}", "")?;
    } else {
        let Step { extent, stream, .. } = step;
        write!(f, "{op}{fua} {:<20} {:>5}    ", extent.to_string(), stream.0)?;
    }
    details(f, step, record)
}

/// The bytes of an access.
struct Range(Record);

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (offset, bytes) = self.0.access_range();
        write!(f, "{bytes} bytes at {offset}")
    }
}

/// The details of an event.
fn details(f: &mut fmt::Formatter<'_>, step: &Step, record: Record) -> fmt::Result {
    let Step { other, .. } = step;
    match step.event {
        Event::Split => write!(f, " from b{other}")?,
        Event::Get => write!(f, " for b{other}")?,
        Event::BackMerge => write!(f, " behind r{other}")?,
        Event::FrontMerge => write!(f, " before r{other}")?,
        Event::NoMerge => write!(f, " not with r{other}")?,
        Event::Unplug => write!(f, " {other} requests")?,
        Event::Complete | Event::AccessEnd if *other != 0 => write!(f, " errno {other}")?,
        Event::Complete if step.is_last => f.write_str(" with its bio")?,
        Event::Clock => write!(f, " upper bits {other}")?,
        Event::Remap => write!(f, " from queue {other}")?,
        Event::Access if step.extent.sectors() > 0 => write!(f, " {}", Range(record))?,
        Event::Elevator => write!(f, " {}", Plain(&record.name()))?,
        Event::Missed => write!(f, " {} records", step.extent.start())?,
        _ => {}
    }
    step.reason.map_or(Ok(()), |reason| write!(f, " ({})", reason_name(reason)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use iopath_core::{Extent, Instant, NoMerge, Op, Sector, Stream};

    #[test]
    fn a_line_has_the_documented_columns() {
        let step = Step {
            op: Op::Write,
            extent: Extent::new(Sector(2048), 8).unwrap(),
            stream: Stream(3),
            ..Step::new(Event::NoMerge, Subject::Bio(3))
        };
        let step = step.with_other(12).because(NoMerge::SegmentLimit);
        let time = Instant::from_nanos(2_000_001_500);
        let entry = Entry { number: 0, queue: 1, time, repeat: 0, record: Record::new(&step, time) };
        assert_eq!(
            Line { entry, start_ns: 1_000_000_000 }.to_string(),
            "    1     1.000001500  N no-merge          b3  W  2048 + 8                 3     not with r12 (segment limit)"
        );
    }

    #[test]
    fn an_unknown_event_is_reported_by_its_code() {
        let record = Record::from_words([0, 0, 31 << 48]);
        let entry = Entry { number: 0, queue: 0, time: Instant::ZERO, repeat: 0, record };
        assert!(Line { entry, start_ns: 0 }.to_string().contains("event 31"));
    }
}
