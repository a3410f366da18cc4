//! fio's I/O logs, versions 2 and 3: files, actions, and times of submissions without latencies. Version 3 has the time
//! of each action, version 2 has waits.

use iopath_core::Op;

use super::names::Names;
use crate::event::{TraceEvent, WholeIo, sectors_of};
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::{Scan, number};
use crate::text::{Fault, LineParser, Text};

const HEAD: &[u8] = b"fio version ";

#[derive(Debug, Default)]
struct Iolog {
    version: u64,
    files: Names,
    /// The time so far, from the waits of version 2.
    waited_ns: u64,
    inexact: u64,
}

/// Whether the first line is that of an I/O log, of any version.
pub(crate) fn detect(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.starts_with(HEAD) && line.trim_ascii_end().ends_with(b"iolog")
}

pub(crate) fn open(input: Input) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, Iolog::default()))
}

fn wrong(problem: &str) -> Fault {
    Fault::Wrong(problem.to_owned())
}

impl Iolog {
    fn head(&mut self, line: &[u8]) -> Result<(), Fault> {
        let version = line.strip_prefix(HEAD).and_then(|rest| Scan(rest).number_word());
        self.version = version.ok_or_else(|| wrong("the first line is not `fio version N iolog`"))?;
        match self.version {
            2 | 3 => Ok(()),
            other => Err(Fault::Wrong(format!(
                "the I/O log has version {other}, and iopath reads versions 2 and 3; write it with a newer fio"
            ))),
        }
    }

    fn parse(&mut self, line: &[u8]) -> Result<Option<WholeIo>, Fault> {
        let mut scan = Scan(line);
        let mut at_ns = self.waited_ns;
        if self.version == 3 {
            let us = scan.number_word().ok_or_else(|| wrong("the line has no time in microseconds"))?;
            at_ns = us.saturating_mul(1000);
        }
        let no_action = || wrong("the line has no file and action");
        let file = scan.word().ok_or_else(no_action)?;
        let action = scan.word().ok_or_else(no_action)?;
        let mut numbers = [None; 2];
        for value in &mut numbers {
            if let Some(word) = scan.word() {
                let not_a_number = || wrong("offset and length must be whole numbers of bytes");
                *value = Some(number(word).ok_or_else(not_a_number)?);
            }
        }
        let op = match action {
            b"read" => Op::Read,
            b"write" => Op::Write,
            b"trim" => Op::Discard,
            b"sync" | b"datasync" => Op::Flush,
            b"add" | b"open" | b"close" => return Ok(None),
            b"wait" => {
                let us = numbers[0].ok_or_else(|| wrong("a wait needs its time in microseconds"))?;
                self.waited_ns = self.waited_ns.saturating_add(us.saturating_mul(1000));
                return Ok(None);
            }
            other => {
                let action = String::from_utf8_lossy(&other[..other.len().min(32)]);
                let known = "add, open, close, wait, read, write, sync, datasync and trim";
                return Err(Fault::Wrong(format!("{action:?} is no action; fio writes {known}")));
            }
        };
        let device = self.files.number(file);
        let mut io = WholeIo { device, ..WholeIo::new(at_ns, op) };
        if op != Op::Flush {
            let [Some(offset), Some(bytes)] = numbers else {
                return Err(wrong("the line lacks offset and length"));
            };
            let (sector, sectors, is_exact) = sectors_of(offset, bytes);
            self.inexact += u64::from(!is_exact);
            (io.sector, io.sectors) = (sector, sectors);
            if sectors == 0 {
                return Err(wrong("the length is 0"));
            }
        }
        Ok(Some(io))
    }
}

impl LineParser for Iolog {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        if self.version == 0 {
            return self.head(line);
        }
        if !Scan(line).is_end() {
            out.extend(self.parse(line)?.map(TraceEvent::Whole));
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let note = format!("{} requests are not whole sectors: they are rounded outwards", self.inexact);
        (self.inexact > 0).then_some(note).into_iter().collect()
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.files.name(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<WholeIo>, String> {
        let (mut parser, mut out) = (Iolog::default(), Vec::new());
        for line in text.lines() {
            match parser.line(line.as_bytes(), &mut out) {
                Err(Fault::Wrong(problem)) => return Err(problem),
                result => result.map_err(|_| "unknown".to_owned())?,
            }
        }
        let whole = |event: &TraceEvent| match event {
            TraceEvent::Whole(io) => *io,
            TraceEvent::Kernel(event) => panic!("{event:?}"),
        };
        Ok(out.iter().map(whole).collect())
    }

    #[test]
    fn version_3_has_times_and_version_2_has_waits() {
        let text =
            "fio version 3 iolog\n0 /dev/a add\n1 /dev/a open\n250 /dev/a read 4096 8192\n300 /dev/b sync\n";
        let events = parsed(text).unwrap();
        assert_eq!((events[0].at_ns, events[0].sector, events[0].sectors), (250_000, 8, 16));
        assert_eq!((events[1].op, events[1].device), (Op::Flush, 1));
        let text = "fio version 2 iolog\na add\na open\na write 0 4096\na wait 150 0\na trim 4096 512\n";
        let events = parsed(text).unwrap();
        let times: Vec<_> = events.iter().map(|event| (event.at_ns, event.op)).collect();
        assert_eq!(times, [(0, Op::Write), (150_000, Op::Discard)]);
    }

    #[test]
    fn wrong_lines_name_their_problem() {
        for (text, problem) in [
            ("fio version 1 iolog\n", "version 1"),
            ("fio version 3 iolog\nx a read 0 1\n", "no time"),
            ("fio version 3 iolog\n1 a raed 0 1\n", "\"raed\" is no action"),
            ("fio version 3 iolog\n1 a read 0\n", "lacks offset"),
            ("fio version 3 iolog\n1 a read 0 -5\n", "whole numbers"),
        ] {
            assert!(parsed(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
