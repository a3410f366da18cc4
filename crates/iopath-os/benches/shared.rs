//! The rate of a queue that 1 to 64 threads share, on a device that completes each request at once: random reads of
//! 4 KiB, 32 in flight per thread, at most 32 at the device. The result is a table of the medians of a few rounds. The
//! rounds alternate between all cases, so that other programs of the machine slow down all of them.
//!
//! `cargo bench -p iopath-os --bench shared -- [--rounds N] [FILTER…]`. A filter is part of a name such as `fair/64`.
//! `cargo xtask bench --only "null, queue of"` measures the same in the program `iopath`, with its cost per I/O.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Clock};

use iopath_core::elevator::ElevatorSpec;
use iopath_core::{Extent, Limits, Op, Priority, QueueConfig, Stream};
use iopath_os::{BufferPool, HugePages, Job, Null, SharedQueue};

/// The program `iopath` uses the same allocator.
#[global_allocator]
static ALLOCATOR: HugePages = HugePages;

const ELEVATORS: [&str; 2] = ["deadline", "fair"];
const THREADS: [u32; 5] = [1, 2, 4, 32, 64];
/// Reads in flight of each thread, bios of a plug, and requests in flight at the device.
const DEPTH: u32 = 32;
const BIOS_MAX: u32 = 4096;
const BLOCK: u64 = 4096;
const BLOCKS: u64 = 1 << 18;
const MEASURED_FOR: Duration = Duration::from_millis(500);

/// Reads per second of all threads, and the share of the thread with the fewest of the mean.
fn measure(elevator: &ElevatorSpec, threads: u32) -> (f64, f64) {
    let limits = Limits { depth_max: DEPTH, ..Limits::with_capacity(BLOCKS * BLOCK / 512) };
    let config = QueueConfig {
        bios_max: BIOS_MAX,
        requests_max: BIOS_MAX,
        depth: DEPTH,
        elevator: elevator.clone(),
        ..QueueConfig::default()
    };
    let queue = SharedQueue::new(Box::new(Null::new(limits)), &config);
    let (stop, start) = (AtomicBool::new(false), Barrier::new(threads as usize + 1));
    let (counts, elapsed) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|thread| {
                let (queue, stop, start) = (&queue, &stop, &start);
                scope.spawn(move || read_until(queue, thread, start, stop))
            })
            .collect();
        start.wait();
        let began = Clock::now();
        std::thread::sleep(MEASURED_FOR);
        stop.store(true, Ordering::Relaxed);
        let counts: Vec<u64> =
            workers.into_iter().map(|worker| worker.join().expect("no read fails")).collect();
        (counts, began.elapsed())
    });
    let total: u64 = counts.iter().sum();
    let least = counts.iter().min().copied().unwrap_or(0);
    (total as f64 / elapsed.as_secs_f64(), least as f64 * f64::from(threads) / total as f64)
}

/// Keeps reads in flight until `stop`. Returns the number of completed reads.
fn read_until(queue: &SharedQueue<Null>, thread: u32, start: &Barrier, stop: &AtomicBool) -> u64 {
    let (mut client, pool) = (queue.client(DEPTH, DEPTH), BufferPool::new(DEPTH, BLOCK as usize));
    let pool = pool.expect("the memory of the buffers");
    let mut idle: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    let (mut state, mut completed) = (0x2545_F491_4F6C_DD1D ^ u64::from(thread) << 32, 0);
    start.wait();
    while !stop.load(Ordering::Relaxed) {
        while let Some(buffer) = idle.pop() {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let job = Job {
                op: Op::Read,
                extent: Extent::from_bytes((state >> 20) % BLOCKS * BLOCK, BLOCK).expect("whole sectors"),
                buffer: Some(buffer),
                fua: false,
                stream: Stream(thread),
                priority: Priority::default(),
                token: 0,
            };
            client.queue(job).expect("the client has room");
        }
        client.wait(1).expect("the device never refuses");
        while let Some(done) = client.poll_completion() {
            done.result.expect("the device never fails");
            idle.extend(done.buffer);
            completed += 1;
        }
    }
    completed
}

fn main() {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench");
    let (mut rounds, mut filters) = (7, Vec::new());
    while let Some(arg) = args.next() {
        if arg == "--rounds" {
            rounds = args.next().and_then(|count| count.parse().ok()).expect("--rounds N");
        } else {
            filters.push(arg);
        }
    }
    let mut cases = Vec::new();
    for elevator in ELEVATORS {
        for threads in THREADS {
            let name = format!("{elevator}/{threads}");
            if filters.is_empty() || filters.iter().any(|filter| name.contains(filter.as_str())) {
                cases.push((elevator.parse::<ElevatorSpec>().expect("a known elevator"), threads, name));
            }
        }
    }
    let mut results = BTreeMap::<_, Vec<(f64, f64)>>::new();
    for _ in 0..rounds.max(1) {
        for (index, (elevator, threads, _)) in cases.iter().enumerate() {
            results.entry(index).or_default().push(measure(elevator, *threads));
        }
    }
    println!("{:<16}{:>8}{:>8}{:>8}   least : mean thread", "M reads/s", "median", "least", "most");
    for (index, mut rates) in results {
        rates.sort_by(|a, b| a.0.total_cmp(&b.0));
        let median = rates[rates.len() / 2];
        let [least, most] = [rates[0].0, rates[rates.len() - 1].0];
        let name = &cases[index].2;
        println!(
            "{name:<16}{:>8.2}{:>8.2}{:>8.2}   {:.2}",
            median.0 / 1e6,
            least / 1e6,
            most / 1e6,
            median.1
        );
    }
}
