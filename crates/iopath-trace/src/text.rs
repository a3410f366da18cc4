//! Reads a text line by line, in a buffer of constant size. The formats parse the lines.

use iopath_log::{LogError, Position};

use crate::event::TraceEvent;
use crate::input::Input;
use crate::reader::TraceReader;

/// The longest line.
const LINE_BYTES_MAX: usize = 1 << 18;

/// Parses the lines of one format.
pub(crate) trait LineParser: Send {
    /// Adds the events of a line, which has no line end.
    ///
    /// # Errors
    /// If the line is no event.
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault>;

    /// Adds the events that the parser has kept, after the last line.
    fn finish(&mut self, out: &mut Vec<TraceEvent>) {
        let _ = out;
    }

    /// What was counted, in words.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }

    /// The name of a device.
    fn device_name(&self, device: u32) -> Option<String> {
        let _ = device;
        None
    }

    /// The name of the command of a process.
    fn process_name(&self, process: u32) -> Option<String> {
        let _ = process;
        None
    }
}

/// What a line is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Line<T> {
    Event(T),
    /// An event without I/O of the path.
    Other,
}

/// Why a line has no events.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It looks like an event and is none that is known. Such lines are counted.
    Unknown,
    /// It is wrong; this is the problem and the remedy. The trace ends with an error.
    Wrong(String),
}

/// A text and its parser.
pub(crate) struct Text<P> {
    input: Input,
    parser: P,
    buffer: Vec<u8>,
    /// The part of the buffer that is not parsed yet.
    unread: std::ops::Range<usize>,
    /// Lines so far.
    line: u64,
    unknown: u64,
    /// The first line that is unknown.
    first_unknown: u64,
    cut_off: Option<u64>,
    is_done: bool,
}

impl<P: LineParser> Text<P> {
    pub(crate) fn new(input: Input, parser: P) -> Self {
        Self {
            input,
            parser,
            buffer: vec![0; LINE_BYTES_MAX],
            unread: 0..0,
            line: 0,
            unknown: 0,
            first_unknown: 0,
            cut_off: None,
            is_done: false,
        }
    }

    /// Parses one line.
    fn parse(&mut self, range: std::ops::Range<usize>, out: &mut Vec<TraceEvent>) -> Result<(), LogError> {
        self.line += 1;
        let line = &self.buffer[range];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = if self.line == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
        match self.parser.line(line, out) {
            Ok(()) => Ok(()),
            Err(Fault::Unknown) => {
                self.unknown += 1;
                if self.unknown == 1 {
                    self.first_unknown = self.line;
                }
                Ok(())
            }
            Err(Fault::Wrong(problem)) => Err(self.input.error(Position::Line(self.line), problem)),
        }
    }

    /// The last line has no end: the file may be cut off within it.
    fn parse_rest(&mut self, out: &mut Vec<TraceEvent>) {
        let rest = self.unread.clone();
        if !rest.is_empty() && self.parse(rest, out).is_err() {
            self.cut_off = Some(self.line);
        }
        self.parser.finish(out);
        self.is_done = true;
    }
}

impl<P: LineParser> TraceReader for Text<P> {
    fn read(&mut self, out: &mut Vec<TraceEvent>) -> Result<bool, LogError> {
        if self.is_done {
            return Ok(false);
        }
        self.buffer.copy_within(self.unread.clone(), 0);
        let kept = self.unread.len();
        let bytes = self.input.read(&mut self.buffer[kept..])?;
        self.unread = 0..kept + bytes;
        if bytes == 0 {
            if kept == self.buffer.len() {
                let problem = format!("the line has more than {LINE_BYTES_MAX} bytes: it is no trace");
                return Err(self.input.error(Position::Line(self.line + 1), problem));
            }
            self.parse_rest(out);
            return Ok(true);
        }
        let mut start = 0;
        while let Some(end) = memchr::memchr(b'\n', &self.buffer[start..self.unread.end]) {
            self.parse(start..start + end, out)?;
            start += end + 1;
        }
        self.unread.start = start;
        Ok(true)
    }

    fn notes(&self) -> Vec<String> {
        let mut notes: Vec<String> = self.input.note().into_iter().collect();
        if self.unknown > 0 {
            let (lines, first) = (self.unknown, self.first_unknown);
            notes.push(format!("{lines} lines are no events that iopath knows, the first is line {first}"));
        }
        if let Some(line) = self.cut_off {
            notes.push(format!("the file is cut off in line {line}, which is not used"));
        }
        notes.extend(self.parser.notes());
        notes
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.parser.device_name(device)
    }

    fn process_name(&self, process: u32) -> Option<String> {
        self.parser.process_name(process)
    }
}
