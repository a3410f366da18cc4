//! A small trace in each format, and its figures.

use std::path::{Path, PathBuf};

use iopath_log::{Filter, Report};

/// A trace.
pub(crate) struct Sample {
    /// The format in `iopath_trace::FORMATS`.
    pub(crate) format: &'static str,
    pub(crate) content: Vec<u8>,
    /// The bios and bytes that are queued, and the bios that complete with a known latency.
    pub(crate) bios: u64,
    pub(crate) bytes: u64,
    pub(crate) completed: u64,
    /// A part of a note that the summary must have.
    pub(crate) note: &'static str,
}

const PERF: &str = "\
             fio   812 [001]    31.000001000: block:block_bio_queue: 8,0 R 2048 + 8 [fio]
             fio   812 [001]    31.000002000: block:block_getrq: 8,0 R 2048 + 8 [fio]
             fio   812 [001]    31.000003000: block:block_bio_queue: 8,0 R 2056 + 8 [fio]
             fio   812 [001]    31.000004000: block:block_bio_backmerge: 8,0 R 2056 + 8 [fio]
             fio   812 [001]    31.000005000: block:block_rq_issue: 8,0 R 8192 () 2048 + 16 none,0,0 [fio]
         swapper     0 [000]    31.000105000: block:block_rq_complete: 8,0 R () 2048 + 16 none,0,0 [0]
";

const BLKPARSE: &str = "\
  8,0    1        1     0.000000000   812  Q   R 2048 + 8 [fio]
  8,0    1        2     0.000001000   812  G   R 2048 + 8 [fio]
  8,0    1        3     0.000002000   812  I   R 2048 + 8 [fio]
  8,0    1        4     0.000003000   812  D   R 2048 + 8 [fio]
  8,0    0        1     0.000103000     0  C   R 2048 + 8 [0]
CPU0 (8,0):
 Reads Queued:           1,        4KiB\t Writes Queued:           0,        0KiB
";

const BIOSNOOP: &str = "\
TIME(s)     COMM           PID    DISK    T SECTOR     BYTES  LAT(ms)
0.000904    supervise      1950   vda     W 13092560   4096      0.74
0.001904    supervise      1952   vda     R 13092432   4096      0.55
";

const CSV: &str = "time_ns,op,sector,sectors,disk,latency_ns\n0,write,16,16,4,1000\n500,read,0,8,3,\n";
const IOLOG: &str =
    "fio version 3 iolog\n0 /dev/sda add\n0 /dev/sda open\n5 /dev/sda read 4096 8192\n9 /dev/sda close\n";
const MSR: &str =
    "128166372003061629,hm,0,Read,383496192,32768,113\n128166372016382155,hm,0,Write,2822144,4096,388\n";
const FIU: &str = "329131208190249 4892 syslogd 904265560 8 W 6 0 531e779b1a3ab6a4e0f9e2f7a3f3a2c9\n";
const ALIBABA: &str = "419,W,8192,4096,1577808000000046\n725,R,16384,4096,1577808000000051\n";
const TENCENT: &str = "1538323199,74656712,16,0,1063\n1538323199,74656720,16,1,1063\n";

const SYSTOR: &str = "Timestamp,Response,IOType,LUN,Offset,Size\n1455592200.000001000,0.000280000,R,2,512,8192\n\
                      1455592200.000500000,0.001,W,2,8704,4096\n1455592200.000600000,0.0,,2,0,512\n";

/// A record of blktrace, version 7.
pub(crate) fn record(sequence: u32, time_ns: u64, action: u32, sector: u64, bytes: u32) -> Vec<u8> {
    let mut record = Vec::new();
    record.extend(0x6561_7407_u32.to_ne_bytes());
    record.extend(sequence.to_ne_bytes());
    record.extend(time_ns.to_ne_bytes());
    record.extend(sector.to_ne_bytes());
    record.extend(bytes.to_ne_bytes());
    record.extend(action.to_ne_bytes());
    for field in [812_u32, 8 << 20, 0] {
        record.extend(field.to_ne_bytes());
    }
    record.extend([0; 4]);
    record
}

/// The actions of a read, with their categories.
pub(crate) const QUEUE: u32 = 1 | 0x11 << 16;
pub(crate) const GET: u32 = 4 | 0x11 << 16;
pub(crate) const INSERT: u32 = 0xC | 0x11 << 16;
pub(crate) const ISSUE: u32 = 7 | 0x41 << 16;
pub(crate) const COMPLETE: u32 = 8 | 0x81 << 16;

/// A read of 4 KiB from its queueing to its completion.
pub(crate) fn read(number: u32, sector: u64) -> Vec<u8> {
    let at_ns = u64::from(number) * 1_000_000;
    let of = |step: u32, action| {
        record(number * 5 + step + 1, at_ns + u64::from(step) * 1000, action, sector, 4096)
    };
    [of(0, QUEUE), of(1, GET), of(2, INSERT), of(3, ISSUE), of(4, COMPLETE)].concat()
}

/// A trace in each format.
pub(crate) fn samples() -> Vec<Sample> {
    let of = |format, content: &[u8], (bios, bytes, completed), note| Sample {
        format,
        content: content.to_vec(),
        bios,
        bytes,
        completed,
        note,
    };
    let blktrace: Vec<u8> = (0..3).flat_map(|number| read(number, 2048 + u64::from(number) * 100)).collect();
    vec![
        of("blktrace", &blktrace, (3, 12288, 3), "no numbers of bios"),
        of("iolog", IOLOG.as_bytes(), (1, 8192, 0), "without latencies"),
        of("csv", CSV.as_bytes(), (2, 12288, 1), "1 I/Os have no latency"),
        of("biosnoop", BIOSNOOP.as_bytes(), (2, 8192, 2), "Q2C is D2C"),
        of("blkparse", BLKPARSE.as_bytes(), (1, 4096, 1), "no numbers of bios"),
        of("tracepoints", PERF.as_bytes(), (2, 8192, 2), "no numbers of bios"),
        of("msr", MSR.as_bytes(), (2, 36864, 2), "steps of 100 ns"),
        of("alibaba", ALIBABA.as_bytes(), (2, 8192, 0), "open loop"),
        of("tencent", TENCENT.as_bytes(), (2, 16384, 0), "whole seconds"),
        of("systor17", SYSTOR.as_bytes(), (2, 12288, 2), "no response"),
        of("fiu", FIU.as_bytes(), (1, 4096, 0), "open loop"),
    ]
}

/// Writes a file in a folder.
pub(crate) fn file(folder: &Path, name: &str, content: &[u8]) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, content).unwrap();
    path
}

/// The summary of a file.
pub(crate) fn summary(path: &Path) -> Report {
    iopath_trace::open(path).unwrap().summarise(&Filter::default()).unwrap()
}

/// The bytes of all bios.
pub(crate) fn bytes(report: &Report) -> u64 {
    report.streams.iter().map(|stream| stream.bytes).sum()
}
