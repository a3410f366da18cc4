//! The speed and the memory of summarising a large log: `cargo bench -p iopath-log --bench reading -- --records
//! 100000000`. A separate process reads the log, so that its peak memory is that of the reader only. `log.rs` measures
//! smaller logs. `--figures` prints the speed only, for `cargo xtask bench`.

use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Tag};
use iopath_log::{Filter, LogInfo, LogOptions, LogReader, LogWriter};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant as Clock};

const DEPTH: usize = 32;

/// The number of reads of the log. The result is their median.
const READS: usize = 5;

/// Bios submitted before the log thread gets time to empty the ring.
const BURST: u64 = 20_000;

/// Writes at least `records` records: random 4 KiB reads at depth 32, on eight streams, with latencies of a fast
/// device. Returns their number.
fn write_log(path: &Path, records: u64) -> u64 {
    let elevator = "deadline".parse().expect("the elevator exists");
    let config = QueueConfig { bios_max: 64, requests_max: 64, elevator, ..QueueConfig::default() };
    let mut queue: RequestQueue<LengthOnly> = RequestQueue::new(Limits::with_capacity(1 << 30), &config);
    let options = LogOptions { ring_records: 1 << 19, limit_bytes: u64::MAX, ..LogOptions::default() };
    let log = LogWriter::create(path, &LogInfo::default(), &options).expect("a log");
    queue.start_log(Box::new(log.add_queue()));
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut nanos, mut tags): (u64, Vec<Tag>) = (0, Vec::new());
    // Each I/O has two records, since it waits for the device only.
    for token in 0..records.div_ceil(2) {
        nanos += 200 + rng.next_u64() % 1000;
        let now = Instant::from_nanos(nanos);
        let extent = Extent::from_bytes(rng.next_u64() % (1 << 26) * 4096, 4096).expect("whole sectors");
        let bio = Bio::read(extent, LengthOnly::new(4096), token);
        queue.submit_bio(bio.on_stream(iopath_core::Stream(token as u32 % 8)), now).expect("room");
        while let Some(io) = queue.poll_dispatch(now) {
            tags.push(io.tag);
        }
        if tags.len() == DEPTH {
            let tag = tags.swap_remove(rng.next_u64() as usize % DEPTH);
            queue.handle_completion(tag, Ok(()), now);
        }
        while queue.poll_completion().is_some() {}
        if token % BURST == 0 {
            std::thread::sleep(Duration::from_millis(4));
        }
    }
    queue.end_log();
    let totals = log.finish().expect("the log is written");
    assert_eq!(totals.missed, 0, "the log thread was too slow; use a smaller burst");
    totals.records
}

/// Summarises the log, and prints the time and the peak memory.
fn read_log(path: &Path) {
    let begin = Clock::now();
    let report = LogReader::open(path).expect("the log").summarise(&Filter::default()).expect("no error");
    let seconds = begin.elapsed().as_secs_f64();
    assert!(report.damage.is_none() && report.records > 0 && report.unjoined == 0);
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak memory");
    println!("{seconds} {}", peak.split_whitespace().next().expect("a number of kB"));
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let value = |name: &str| {
        let place = arguments.iter().position(|argument| argument == name)?;
        arguments.get(place + 1)
    };
    if let Some(path) = value("--read") {
        return read_log(Path::new(path));
    }
    // `cargo test --benches` only checks that it runs.
    let is_bench = arguments.iter().any(|argument| argument == "--bench");
    let records = value("--records").map(|records| records.parse().expect("a number of records"));
    let folder = tempfile::tempdir().expect("a scratch folder");
    let path = folder.path().join("log");
    let records = write_log(&path, records.unwrap_or(if is_bench { 30_000_000 } else { 30_000 }));
    let bytes = std::fs::metadata(&path).expect("the log").len();

    let program = std::env::current_exe().expect("this program");
    let mut reads: Vec<(f64, u64)> = Vec::new();
    for _ in 0..READS {
        let output = Command::new(&program).arg("--read").arg(&path).output().expect("this program runs");
        let text = String::from_utf8(output.stdout).expect("two numbers");
        let (seconds, kib) = text.trim().split_once(' ').expect("two numbers");
        reads.push((seconds.parse().expect("seconds"), kib.parse().expect("kB")));
    }
    reads.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (seconds, _) = reads[READS / 2];
    let kib = reads.iter().map(|(_, kib)| *kib).max().unwrap_or_default();
    let rate = records as f64 / seconds;
    if arguments.iter().any(|argument| argument == "--figures") {
        return println!("records read a second\t{rate}");
    }
    println!(
        "reading: {records} records, {:.1} bytes each, {:.1} M/s, {} MiB",
        bytes as f64 / records as f64,
        rate / 1e6,
        kib >> 10
    );
}
