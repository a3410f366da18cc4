//! Resizes concurrent with reads and writes of a part that is never removed.

use crate::support::{options, scratch};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, BatchOptions, Options, Request, Unaligned, Volume};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// The part that no resize removes: ends inside a page and inside a block.
const FLOOR: u64 = 50 * 4096 + 196;
const SPAN: u64 = 40_000;
const DURATION: Duration = Duration::from_millis(400);

fn byte(at: u64) -> u8 {
    (at % 251) as u8
}

/// Two threads resize. Others read up to the floor, across it, by direct I/O and in a batch, and write up to the floor.
fn resize_during_io(volume: &Volume) {
    let floor: Vec<u8> = (0..FLOOR).map(byte).collect();
    volume.write_at(&floor, 0).unwrap();
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        for step in [7919, 10_007] {
            scope.spawn(move || {
                for round in 0_u64.. {
                    if is_over.load(Relaxed) {
                        break;
                    }
                    volume.resize(FLOOR + round * step % SPAN).unwrap();
                }
            });
        }
        scope.spawn(move || {
            let mut buffer = vec![0; 9000];
            for round in 0_u64.. {
                if is_over.load(Relaxed) {
                    break;
                }
                let offset = FLOOR - 9000 + round % 3 * 4096;
                let before = (FLOOR - offset).min(9000) as usize;
                let there = volume.read_at(&mut buffer, offset).unwrap();
                assert!(there >= before, "{there} bytes at {offset}, {before} of them are never removed");
                assert!(buffer[..before].iter().zip(offset..).all(|(found, at)| *found == byte(at)));
                assert!(buffer[before..there].iter().all(|found| *found == 0), "past the floor");
            }
        });
        scope.spawn(move || {
            let mut memory = AlignedBuf::new(3 * 4096).unwrap();
            let offset = FLOOR / 4096 * 4096 - 4096;
            while !is_over.load(Relaxed) {
                let there = volume.direct().read_at(&mut memory, offset).unwrap();
                assert!(there as u64 >= FLOOR - offset, "{there} bytes, fewer than are never removed");
                assert!(
                    memory[..(FLOOR - offset) as usize]
                        .iter()
                        .zip(offset..)
                        .all(|(found, at)| *found == byte(at))
                );
            }
        });
        scope.spawn(move || {
            let mut batch = volume.batch(&BatchOptions::new(4, 3 * 4096).buffered(false)).unwrap();
            let offset = FLOOR / 4096 * 4096 - 4096;
            while !is_over.load(Relaxed) {
                while let Some(buffer) = batch.buffer() {
                    batch.queue(Request::read(buffer, offset).bytes(3 * 4096)).unwrap();
                }
                while let Some(done) = batch.wait().unwrap() {
                    let (there, memory) = (done.result.unwrap(), done.buffer.unwrap());
                    assert!(there as u64 >= FLOOR - offset, "{there} bytes, fewer than are never removed");
                    let before = memory[..(FLOOR - offset) as usize].iter();
                    assert!(before.zip(offset..).all(|(found, at)| *found == byte(at)));
                }
            }
        });
        let (floor, start) = (&floor, FLOOR - 5000);
        scope.spawn(move || {
            while !is_over.load(Relaxed) {
                volume.write_at(&floor[start as usize..], start).unwrap();
            }
        });
        std::thread::sleep(DURATION);
        is_over.store(true, Relaxed);
    });
    volume.flush().unwrap();
}

fn cached(options: Options) -> Options {
    options.direct(false).cache_bytes(24 * 4096)
}

#[test]
fn concurrent_resizes_and_reads_of_a_buffered_file() {
    let Some((_directory, path)) = scratch(FLOOR) else { return };
    resize_during_io(&Volume::open(path, &cached(options()).write(true)).unwrap());
}

#[test]
fn concurrent_resizes_and_reads_of_a_bounced_file() {
    let Some((_directory, path)) = scratch(FLOOR) else { return };
    resize_during_io(&Volume::open(path, &options().unaligned(Unaligned::Bounce).write(true)).unwrap());
}

#[test]
fn concurrent_resizes_and_reads_of_a_disk_in_memory() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(FLOOR)).unwrap();
    resize_during_io(&Volume::memory(&disk, &cached(options()).write(true)).unwrap());
    resize_during_io(&Volume::memory(&disk, &options().unaligned(Unaligned::Bounce).write(true)).unwrap());
}

/// The range of the write is inside the volume when it is checked, and outside when the write begins.
#[test]
fn a_direct_write_that_races_a_truncation_does_not_extend_the_file() {
    let Some((_directory, path)) = scratch(FLOOR) else { return };
    let volume = &Volume::open(&path, &cached(options()).write(true)).unwrap();
    let (short, long) = (2 * 4096 + 100, 3 * 4096);
    let is_over = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Enough threads for the scheduler to suspend one between the check and the write.
        for _ in 0..6 {
            scope.spawn(move || {
                // The last block of the short volume, where the write is refused.
                let memory = AlignedBuf::new(volume.facts().block_bytes as usize).unwrap();
                while !is_over.load(Relaxed) {
                    let _ = volume.direct().write_at(&memory, 2 * 4096);
                }
            });
        }
        let started = std::time::Instant::now();
        while started.elapsed() < DURATION {
            volume.resize(long).unwrap();
            volume.resize(short).unwrap();
            std::thread::yield_now();
            let there = std::fs::metadata(&path).unwrap().len();
            is_over.store(there != short, Relaxed);
            assert_eq!(there, short, "the file is longer than the volume");
        }
        is_over.store(true, Relaxed);
    });
}
