//! Reads a trace of comma-separated values: `time_ns,op,sector,sectors` and, optionally, `stream`, `disk` and
//! `latency_ns`, in any order. An error names the file, the line, the column and the value.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use csv::{ByteRecord, Reader, ReaderBuilder};
use iopath_core::{Extent, Op, SECTOR_BYTES, Sector};
use iopath_log::other_encoding;

use super::error::WhatIfError;
use super::request::Found;
use super::tally::Tally;
use super::trace::{Builder, Built, Input};
use iopath_bench::error::BenchError;

/// The columns, and whether a file must have them.
const COLUMNS: [(&str, bool); 9] = [
    ("time_ns", true),
    ("op", true),
    ("sector", false),
    ("sectors", false),
    ("stream", false),
    ("disk", false),
    ("latency_ns", false),
    ("offset", false),
    ("bytes", false),
];

/// The positions of columns in [`COLUMNS`].
const SECTOR: usize = 2;
const OFFSET: usize = 7;

/// The largest access in bytes.
const ACCESS_BYTES_MAX: u64 = 1 << 30;

/// The names of operations.
const OPS: [(&str, Op); 11] = [
    ("read", Op::Read),
    ("r", Op::Read),
    ("write", Op::Write),
    ("w", Op::Write),
    ("flush", Op::Flush),
    ("f", Op::Flush),
    ("discard", Op::Discard),
    ("d", Op::Discard),
    ("trim", Op::Discard),
    ("write-zeroes", Op::WriteZeroes),
    ("z", Op::WriteZeroes),
];

/// The maximum length of a request in sectors: 2 TiB.
const SECTORS_MAX: u64 = u32::MAX as u64;

/// The maximum time: 146 years, as of a model.
const TIME_MAX_NS: u64 = 1 << 62;

/// Whether a file has accesses above a page cache: columns `offset` and `bytes` instead of `sector` and `sectors`.
///
/// # Errors
/// The file cannot be read, or its head is wrong.
pub(super) fn has_accesses(path: &Path) -> Result<bool, WhatIfError> {
    Ok(open(path)?.1[OFFSET].is_some())
}

/// The bytes of a file.
type Unpacked = BufReader<Box<dyn Read + Send>>;

type Columns = [Option<usize>; COLUMNS.len()];

/// A file behind its head, and the positions of the columns. Binary data in the head is refused here, so that no
/// message quotes it.
fn open(path: &Path) -> Result<(Reader<Unpacked>, Columns), WhatIfError> {
    let not_csv = |problem: &str| {
        let (path, problem) = (path.to_owned(), problem.to_owned());
        WhatIfError::NotCsv { path, line: 1, problem }
    };
    let mut file = BufReader::with_capacity(1 << 18, iopath_trace::unpacked(path)?);
    // The reader of CSV skips a byte order mark, so these are the first bytes before it.
    let first = file.fill_buf().map_err(BenchError::open(path, false))?;
    if let Some(encoding) = other_encoding(first) {
        return Err(not_csv(encoding));
    }
    let mut reader = ReaderBuilder::new().flexible(true).from_reader(file);
    let head = reader.byte_headers().map_err(|error| bad_line(path, &error))?;
    let is_text = |field: &[u8]| std::str::from_utf8(field).is_ok_and(|text| !text.contains('\0'));
    if !head.iter().all(is_text) {
        return Err(not_csv("it has binary data"));
    }
    let columns = columns(path, head)?;
    Ok((reader, columns))
}

/// Reads a file.
///
/// # Errors
/// The file cannot be read, or a line is wrong.
pub(super) fn read(path: &Path) -> Result<Input, WhatIfError> {
    let (mut reader, columns) = open(path)?;
    let has_accesses = columns[OFFSET].is_some();
    let mut parser = Parser { path, columns, line: 1 };
    let (mut builder, mut record) = (Builder::default(), ByteRecord::new());
    while reader.read_byte_record(&mut record).map_err(|error| bad_line(path, &error))? {
        parser.line = record.position().map_or(0, csv::Position::line);
        let (found, latency_ns) = parser.request(&record)?;
        if !builder.accepts(found.op) {
            continue;
        }
        let Some(number) = builder.push(&found) else { return Err(builder.too_large(path)) };
        if let Some(latency_ns) = latency_ns {
            builder.complete(number, found.at_ns + latency_ns);
        }
    }
    if builder.len() == 0 {
        return Err(WhatIfError::Empty { path: path.to_owned() });
    }
    let notes = builder.note().into_iter().collect();
    let Built { windows, mut devices, streams } = builder.finish();
    let first_ns =
        devices.iter().filter_map(|device| device.requests.first()).map(|request| request.at_ns).min();
    for device in &mut devices {
        for request in &mut device.requests {
            request.at_ns -= first_ns.unwrap_or(0);
        }
        for done in &mut device.done_ns {
            *done = done.saturating_sub(first_ns.unwrap_or(0));
        }
    }
    let mut input = Input {
        name: path.to_owned(),
        devices,
        streams,
        windows,
        recorded: None,
        has_accesses,
        queues: 1,
        notes,
    };
    input.recorded = recorded(&input);
    Ok(input)
}

/// The recorded run, if each request has a latency. The use of the device is unknown.
fn recorded(input: &Input) -> Option<Tally> {
    let mut sum: Option<Tally> = None;
    for device in &input.devices {
        if device.done_ns.is_empty() {
            return None;
        }
        let mut tally = Tally::new(input.windows, input.streams.len(), &device.requests);
        for (request, done_ns) in device.completions() {
            tally.complete(request, request.at_ns, done_ns);
        }
        match &mut sum {
            Some(sum) => sum.add_device(&tally),
            None => sum = Some(tally),
        }
    }
    sum
}

/// The position of each of [`COLUMNS`].
fn columns(path: &Path, head: &ByteRecord) -> Result<Columns, WhatIfError> {
    let mut found = [None; COLUMNS.len()];
    for (position, name) in head.iter().enumerate() {
        let name = String::from_utf8_lossy(name.trim_ascii()).to_ascii_lowercase();
        let error = |problem: String| WhatIfError::Line {
            path: path.to_owned(),
            line: 1,
            column: name.clone(),
            value: name.clone(),
            problem,
        };
        let index = COLUMNS.iter().position(|(known, _)| *known == name).ok_or_else(|| {
            let known: Vec<&str> = COLUMNS.iter().map(|(name, _)| *name).collect();
            error(format!("no column has this name; name the columns {}", known.join(", ")))
        })?;
        if found[index].replace(position).is_some() {
            return Err(error("the column occurs twice; remove one".to_owned()));
        }
    }
    let missing = COLUMNS.iter().zip(&found).find(|((_, needed), found)| *needed && found.is_none());
    let missing = missing.map(|((name, _), _)| *name);
    // One of two pairs of columns has the range.
    let of_pair = |first: usize| match [found[first], found[first + 1]] {
        [Some(_), Some(_)] => Ok(true),
        [None, None] => Ok(false),
        [None, Some(_)] => Err(COLUMNS[first].0),
        [Some(_), None] => Err(COLUMNS[first + 1].0),
    };
    let ranges = of_pair(SECTOR).and_then(|sectors| Ok([sectors, of_pair(OFFSET)?]));
    let missing = missing.map_or(ranges, Err);
    match missing {
        Ok([true, false] | [false, true]) => Ok(found),
        Ok([false, false]) => Err(WhatIfError::NoColumn { path: path.to_owned(), column: "sector" }),
        Ok([true, true]) => Err(WhatIfError::BothRanges { path: path.to_owned() }),
        Err(column) => Err(WhatIfError::NoColumn { path: path.to_owned(), column }),
    }
}

/// A line that is not CSV.
fn bad_line(path: &Path, error: &csv::Error) -> WhatIfError {
    WhatIfError::NotCsv {
        path: path.to_owned(),
        line: error.position().map_or(1, csv::Position::line),
        problem: error.to_string(),
    }
}

struct Parser<'a> {
    path: &'a Path,
    columns: Columns,
    line: u64,
}

impl Parser<'_> {
    fn request(&self, record: &ByteRecord) -> Result<(Found, Option<u64>), WhatIfError> {
        let [time, op, sector, sectors, stream, disk, latency, offset, bytes] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
        let has_accesses = self.columns[OFFSET].is_some();
        let columns = self.columns.iter().flatten().count();
        if let Some(extra) = record.get(columns) {
            let problem = "the line has more values than the head has columns; remove it";
            return Err(self.error(&(columns + 1).to_string(), extra, problem));
        }
        let at_ns = self.number(record, time, TIME_MAX_NS)?;
        let text = self.value(record, op).unwrap_or_default();
        let of_name = |(name, _): &&(&str, Op)| text.eq_ignore_ascii_case(name.as_bytes());
        let Some((_, op)) = OPS.iter().find(of_name) else {
            return Err(self.error(COLUMNS[op].0, text, "use read, write, flush, discard or write-zeroes"));
        };
        let is_flush = *op == Op::Flush;
        let optional = |column: usize, max| match self.value(record, column) {
            Some(_) => self.number(record, column, max).map(Some),
            None => Ok(None),
        };
        if has_accesses && !(is_flush || op.has_memory()) {
            return Err(self.error(
                "op",
                text,
                "a page cache executes read, write and flush; remove the line",
            ));
        }
        let (start, length) = if is_flush {
            (0, 0)
        } else if has_accesses {
            let offset = self.number(record, offset, Sector::MAX.offset())?;
            let length = self.number(record, bytes, ACCESS_BYTES_MAX)?;
            // Whole sectors: the cache transfers whole pages.
            let end = offset.saturating_add(length).div_ceil(SECTOR_BYTES);
            (offset / SECTOR_BYTES, if length == 0 { 0 } else { end - offset / SECTOR_BYTES })
        } else {
            (self.number(record, sector, Sector::MAX.0)?, self.number(record, sectors, SECTORS_MAX)?)
        };
        if !is_flush && (length == 0 || Extent::new(Sector(start), length).is_none()) {
            let column = if has_accesses { bytes } else { sectors };
            let value = record.get(self.columns[column].unwrap_or(0)).unwrap_or_default();
            return Err(self.error(
                COLUMNS[column].0,
                value,
                "a request has one sector at least and ends below sector 2^55; remove the line",
            ));
        }
        let device = optional(disk, u32::MAX.into())?.unwrap_or(0) as u32;
        let stream = optional(stream, u32::MAX.into())?.map_or(device, |stream| stream as u32);
        let latency_ns = optional(latency, TIME_MAX_NS)?;
        let sectors = length as u32;
        let found = Found { at_ns, op: *op, is_fua: false, sector: start, sectors, stream, device };
        Ok((found, latency_ns))
    }

    /// The value of a column; none if the file or the line has none.
    fn value<'r>(&self, record: &'r ByteRecord, column: usize) -> Option<&'r [u8]> {
        record.get(self.columns[column]?).map(<[u8]>::trim_ascii).filter(|value| !value.is_empty())
    }

    fn number(&self, record: &ByteRecord, column: usize, max: u64) -> Result<u64, WhatIfError> {
        let text = self.value(record, column).unwrap_or_default();
        let digit = |number: Option<u64>, byte: &u8| {
            number?.checked_mul(10)?.checked_add(u64::from(byte.is_ascii_digit().then(|| byte - b'0')?))
        };
        let number = text.iter().fold((!text.is_empty()).then_some(0), digit);
        number.filter(|number| *number <= max).ok_or_else(|| {
            self.error(COLUMNS[column].0, text, &format!("write a whole number from 0 to {max}"))
        })
    }

    #[cold]
    fn error(&self, column: &str, value: &[u8], problem: &str) -> WhatIfError {
        WhatIfError::Line {
            path: self.path.to_owned(),
            line: self.line,
            column: column.to_owned(),
            value: std::str::from_utf8(value)
                .ok()
                .filter(|text| !text.contains(|char: char| char.is_control() && char != '\t'))
                .map_or_else(|| format!("{} bytes of binary data", value.len()), str::to_owned),
            problem: problem.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn parsed(text: &str) -> Result<Input, String> {
        let mut file = tempfile::Builder::new().suffix(".csv").tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        let name = file.path().display().to_string();
        read(file.path()).map_err(|error| error.to_string().replace(&name, "t.csv"))
    }

    #[test]
    fn columns_may_have_any_order_and_lines_any_order_of_time() {
        let text = "op,sectors,sector,time_ns,stream\nw,8,100,2000,7\nRead,16,0,1000,3\nflush,,,3000,7\n";
        let input = parsed(text).unwrap();
        let of = |index: usize| {
            let request = input.devices[0].requests[index];
            let stream = input.streams[usize::from(request.stream)];
            (request.at_ns, request.op(), request.sector, request.sectors, stream)
        };
        assert_eq!(of(0), (0, Op::Read, 0, 16, 3), "times begin at the first request");
        assert_eq!(of(1), (1000, Op::Write, 100, 8, 7));
        assert_eq!(of(2), (2000, Op::Flush, 0, 0, 7));
        assert!(!input.has_completions() && input.recorded.is_none());
    }

    #[test]
    fn each_disk_is_a_device_and_a_stream() {
        let input =
            parsed("time_ns,op,sector,sectors,disk\n0,read,0,8,4\n1,read,0,8,2\n2,read,8,8,4\n").unwrap();
        let devices: Vec<_> = input.devices.iter().map(|device| device.requests.len()).collect();
        assert_eq!((devices, input.streams), (vec![1, 2], vec![4, 2]));
    }

    #[test]
    fn latencies_are_a_recorded_run() {
        let input =
            parsed("time_ns,op,sector,sectors,latency_ns\n500,read,0,8,1000\n700,read,0,8,3000\n").unwrap();
        assert_eq!(input.devices[0].done_ns, [1000, 3200]);
        assert!((input.recorded.unwrap().digest().all().mean_ns - 2000.0).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_line_is_named_with_column_value_and_remedy() {
        let head = "time_ns,op,sector,sectors\n";
        for (lines, message) in [
            ("0,read,0,8\n5,reed,0,8\n", "t.csv line 3, column op: `reed`: use read, write,"),
            ("0,read,x1,8\n", "t.csv line 2, column sector: `x1`: write a whole number from 0 to"),
            ("0,read,0,0\n", "t.csv line 2, column sectors: `0`: a request has one sector at least"),
            ("-4,read,0,8\n", "t.csv line 2, column time_ns: `-4`: write a whole number"),
            ("0,read,0\n", "t.csv line 2, column sectors: ``: write a whole number"),
            ("0,read,0,8,9\n", "more values than the head has columns"),
            ("99999999999999999999,read,0,8\n", "column time_ns: `99999999999999999999`"),
        ] {
            let error = parsed(&format!("{head}{lines}")).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
        for (text, message) in [
            ("time_ns,op,sector\n0,read,0\n", "t.csv has no column sectors"),
            ("time_ns,op,sector,sectors,disc\n", "column disc: `disc`: no column has this name"),
            ("time_ns,op,sector,sectors,op\n", "occurs twice"),
            ("", "t.csv has no column time_ns"),
            ("time_ns,op,sector,sectors\n", "t.csv has no requests"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(message), "{error}");
        }
    }
}
