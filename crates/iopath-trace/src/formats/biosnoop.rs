//! The table of `biosnoop`, of BCC, of libbpf-tools or of bpftrace: a line for each completed request. The head names
//! the columns; the time is that of the completion.

use iopath_core::Op;
use iopath_log::kernel::{DeviceNumber, KernelIo};

use super::names::{Commands, Names};
use crate::event::{TraceEvent, WholeIo, sectors_of};
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::{Scan, number};
use crate::text::{Fault, Line, LineParser, Text};

/// The columns that are used, by their name in the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    Time { places: u32 },
    Comm,
    Pid,
    Disk,
    Operation,
    Sector,
    Bytes,
    Queued,
    Latency,
    Other,
}

impl Column {
    fn of(name: &[u8]) -> Self {
        match name {
            b"TIME(s)" => Self::Time { places: 9 },
            b"TIME(ms)" => Self::Time { places: 6 },
            b"COMM" => Self::Comm,
            b"PID" => Self::Pid,
            b"DISK" => Self::Disk,
            b"T" => Self::Operation,
            b"SECTOR" => Self::Sector,
            b"BYTES" => Self::Bytes,
            b"QUE(ms)" => Self::Queued,
            b"LAT(ms)" => Self::Latency,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Default)]
struct Biosnoop {
    columns: Vec<Column>,
    disks: Names,
    commands: Commands,
    /// Requests of kinds that are not used.
    others: u64,
    inexact: u64,
}

/// The columns of a head.
fn head(line: &[u8]) -> Option<Vec<Column>> {
    let mut scan = Scan(line);
    let columns: Vec<Column> = std::iter::from_fn(|| scan.word()).map(Column::of).collect();
    let has = |column| columns.contains(&column);
    let is_head = matches!(columns.first(), Some(Column::Time { .. }))
        && has(Column::Sector)
        && has(Column::Bytes)
        && has(Column::Latency);
    is_head.then_some(columns)
}

/// Whether one of the first lines is the head.
pub(crate) fn detect(start: &[u8]) -> bool {
    start.split(|byte| *byte == b'\n').take(20).any(|line| head(line).is_some())
}

pub(crate) fn open(input: Input) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, Biosnoop::default()))
}

impl Biosnoop {
    /// The event of a line.
    fn parse(&mut self, line: &[u8]) -> Option<Line<WholeIo>> {
        let mut scan = Scan(line);
        let words: Vec<&[u8]> = std::iter::from_fn(|| scan.word()).collect();
        // The name of a command may have spaces: columns before it count from the left, others from the right.
        let comm = self.columns.iter().position(|column| *column == Column::Comm).unwrap_or(0);
        let from_right = self.columns.len() - comm;
        if words.len() < self.columns.len() {
            return None;
        }
        let word = |wanted: fn(&Column) -> bool| {
            let at = self.columns.iter().position(wanted)?;
            let at = if at < comm { at } else { at - comm + words.len() - from_right };
            words.get(at).copied()
        };
        let milliseconds = |text: &[u8]| {
            let mut scan = Scan(text);
            let (ns, _) = scan.fraction(6)?;
            scan.0.is_empty().then_some(ns)
        };
        let Column::Time { places } = *self.columns.first()? else { return None };
        let mut time = Scan(words.first()?);
        let (done_ns, _) = time.fraction(places)?;
        let latency_ns = milliseconds(word(|column| *column == Column::Latency)?)?;
        let queued_ns = match word(|column| *column == Column::Queued) {
            Some(text) => milliseconds(text)?,
            None => 0,
        };
        let bytes = number(word(|column| *column == Column::Bytes)?)?;
        let sector = word(|column| *column == Column::Sector)?;
        let letters = word(|column| *column == Column::Operation).unwrap_or(b"R");
        // A flush and a command have the sector -1.
        let sector = if sector == b"-1" { 0 } else { number(sector)? };
        let (_, sectors, is_exact) = sectors_of(0, bytes);
        let io = KernelIo::new(DeviceNumber(0), 0, sectors.min(u64::from(u32::MAX)) as u32, letters);
        let Some(op) = io.op else { return Some(Line::Other) };
        let is_flush = op == Op::Flush;
        if !is_flush && (sector == u64::MAX || sectors == 0) {
            return Some(Line::Other);
        }
        let disk = word(|column| *column == Column::Disk).unwrap_or(b"");
        let pid = word(|column| *column == Column::Pid).and_then(number).unwrap_or(0);
        let device = self.disks.number(disk);
        self.inexact += u64::from(!is_exact);
        let at_ns = done_ns.saturating_sub(latency_ns).saturating_sub(queued_ns);
        let (sector, sectors) = if is_flush { (0, 0) } else { (sector, sectors) };
        let process = u32::try_from(pid).unwrap_or(0);
        if let Some(command) = words.get(comm..comm + 1 + words.len() - self.columns.len()) {
            self.commands.note(process, &command.join(&b' '));
        }
        let latency_ns = Some(latency_ns);
        let io =
            WholeIo { device, process, sector, sectors, queued_ns, latency_ns, ..WholeIo::new(at_ns, op) };
        Some(Line::Event(io))
    }
}

impl LineParser for Biosnoop {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        if let Some(columns) = head(line) {
            self.columns = columns;
            return Ok(());
        }
        if self.columns.is_empty() || Scan(line).is_end() {
            return Ok(());
        }
        match self.parse(line).ok_or(Fault::Unknown)? {
            Line::Event(io) => out.push(TraceEvent::Whole(io)),
            Line::Other => self.others += 1,
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.columns.contains(&Column::Queued) {
            notes.push("the time in the queue is not recorded (biosnoop -Q): Q2C is D2C".to_owned());
        }
        if self.others > 0 {
            notes.push(format!(
                "{} requests have an unknown operation or no sectors: they are not used",
                self.others
            ));
        }
        if self.inexact > 0 {
            notes.push(format!("{} requests are not whole sectors: they are rounded up", self.inexact));
        }
        notes
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.disks.name(device)
    }

    fn process_name(&self, process: u32) -> Option<String> {
        self.commands.name(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Vec<Option<WholeIo>> {
        let mut parser = Biosnoop::default();
        let mut events = Vec::new();
        for line in text.lines() {
            match head(line.as_bytes()) {
                Some(columns) => parser.columns = columns,
                None => events.push(match parser.parse(line.as_bytes()) {
                    Some(Line::Event(io)) => Some(io),
                    Some(Line::Other) | None => None,
                }),
            }
        }
        events
    }

    #[test]
    fn a_request_begins_a_latency_before_its_line() {
        let text = "TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)\n\
                    0.000004    supervise      1950   xvda1   W 13092560   4096      0.74\n\
                    1.500000    my prog 2      7      xvda1   R 8          8192    100.00\n\
                    2.000000    x              8      xvda1   R -1         0         0.10\n";
        let events = parsed(text);
        let first = events[0].unwrap();
        assert_eq!((first.op, first.process, first.sector, first.sectors), (Op::Write, 1950, 13_092_560, 8));
        assert_eq!(first.at_ns, 0, "a time before the first is the first");
        assert_eq!((first.queued_ns, first.latency_ns), (0, Some(740_000)));
        let second = events[1].unwrap();
        assert_eq!((second.at_ns, second.process, second.sectors), (1_400_000_000, 7, 16));
        assert_eq!(events[2], None);
    }

    #[test]
    fn the_time_in_the_queue_precedes_the_latency() {
        let text = "TIME(s)     COMM           PID    DISK    T  SECTOR     BYTES   QUE(ms) LAT(ms)\n\
                    1.0  dd  4  sda  R  8  4096  0.5  1.25\n";
        let event = parsed(text)[0].unwrap();
        assert_eq!(event.at_ns, 1_000_000_000 - 1_750_000);
        assert_eq!((event.queued_ns, event.latency_ns), (500_000, Some(1_250_000)));
    }
}
