//! The cost of a bio in the whole queue, for `cargo xtask bench`: each elevator with few and many requests queued, with
//! and without merges, and the same keys in the B-tree of the standard library. Prints lines of NAME, tab, nanoseconds;
//! the comparison is in `xtask`. Elevators without a queue are measured in `elevator.rs`.
//!
//! `cargo bench -p iopath-os --bench figures -- [FILTER]`; a filter is part of a name. The benchmark is in this crate
//! because the allocator of the program `iopath` is.

use iopath_core::elevator::{ELEVATORS, ElevatorSpec};
use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector, Stream, Tag};
use iopath_os::HugePages;
use std::collections::BTreeMap;
use std::time::{Duration, Instant as Clock};

/// The program `iopath` uses the same allocator.
#[global_allocator]
static ALLOCATOR: HugePages = HugePages;

const QUEUED: [usize; 3] = [32, 1024, 1_000_000];
/// The number of queued requests in a search for a merge.
const QUEUED_FOR_MERGE: usize = 1024;
/// Bios of one plug.
const BATCH: usize = 32;
/// Batches between two readings of the clock.
const SLICE: usize = 64;
const MEASURED_FOR: Duration = Duration::from_millis(100);
const T0: Instant = Instant::ZERO;
const SECTORS: u64 = 8;

/// The start sectors and streams of bios. Only those of `Growing` are adjacent; all others find no merge.
#[derive(Clone, Copy)]
enum Starts {
    Random(u64),
    Sequential(u64),
    /// Two interleaved ascending streams, far apart.
    Interleaved([u64; 2]),
    /// The blocks of one stream, each adjacent to the last.
    Touching(u64),
}

const PATTERNS: [(&str, Starts); 3] = [
    ("random", Starts::Random(0x2545_F491_4F6C_DD1D)),
    ("sequential", Starts::Sequential(0)),
    ("interleaved", Starts::Interleaved([1 << 40, 0])),
];

fn xorshift(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

impl Starts {
    fn next(&mut self) -> (u64, u32) {
        match self {
            Self::Random(state) => (xorshift(state) >> 20, *state as u32 % 8),
            Self::Sequential(sector) => {
                *sector += 2 * SECTORS;
                (*sector, 0)
            }
            Self::Interleaved(sectors) => {
                sectors.swap(0, 1);
                sectors[0] += 2 * SECTORS;
                (sectors[0], u32::from(sectors[0] > 1 << 40))
            }
            Self::Touching(sector) => {
                *sector += SECTORS;
                (*sector, 0)
            }
        }
    }
}

/// A structure that holds bios. A step adds a batch and, once the structure is full, removes a batch.
trait Case {
    fn fill(&mut self, count: usize);
    fn step(&mut self);
}

/// A queue, and a device that completes at once.
struct InQueue {
    queue: RequestQueue<LengthOnly>,
    starts: Starts,
    tags: Vec<Tag>,
}

impl InQueue {
    fn new(elevator: &ElevatorSpec, starts: Starts, queued: usize, limits: Limits) -> Self {
        let most = (queued + 2 * BATCH) as u32;
        let config = QueueConfig {
            bios_max: most,
            requests_max: most,
            depth: BATCH as u32,
            plug_requests_max: BATCH as u32,
            elevator: elevator.clone(),
        };
        Self { queue: RequestQueue::new(limits, &config), starts, tags: Vec::with_capacity(BATCH) }
    }

    fn submit(&mut self, start: u64, stream: u32) {
        let extent = Extent::new(Sector(start), SECTORS).expect("within the address space");
        let bio = Bio::read(extent, LengthOnly::new(extent.bytes()), 0).on_stream(Stream(stream));
        self.queue.submit_bio(bio, T0).expect("the queue has room");
    }

    fn execute(&mut self, requests: usize) {
        for _ in 0..requests {
            let Some(io) = self.queue.poll_dispatch(T0) else { break };
            self.tags.push(io.tag);
        }
        for tag in self.tags.drain(..) {
            self.queue.handle_completion(tag, Ok(()), T0);
        }
        while self.queue.poll_completion().is_some() {}
    }
}

impl Case for InQueue {
    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            let (start, stream) = self.starts.next();
            self.submit(start, stream);
        }
    }

    fn step(&mut self) {
        self.queue.plug();
        self.fill(BATCH);
        self.queue.unplug(T0);
        self.execute(BATCH);
    }
}

/// Streams far apart, each with a queued request; each bio continues one of them. The number of queued bios is
/// constant.
struct Growing {
    inner: InQueue,
    ends: Vec<u64>,
    state: u64,
}

impl Growing {
    const BIOS: u32 = 16 * QUEUED_FOR_MERGE as u32;

    fn new(elevator: &ElevatorSpec) -> Self {
        let limits = Limits { segments_max: u16::MAX, ..limits(1 << 30) };
        let inner = InQueue::new(elevator, Starts::Sequential(0), Self::BIOS as usize, limits);
        let ends = (0..QUEUED_FOR_MERGE as u64).map(|stream| stream << 32).collect();
        Self { inner, ends, state: 0x9E37_79B9_7F4A_7C15 }
    }

    /// The share of bios that were merged.
    fn share_merged(&self) -> f64 {
        let stats = self.inner.queue.stats();
        stats.back_merges() as f64 / stats.bios as f64
    }
}

impl Case for Growing {
    fn fill(&mut self, _count: usize) {
        for _ in 0..4 * Self::BIOS as usize / BATCH {
            self.step();
        }
        assert!(self.share_merged() > 0.9, "only {:.2} merged", self.share_merged());
    }

    fn step(&mut self) {
        self.inner.queue.plug();
        for _ in 0..BATCH {
            let stream = xorshift(&mut self.state) as usize % self.ends.len();
            self.inner.submit(self.ends[stream], 0);
            self.ends[stream] += SECTORS;
        }
        self.inner.queue.unplug(T0);
        while self.inner.queue.bios_in() > Self::BIOS {
            self.inner.execute(1);
        }
    }
}

/// The B-tree of the standard library: insert, and remove the next entry of a one-way sweep.
struct Tree {
    map: BTreeMap<u64, u32>,
    starts: Starts,
    head: u64,
}

impl Case for Tree {
    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            let (start, stream) = self.starts.next();
            self.map.insert(start, stream);
        }
    }

    fn step(&mut self) {
        for _ in 0..BATCH {
            self.fill(1);
            let next = self.map.range(self.head..).next().or_else(|| self.map.first_key_value());
            let next = *next.expect("an entry was inserted").0;
            self.map.remove(&next);
            self.head = next;
        }
    }
}

/// The elevator without its limits on merges, to measure the cost of merges.
fn without_limits(spec: ElevatorSpec) -> ElevatorSpec {
    let limit = spec.tunables().map(|(tunable, _)| tunable).find(|tunable| tunable.name == "read_latency");
    limit
        .map_or(Ok(spec.clone()), |tunable| spec.with(tunable.name, *tunable.range.end()))
        .expect("its range")
}

fn limits(request_bytes_max: u64) -> Limits {
    Limits { request_bytes_max, ..Limits::with_capacity(1 << 50) }
}

/// Nanoseconds per bio: the 10th percentile of the slices.
fn measure(case: &mut dyn Case, queued: usize) -> f64 {
    case.fill(queued);
    // Replace all entries once, to reach the steady state.
    for _ in 0..(queued / BATCH).max(SLICE) {
        case.step();
    }
    let began = Clock::now();
    let mut slices = Vec::new();
    while began.elapsed() < MEASURED_FOR {
        let slice = Clock::now();
        (0..SLICE).for_each(|_| case.step());
        slices.push(slice.elapsed());
    }
    slices.sort_unstable();
    slices[slices.len() / 10].as_nanos() as f64 / (SLICE * BATCH) as f64
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-')).unwrap_or_default();
    let line = |name: String, queued: usize, new: &dyn Fn() -> Box<dyn Case>| {
        if name.contains(&filter) {
            println!("{name}\t{:.2}", measure(&mut *new(), queued));
        }
    };
    let specs = || ELEVATORS.iter().map(|kind| ElevatorSpec::new(*kind));
    for (pattern, starts) in PATTERNS {
        for queued in QUEUED {
            line(format!("BTreeMap, {pattern}, {queued}"), queued, &|| {
                Box::new(Tree { map: BTreeMap::new(), starts, head: 0 })
            });
            for spec in specs() {
                line(format!("{spec}, {pattern}, {queued}"), queued, &|| {
                    Box::new(InQueue::new(&spec, starts, queued, limits(SECTORS << 9)))
                });
            }
        }
    }
    let none = ElevatorSpec::default();
    line("merge hit, plug".to_owned(), 0, &|| {
        Box::new(InQueue::new(&none, Starts::Touching(0), BATCH, limits(1 << 20)))
    });
    line("merge miss, plug".to_owned(), 0, &|| {
        Box::new(InQueue::new(&none, Starts::Sequential(0), BATCH, limits(1 << 20)))
    });
    // An elevator without an order finds no merges.
    for spec in specs().filter(|spec| spec.name() != none.name()) {
        let without_limits = without_limits(spec.clone());
        line(format!("merge hit, {without_limits}"), 0, &|| Box::new(Growing::new(&without_limits)));
        let random = PATTERNS[0].1;
        line(format!("merge miss, {spec}"), QUEUED_FOR_MERGE, &|| {
            Box::new(InQueue::new(&spec, random, QUEUED_FOR_MERGE, limits(1 << 20)))
        });
    }
}
