//! The cost of a bio in the whole queue, with a device that completes at once. Also the cost of a log whose sink drops
//! the records; iopath-log measures the ring.

use criterion::{Criterion, Throughput};
use iopath_core::elevator::{ELEVATORS, ElevatorKind, ElevatorSpec};
use iopath_core::log::NoRoom;
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, LogSink, QueueConfig, RecordBatch, RequestQueue, Tag,
};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;

const BLOCK_BYTES: u64 = 4096;
const BLOCKS: u64 = 1 << 20;

/// A queue and the extents of its next bios.
struct Lap {
    queue: RequestQueue<LengthOnly>,
    extents: Vec<Extent>,
    next: usize,
    tags: Vec<Tag>,
}

impl Lap {
    fn new(kind: ElevatorKind, depth: u32, is_random: bool) -> Self {
        let config = QueueConfig {
            bios_max: depth,
            requests_max: depth,
            depth,
            plug_requests_max: depth.min(32),
            elevator: ElevatorSpec::new(kind),
        };
        let limits = Limits { depth_max: depth, ..Limits::with_capacity(BLOCKS * BLOCK_BYTES / 512) };
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let extents = (0..1_u64 << 16)
            .map(|index| if is_random { rng.next_u64() % BLOCKS } else { index })
            .map(|block| Extent::from_bytes(block * BLOCK_BYTES, BLOCK_BYTES).expect("whole sectors"))
            .collect();
        let queue = RequestQueue::new(limits, &config);
        Self { queue, extents, next: 0, tags: Vec::with_capacity(depth as usize) }
    }

    /// Submits `depth` bios and executes all of them.
    fn run(&mut self, depth: u32) {
        let now = Instant::ZERO;
        self.queue.plug();
        for token in 0..u64::from(depth) {
            let extent = self.extents[self.next];
            self.next = (self.next + 1) % self.extents.len();
            let bio = Bio::read(extent, LengthOnly::new(BLOCK_BYTES), token);
            self.queue.submit_bio(bio, now).expect("the queue has room for its depth");
        }
        self.queue.unplug(now);
        while let Some(io) = self.queue.poll_dispatch(now) {
            self.tags.push(io.tag);
        }
        for tag in self.tags.drain(..) {
            self.queue.handle_completion(tag, Ok(()), now);
        }
        while let Some(done) = self.queue.poll_completion() {
            assert!(done.result.is_ok());
        }
        assert_eq!(self.queue.bios_in(), 0);
    }
}

fn queue(criterion: &mut Criterion) {
    for kind in ELEVATORS {
        let mut group = criterion.benchmark_group(format!("queue/{}", kind.name));
        for (pattern, is_random) in [("random", true), ("sequential", false)] {
            for depth in [1, 32, 256] {
                group.throughput(Throughput::Elements(u64::from(depth)));
                let mut lap = Lap::new(*kind, depth, is_random);
                group.bench_function(format!("{pattern}/depth {depth}"), |bench| {
                    bench.iter(|| lap.run(depth));
                });
            }
        }
        group.finish();
    }
}

/// A sink that reads the records and drops them.
#[derive(Debug)]
struct Nowhere;

impl LogSink for Nowhere {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        std::hint::black_box(batch.records());
        batch.clear();
        Ok(())
    }
}

fn log(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("queue/log");
    for depth in [1, 32] {
        for (name, is_on) in [("off", false), ("on", true)] {
            group.throughput(Throughput::Elements(u64::from(depth)));
            let mut lap = Lap::new(ELEVATORS[0], depth, true);
            if is_on {
                lap.queue.start_log(Box::new(Nowhere));
            }
            group.bench_function(format!("{name}/depth {depth}"), |bench| bench.iter(|| lap.run(depth)));
        }
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    queue(&mut criterion);
    log(&mut criterion);
    criterion.final_summary();
}
