//! The table of formats: how each is detected and read, and what its traces lack. Each reader is a file of `formats/`.

mod biosnoop;
mod blkparse;
pub(crate) mod blktrace;
pub(crate) mod columns;
mod datasets;
mod iolog;
mod merges;
mod names;
mod ranges;
mod tracepoints;

use iopath_log::{LogError, LogInfo};

use crate::input::Input;
use crate::reader::TraceReader;

/// The clock of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TraceClock {
    /// Its times count from an unknown moment, such as the start of the recording or of the machine.
    Own,
    /// Its times count from 1970 (UTC).
    Unix,
}

/// A format of traces.
#[derive(Debug)]
pub struct Format {
    /// The name on command lines.
    pub name: &'static str,
    /// What it is, in one line.
    pub title: &'static str,
    /// How it is detected by its content.
    pub detected_by: &'static str,
    /// What its traces lack or hide, for the user of a summary.
    pub notes: &'static [&'static str],
    /// The path that its events are of: [`LogInfo::source`].
    pub source: &'static str,
    /// The clock of its times.
    pub clock: TraceClock,
    pub(crate) detect: fn(&[u8]) -> bool,
    pub(crate) open: fn(Input) -> Result<Box<dyn TraceReader>, LogError>,
}

/// The name of blktrace.
pub(crate) const BLKTRACE: &str = "blktrace";

/// The name of the CSV of iopath.
pub const CSV: &str = "csv";

/// All formats, in the order in which they are tried.
pub static FORMATS: [Format; 11] = [
    Format {
        name: BLKTRACE,
        title: "blktrace, versions 7 and 8, of either byte order",
        detected_by: "the magic number of the first record",
        notes: &[
            "I/Os are joined by device, sector and length: blktrace has no numbers of bios and requests",
        ],
        source: LogInfo::KERNEL,
        clock: TraceClock::Own,
        detect: blktrace::detect,
        open: blktrace::open,
    },
    Format {
        name: "iolog",
        title: "I/O log of fio, versions 2 and 3",
        detected_by: "the first line `fio version N iolog`",
        notes: &["fio logs submissions, without latencies"],
        source: LogInfo::TRACE,
        clock: TraceClock::Own,
        detect: iolog::detect,
        open: |input| Ok(iolog::open(input)),
    },
    Format {
        name: CSV,
        title: "CSV of iopath",
        detected_by: "a head with the columns time_ns and op",
        notes: &[],
        source: LogInfo::TRACE,
        clock: TraceClock::Own,
        detect: columns::detect,
        open: |input| Ok(columns::open(input)),
    },
    Format {
        name: "biosnoop",
        title: "table of biosnoop (BCC, libbpf-tools, bpftrace)",
        detected_by: "a head with the columns TIME, SECTOR, BYTES and LAT(ms)",
        notes: &["latencies have the decimal places of the table: 1 to 10 µs", "merges are not recorded"],
        source: LogInfo::TRACE,
        clock: TraceClock::Own,
        detect: biosnoop::detect,
        open: |input| Ok(biosnoop::open(input)),
    },
    Format {
        name: "blkparse",
        title: "text of blkparse, in its default format",
        detected_by: "a line with device, CPU, sequence number, time, process and action",
        notes: &[
            "I/Os are joined by device, sector and length: blktrace has no numbers of bios and requests",
        ],
        source: LogInfo::KERNEL,
        clock: TraceClock::Own,
        detect: blkparse::detect,
        open: |input| Ok(blkparse::open(input)),
    },
    Format {
        name: "tracepoints",
        title: "text of the tracepoints block:* (perf script, trace-cmd report, tracefs)",
        detected_by: "a line with a time and the name of a tracepoint block_*",
        notes: &[
            "I/Os are joined by device, sector and length: tracepoints have no numbers of bios and requests",
        ],
        source: LogInfo::KERNEL,
        clock: TraceClock::Own,
        detect: tracepoints::detect,
        open: |input| Ok(tracepoints::open(input)),
    },
    Format {
        name: "msr",
        title: "MSR Cambridge, CSV (SNIA IOTTA 387)",
        detected_by: "7 columns, the fourth Read or Write",
        notes: &[
            "recorded in 2007 on Windows, with times in steps of 100 ns; one latency from submission to completion",
        ],
        source: LogInfo::TRACE,
        clock: TraceClock::Unix,
        detect: datasets::detect_msr,
        open: |input| Ok(datasets::open_msr(input)),
    },
    Format {
        name: "alibaba",
        title: "Alibaba block traces of 2020, CSV",
        detected_by: "5 columns, the second R or W",
        notes: &["it has no latencies: replays follow the recorded times (open loop)"],
        source: LogInfo::TRACE,
        clock: TraceClock::Unix,
        detect: datasets::detect_alibaba,
        open: |input| Ok(datasets::open_alibaba(input)),
    },
    Format {
        name: "tencent",
        title: "Tencent CBS of 2018, CSV (SNIA IOTTA 28064)",
        detected_by: "5 columns of numbers, the fourth 0 or 1",
        notes: &[
            "times are whole seconds: iopath spreads the I/Os of a second evenly over it, in the order of lines; gaps and \
             bursts within a second are not known",
            "it has no latencies: replays follow the recorded times (open loop)",
        ],
        source: LogInfo::TRACE,
        clock: TraceClock::Unix,
        detect: datasets::detect_tencent,
        open: |input| Ok(datasets::open_tencent(input)),
    },
    Format {
        name: "fiu",
        title: "FIU, text (SNIA IOTTA 411)",
        detected_by: "8 or 9 words, the sixth R or W",
        notes: &["it has no latencies: replays follow the recorded times (open loop)"],
        source: LogInfo::TRACE,
        clock: TraceClock::Own,
        detect: datasets::detect_fiu,
        open: |input| Ok(datasets::open_fiu(input)),
    },
    Format {
        name: "systor17",
        title: "SYSTOR '17, CSV of LUNs (SNIA IOTTA 4928)",
        detected_by: "6 columns, the third R or W",
        notes: &[
            "times are exact to a microsecond; lines without an operation had no response, and are not used",
        ],
        source: LogInfo::TRACE,
        clock: TraceClock::Unix,
        detect: datasets::detect_systor,
        open: |input| Ok(datasets::open_systor(input)),
    },
];

/// The format of a file that begins with these bytes.
pub(crate) fn detect(start: &[u8]) -> Option<&'static Format> {
    FORMATS.iter().find(|format| (format.detect)(start))
}
