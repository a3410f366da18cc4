//! Public sets of traces as comma- or space-separated values without a head: MSR Cambridge, FIU, Alibaba, Tencent,
//! SYSTOR '17. Each is a parser of its lines; `docs/convert.md` names the sources.

use iopath_core::Op;
use iopath_log::kernel::DeviceNumber;

use super::names::{Commands, Names};
use crate::event::{TraceEvent, WholeIo, sectors_of};
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::{Scan, number};
use crate::text::{Fault, LineParser, Text};

/// Times of Windows count from 1601, in units of 100 ns; this is 1970.
const FILETIME_OF_1970: u64 = 116_444_736_000_000_000;

/// Parses the lines of one set.
struct Set {
    parse: fn(&mut Set, &[u8]) -> Option<WholeIo>,
    columns: &'static str,
    names: Names,
    commands: Commands,
    inexact: u64,
    whole_seconds: Option<Spread>,
    lines: u64,
}

/// The events of one second, which are spread evenly over it.
#[derive(Debug, Default)]
struct Spread {
    second_ns: u64,
    waiting: Vec<WholeIo>,
}

/// The maximum number of events of a second that are spread evenly: 9 MiB. Later ones come at its end.
const SPREAD_MAX: usize = 1 << 17;

const SECOND_NS: u64 = 1_000_000_000;

/// The first line that is not empty.
fn first_line(start: &[u8]) -> &[u8] {
    let lines = start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    lines.into_iter().find(|line| !line.is_empty()).unwrap_or_default()
}

/// Whether the first line, or the second behind a head, is one of the set.
fn is_line(start: &[u8], parse: fn(&mut Set, &[u8]) -> Option<WholeIo>) -> bool {
    let mut set = Set::new(parse, "");
    let first = first_line(start);
    if parse(&mut set, first).is_some() {
        return true;
    }
    let is_head = first.first().is_some_and(u8::is_ascii_alphabetic);
    let second =
        start.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).filter(|line| !line.is_empty()).nth(1);
    is_head && second.is_some_and(|line| parse(&mut set, line).is_some())
}

fn open(input: Input, set: Set) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, set))
}

pub(crate) fn detect_msr(start: &[u8]) -> bool {
    is_line(start, msr)
}

pub(crate) fn open_msr(input: Input) -> Box<dyn TraceReader> {
    open(input, Set::new(msr, "Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime"))
}

pub(crate) fn detect_fiu(start: &[u8]) -> bool {
    is_line(start, fiu)
}

pub(crate) fn open_fiu(input: Input) -> Box<dyn TraceReader> {
    open(input, Set::new(fiu, "time, process number, process, sector, sectors, R or W, major, minor, MD5"))
}

pub(crate) fn detect_alibaba(start: &[u8]) -> bool {
    is_line(start, alibaba)
}

pub(crate) fn open_alibaba(input: Input) -> Box<dyn TraceReader> {
    open(input, Set::new(alibaba, "device_id,opcode,offset,length,timestamp"))
}

pub(crate) fn detect_tencent(start: &[u8]) -> bool {
    is_line(start, tencent)
}

pub(crate) fn open_tencent(input: Input) -> Box<dyn TraceReader> {
    let set = Set::new(tencent, "Timestamp,Offset,Size,IOType,VolumeID");
    open(input, Set { whole_seconds: Some(Spread::default()), ..set })
}

pub(crate) fn detect_systor(start: &[u8]) -> bool {
    is_line(start, systor)
}

pub(crate) fn open_systor(input: Input) -> Box<dyn TraceReader> {
    open(input, Set::new(systor, "Timestamp,Response,IOType,LUN,Offset,Size"))
}

/// `Timestamp,Hostname,DiskNumber,Type,Offset,Size,ResponseTime`: times of Windows, bytes.
fn msr(set: &mut Set, line: &[u8]) -> Option<WholeIo> {
    let mut scan = Scan(line);
    let time = scan.number_field()?.checked_sub(FILETIME_OF_1970)?;
    let rest = scan.0;
    let host = scan.field()?;
    let disk = scan.field()?;
    number(disk)?;
    let name = &rest[..rest.len() - scan.0.len()].trim_ascii_end();
    let name = name.strip_suffix(b",").unwrap_or(name);
    let op = match scan.field()? {
        b"Read" | b"read" => Op::Read,
        b"Write" | b"write" => Op::Write,
        _ => return None,
    };
    let (offset, bytes) = (scan.number_field()?, scan.number_field()?);
    let latency_ns = scan.number_field()?.checked_mul(100)?;
    if host.is_empty() || !scan.is_end() {
        return None;
    }
    let device = set.names.number(name);
    let latency_ns = Some(latency_ns);
    let io = WholeIo { device, process: device, latency_ns, ..WholeIo::new(time.checked_mul(100)?, op) };
    set.with_range(io, offset, bytes)
}

/// `ns pid process lba blocks R|W major minor [md5]`: sectors of 512 bytes.
fn fiu(set: &mut Set, line: &[u8]) -> Option<WholeIo> {
    let mut scan = Scan(line);
    let at_ns = scan.number_word()?;
    let process = u32::try_from(scan.number_word()?).ok()?;
    let command = scan.word()?;
    let (sector, sectors) = (scan.number_word()?, scan.number_word()?);
    let op = operation(scan.word()?)?;
    let [major, minor] = [scan.number_word()?, scan.number_word()?];
    // At most the checksum of the content follows.
    scan.word();
    let device = DeviceNumber::new(u32::try_from(major).ok()?, u32::try_from(minor).ok()?)?.0;
    if !scan.is_end() || sectors == 0 {
        return None;
    }
    set.lines += 1;
    set.commands.note(process, command);
    Some(WholeIo { device, process, sector, sectors, ..WholeIo::new(at_ns, op) })
}

/// `device_id,opcode,offset,length,timestamp`: bytes, microseconds.
fn alibaba(set: &mut Set, line: &[u8]) -> Option<WholeIo> {
    let mut scan = Scan(line);
    let device = u32::try_from(scan.number_field()?).ok()?;
    let op = operation(scan.field()?)?;
    let (offset, bytes) = (scan.number_field()?, scan.number_field()?);
    let at_ns = scan.number_field()?.checked_mul(1000)?;
    if !scan.is_end() {
        return None;
    }
    set.with_range(WholeIo { device, process: device, ..WholeIo::new(at_ns, op) }, offset, bytes)
}

/// `Timestamp,Offset,Size,IOType,VolumeID`: seconds, sectors of 512 bytes.
fn tencent(set: &mut Set, line: &[u8]) -> Option<WholeIo> {
    let mut scan = Scan(line);
    let at_ns = scan.number_field()?.checked_mul(SECOND_NS)?;
    let (sector, sectors) = (scan.number_field()?, scan.number_field()?);
    let op = match scan.number_field()? {
        0 => Op::Read,
        1 => Op::Write,
        _ => return None,
    };
    let device = u32::try_from(scan.number_field()?).ok()?;
    if !scan.is_end() || sectors == 0 {
        return None;
    }
    set.lines += 1;
    Some(WholeIo { device, process: device, sector, sectors, ..WholeIo::new(at_ns, op) })
}

/// `Timestamp,Response,IOType,LUN,Offset,Size`: seconds with nine decimals, bytes.
fn systor(set: &mut Set, line: &[u8]) -> Option<WholeIo> {
    let mut scan = Scan(line);
    let (at_ns, _) = scan.fraction(9)?;
    scan.byte(b',')?;
    let (latency_ns, _) = scan.fraction(9)?;
    scan.byte(b',')?;
    let op = operation(scan.field()?)?;
    let device = u32::try_from(scan.number_field()?).ok()?;
    let (offset, bytes) = (scan.number_field()?, scan.number_field()?);
    if !scan.is_end() {
        return None;
    }
    let io = WholeIo { device, process: device, latency_ns: Some(latency_ns), ..WholeIo::new(at_ns, op) };
    set.with_range(io, offset, bytes)
}

/// Whether a line is one of SYSTOR '17 whose operation is empty: the I/O had no response.
fn has_no_response(line: &[u8]) -> bool {
    let fields: Vec<_> = line.split(|byte| *byte == b',').collect();
    matches!(fields[..], [_, _, b"", _, _, _])
}

fn operation(text: &[u8]) -> Option<Op> {
    match text {
        b"R" | b"r" => Some(Op::Read),
        b"W" | b"w" => Some(Op::Write),
        _ => None,
    }
}

impl Set {
    fn new(parse: fn(&mut Set, &[u8]) -> Option<WholeIo>, columns: &'static str) -> Self {
        Self {
            parse,
            columns,
            names: Names::default(),
            commands: Commands::default(),
            inexact: 0,
            whole_seconds: None,
            lines: 0,
        }
    }

    /// The I/O with its range of bytes. An I/O without bytes is none.
    fn with_range(&mut self, io: WholeIo, offset: u64, bytes: u64) -> Option<WholeIo> {
        let (sector, sectors, is_exact) = sectors_of(offset, bytes);
        self.inexact += u64::from(!is_exact);
        self.lines += 1;
        (sectors > 0).then_some(WholeIo { sector, sectors, ..io })
    }
}

impl Spread {
    /// Adds an event. The events of the second before go to `out`.
    fn push(&mut self, io: WholeIo, out: &mut Vec<TraceEvent>) {
        if io.at_ns != self.second_ns || self.waiting.len() == SPREAD_MAX {
            self.end(out);
            self.second_ns = io.at_ns;
        }
        self.waiting.push(io);
    }

    fn end(&mut self, out: &mut Vec<TraceEvent>) {
        let count = self.waiting.len() as u64;
        let spread = |(index, io): (usize, WholeIo)| {
            let at_ns = io.at_ns.saturating_add(index as u64 * SECOND_NS / count.max(1));
            TraceEvent::Whole(WholeIo { at_ns, ..io })
        };
        out.extend(self.waiting.drain(..).enumerate().map(spread));
    }
}

impl LineParser for Set {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        let Some(io) = (self.parse)(self, line) else {
            let is_head = self.lines == 0 && line.first().is_some_and(u8::is_ascii_alphabetic);
            if is_head || Scan(line).is_end() {
                return Ok(());
            }
            if has_no_response(line) {
                return Err(Fault::Unknown);
            }
            let problem = format!("it has not the columns {}; correct or remove the line", self.columns);
            return Err(Fault::Wrong(problem));
        };
        match &mut self.whole_seconds {
            Some(spread) => spread.push(io, out),
            None => out.push(TraceEvent::Whole(io)),
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<TraceEvent>) {
        if let Some(spread) = &mut self.whole_seconds {
            spread.end(out);
        }
    }

    fn notes(&self) -> Vec<String> {
        let note = format!("{} requests are not whole sectors: they are rounded outwards", self.inexact);
        (self.inexact > 0).then_some(note).into_iter().collect()
    }

    fn device_name(&self, device: u32) -> Option<String> {
        self.names.name(device)
    }

    fn process_name(&self, process: u32) -> Option<String> {
        self.commands.name(process)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(parse: fn(&mut Set, &[u8]) -> Option<WholeIo>, line: &str) -> Option<WholeIo> {
        parse(&mut Set::new(parse, ""), line.as_bytes())
    }

    #[test]
    fn a_line_of_each_set_is_an_io() {
        let io = one(msr, "128166372003061629,hm,1,Read,383496192,32768,11331").unwrap();
        assert_eq!((io.at_ns, io.sector, io.sectors), (1_172_163_600_306_162_900, 749_016, 64));
        assert_eq!((io.queued_ns, io.latency_ns), (0, Some(1_133_100)));
        let io = one(fiu, "329131208190249 4892 syslogd 904265560 8 W 6 0 531e779b1a3ab6").unwrap();
        assert_eq!(
            (io.at_ns, io.process, io.sector, io.sectors),
            (329_131_208_190_249, 4892, 904_265_560, 8)
        );
        let io = one(alibaba, "419,W,8192,4096,1577808000000046").unwrap();
        assert_eq!((io.at_ns, io.device, io.sector, io.sectors), (1_577_808_000_000_046_000, 419, 16, 8));
        let io = one(tencent, "1538323199,74656712,16,1,1063").unwrap();
        assert_eq!((io.op, io.at_ns, io.sector), (Op::Write, 1_538_323_199_000_000_000, 74_656_712));
        let io = one(systor, "1455592200.123456000,0.000280000,R,2,17179869184,8192").unwrap();
        assert_eq!((io.at_ns, io.latency_ns), (1_455_592_200_123_456_000, Some(280_000)));
        assert_eq!((io.device, io.sector, io.sectors), (2, 1 << 25, 16));
    }

    #[test]
    fn each_set_is_detected_and_no_other() {
        let lines = [
            "128166372003061629,hm,1,Read,383496192,32768,11331\n",
            "329131208190249 4892 syslogd 904265560 8 W 6 0 531e779b1a3ab6\n",
            "device_id,opcode,offset,length,timestamp\n419,W,8192,4096,1577808000000046\n",
            "1538323199,74656712,16,1,1063\n",
            "Timestamp,Response,IOType,LUN,Offset,Size\n1455592200.123456000,0.000280000,R,2,512,8192\n",
        ];
        let detects = [detect_msr, detect_fiu, detect_alibaba, detect_tencent, detect_systor];
        for (own, line) in lines.iter().enumerate() {
            for (set, detect) in detects.iter().enumerate() {
                assert_eq!(detect(line.as_bytes()), own == set, "{line}");
            }
        }
    }

    #[test]
    fn whole_seconds_are_spread_in_the_order_of_lines() {
        let mut set = Set { whole_seconds: Some(Spread::default()), ..Set::new(tencent, "") };
        let mut out = Vec::new();
        for line in ["10,0,8,0,1", "10,8,8,0,1", "11,16,8,0,1", "12,24,8,0,1", "12,32,8,0,1"] {
            set.line(line.as_bytes(), &mut out).unwrap();
        }
        set.finish(&mut out);
        let times: Vec<_> = out.iter().map(|event| event.at_ns() / 1_000_000).collect();
        assert_eq!(times, [10_000, 10_500, 11_000, 12_000, 12_500]);
    }
}
