//! The CSV of iopath: `time_ns,op,sector,sectors` and, optionally, `stream`, `disk` and `latency_ns`, in any order. The
//! columns `offset` and `bytes` are those of accesses above a page cache, which `iopath whatif` replays.

use iopath_core::Op;

use crate::event::{TraceEvent, WholeIo};
use crate::input::Input;
use crate::reader::TraceReader;
use crate::scan::{Scan, number};
use crate::text::{Fault, LineParser, Text};

/// The names of the columns.
pub(crate) const COLUMNS: [&str; 7] = ["time_ns", "op", "sector", "sectors", "stream", "disk", "latency_ns"];

/// The maximum number of columns of a line, known or not.
const COLUMNS_MAX: usize = 64;

/// The names of operations: the first of each is the one that is written.
const OPS: [(&str, Op); 11] = [
    ("read", Op::Read),
    ("write", Op::Write),
    ("flush", Op::Flush),
    ("discard", Op::Discard),
    ("write-zeroes", Op::WriteZeroes),
    ("r", Op::Read),
    ("w", Op::Write),
    ("f", Op::Flush),
    ("d", Op::Discard),
    ("trim", Op::Discard),
    ("z", Op::WriteZeroes),
];

/// The name of an operation.
pub(crate) fn op_name(op: Op) -> &'static str {
    OPS.iter().find(|(_, known)| *known == op).map_or("read", |(name, _)| name)
}

#[derive(Debug, Default)]
struct Columns {
    /// For each column of the file, its place in [`COLUMNS`].
    places: Vec<Option<usize>>,
}

/// Whether the first line is the head.
pub(crate) fn detect(start: &[u8]) -> bool {
    let line = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line).to_ascii_lowercase();
    let mut scan = Scan(&line);
    let names: Vec<&[u8]> = std::iter::from_fn(|| scan.field()).collect();
    names.contains(&COLUMNS[0].as_bytes()) && names.contains(&COLUMNS[1].as_bytes())
}

pub(crate) fn open(input: Input) -> Box<dyn TraceReader> {
    Box::new(Text::new(input, Columns::default()))
}

impl Columns {
    fn head(&mut self, line: &[u8]) -> Result<(), Fault> {
        let line = line.to_ascii_lowercase();
        let mut scan = Scan(&line);
        while let Some(name) = scan.field() {
            let place = COLUMNS.iter().position(|known| known.as_bytes() == name);
            if name == b"offset" {
                let what =
                    "the column offset is that of accesses above a page cache, which `iopath whatif` replays";
                return Err(Fault::Wrong(what.to_owned()));
            }
            self.places.push(place);
            if self.places.len() > COLUMNS_MAX {
                return Err(Fault::Wrong(format!("the head has more than {COLUMNS_MAX} columns")));
            }
        }
        let missing = (0..4).find(|place| !self.places.contains(&Some(*place)));
        match missing {
            Some(place) => Err(Fault::Wrong(format!("the head has no column {}", COLUMNS[place]))),
            None => Ok(()),
        }
    }

    fn parse(&self, line: &[u8]) -> Result<WholeIo, Fault> {
        let mut fields: [&[u8]; COLUMNS.len()] = [b""; COLUMNS.len()];
        let mut scan = Scan(line);
        for place in &self.places {
            let field = scan.field().unwrap_or_default();
            if let Some(place) = place {
                fields[*place] = field;
            }
        }
        let wrong = |place: usize, remedy: &str| {
            let value = String::from_utf8_lossy(&fields[place][..fields[place].len().min(64)]).into_owned();
            Fault::Wrong(format!("column {}: {value:?}: {remedy}", COLUMNS[place]))
        };
        let of = |place: usize| number(fields[place]).ok_or_else(|| wrong(place, "write a whole number"));
        let optional = |place: usize| if fields[place].is_empty() { Ok(None) } else { of(place).map(Some) };
        let text = fields[1];
        let op = OPS.iter().find(|(name, _)| text.eq_ignore_ascii_case(name.as_bytes()));
        let Some((_, op)) = op else {
            return Err(wrong(1, "use read, write, flush, discard or write-zeroes"));
        };
        let (sector, sectors) = if *op == Op::Flush { (0, 0) } else { (of(2)?, of(3)?) };
        if *op != Op::Flush && sectors == 0 {
            return Err(wrong(3, "a request has one sector at least; remove the line"));
        }
        let small = |place: usize| {
            let value = optional(place)?.map(u32::try_from).transpose();
            value.map_err(|_| wrong(place, "write a number below 2^32"))
        };
        let device = small(5)?.unwrap_or(0);
        let process = small(4)?.unwrap_or(device);
        Ok(WholeIo {
            device,
            process,
            sector,
            sectors,
            latency_ns: optional(6)?,
            ..WholeIo::new(of(0)?, *op)
        })
    }
}

impl LineParser for Columns {
    fn line(&mut self, line: &[u8], out: &mut Vec<TraceEvent>) -> Result<(), Fault> {
        if self.places.is_empty() {
            return self.head(line);
        }
        if !Scan(line).is_end() {
            out.push(TraceEvent::Whole(self.parse(line)?));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Result<Vec<WholeIo>, String> {
        let (mut columns, mut out) = (Columns::default(), Vec::new());
        for line in text.lines() {
            match columns.line(line.as_bytes(), &mut out) {
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
    fn columns_may_have_any_order() {
        let text = "op,sectors,sector,time_ns,latency_ns,disk\nw,8,100,2000,,3\nflush,,,3000,70,\n";
        let ios = parsed(text).unwrap();
        assert_eq!((ios[0].op, ios[0].sector, ios[0].sectors, ios[0].device), (Op::Write, 100, 8, 3));
        assert_eq!((ios[1].op, ios[1].latency_ns, ios[0].latency_ns), (Op::Flush, Some(70), None));
    }

    #[test]
    fn a_wrong_value_is_named() {
        for (text, problem) in [
            ("time_ns,op,sector\n", "no column sectors"),
            ("time_ns,op,offset,bytes\n", "above a page cache"),
            ("time_ns,op,sector,sectors\n1,reed,0,8\n", "column op: \"reed\""),
            ("time_ns,op,sector,sectors\n1,read,0,0\n", "one sector at least"),
            ("time_ns,op,sector,sectors\n-1,read,0,8\n", "column time_ns: \"-1\""),
        ] {
            assert!(parsed(text).unwrap_err().contains(problem), "{text}");
        }
    }
}
