//! Threads on one mapped file with a page cache: batches with forced writes, discards and direct writes wait for each
//! other's blocks. Tests that all of them complete. Does not compare bytes.

use iopath::mapped::{FileLayout, FileMap};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, BatchOptions, IoMode, Options, Request, Volume};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 12;
const DURATION: Duration = Duration::from_millis(1500);
/// Much longer than any operation needs.
const HANGS_AFTER: Duration = Duration::from_secs(20);

fn volume(mapper: &str) -> Volume {
    let disk = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(4 * BLOCKS * BLOCK) };
    let disk = MemoryDisk::new(&disk).unwrap();
    let layout = FileLayout {
        block_bytes: BLOCK as u32,
        size_bytes: BLOCKS * BLOCK,
        capacity_bytes: disk.size_bytes(),
    };
    let file = FileMap::fresh(mapper, &layout).unwrap();
    let options = Options::new().write(true).mode(IoMode::Buffered).cache_bytes(16 * BLOCK);
    Volume::memory_mapped(&disk, &file, &options).unwrap()
}

/// A range of sectors, of four blocks at most.
fn range(random: &mut Xoshiro256PlusPlus) -> (u64, usize) {
    let start = random.random_range(0..BLOCKS * 8);
    (start * 512, random.random_range(1..=32_u64.min(BLOCKS * 8 - start)) as usize * 512)
}

fn bursts(volume: &Volume, random: &mut Xoshiro256PlusPlus) {
    let is_buffered = random.random_range(0..3) == 0;
    let mut batch = volume.batch(&BatchOptions::new(8, 16 << 10).buffered(is_buffered)).unwrap();
    while let Some(buffer) = batch.buffer() {
        let (offset, bytes) = range(random);
        let is_durable = random.random_range(0..4) == 0;
        batch.queue(Request::write(buffer, offset).bytes(bytes).durable(is_durable)).unwrap();
        if random.random_range(0..3) == 0 {
            batch.submit();
        }
    }
    while let Some(done) = batch.wait().unwrap() {
        done.result.unwrap();
    }
}

fn discards(volume: &Volume, random: &mut Xoshiro256PlusPlus) {
    let (offset, bytes) = range(random);
    volume.discard(offset, bytes as u64).unwrap();
}

fn direct_writes(volume: &Volume, random: &mut Xoshiro256PlusPlus) {
    let (offset, bytes) = range(random);
    let memory = AlignedBuf::new(bytes).unwrap();
    volume.write_at(&memory[1..], offset + 1).unwrap();
    let (offset, bytes) = range(random);
    let memory = AlignedBuf::new(bytes).unwrap();
    volume.direct().write_durably_at(&memory, offset).unwrap();
}

#[test]
fn forced_writes_discards_and_direct_writes_complete_together() {
    for mapper in ["extent", "indirect"] {
        let volume = volume(mapper);
        let (ended, ends) = mpsc::channel::<()>();
        for (seed, work) in [bursts, discards, direct_writes].into_iter().enumerate() {
            let (volume, ended) = (volume.clone(), ended.clone());
            // Not joined: a thread that hangs must not hang the test.
            std::thread::spawn(move || {
                let (started, mut random) = (Instant::now(), Xoshiro256PlusPlus::seed_from_u64(seed as u64));
                while started.elapsed() < DURATION {
                    work(&volume, &mut random);
                }
                drop(ended);
            });
        }
        drop(ended);
        let end = ends.recv_timeout(HANGS_AFTER);
        assert_eq!(end, Err(RecvTimeoutError::Disconnected), "{mapper}: a thread hangs");
    }
}
