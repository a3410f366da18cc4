//! The completion descriptor of a batch becomes readable after a completion, on every engine and source.

use crate::support::{filled, options, scratch};
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{Batch, BatchOptions, Engine, IoMode, Options, Request, Volume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::time::Duration;

const BLOCKS: u64 = 64;
const BLOCK: usize = 4096;

/// Waits for the descriptor as an event loop does.
fn wait(descriptor: &OwnedFd, limit: Option<Duration>) {
    // A lost wake-up fails the test instead of hanging it.
    let limit = limit.unwrap_or(Duration::from_secs(20));
    let time = Timespec::try_from(limit).unwrap();
    let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&time)).unwrap();
    assert!(ready == 1 || limit < Duration::from_secs(20), "no wake-up of the waiting thread in {limit:?}");
}

/// Runs one request for each block, with few in flight. Returns the number of waits.
fn run(mut batch: Batch, make: impl Fn(iopath::PoolBuf, u64) -> Request) -> u32 {
    let descriptor = batch.completion_fd().unwrap();
    let (mut next, mut completed, mut waits) = (0, 0, 0);
    while completed < BLOCKS {
        while next < BLOCKS
            && let Some(buffer) = batch.buffer()
        {
            batch.queue(make(buffer, next).token(next)).unwrap();
            next += 1;
        }
        batch.submit();
        while let Some(done) = batch.poll() {
            assert_eq!(done.result.unwrap(), BLOCK);
            completed += 1;
        }
        if completed < BLOCKS && batch.buffer().is_none() {
            waits += 1;
            wait(&descriptor, batch.next_timeout());
        }
    }
    assert_eq!(batch.in_flight(), 0);
    waits
}

fn reads(volume: &Volume) {
    let batch = volume.batch(&BatchOptions::new(4, BLOCK)).unwrap();
    run(batch, |buffer, block| Request::read(buffer, block * BLOCK as u64));
}

fn forced_writes(volume: &Volume, is_buffered: bool) {
    let batch = volume.batch(&BatchOptions::new(4, BLOCK).buffered(is_buffered)).unwrap();
    run(batch, |buffer, block| Request::write(buffer, block * BLOCK as u64).durable(true));
}

#[test]
fn every_engine_notifies_of_completions() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    for engine in [Engine::Uring, Engine::Threads] {
        let volume = match Volume::open(&path, &options().engine(engine).write(true)) {
            Ok(volume) => volume,
            Err(error) => {
                eprintln!("skipped: {error}");
                continue;
            }
        };
        volume.write_at(&filled(BLOCKS as usize * BLOCK, 1), 0).unwrap();
        reads(&volume);
        forced_writes(&volume, false);
    }
}

#[test]
fn a_disk_in_memory_notifies_of_completions() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BLOCKS * BLOCK as u64)).unwrap();
    reads(&Volume::memory(&disk, &Options::new()).unwrap());
}

#[test]
fn forced_writes_on_a_volume_with_a_page_cache_complete() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    let options = options().write(true).direct(false).cache_bytes(24 * 4096);
    let volume = Volume::open(&path, &options).unwrap();
    forced_writes(&volume, false);
    forced_writes(&volume, true);
}

#[test]
fn a_buffered_batch_announces_hits_and_misses() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    for engine in [Engine::Uring, Engine::Threads] {
        let options = options().engine(engine).mode(IoMode::Buffered).cache_bytes(24 * 4096);
        let volume = match Volume::open(&path, &options) {
            Ok(volume) => volume,
            Err(error) => {
                eprintln!("skipped: {error}");
                continue;
            }
        };
        // Misses, some of them hits of readahead; then two event loops at once, and a thread that reads.
        reads(&volume);
        std::thread::scope(|scope| {
            scope.spawn(|| reads(&volume));
            scope.spawn(|| reads(&volume));
            (0..BLOCKS).for_each(|block| {
                volume.read_exact_at(&mut [0; 100], block * BLOCK as u64 + 7).unwrap();
            });
        });
    }
}

/// One descriptor of a batch on a cache that holds everything: readable after a hit, and not when nothing is in flight.
#[test]
fn the_descriptor_of_a_buffered_batch_is_readable_at_a_hit() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BLOCKS * BLOCK as u64)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().mode(IoMode::Buffered).cache_bytes(1 << 20)).unwrap();
    volume.read_exact_at(&mut [0; BLOCK], 0).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(4, BLOCK)).unwrap();
    let descriptor = batch.completion_fd().unwrap();
    let is_readable = || {
        let zero = Timespec::try_from(Duration::ZERO).unwrap();
        poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&zero)).unwrap() == 1
    };
    for round in 0..3 {
        assert!(!is_readable(), "round {round}");
        batch.queue(Request::read(batch.buffer().unwrap(), 3).bytes(10)).unwrap();
        assert!(is_readable(), "round {round}");
        // The completion is there already; the poll that finds nothing clears the descriptor.
        assert!(batch.poll().is_some());
        assert!(batch.poll().is_none());
    }
}

#[test]
fn an_event_loop_progresses_with_every_elevator() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    for elevator in iopath::elevator::ELEVATORS {
        reads(&Volume::open(&path, &options().elevator(elevator.name)).unwrap());
    }
}

#[test]
fn the_descriptor_is_refused_while_requests_are_in_flight() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BLOCKS * BLOCK as u64)).unwrap();
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(4, BLOCK)).unwrap();
    batch.queue(Request::read(batch.buffer().unwrap(), 0)).unwrap();
    let refused = batch.completion_fd().unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidInput);
    while batch.wait().unwrap().is_some() {}
    assert!(batch.completion_fd().is_ok());
    assert!(batch.completion_fd().is_ok(), "a duplicate");
}
