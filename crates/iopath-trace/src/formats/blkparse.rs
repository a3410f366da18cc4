//! The text of `blkparse`, in its default format:
//! `MAJOR,MINOR CPU SEQUENCE TIME PID ACTION RWBS SECTOR + SECTORS [COMM]`.

use iopath_log::kernel::{KernelIo, What};

use super::merges::Merges;
use super::ranges::{self, brackets, device, range};
use crate::event::TraceEvent;
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::Scan;
use crate::text::{Fault, Line, LineParser, Text};

/// Parses lines of blkparse.
#[derive(Debug, Default)]
struct Blkparse {
    /// Messages and commands without sectors of the path.
    others: u64,
    merges: Merges,
}

/// Whether one of the first lines is a line of blkparse.
pub(crate) fn detect(start: &[u8]) -> bool {
    start.split(|byte| *byte == b'\n').take(200).any(|line| matches!(parse(line), Some(Line::Event(_))))
}

pub(crate) fn open(input: Input) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, Blkparse::default()))
}

/// The event of a line.
fn parse(line: &[u8]) -> Option<Line<TraceEvent>> {
    let mut scan = Scan(line);
    let device = device(scan.word()?)?;
    let _cpu = scan.number_word()?;
    let _sequence = scan.number_word()?;
    scan.spaces();
    let (at_ns, places) = scan.fraction(9)?;
    let pid = u32::try_from(scan.number_word()?).ok()?;
    let action = scan.word()?;
    if places != 9 {
        return None;
    }
    let rwbs = scan.word()?;
    let what = match action {
        b"P" => What::Plug,
        b"U" | b"UT" => ranges::unplugged(scan.0),
        b"X" => ranges::split(device, &mut scan)?,
        b"A" => ranges::remap(device, rwbs, &mut scan)?,
        // Messages, waits for a slot, bounces.
        b"m" | b"S" | b"B" => return Some(Line::Other),
        _ => {
            let of: fn(KernelIo) -> What = match action {
                b"Q" => What::Queue,
                b"G" => What::Get,
                b"M" => What::BackMerge,
                b"F" => What::FrontMerge,
                b"I" => What::Insert,
                b"D" => What::Issue,
                b"R" => What::Requeue,
                b"C" => |io| What::Complete(io, 0),
                _ => return None,
            };
            // A flush may have neither sector nor length, and a command has its length only.
            let before = scan;
            let (sector, sectors) = range(&mut scan).or_else(|| {
                scan = before;
                brackets(scan.0).map(|_| (0, 0))
            })?;
            let io = KernelIo::new(device, sector, sectors, rwbs);
            if sectors == 0 && rwbs.starts_with(b"N") {
                return Some(Line::Other);
            }
            match of(io) {
                What::Complete(io, _) => What::Complete(io, ranges::error(scan.0)),
                what => what,
            }
        }
    };
    // A completion names no command, but the error.
    let command = if action == b"C" { None } else { brackets(scan.0) };
    Some(Line::Event(TraceEvent::kernel(at_ns, pid, command.map_or(b"", |(command, _)| command), what)))
}

impl LineParser for Blkparse {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        match parse(line) {
            Some(Line::Event(mut event)) => {
                if let TraceEvent::Kernel(event) = &mut event {
                    self.merges.follow(event);
                }
                out.push(event);
            }
            Some(Line::Other) => self.others += 1,
            // The totals at the end, and empty lines, do not begin with a device.
            None if Scan(line).word().and_then(device).is_none() => {}
            None => return Err(Fault::Unknown),
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let note =
            format!("{} events are messages or commands without sectors: they are not used", self.others);
        (self.others > 0).then_some(note).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::Op;
    use iopath_log::kernel::KernelEvent;

    use super::*;

    fn event(line: &str) -> KernelEvent {
        match parse(line.as_bytes()) {
            Some(Line::Event(TraceEvent::Kernel(event))) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_blkparse_are_events() {
        let queue = event("  8,0    3        1     0.000001500   697  Q   W 223490 + 8 [kjournald]");
        let What::Queue(io) = queue.what else { panic!("{queue:?}") };
        assert_eq!((io.op, queue.at.as_nanos(), queue.pid), (Some(Op::Write), 1500, 697));
        assert_eq!((io.sector, io.sectors, io.device.to_string()), (223_490, 8, "8:0".to_owned()));
        assert!(queue.command.starts_with(b"kjournald\0"));
        let done = event("259,1 1 4 1.500000000 0 C RS 8 + 8 [65531]");
        assert!(matches!(done.what, What::Complete(io, 5) if io.device.to_string() == "259:1"), "{done:?}");
        let split = event("8,0 3 1 0.000001500 697 X WS 100 / 108 [dd]");
        assert!(matches!(split.what, What::Split { sector: 100, new_sector: 108, .. }), "{split:?}");
        let remap = event("8,0 3 1 0.000001500 697 A R 2148 + 8 <- (8,1) 100");
        let is_remap = |what| matches!(what, What::Remap { to, from, from_sector: 100 } if to.sector == 2148 && from.minor() == 1);
        assert!(is_remap(remap.what), "{remap:?}");
        assert_eq!(event("8,0 3 1 0.000001500 697 U N [my dd] 3").what, What::Unplug { requests: 3 });
        for line in ["8,0 3 1 0.000001500 697 Q FWS [sync]", "8,0 3 1 0.000001500 697 C FWS 0 [0]"] {
            let (What::Queue(io) | What::Complete(io, 0)) = event(line).what else { panic!("{line}") };
            assert!(io.is_preflush && io.sectors == 0, "{line}");
        }
    }

    #[test]
    fn totals_and_commands_are_no_events() {
        for line in ["CPU0 (sda):", " Reads Queued:           0,        0KiB", "", "8,0 3 1"] {
            assert!(parse(line.as_bytes()).is_none(), "{line}");
        }
        assert!(matches!(parse(b"8,0 3 1 0.000001500 697 D N 0 (00 01) [smart]"), Some(Line::Other)));
        assert!(matches!(parse(b"8,0 3 1 0.000001500 697 m N cfq idle=0"), Some(Line::Other)));
    }
}
