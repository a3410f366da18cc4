//! The text of the tracepoints `block:*`: of `perf script`, of `trace-cmd report`, and of the file `trace` of tracefs.
//!
//! ```text
//! fio   812 [001]  31.000001:  block:block_rq_issue: 8,0 R 4096 () 2048 + 8 none,0,0 [fio]     perf script
//! fio-812   [001]  31.000001:  block_rq_issue:       8,0 R 4096 () 2048 + 8 [fio]              trace-cmd report
//! ```

use iopath_log::kernel::{DeviceNumber, KernelIo, What};

use super::ranges::{self, brackets, device, range};
use crate::event::TraceEvent;
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::{Scan, number};
use crate::text::{Fault, LineParser, Text};

/// The fields of a tracepoint.
#[derive(Clone, Copy)]
enum Fields {
    /// Device, operation and sectors.
    Io(fn(KernelIo) -> What),
    /// The same, and an error.
    Done(fn(KernelIo, u32) -> What),
    Split,
    Remap,
    Plug,
    Unplug,
    /// It repeats another tracepoint.
    Other,
}

/// Each tracepoint.
const TRACEPOINTS: [(&str, Fields); 18] = [
    ("block_bio_queue", Fields::Io(What::Queue)),
    ("block_getrq", Fields::Io(What::Get)),
    ("block_bio_backmerge", Fields::Io(What::BackMerge)),
    ("block_bio_frontmerge", Fields::Io(What::FrontMerge)),
    ("block_rq_merge", Fields::Io(What::MergeRequest)),
    ("block_rq_insert", Fields::Io(What::Insert)),
    ("block_rq_issue", Fields::Io(What::Issue)),
    ("block_rq_requeue", Fields::Io(What::Requeue)),
    ("block_rq_complete", Fields::Done(What::Complete)),
    ("block_bio_complete", Fields::Done(What::BioComplete)),
    ("block_split", Fields::Split),
    ("block_bio_remap", Fields::Remap),
    ("block_plug", Fields::Plug),
    ("block_unplug", Fields::Unplug),
    ("block_rq_error", Fields::Other),
    ("block_io_start", Fields::Other),
    ("block_io_done", Fields::Other),
    ("block_rq_remap", Fields::Other),
];

#[derive(Debug, Default)]
struct Tracepoints {
    others: u64,
    /// Whether a time has more than six places.
    has_nanoseconds: bool,
    lost: u64,
}

/// Whether one of the first lines is a tracepoint of the block layer.
pub(crate) fn detect(start: &[u8]) -> bool {
    start.split(|byte| *byte == b'\n').take(2000).any(|line| parse(line).is_some())
}

pub(crate) fn open(input: Input) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, Tracepoints::default()))
}

/// A line before its fields: the tracepoint, the text before the time, the time, and the fields.
struct Line<'a> {
    tracepoint: Fields,
    before: &'a [u8],
    at_ns: u64,
    places: u32,
    fields: &'a [u8],
}

/// Finds `TIME: NAME: FIELDS` in a line. The name of a command may contain anything but such a text.
fn line_of(line: &[u8]) -> Option<Line<'_>> {
    memchr::memmem::find_iter(line, b"block_").find_map(|at| {
        let (head, rest) = line.split_at(at);
        let mut scan = Scan(rest);
        let name = scan.until(b':')?;
        let tracepoint = TRACEPOINTS.iter().find(|(known, _)| known.as_bytes() == name)?.1;
        let head = head.strip_suffix(b"block:").unwrap_or(head).trim_ascii_end().strip_suffix(b":")?;
        let start = head.iter().rposition(|byte| matches!(byte, b' ' | b'\t')).map_or(0, |space| space + 1);
        let mut time = Scan(&head[start..]);
        let (at_ns, places) = time.fraction(9)?;
        time.0.is_empty().then_some(Line {
            tracepoint,
            before: &head[..start],
            at_ns,
            places,
            fields: scan.0,
        })
    })
}

/// The process and its command: `COMM-PID [CPU]` or `COMM PID [CPU]` or `COMM PID/TID [CPU]`.
fn process(before: &[u8]) -> (u32, &[u8]) {
    let cpu = before.iter().rposition(|byte| *byte == b'[').unwrap_or(before.len());
    // The file `trace` may have the process group in parentheses: `COMM-PID (TGID) [CPU]`.
    let mut head = before[..cpu].trim_ascii_end();
    if head.ends_with(b")") {
        let open = head.iter().rposition(|byte| *byte == b'(').unwrap_or(0);
        head = head[..open].trim_ascii_end();
    }
    let start = head.iter().rposition(|byte| !byte.is_ascii_digit()).map_or(0, |other| other + 1);
    let pid = number(&head[start..]).and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    let comm = head[..start].trim_ascii();
    (pid, comm.strip_suffix(b"-").unwrap_or(comm))
}

/// The event of a line, and the number of places of its time. The inner `None` is a tracepoint without I/O of the path.
fn parse(line: &[u8]) -> Option<(Option<TraceEvent>, u32)> {
    let Line { tracepoint, before, at_ns, places, fields } = line_of(line)?;
    let mut scan = Scan(fields);
    let what = match tracepoint {
        Fields::Other => return Some((None, places)),
        Fields::Plug => What::Plug,
        Fields::Unplug => ranges::unplugged(scan.0),
        _ => {
            let device = device(scan.word()?)?;
            let rwbs = scan.word()?;
            match tracepoint {
                Fields::Split => ranges::split(device, &mut scan)?,
                Fields::Remap => ranges::remap(device, rwbs, &mut scan)?,
                Fields::Io(of) => of(io(device, rwbs, &mut scan)?),
                Fields::Done(of) => of(io(device, rwbs, &mut scan)?, ranges::error(scan.0)),
                Fields::Plug | Fields::Unplug | Fields::Other => return None,
            }
        }
    };
    let (pid, task) = process(before);
    // The fields have the exact name, but not of all tracepoints.
    let command = if matches!(tracepoint, Fields::Done(_)) { None } else { brackets(scan.0) };
    let command = command.map_or(task, |(command, _)| command);
    Some((Some(TraceEvent::kernel(at_ns, pid, command, what)), places))
}

/// `SECTOR + SECTORS`, behind the number of bytes and the command of a request if it has them: `4096 () 8 + 8`.
fn io(device: DeviceNumber, rwbs: &[u8], scan: &mut Scan<'_>) -> Option<KernelIo> {
    // The name of the command, in brackets, may have parentheses of its own.
    let end = scan.0.iter().position(|byte| *byte == b'[').unwrap_or(scan.0.len());
    if let Some(close) = scan.0[..end].iter().position(|byte| *byte == b')') {
        scan.0 = &scan.0[close + 1..];
    }
    let (sector, sectors) = range(scan)?;
    Some(KernelIo::new(device, sector, sectors, rwbs))
}

impl LineParser for Tracepoints {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        let Some((event, places)) = parse(line) else {
            if memchr::memmem::find(line, b"block_").is_some() && line_of(line).is_some() {
                return Err(Fault::Unknown);
            }
            self.lost += u64::from(is_loss(line));
            return Ok(());
        };
        self.has_nanoseconds |= places > 6;
        match event {
            Some(event) => out.push(event),
            None => self.others += 1,
        }
        Ok(())
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.lost > 0 {
            notes.push(format!(
                "{} lines state that events were lost while the trace was recorded",
                self.lost
            ));
        }
        if !self.has_nanoseconds {
            notes.push("times are whole microseconds: record with nanoseconds (perf script --ns, trace-cmd report -t)".to_owned());
        }
        if self.others > 0 {
            notes.push(format!("{} events repeat others: they are not used", self.others));
        }
        notes
    }
}

/// Whether a line states a loss: `CPU:1 [LOST 3 EVENTS]`, `[3 EVENTS DROPPED]`, `LOST 3 events!`.
fn is_loss(line: &[u8]) -> bool {
    let has = |what| memchr::memmem::find(line, what).is_some();
    (has(b"LOST") || has(b"DROPPED")) && (has(b"EVENTS") || has(b"events"))
}

#[cfg(test)]
mod tests {
    use iopath_core::Op;
    use iopath_log::kernel::KernelEvent;

    use super::*;

    fn event(line: &str) -> KernelEvent {
        match parse(line.as_bytes()) {
            Some((Some(TraceEvent::Kernel(event)), _)) => event,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_of_perf_script_are_events() {
        let issue = event(
            "kworker/0:1H   123 [000]  1234.567890:       block:block_rq_issue: 8,0 W 4096 () 1234 + 8 none,0,0 [kworker/0:1H]",
        );
        let What::Issue(io) = issue.what else { panic!("{issue:?}") };
        assert_eq!((io.op, io.sector, io.sectors), (Some(Op::Write), 1234, 8));
        assert_eq!((issue.at.as_nanos(), issue.pid), (1_234_567_890_000, 123));
        assert!(issue.command.starts_with(b"kworker/0:1H\0"));
        let done = event(
            "swapper     0 [001]     1.000000001: block:block_rq_complete: 259,0 RA () 8 + 16 none,0,0 [-5]",
        );
        assert!(matches!(done.what, What::Complete(io, 5) if io.sectors == 16), "{done:?}");
        let queue =
            event("my (odd) prog 77 [001] 1.0: block:block_bio_queue: 8,1 FWFS 100 + 8 [my (odd) prog]");
        assert!(matches!(queue.what, What::Queue(io) if io.is_fua && io.op == Some(Op::Write)), "{queue:?}");
        assert!(queue.pid == 77 && queue.command.starts_with(b"my (odd) prog\0"));
        let flush =
            event("x 7 [001] 1.0: block:block_rq_complete: 8,0 FF () 18446744073709551615 + 0 none,0,0 [0]");
        assert!(
            matches!(flush.what, What::Complete(io, 0) if io.op == Some(Op::Flush) && io.sector == 0),
            "{flush:?}"
        );
    }

    #[test]
    fn lines_of_trace_cmd_and_of_tracefs_are_events() {
        let issue = event(
            "             fio-812   [001]    31.000001: block_rq_issue:       8,0 R 4096 () 2048 + 8 [fio]",
        );
        assert!(matches!(issue.what, What::Issue(io) if io.sectors == 8) && issue.pid == 812, "{issue:?}");
        let queue = event("  a-b-9 (  9) [000] d..1.  31.5: block_bio_queue: 253,0 WS 8 + 8 [a-b]");
        assert!(
            matches!(queue.what, What::Queue(io) if io.device.major() == 253) && queue.pid == 9,
            "{queue:?}"
        );
        let done = event("  a-b-9 (  9) [000] d..1.  31.5: block_bio_complete: 253,0 WS 8 + 8 [0]");
        assert!(done.command.starts_with(b"a-b\0"), "{done:?}");
        let split = event(" dd-9 [000] ..... 31.5: block_split: 253,0 R 8 / 16 [dd]");
        assert!(matches!(split.what, What::Split { sector: 8, new_sector: 16, .. }), "{split:?}");
        let remap = event(" dd-9 [000] ..... 31.5: block_bio_remap: 8,0 R 2056 + 8 <- (8,1) 8");
        assert!(matches!(remap.what, What::Remap { from_sector: 8, .. }), "{remap:?}");
        let unplug = event(" dd-9 [000] ..... 31.5: block_unplug: [dd] 4");
        assert_eq!(unplug.what, What::Unplug { requests: 4 });
    }

    #[test]
    fn other_lines_are_no_events() {
        for line in [
            "# tracer: nop",
            "",
            "fio-812 [001] 31.0: sched_switch: block_rq_issue: x",
            "block_rq_issue: 8,0 R",
        ] {
            assert!(parse(line.as_bytes()).is_none(), "{line}");
        }
    }
}
