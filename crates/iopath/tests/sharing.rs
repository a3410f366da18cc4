//! Threads and batches that share a queue because the volume has an elevator: on a real file with the engine of
//! `IOPATH_TEST_ENGINE`, and on a disk in memory.

use crate::support::{KIB, filled, options, scratch};
use iopath::elevator::ELEVATORS;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Batch, BatchOptions, ErrorKind, IoError, Options, Request, Stream, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, Ordering};

const BLOCK: usize = 4 * KIB;

/// Reads that a thread keeps in flight.
const DEPTH: u32 = 32;

fn spec(text: &str) -> iopath::elevator::ElevatorSpec {
    text.parse().unwrap()
}

fn read(batch: &mut Batch, block: u64, stream: u32) {
    let buffer = batch.buffer().expect("there is a buffer for each request in flight");
    let offset = block * buffer.len() as u64;
    batch.queue(Request::read(buffer, offset).stream(Stream(stream))).unwrap();
}

#[test]
fn every_elevator_keeps_the_bytes_of_threads_that_share_it() {
    let Some((_directory, path)) = scratch(4 << 20) else { return };
    for kind in ELEVATORS {
        let volume = Volume::open(&path, &options().write(true).elevator(kind.name).device_depth(4)).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..3 {
                let volume = &volume;
                scope.spawn(move || {
                    // Each thread has a MiB of its own.
                    let mut rng = ChaCha8Rng::seed_from_u64(thread);
                    let base = thread << 20;
                    let mut expected = filled(1 << 20, thread);
                    volume.write_at(&expected, base).unwrap();
                    let mut buffer = AlignedBuf::new(64 * KIB).unwrap();
                    for round in 0..100 {
                        let (first, count) = (rng.random_range(0..240), rng.random_range(1..=16));
                        let range = first * BLOCK..(first + count) * BLOCK;
                        let offset = base + range.start as u64;
                        if rng.random_bool(0.5) {
                            expected[range.clone()].fill(round);
                            volume.write_at(&expected[range], offset).unwrap();
                        } else {
                            let buffer = &mut buffer[..range.len()];
                            assert_eq!(volume.read_at(buffer, offset).unwrap(), range.len());
                            assert!(buffer == &expected[range], "{}: thread {thread}", kind.name);
                        }
                    }
                    volume.flush().unwrap();
                });
            }
            scope.spawn(|| {
                let volume = Volume::open(&path, &options().write(true).elevator(kind.name)).unwrap();
                drop(volume.batch(&BatchOptions::new(1, BLOCK)).unwrap());
            });
        });
    }
}

#[test]
fn threads_switch_to_a_shared_queue_and_back_with_io_in_flight() {
    let Some((_directory, path)) = scratch(2 << 20) else { return };
    let volume = Volume::open(&path, &options().write(true).device_depth(2)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut buffer = AlignedBuf::new(BLOCK).unwrap();
            let mut moves = 0;
            while !stop.load(Ordering::Relaxed) {
                moves += 1;
                volume.set_elevator(&spec(["deadline", "none", "fair", "none", "ascend"][moves % 5]));
                volume.read_at(&mut buffer, 1 << 20).unwrap();
            }
            moves
        });
        // A read returns the write of its block that was queued before it, on any queue.
        let mut batch = volume.batch(&BatchOptions::new(16, BLOCK)).unwrap();
        for round in 0..200 {
            for block in 0..8 {
                let mut buffer = batch.buffer().unwrap();
                buffer[..BLOCK].fill(round);
                batch.queue(Request::write(buffer, block * BLOCK as u64).token(u64::MAX)).unwrap();
                let buffer = batch.buffer().unwrap();
                batch.queue(Request::read(buffer, block * BLOCK as u64).token(block)).unwrap();
            }
            while let Some(done) = batch.wait().unwrap() {
                assert_eq!(done.result.unwrap(), BLOCK);
                let is_read = done.token != u64::MAX;
                let buffer = done.buffer.unwrap();
                assert!(!is_read || buffer[..BLOCK].iter().all(|byte| *byte == round), "round {round}");
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(other.join().unwrap() > 10);
    });
}

#[test]
fn a_batch_that_is_never_idle_keeps_its_queue_and_the_new_elevator() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().elevator("deadline")).unwrap();
    let [mut busy, mut idle] = [(); 2].map(|()| volume.batch(&BatchOptions::new(2, BLOCK)).unwrap());
    (0..2).for_each(|block| read(&mut busy, block, 0));
    volume.set_elevator(&spec("none"));
    for batch in [&mut busy, &mut idle] {
        let done = if batch.in_flight() > 0 { batch.wait().unwrap() } else { None };
        drop(done);
        read(batch, 5, 0);
        batch.submit();
    }
    assert_eq!(idle.stats().bios, 1, "the idle batch has its own queue again");
    assert!(busy.stats().bios >= 3, "the busy batch still uses the shared queue");
    while busy.wait().unwrap().is_some() {}
    read(&mut busy, 6, 0);
    assert_eq!(busy.stats().bios, 1, "the batch has switched");
}

#[test]
fn a_batch_dropped_with_io_in_flight_leaves_the_queue_to_others() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().elevator("deadline").device_depth(2)).unwrap();
    for round in 0..20 {
        let mut batch = volume.batch(&BatchOptions::new(DEPTH, BLOCK)).unwrap();
        (0..u64::from(DEPTH)).for_each(|block| read(&mut batch, block * 3, 0));
        if round % 2 == 0 {
            batch.submit();
        }
        drop(batch);
        volume.read_at(&mut AlignedBuf::new(BLOCK).unwrap(), 0).unwrap();
    }
}

#[test]
fn an_error_reaches_the_batch_of_its_request() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let faults = iopath::testing::Faults::new(1);
    let volume = Volume::memory(&disk, &Options::new().elevator("ascend").faults(&faults)).unwrap();
    let [mut good, mut bad] = [(); 2].map(|()| volume.batch(&BatchOptions::new(1, BLOCK)).unwrap());
    faults.add(iopath::testing::Fault::error(IoError::Media).on(iopath::Op::Read).times(1));
    read(&mut bad, 3, 0);
    bad.submit();
    read(&mut good, 200, 1);
    good.submit();
    let error = bad.wait().unwrap().unwrap().result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Io(IoError::Media));
    assert_eq!(good.wait().unwrap().unwrap().result.unwrap(), BLOCK);
}

#[test]
fn the_end_of_a_volume_moves_for_every_thread_that_shares_its_queue() {
    let Some((_directory, path)) = scratch(1 << 20) else { return };
    let volume = Volume::open(&path, &options().write(true).elevator("deadline")).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(1, BLOCK)).unwrap();
    for (size, block, is_inside) in [(2 << 20, 300, true), (64 * KIB, 300, false), (1 << 20, 200, true)] {
        volume.resize(size as u64).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut buffer = AlignedBuf::new(BLOCK).unwrap();
                let read = volume.read_at(&mut buffer, (block * BLOCK) as u64).unwrap();
                assert_eq!(read, if is_inside { BLOCK } else { 0 });
            });
        });
        if is_inside {
            let mut buffer = batch.buffer().unwrap();
            buffer.fill(9);
            batch.queue(Request::write(buffer, (block * BLOCK) as u64)).unwrap();
            batch.wait().unwrap().unwrap().result.unwrap();
        }
    }
}
