//! A short measurement of both engines on a target. Used for targets that refuse `RWF_NOWAIT`, since neither engine is
//! known to be better there. The decision for all other targets is in `engine.rs`.
//!
//! It reads at random offsets, `depth` in flight, and alternates between the engines. The kernel executes such reads of
//! `io_uring` on its worker threads, with one queue operation per read; the threads engine queues many reads at once.
//! The faster one depends on the device, the kernel and the number of CPUs.

use std::fmt;
use std::fs::File;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use iopath_core::{Extent, Limits, Op, Priority, QueueConfig, SECTOR_BYTES, Stream};
use rustix::fs::{FileType, fstat};

use crate::aligned::AlignedBuf;
use crate::cpu::process_cpu_times;
use crate::device::{OneThread, RealDevice, Threads, ThreadsConfig, Uring, UringConfig};
use crate::jobs::Job;
use crate::pool::BufferPool;
use crate::runner::Runner;

/// Devices with slower reads are not measured: the time of the device dominates, and a measurement would delay the
/// open.
const READ_MAX: Duration = Duration::from_micros(500);

/// The time of one turn of one engine.
const TURN: Duration = Duration::from_millis(1);

/// Turns of each engine.
const TURNS: u32 = 3;

/// Reads before the first measured turn of an engine, in which it starts its threads.
const WARM_UP: u32 = 256;

/// The maximum number of reads in flight.
const DEPTH_MAX: u32 = 64;

/// Rates that differ by less than this share are equal; the CPU time decides.
const MARGIN: f64 = 0.05;

/// The reads of one engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Reads per second.
    pub iops: u64,
    /// CPU time of the process per read, in nanoseconds. Includes other threads of the program.
    pub cpu_ns: u64,
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} K reads/s at {:.2} µs of CPU", self.iops / 1000, self.cpu_ns as f64 / 1e3)
    }
}

/// Both engines on one target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Comparison {
    /// `io_uring`.
    pub uring: Rate,
    /// Threads.
    pub threads: Rate,
    /// Reads in flight.
    pub depth: u32,
}

impl Comparison {
    /// Whether threads are the better engine: the higher rate, or at equal rates the lower CPU time.
    pub fn prefers_threads(&self) -> bool {
        let ratio = self.threads.iops as f64 / self.uring.iops.max(1) as f64;
        if (1.0 - MARGIN..=1.0 + MARGIN).contains(&ratio) {
            return self.threads.cpu_ns <= self.uring.cpu_ns;
        }
        ratio > 1.0
    }
}

/// A device or filesystem, and the depth. Each key is measured once per process.
type Key = (u64, u32);

/// The measurements of this process. Empty targets and slow ones have none.
static MEASURED: Mutex<Vec<(Key, Option<Comparison>)>> = Mutex::new(Vec::new());

/// Measures both engines, once per process for each device or filesystem. `None` if the target is too slow or too
/// small, or an engine is not available.
pub(super) fn compare(file: &Arc<File>, limits: &Limits, depth: u32) -> Option<Comparison> {
    let depth = depth.clamp(1, DEPTH_MAX);
    let stat = fstat(file.as_fd()).ok()?;
    let is_device = FileType::from_raw_mode(stat.st_mode) == FileType::BlockDevice;
    let key = (if is_device { stat.st_rdev } else { stat.st_dev }, depth);
    // Threads that open the same target wait for its measurement, so that they do not disturb it.
    let mut measured = MEASURED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, comparison)) = measured.iter().find(|(known, _)| *known == key) {
        return *comparison;
    }
    let comparison = measure(file, limits, depth);
    measured.push((key, comparison));
    comparison
}

fn measure(file: &Arc<File>, limits: &Limits, depth: u32) -> Option<Comparison> {
    let block_bytes = limits.logical_block_bytes.max(limits.memory_align_bytes).max(4096);
    let blocks = limits.capacity / (u64::from(block_bytes) / SECTOR_BYTES);
    if blocks == 0 || single_read(file, block_bytes)? > READ_MAX {
        return None;
    }
    let ring = UringConfig { depth, pool: None };
    let uring = Uring::<OneThread>::try_new(Arc::clone(file), limits, &ring).ok()?;
    let threads =
        Threads::new(Arc::clone(file), limits, &ThreadsConfig { depth, threads_max: depth }).ok()?;
    let mut uring = Reader::new(uring, block_bytes, blocks, depth)?;
    let mut threads = Reader::new(threads, block_bytes, blocks, depth)?;
    for _ in 0..TURNS {
        uring.turn()?;
        threads.turn()?;
    }
    Some(Comparison { uring: uring.rate(), threads: threads.rate(), depth })
}

/// The time of one blocking read. A first read, which may wake the device, is not measured.
fn single_read(file: &File, block_bytes: u32) -> Option<Duration> {
    let mut block = AlignedBuf::new(block_bytes as usize).ok()?;
    let mut took = Duration::ZERO;
    for _ in 0..2 {
        let started = Instant::now();
        rustix::io::pread(file, &mut block[..], 0).ok()?;
        took = started.elapsed();
    }
    Some(took)
}

/// Random reads through one engine.
struct Reader<D: RealDevice> {
    runner: Runner<D>,
    pool: BufferPool,
    block_bytes: u32,
    blocks: u64,
    depth: u32,
    /// State of a linear congruential generator: the offsets.
    state: u64,
    reads: u64,
    elapsed: Duration,
    cpu: Duration,
}

impl<D: RealDevice> Reader<D> {
    /// `None` if an unmeasured read fails.
    fn new(device: D, block_bytes: u32, blocks: u64, depth: u32) -> Option<Self> {
        let pool = BufferPool::new(depth, block_bytes as usize).ok()?;
        let config = QueueConfig { bios_max: depth, requests_max: depth, depth, ..QueueConfig::default() };
        let runner = Runner::new(Box::new(device), &config);
        let (elapsed, cpu) = (Duration::ZERO, Duration::ZERO);
        let mut reader = Self { runner, pool, block_bytes, blocks, depth, state: 1, reads: 0, elapsed, cpu };
        reader.read_until(|reads| reads >= WARM_UP)?;
        Some(reader)
    }

    /// One measured turn.
    fn turn(&mut self) -> Option<()> {
        let started = Instant::now();
        let before = process_cpu_times();
        self.reads += u64::from(self.read_until(|_| started.elapsed() >= TURN)?);
        let after = process_cpu_times();
        self.elapsed += started.elapsed();
        self.cpu += (after.user + after.system).saturating_sub(before.user + before.system);
        Some(())
    }

    /// Keeps `depth` reads in flight until `is_done` of the completed reads, and waits for those in flight.
    fn read_until(&mut self, is_done: impl Fn(u32) -> bool) -> Option<u32> {
        let gather = (self.depth * 3 / 8).max(1);
        let (mut in_flight, mut completed) = (0, 0);
        loop {
            while in_flight < self.depth && !is_done(completed) {
                let Some(job) = self.next_job() else { break };
                self.runner.queue(job).ok()?;
                in_flight += 1;
            }
            if in_flight == 0 {
                return Some(completed);
            }
            self.runner.wait(gather.min(in_flight)).ok()?;
            while let Some(finished) = self.runner.poll_completion() {
                finished.result.ok()?;
                (in_flight, completed) = (in_flight - 1, completed + 1);
            }
        }
    }

    fn next_job(&mut self) -> Option<Job> {
        // Constants of MMIX (Knuth); the high bits are the random ones.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let block = ((u128::from(self.state) * u128::from(self.blocks)) >> 64) as u64;
        let extent = Extent::from_bytes(block * u64::from(self.block_bytes), u64::from(self.block_bytes))?;
        Some(Job {
            op: Op::Read,
            extent,
            buffer: Some(self.pool.take()?),
            fua: false,
            stream: Stream(0),
            priority: Priority::default(),
            token: 0,
        })
    }

    fn rate(&self) -> Rate {
        let iops = (self.reads as f64 / self.elapsed.as_secs_f64()) as u64;
        Rate { iops, cpu_ns: self.cpu.as_nanos() as u64 / self.reads.max(1) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(uring: (u64, u64), threads: (u64, u64)) -> Comparison {
        let rate = |(iops, cpu_ns)| Rate { iops, cpu_ns };
        Comparison { uring: rate(uring), threads: rate(threads), depth: 64 }
    }

    #[test]
    fn the_higher_rate_decides_and_at_equal_rates_the_cpu_time() {
        assert!(!comparison((824_000, 1_940), (620_000, 2_750)).prefers_threads());
        assert!(comparison((450_000, 3_300), (750_000, 2_600)).prefers_threads());
        assert!(!comparison((450_000, 3_100), (460_000, 3_700)).prefers_threads(), "equal rates, less CPU");
        assert!(comparison((450_000, 3_700), (460_000, 3_100)).prefers_threads());
    }

    #[test]
    fn a_measurement_counts_the_reads_of_both_engines() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), vec![7; 1 << 20]).unwrap();
        let opened = Arc::new(File::open(file.path()).unwrap());
        let limits = Limits::with_capacity((1 << 20) / SECTOR_BYTES);
        let Some(measured) = measure(&opened, &limits, 16) else {
            eprintln!("skipped: no io_uring, or reads are slow here");
            return;
        };
        for rate in [measured.uring, measured.threads] {
            assert!(rate.iops > 0, "{measured:?}");
        }
        assert_eq!(measured.depth, 16);
        assert!(measure(&opened, &Limits::with_capacity(0), 16).is_none(), "nothing to read");
    }
}
