//! The cost of an elevator for each request (merge lookup, insert and dispatch) with 32 to a million queued requests,
//! and the cost of the whole queue for each bio. The result is a table. Criterion is not used, for two reasons: an
//! elevator with a million entries takes longer to fill than to measure, and the 10th percentile of many short slices
//! is robust against other programs.
//!
//! `one/` lines insert one request at a time. `plug/` lines insert 32 requests and announce them to the elevator first,
//! as the queue does. For comparison, `std/BTreeMap` inserts the same keys and removes them in a sweep, without merge
//! lookups.
//!
//! `cargo bench -p iopath-os --bench elevator -- [--small-pages] [FILTER…]`. A filter is part of a name such as
//! `plug/ascend/random/1000000`. With `--small-pages`, the kernel allocates no huge pages. The benchmark is in this
//! crate because the allocator is.

use iopath_core::elevator::{ELEVATORS, ElevatorSpec, Harness, Outline};
use iopath_core::{
    Bio, Extent, Instant, LengthOnly, Limits, Op, Priority, QueueConfig, RequestQueue, Sector, Stream, Tag,
};
use iopath_os::HugePages;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant as Clock};

/// The program `iopath` uses the same allocator.
#[global_allocator]
static ALLOCATOR: HugePages = HugePages;

const QUEUED: [usize; 4] = [32, 1 << 10, 1 << 15, 1_000_000];
/// Requests that are inserted and dispatched in one slice.
const SLICE: usize = 2048;
const MEASURED_FOR: Duration = Duration::from_millis(400);
const T0: Instant = Instant::ZERO;
const SECTORS: u64 = 8;

/// The start of the next request. No two requests are adjacent, so each merge lookup fails.
#[derive(Clone, Copy)]
enum Starts {
    Random(u64),
    Sequential(u64),
    /// Two ascending streams, far apart, in alternation.
    Interleaved([u64; 2]),
}

impl Starts {
    const ALL: [(&str, Self); 3] = [
        ("random", Self::Random(0x2545_F491_4F6C_DD1D)),
        ("sequential", Self::Sequential(0)),
        ("interleaved", Self::Interleaved([1 << 40, 0])),
    ];

    /// The next start, and its stream.
    fn next(&mut self) -> (u64, u32) {
        match self {
            Self::Random(state) => {
                *state ^= *state << 13;
                *state ^= *state >> 7;
                *state ^= *state << 17;
                (*state >> 20, *state as u32 % 8)
            }
            Self::Sequential(sector) => {
                *sector += 2 * SECTORS;
                (*sector, 0)
            }
            Self::Interleaved(sectors) => {
                sectors.swap(0, 1);
                sectors[0] += 2 * SECTORS;
                (sectors[0], u32::from(sectors[0] > 1 << 40))
            }
        }
    }

    fn extent(&mut self) -> (Extent, Stream) {
        let (start, stream) = self.next();
        (Extent::new(Sector(start), SECTORS).expect("within the address space"), Stream(stream))
    }
}

/// A structure that holds requests. `step` inserts `count` requests and removes as many.
trait Bench {
    fn fill(&mut self, count: usize);
    fn step(&mut self, count: usize);
}

/// The elevator alone. Requests are inserted and dispatched `batch` at a time, as from a plug.
struct OnHarness {
    harness: Harness,
    starts: Starts,
    batch: usize,
    plug: Vec<Outline>,
}

impl OnHarness {
    fn new(elevator: &ElevatorSpec, starts: Starts, batch: usize, queued: usize) -> Self {
        Self {
            harness: Harness::new(elevator, queued + batch),
            starts,
            batch,
            plug: Vec::with_capacity(batch),
        }
    }
}

impl Bench for OnHarness {
    fn fill(&mut self, count: usize) {
        for _ in 0..count / self.batch {
            for _ in 0..self.batch {
                let (extent, stream) = self.starts.extent();
                let read =
                    Outline { op: Op::Read, extent, stream, priority: Priority::BestEffort, segments: 1 };
                self.plug.push(read);
            }
            self.harness.prefetch(&self.plug);
            for read in self.plug.drain(..) {
                if self.harness.merge(&read, T0).is_err() {
                    self.harness.insert(&read, T0);
                }
            }
        }
    }

    fn step(&mut self, count: usize) {
        for _ in 0..count / self.batch {
            self.fill(self.batch);
            for _ in 0..self.batch {
                self.harness.dispatch(T0);
            }
        }
    }
}

/// The whole queue, with 32 bios at a time and a device that completes at once.
struct InQueue {
    queue: RequestQueue<LengthOnly>,
    starts: Starts,
    tags: Vec<Tag>,
}

const BATCH: usize = 32;

impl InQueue {
    fn new(elevator: ElevatorSpec, starts: Starts, queued: usize) -> Self {
        let most = (queued + BATCH) as u32;
        let config =
            QueueConfig { bios_max: most, requests_max: most, depth: 32, plug_requests_max: 32, elevator };
        let limits = Limits { request_bytes_max: SECTORS << 9, ..Limits::with_capacity(1 << 50) };
        Self { queue: RequestQueue::new(limits, &config), starts, tags: Vec::with_capacity(BATCH) }
    }
}

impl Bench for InQueue {
    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            let (extent, stream) = self.starts.extent();
            let bio = Bio::read(extent, LengthOnly::new(extent.bytes()), 0).on_stream(stream);
            self.queue.submit_bio(bio, T0).expect("the queue has room");
        }
    }

    fn step(&mut self, count: usize) {
        for _ in 0..count / BATCH {
            self.queue.plug();
            self.fill(BATCH);
            self.queue.unplug(T0);
            while let Some(io) = self.queue.poll_dispatch(T0) {
                self.tags.push(io.tag);
            }
            for tag in self.tags.drain(..) {
                self.queue.handle_completion(tag, Ok(()), T0);
            }
            while self.queue.poll_completion().is_some() {}
        }
    }
}

/// The tree of the standard library, for comparison: insert, and remove the next key of a one-way sweep. No lookup.
struct Tree {
    map: BTreeMap<u64, u32>,
    starts: Starts,
    count: u32,
    head: u64,
}

impl Bench for Tree {
    fn fill(&mut self, count: usize) {
        for _ in 0..count {
            self.count = self.count.wrapping_add(1);
            self.map.insert(self.starts.next().0, self.count);
        }
    }

    fn step(&mut self, count: usize) {
        for _ in 0..count {
            self.fill(1);
            let next = self.map.range(self.head..).next().or_else(|| self.map.first_key_value());
            self.head = *next.expect("the tree is not empty").0;
            self.map.remove(&self.head);
        }
    }
}

/// Nanoseconds per request: the 10th percentile of all slices.
fn measure(bench: &mut dyn Bench, queued: usize) -> f64 {
    bench.fill(queued);
    // Replaces every request once, to reach the steady state.
    bench.step(queued.next_multiple_of(SLICE));
    let began = Clock::now();
    let mut slices = Vec::new();
    while began.elapsed() < MEASURED_FOR {
        let slice = Clock::now();
        bench.step(SLICE);
        slices.push(slice.elapsed());
    }
    slices.sort_unstable();
    slices[slices.len() / 10].as_nanos() as f64 / SLICE as f64
}

/// Nanoseconds per request for each number of queued requests, except those that a filter excludes.
fn measure_line(
    name: &str,
    filters: &[String],
    new: &dyn Fn(usize) -> Box<dyn Bench>,
) -> [Option<f64>; QUEUED.len()] {
    QUEUED.map(|queued| {
        let name = format!("{name}/{queued}");
        let is_wanted = filters.iter().any(|filter| name.contains(filter.as_str()));
        (filters.is_empty() || is_wanted).then(|| measure(&mut *new(queued), queued))
    })
}

/// Prints a line: nanoseconds, million requests per second, and the ratio of the cost with the most queued requests to
/// the cost with the fewest.
fn print_line(name: &str, nanos: [Option<f64>; QUEUED.len()]) {
    let cells = |width: usize, digits: usize, show: &dyn Fn(f64) -> f64| {
        nanos.iter().fold(String::new(), |mut cells, nanos| {
            let _ = match nanos {
                Some(nanos) => write!(cells, "{:>width$.digits$}", show(*nanos)),
                None => write!(cells, "{:>width$}", "-"),
            };
            cells
        })
    };
    let (nanos_each, millions) = (cells(8, 1, &|nanos| nanos), cells(7, 1, &|nanos| 1e3 / nanos));
    let ratio = nanos[QUEUED.len() - 1]
        .zip(nanos[0])
        .map_or(String::from("-"), |(most, least)| format!("{:.2}", most / least));
    println!("{name:<28}{nanos_each}  |{millions}  |{ratio:>6}");
}

fn main() {
    let filters: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    if std::env::args().any(|arg| arg == "--small-pages") {
        rustix::thread::disable_transparent_huge_pages(true).expect("all kernels support this");
    }
    let specs = || ELEVATORS.iter().map(|kind| ElevatorSpec::new(*kind));
    let line = |name: &str, new: &dyn Fn(Starts, usize) -> Box<dyn Bench>| {
        for (pattern, starts) in Starts::ALL {
            let name = format!("{name}/{pattern}");
            let nanos = measure_line(&name, &filters, &|queued| new(starts, queued));
            if nanos.iter().any(Option::is_some) {
                print_line(&name, nanos);
            }
        }
    };
    println!(
        "{:<28}{:<32}  |{:<28}  |  most :",
        "", "      ns a request, queued", "    M requests/s, queued"
    );
    let (nanos, millions) = (
        ["32", "1Ki", "32Ki", "1M"].map(|queued| format!("{queued:>8}")),
        ["32", "1Ki", "32Ki", "1M"].map(|queued| format!("{queued:>7}")),
    );
    println!("{:<28}{}  |{}  | least", "", nanos.concat(), millions.concat());
    line("std/BTreeMap", &|starts, _| Box::new(Tree { map: BTreeMap::new(), starts, count: 0, head: 0 }));
    for spec in specs() {
        line(&format!("one/{spec}"), &|starts, queued| Box::new(OnHarness::new(&spec, starts, 1, queued)));
    }
    for spec in specs() {
        line(&format!("plug/{spec}"), &|starts, queued| {
            Box::new(OnHarness::new(&spec, starts, BATCH, queued))
        });
    }
    for spec in specs() {
        line(&format!("queue/{spec}"), &|starts, queued| {
            Box::new(InQueue::new(spec.clone(), starts, queued))
        });
    }
}
