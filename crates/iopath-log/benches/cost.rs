//! What a log costs the I/O it tells of: the same workload with and without, by turns, and the median ratio.
//! Criterion measures one after the other, which on a busy machine says nothing about a percent.
//!
//! Two ratios: of the median turns, and of the turns that a tenth was quicker than, which nothing interrupted.
//! They differ where other programs run, or the thread that writes the log has no processor of its own.
//!
//! The workload is one thread on a null device at about a million I/Os a second: between queue and device each
//! I/O does as much work (checksums of a page) as a system call and a completion cost.

use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Tag};
use iopath_log::{LogInfo, LogOptions, LogWriter};
use std::hint::black_box;
use std::time::Instant as Clock;

const DEPTH: u64 = 32;
const BLOCKS: u64 = 1 << 20;

/// Turns are about an eighth of a millisecond: most are then not interrupted, even where other programs run.
const TURNS: usize = 10_001;

/// One thread's I/O: a queue, and work to be done for each bio.
struct Load {
    queue: RequestQueue<LengthOnly>,
    page: Vec<u8>,
    checksums: usize,
    state: u64,
    tags: Vec<Tag>,
    start: Clock,
}

impl Load {
    fn new(checksums: usize) -> Self {
        let config = QueueConfig { bios_max: 64, requests_max: 64, depth: 64, ..QueueConfig::default() };
        let limits = Limits::with_capacity(BLOCKS * 8);
        let queue = RequestQueue::new(limits, &config).expect("the default elevator exists");
        let page = (0..4096_u32).map(|place| place as u8).collect();
        Self { queue, page, checksums, state: 1, tags: Vec::with_capacity(64), start: Clock::now() }
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
            for _ in 0..self.checksums {
                black_box(crc32fast::hash(black_box(&self.page)));
            }
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

/// The value that this share of all is below.
fn quantile(values: impl Iterator<Item = f64>, share: f64) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[(values.len() as f64 * share) as usize]
}

/// How many checksums make an I/O take a microsecond.
fn work_for_a_million() -> usize {
    let quiet = |checksums| {
        let mut load = Load::new(checksums);
        quantile((0..50).map(|_| load.measure(8)), 0.1)
    };
    (1..1000).find(|checksums| quiet(*checksums) >= 1000.0).unwrap_or(1000)
}

fn compare(name: &str, checksums: usize, batches: u64) {
    let path = std::env::temp_dir().join(format!("iopath-log-cost-{}", std::process::id()));
    let log = LogWriter::create(&path, &LogInfo::default(), &LogOptions::default()).expect("a scratch file");
    let (mut off, mut on) = (Load::new(checksums), Load::new(checksums));
    on.queue.start_log(Box::new(log.add_queue()));
    on.measure(batches / 4);
    off.measure(batches / 4);
    let turns: Vec<(f64, f64)> = (0..TURNS).map(|_| (off.measure(batches), on.measure(batches))).collect();
    on.queue.end_log();
    let totals = log.finish().expect("the log is written");
    let bytes = std::fs::metadata(&path).map_or(0, |file| file.len());
    std::fs::remove_file(&path).expect("the scratch file is ours");
    let of = |share| {
        let off = quantile(turns.iter().map(|(off, _)| *off), share);
        let on = quantile(turns.iter().map(|(_, on)| *on), share);
        format!("{:.3}x ({off:.0} ns an I/O off, {on:.0} on)", off / on)
    };
    println!(
        "{name}: median {}, undisturbed {}; {} records in {:.1} bytes each, {} missed",
        of(0.5),
        of(0.1),
        totals.records,
        bytes as f64 / totals.records as f64,
        totals.missed,
    );
}

fn main() {
    // `cargo test --benches` only asks whether it runs.
    let batches = if std::env::args().any(|argument| argument == "--bench") { 4 } else { 1 };
    compare("a million I/Os a second", work_for_a_million(), batches);
    compare("as fast as the queue goes", 0, batches * 8);
}
