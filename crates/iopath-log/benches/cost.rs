//! What a log costs the I/O it tells of: the same workload with and without, by turns, and the median ratio.
//! Criterion measures one after the other, which on a busy machine says nothing about a percent.
//!
//! The workload is one thread on a null device at about a million I/Os a second: between queue and device each
//! I/O does as much work (a checksum) as a system call and a completion cost.

use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Tag};
use iopath_log::{LogInfo, LogOptions, LogWriter};
use std::hint::black_box;
use std::time::Instant as Clock;

const DEPTH: u64 = 32;
const BLOCKS: u64 = 1 << 20;
const TURNS: usize = 15;

/// One thread's I/O: a queue, and work to be done for each bio.
struct Load {
    queue: RequestQueue<LengthOnly>,
    work: Vec<u8>,
    state: u64,
    tags: Vec<Tag>,
    start: Clock,
}

impl Load {
    fn new(work_bytes: usize) -> Self {
        let config = QueueConfig { bios_max: 64, requests_max: 64, depth: 64, ..QueueConfig::default() };
        let limits = Limits::with_capacity(BLOCKS * 8);
        let queue = RequestQueue::new(limits, &config).expect("the default elevator exists");
        let work = (0..work_bytes).map(|place| place as u8).collect();
        Self { queue, work, state: 1, tags: Vec::with_capacity(64), start: Clock::now() }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.start.elapsed().as_nanos() as u64)
    }

    /// Carries out one batch, with the clock read as a runner does: once a batch and side.
    fn batch(&mut self) {
        let now = self.now();
        self.queue.plug();
        for token in 0..DEPTH {
            self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let block = (self.state >> 33) % BLOCKS;
            let extent = Extent::from_bytes(block * 4096, 4096).expect("whole sectors");
            self.queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), token), now).expect("room");
            black_box(crc32fast::hash(black_box(&self.work)));
        }
        self.queue.unplug(now);
        while let Some(io) = self.queue.poll_dispatch(now) {
            self.tags.push(io.tag);
        }
        let now = self.now();
        for tag in self.tags.drain(..) {
            self.queue.handle_completion(tag, Ok(()), now);
        }
        while self.queue.poll_completion().is_some() {}
    }

    /// Nanoseconds for an I/O, over so many batches.
    fn measure(&mut self, batches: u64) -> f64 {
        let begin = Clock::now();
        for _ in 0..batches {
            self.batch();
        }
        begin.elapsed().as_nanos() as f64 / (batches * DEPTH) as f64
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The work that makes an I/O take a microsecond, in bytes.
fn work_for_a_million() -> usize {
    let mut bytes = 1024;
    while bytes < 1 << 20 && Load::new(bytes).measure(200) < 1000.0 {
        bytes += bytes / 8;
    }
    bytes
}

fn compare(name: &str, work_bytes: usize, batches: u64) {
    let path = std::env::temp_dir().join(format!("iopath-log-cost-{}", std::process::id()));
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).expect("a scratch file");
    let (mut off, mut on) = (Load::new(work_bytes), Load::new(work_bytes));
    on.queue.start_log(Box::new(log.add_queue()));
    on.measure(batches / 4);
    off.measure(batches / 4);
    let turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (off.measure(batches), on.measure(batches))).collect();
    on.queue.end_log();
    let totals = log.finish().expect("the log is written");
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    std::fs::remove_file(&path).expect("the scratch file is ours");
    let off_ns = median(turns.iter().map(|(off, _)| *off).collect());
    let on_ns = median(turns.iter().map(|(_, on)| *on).collect());
    let ratio = median(turns.iter().map(|(off, on)| off / on).collect());
    println!(
        "{name}: off {:.2} M I/O/s ({off_ns:.0} ns), on {:.2} M I/O/s ({on_ns:.0} ns): {ratio:.4}x, median of {TURNS} \
         turns; {} records of {:.1} bytes each in the file, {} missed",
        1000.0 / off_ns,
        1000.0 / on_ns,
        totals.records,
        bytes as f64 / totals.records as f64,
        totals.missed,
    );
}

fn main() {
    // `cargo test --benches` only asks whether it runs.
    let batches = if std::env::args().any(|argument| argument == "--bench") { 4000 } else { 10 };
    compare("a million I/Os a second", work_for_a_million(), batches);
    compare("as fast as the queue goes", 0, batches * 4);
}
