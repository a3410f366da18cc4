//! Modelled requests a second of processor time: `cargo bench -p iopath-lab --bench simulated`. Each case is a run of
//! `iopath run` on a model, with all its parts: jobs, queue, elevator, device, latencies and, where named, the request
//! log; or a replay of `iopath whatif`.
//!
//! Prints a line for each case: its name, a tab, and requests a second. A run has one thread, so that processor time is
//! the time on one processor that does nothing else.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Duration;

use iopath_bench::paths::find_path;
use iopath_bench::progress::Silent;
use iopath_bench::{BlockSize, Depth, DeviceDepth, End, LogSettings, Repetitions, Workload};
use iopath_lab::whatif::{Axes, WhatIf, parse_elevators};
use iopath_os::process_cpu_times;
use iopath_report::Rw;

/// A case and its length: the processor time of each is some hundred milliseconds.
struct Case {
    name: &'static str,
    target: &'static str,
    path: &'static str,
    elevator: &'static str,
    rw: Rw,
    depth: u32,
    /// Requests at the device; without it, the limit of the device.
    device_depth: Option<u32>,
    ios: u64,
    has_log: bool,
}

const DISK: Case = Case {
    name: "disk, deadline",
    target: "model:hdd-20tb",
    path: "iopath-direct",
    elevator: "deadline",
    rw: Rw::RandRead,
    depth: 32,
    // The elevator orders the requests, not the disk.
    device_depth: Some(2),
    ios: 1 << 20,
    has_log: false,
};

const CASES: &[Case] = &[
    DISK,
    Case { name: "disk, deadline, log", has_log: true, ..DISK },
    Case { name: "flash, deadline", target: "model:ssd-nvme", device_depth: None, ..DISK },
    Case { name: "cloud, none", target: "model:cloud", elevator: "none", device_depth: None, ..DISK },
    Case {
        name: "disk, buffered",
        path: "iopath-buffered",
        rw: Rw::Read,
        elevator: "none",
        depth: 1,
        device_depth: None,
        ..DISK
    },
];

fn main() {
    let directory = tempfile::tempdir().expect("a directory for logs");
    for case in CASES {
        println!("{}\t{:.0}", case.name, rate(case, &directory.path().join("log")));
    }
    let trace = directory.path().join("trace.csv");
    for (mix, write_percent, interval_nanos) in [("reads", 0, 4000), ("30% writes", 30, 9000)] {
        write_trace(&trace, write_percent, interval_nanos).expect("a trace");
        for elevator in ["none", "deadline"] {
            println!("replay, flash, {mix}, {elevator}\t{:.0}", replay_rate(&trace, elevator));
        }
    }
}

/// Requests of the replayed trace.
const REPLAYED: u32 = 1 << 19;

/// Alternatives beyond the first: the difference of two studies is the time of their replays, without that of the file.
const FURTHER: u32 = 3;

/// Random I/O of 4 KiB of one stream. With writes, an interval of 9 µs is near the limit of the device.
fn write_trace(path: &Path, write_percent: u64, interval_nanos: u64) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    writeln!(file, "time_ns,op,sector,sectors")?;
    let mut random = 1_u64;
    for number in 0..REPLAYED {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let op = if (random >> 33) % 100 < write_percent { "write" } else { "read" };
        writeln!(file, "{},{op},{},8", u64::from(number) * interval_nanos, (random >> 40) * 8)?;
    }
    file.flush()
}

/// Replayed requests a second of processor time.
fn replay_rate(trace: &Path, elevator: &str) -> f64 {
    let spent = |depths: Vec<u32>| {
        let study = WhatIf {
            inputs: vec![trace.to_owned()],
            axes: Axes {
                targets: vec!["model:ssd-nvme".into()],
                elevators: parse_elevators(elevator).expect("an elevator of the table"),
                depths,
                ..Axes::default()
            },
            speed: 1.0,
            closed: false,
            seeds: 1,
            by: None,
            wrap: false,
            shard: None,
            threads: Some(1),
        };
        let before = process_cpu_times();
        study.run(&mut Silent).expect("a model cannot fail");
        let after = process_cpu_times();
        (after.user + after.system).saturating_sub(before.user + before.system)
    };
    let first = spent(vec![1024]);
    let all = spent((0..=FURTHER).map(|less| 1024 - less).collect());
    f64::from(REPLAYED * FURTHER) / all.saturating_sub(first).as_secs_f64()
}

/// Requests a second of processor time.
fn rate(case: &Case, log: &Path) -> f64 {
    let block_size = BlockSize::constant(4096);
    let workload = Workload {
        path: find_path(case.path).expect("a path of the table"),
        target: Some(case.target.into()),
        rw: case.rw,
        block_size,
        depth: Depth::constant(case.depth),
        end: End::Bytes(case.ios * u64::from(block_size)),
        repetitions: Repetitions::constant(1),
        device_depth: case.device_depth.map(DeviceDepth::constant),
        elevator: Some(case.elevator.parse().expect("an elevator of the table")),
        log: case.has_log.then(|| LogSettings { file: log.to_owned(), limit_bytes: None, accesses: false }),
        ..Workload::default()
    };
    let spent = || {
        let times = process_cpu_times();
        times.user + times.system
    };
    let before = spent();
    let result = iopath_bench::run(&workload, &mut Silent).expect("a model cannot fail");
    let taken: Duration = spent().saturating_sub(before);
    result.ios as f64 / taken.as_secs_f64()
}
