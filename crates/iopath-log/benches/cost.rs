//! The cost of a log for the logged I/O. The benchmark runs the same workload with and without a log, alternately, and
//! prints the ratio of the medians. Criterion measures one variant after the other. On a busy machine, that cannot
//! resolve a difference of one percent.
//!
//! There are two ratios: of the medians, and of the 10th percentiles, which other programs do not affect. The two
//! differ if other programs run, or if the log thread has no CPU of its own.
//!
//! Each turn also runs a second load without a log. The distance of its ratio from 1 is the resolution of the
//! measurement.
//!
//! Each workload is one thread on a null device. Two run at about a million I/Os per second. The first is limited by
//! the device, which needs a microsecond for each I/O. The second is limited by the CPU: checksums of a page cost as
//! much as a system call and a completion. A third workload is as fast as the queue, and measures the cost of a record.
//!
//! `--figures` prints the medians only, one line each, for `cargo xtask bench`.

use iopath_core::log::NoRoom;
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, LogSink, QueueConfig, RecordBatch, RequestQueue, Tag,
};
use iopath_log::{LogInfo, LogOptions, LogWriter, Totals};
use std::hint::black_box;
use std::time::Instant as Clock;

const DEPTH: u64 = 32;
const BLOCKS: u64 = 1 << 20;

/// A turn takes about an eighth of a millisecond, so that most are not interrupted by other programs.
const TURNS: usize = 125;

/// The number of times that new loads are created.
const ROUNDS: usize = 20;

/// The work besides that of the queue.
#[derive(Clone, Copy)]
enum Work {
    None,
    /// The CPU: checksums of a page for each I/O.
    Checksums(usize),
    /// The device: nanoseconds for each I/O.
    Device(u64),
}

/// The I/O of one thread: a queue, and work for each bio.
struct Load {
    queue: RequestQueue<LengthOnly>,
    page: Vec<u8>,
    work: Work,
    state: u64,
    tags: Vec<Tag>,
    start: Clock,
}

impl Load {
    fn new(work: Work) -> Self {
        let config = QueueConfig { bios_max: 64, requests_max: 64, depth: 64, ..QueueConfig::default() };
        let limits = Limits::with_capacity(BLOCKS * 8);
        let queue = RequestQueue::new(limits, &config);
        let page = (0..4096_u32).map(|place| place as u8).collect();
        Self { queue, page, work, state: 1, tags: Vec::with_capacity(64), start: Clock::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Runs one batch. Reads the clock like a runner: once for submission and once for completion.
    fn batch(&mut self) {
        let now = self.now();
        self.queue.plug();
        for token in 0..DEPTH {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (self.state >> 33) % BLOCKS;
            let extent = Extent::from_bytes(block * 4096, 4096).expect("whole sectors");
            self.queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), token), now).expect("room");
            let Work::Checksums(checksums) = self.work else { continue };
            for _ in 0..checksums {
                black_box(crc32fast::hash(black_box(&self.page)));
            }
        }
        self.queue.unplug(now);
        while let Some(io) = self.queue.poll_dispatch(now) {
            self.tags.push(io.tag);
        }
        let done = if let Work::Device(nanos) = self.work { now.as_nanos() + nanos * DEPTH } else { 0 };
        let mut now = self.now();
        while now.as_nanos() < done {
            std::hint::spin_loop();
            now = self.now();
        }
        for tag in self.tags.drain(..) {
            self.queue.handle_completion(tag, Ok(()), now);
        }
        while self.queue.poll_completion().is_some() {}
    }

    /// Nanoseconds per I/O over `batches` batches.
    fn measure(&mut self, batches: u64) -> f64 {
        let begin = Clock::now();
        for _ in 0..batches {
            self.batch();
        }
        begin.elapsed().as_nanos() as f64 / (batches * DEPTH) as f64
    }
}

/// The quantile of the values.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * share) as usize]
}

/// The number of checksums that take a microsecond.
fn work_for_a_million() -> usize {
    let quiet = |checksums| {
        let mut load = Load::new(Work::Checksums(checksums));
        quantile((0..50).map(|_| load.measure(8)), 0.1)
    };
    (1..1000).find(|checksums| quiet(*checksums) >= 1000.0).unwrap_or(1000)
}

/// Discards the records, so that only the cost of packing remains.
#[derive(Debug)]
struct Nowhere;

impl LogSink for Nowhere {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        black_box(batch.records());
        batch.clear();
        Ok(())
    }
}

/// Nanoseconds per I/O in one turn: without a log, with one, with one that discards, and again without.
struct Turn {
    off: f64,
    on: f64,
    nowhere: f64,
    again: f64,
}

/// Which of the four loads has a log, and which has one that discards.
const ON: usize = 1;
const NOWHERE: usize = 2;

impl Turn {
    /// Measures the four. Each turn starts with a different one, since the first finds different data in the caches.
    fn measure(loads: &mut [Load; 4], batches: u64, first: usize) -> Self {
        let mut nanos = [0.0; 4];
        for part in (0..4).map(|part| (part + first) % 4) {
            nanos[part] = loads[part].measure(batches);
        }
        let [off, on, nowhere, again] = nanos;
        Self { off, on, nowhere, again }
    }
}

/// The results of one workload.
struct Compared {
    turns: Vec<Turn>,
    totals: Totals,
    /// Size of the log file.
    bytes: u64,
}

fn compare(work: Work, batches: u64) -> Compared {
    let path = std::env::temp_dir().join(format!("iopath-log-cost-{}", std::process::id()));
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).expect("a scratch file");
    let mut turns = Vec::new();
    for _ in 0..ROUNDS {
        // The loads alternate between the roles, since the position of a load in memory can matter more than a log.
        let mut loads = [work; 4].map(Load::new);
        for _ in 0..4 {
            loads.rotate_left(1);
            loads[ON].queue.start_log(Box::new(log.add_queue()));
            loads[NOWHERE].queue.start_log(Box::new(Nowhere));
            turns.extend((0..TURNS).map(|turn| Turn::measure(&mut loads, batches, turn)));
            loads[ON].queue.end_log();
            loads[NOWHERE].queue.end_log();
        }
    }
    let totals = log.finish().expect("the log is written");
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    std::fs::remove_file(&path).expect("the scratch file is ours");
    Compared { turns, totals, bytes }
}

impl Compared {
    fn quantile(&self, share: f64, time: fn(&Turn) -> f64) -> f64 {
        quantile(self.turns.iter().map(time), share)
    }

    fn print(&self, name: &str) {
        for (which, share) in [("median", 0.5), ("undisturbed", 0.1)] {
            let (off, on) = (self.quantile(share, |turn| turn.off), self.quantile(share, |turn| turn.on));
            let again = self.quantile(share, |turn| turn.again);
            let nowhere = self.quantile(share, |turn| turn.nowhere);
            println!(
                "{name}, {which}: {off:.0} ns an I/O without log, {on:.0} with: {:.3}x (without again: {:.3}x; packed \
                 and thrown away: {:.3}x)",
                off / on,
                off / again,
                off / nowhere,
            );
        }
        let Totals { records, missed, .. } = self.totals;
        let size = self.bytes as f64 / records as f64;
        println!("{name}: {records} records of {size:.1} bytes in the file, {missed} missed");
    }

    fn print_figures(&self, name: &str) {
        println!("{name}, without\t{}", self.quantile(0.5, |turn| turn.off));
        println!("{name}, with log\t{}", self.quantile(0.5, |turn| turn.on));
    }

    /// Nanoseconds per record in turns of `batches` batches.
    fn record_nanos(&self, batches: u64) -> f64 {
        let ios = (self.turns.len() as u64 * batches * DEPTH) as f64;
        let records = (self.totals.records + self.totals.missed) as f64 / ios;
        (self.quantile(0.5, |turn| turn.on) - self.quantile(0.5, |turn| turn.off)) / records
    }
}

fn main() {
    let has = |name: &str| std::env::args().any(|argument| argument == name);
    // `cargo test --benches` only checks that it runs.
    let batches = if has("--bench") { 4 } else { 1 };
    let print = if has("--figures") { Compared::print_figures } else { Compared::print };
    print(&compare(Work::Device(1000), batches), "device of 1 M I/O/s");
    print(&compare(Work::Checksums(work_for_a_million()), batches), "processor at 1 M I/O/s");
    let fastest = compare(Work::None, batches * 8);
    print(&fastest, "as fast as the queue goes");
    if has("--figures") {
        println!("ns a record\t{}", fastest.record_nanos(batches * 8));
    }
}
