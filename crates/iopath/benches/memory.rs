//! Random reads of 4 KiB from a disk in memory, with the copy, on one core: the cost of a volume, its queue and a
//! device that moves the bytes. Prints `name`, a tab, and I/Os a second of CPU time, so that other programs disturb it
//! little. Each completion gives its buffer to the next read, as in the peer.
//! `cargo bench -p iopath --bench memory`.

use std::time::{Duration, Instant};

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{BatchOptions, LocalBatch, Options, PoolBuf, Request, Volume};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{RngCore, SeedableRng};
use rustix::time::{ClockId, clock_gettime};

const DEPTH: u32 = 32;
const BLOCK_BYTES: usize = 4096;

/// The sizes of the disk: one that fits into the cache of a core, and one that does not.
const DISKS: [(&str, u64); 2] = [("1 MiB", 1 << 20), ("1 GiB", 1 << 30)];

/// I/Os between two looks at the clock.
const ROUND: u32 = 4096;

/// The wall-clock time of each case.
const TIME: Duration = Duration::from_secs(1);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for (name, bytes) in DISKS {
        let disk = MemoryDisk::new(&MemoryConfig { block_bytes: 4096, ..MemoryConfig::of_bytes(bytes) })?;
        let volume = Volume::memory(&disk, &Options::new())?;
        let mut batch = volume.local_batch(&BatchOptions::new(DEPTH, BLOCK_BYTES))?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        // Touches the memory of the disk and of the buffers.
        run(&mut batch, bytes, &mut random, TIME / 4)?;
        println!("memory, {name}, depth {DEPTH}\t{:.0}", run(&mut batch, bytes, &mut random, TIME)?);
    }
    Ok(())
}

/// I/Os a second of CPU time.
fn run(
    batch: &mut LocalBatch,
    disk_bytes: u64,
    random: &mut Xoshiro256PlusPlus,
    time: Duration,
) -> Result<f64, Box<dyn std::error::Error>> {
    let blocks = disk_bytes / BLOCK_BYTES as u64;
    let mut free: Vec<PoolBuf> = std::iter::from_fn(|| batch.buffer()).collect();
    let (began, cpu_before) = (Instant::now(), cpu_seconds());
    let mut completed = 0_u64;
    while began.elapsed() < time {
        for _ in 0..ROUND / DEPTH {
            while let Some(buffer) = free.pop() {
                let block = ((u128::from(random.next_u64()) * u128::from(blocks)) >> 64) as u64;
                batch.queue(Request::read(buffer, block * BLOCK_BYTES as u64))?;
            }
            while let Some(done) = batch.wait()? {
                assert_eq!(done.result?, BLOCK_BYTES);
                free.extend(done.buffer);
                completed += 1;
            }
        }
    }
    Ok(completed as f64 / (cpu_seconds() - cpu_before))
}

fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
