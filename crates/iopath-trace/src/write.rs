//! Writes a log, or a trace as a log, in another format. The table of outputs; each writer is a file of `write/`.

mod blktrace;
mod csv;
mod iolog;
#[cfg(feature = "parquet")]
mod parquet;
mod perfetto;
mod proto;

use std::io::{self, Write};
use std::path::Path;

use iopath_log::{Block, End, Entry, Labels, LogError, LogInfo, LogOptions, SyncLogWriter};

use crate::AnyLog;
use crate::merge::Merge;

/// Writes the steps of a log. They come in the order of time, as far as the log has it.
trait StepWriter {
    fn step(&mut self, entry: &Entry, labels: &Labels, out: &mut dyn Write) -> io::Result<()>;

    /// Writes the end.
    fn finish(&mut self, labels: &Labels, out: &mut dyn Write) -> io::Result<()>;

    /// What the format lacks of this log, in words.
    fn notes(&self) -> Vec<String>;
}

/// Makes a writer for a log with this header.
type NewWriter = fn(&LogInfo) -> Box<dyn StepWriter>;

/// A format to write.
#[derive(Debug)]
pub struct Output {
    /// The name on command lines.
    pub name: &'static str,
    /// What it is, in one line.
    pub title: &'static str,
    /// The ending of file names of this format. `NUMBER` is any number.
    pub ending: &'static str,
    /// What it does not have.
    pub lacks: &'static str,
    writer: Writer,
}

/// What writes an output.
#[derive(Debug)]
enum Writer {
    /// The log itself.
    Log,
    Steps(NewWriter),
    /// This build lacks the feature.
    #[cfg_attr(feature = "parquet", expect(dead_code, reason = "this build has all features"))]
    Without(&'static str),
}

#[cfg(feature = "parquet")]
const PARQUET: Writer = Writer::Steps(|info| Box::new(parquet::Parquet::new(info)));
#[cfg(not(feature = "parquet"))]
const PARQUET: Writer = Writer::Without("parquet");

/// All outputs.
pub static OUTPUTS: [Output; 6] = [
    Output {
        name: "log",
        title: "request log of iopath",
        ending: ".log",
        lacks: "nothing; lines of a trace that are not used are not in it",
        writer: Writer::Log,
    },
    Output {
        name: "blktrace",
        title: "blktrace, version 7, for blkparse, btt and fio",
        ending: ".blktrace.NUMBER",
        lacks: "reasons against merges; accesses above a page cache; all events are of one CPU",
        writer: Writer::Steps(|info| Box::new(blktrace::Blktrace::new(info))),
    },
    Output {
        name: "iolog",
        title: "I/O log of fio, version 3, for --read_iolog",
        ending: ".iolog",
        lacks: "latencies, processes, forced unit access; times are whole microseconds",
        writer: Writer::Steps(|info| Box::new(iolog::Iolog::new(info))),
    },
    Output {
        name: "csv",
        title: "CSV of iopath: time_ns,op,sector,sectors,stream,disk,latency_ns",
        ending: ".csv",
        lacks: "merges and stages: a line is a bio from its queueing to its completion",
        writer: Writer::Steps(|info| Box::new(csv::Csv::new(info))),
    },
    Output {
        name: "perfetto",
        title: "Perfetto, for ui.perfetto.dev",
        ending: ".pftrace",
        lacks: "bios: a slice is a request at the device",
        writer: Writer::Steps(|info| Box::new(perfetto::Perfetto::new(info))),
    },
    Output {
        name: "parquet",
        title: "Parquet: a row for each request with the time of each stage, for pandas, DuckDB and Polars",
        ending: ".parquet",
        lacks: "bios; requests that were not dispatched",
        writer: PARQUET,
    },
];

impl Output {
    /// The output of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        OUTPUTS.iter().find(|output| output.name == name)
    }

    /// Why this build cannot write it; `None` if it can.
    pub fn unavailable(&self) -> Option<String> {
        match self.writer {
            Writer::Log | Writer::Steps(_) => None,
            Writer::Without(feature) => Some(without(feature)),
        }
    }

    /// The output whose file names end like `path`.
    pub fn of_path(path: &Path) -> Option<&'static Self> {
        let name = path.file_name()?.to_str()?;
        OUTPUTS.iter().find(|output| match output.ending.strip_suffix("NUMBER") {
            None => name.ends_with(output.ending),
            Some(before) => {
                let digits = name.trim_end_matches(|char: char| char.is_ascii_digit());
                digits.len() < name.len() && digits.ends_with(before)
            }
        })
    }
}

fn without(feature: &str) -> String {
    format!("this build lacks the feature `{feature}`; build with `--features {feature}`")
}

/// The result of [`convert`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Converted {
    /// The number of steps that were read.
    pub steps: u64,
    /// The end of the input.
    pub end: End,
    /// What the output lacks of the input, in words.
    pub notes: Vec<String>,
}

/// Writes a log in another format.
///
/// # Errors
/// [`LogError::Output`] if `out` cannot be written, or the errors of reading the log.
pub fn convert(
    mut log: AnyLog,
    output: &Output,
    mut out: Box<dyn Write + Send>,
) -> Result<Converted, LogError> {
    let info = log.info().clone();
    let writer = match output.writer {
        Writer::Log => return copy(log, &info, out),
        Writer::Steps(writer) => writer,
        Writer::Without(feature) => return Err(LogError::Output(io::Error::other(without(feature)))),
    };
    let mut writer = writer(&info);
    let mut merge = Merge::default();
    let (mut block, mut steps) = (Block::default(), 0);
    loop {
        let has_block = log.read_block(&mut block)?;
        if has_block {
            merge.add(&block);
        } else {
            merge.end();
        }
        while let Some(entry) = merge.next() {
            steps += 1;
            writer.step(&entry, log.labels(), &mut out).map_err(LogError::Output)?;
        }
        if !has_block {
            break;
        }
    }
    let finished = writer.finish(log.labels(), &mut out).and_then(|()| out.flush());
    finished.map_err(LogError::Output)?;
    let end = log.end().cloned().unwrap_or_default();
    Ok(Converted { steps, end, notes: writer.notes() })
}

/// Writes a log of the newest version.
fn copy(mut log: AnyLog, info: &LogInfo, out: Box<dyn Write + Send>) -> Result<Converted, LogError> {
    let options = LogOptions { limit_bytes: u64::MAX, ..LogOptions::default() };
    let writer = SyncLogWriter::to(out, info, &options)?;
    let (mut block, mut steps) = (Block::default(), 0);
    let mut labels = Labels::default();
    let mut marks = 0;
    while log.read_block(&mut block)? {
        for mark in &block.marks()[marks..] {
            writer.begin_repeat(mark.repeat, iopath_core::Instant::from_nanos(mark.at_ns));
        }
        marks = block.marks().len();
        if *log.labels() != labels {
            writer.add_labels(&log.labels().since(&labels));
            labels = log.labels().clone();
        }
        steps += block.len() as u64;
        writer.copy_block(&block);
    }
    let end = log.end().cloned().unwrap_or_default();
    writer.add_labels(&end.labels.since(&labels));
    writer.finish_with(end.totals.missed)?;
    Ok(Converted { steps, end, notes: Vec::new() })
}
