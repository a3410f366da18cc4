//! The completion descriptor of a batch: readable when something has completed, on every engine and source.

mod support;

use iopath::{Batch, BatchOptions, Engine, MemoryConfig, MemoryDisk, Options, Request, Volume};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::OwnedFd;
use std::time::Duration;
use support::{filled, options, scratch};

const BLOCKS: u64 = 64;
const BLOCK: usize = 4096;

/// Waits for the descriptor as an event loop does.
fn wait(descriptor: &OwnedFd, limit: Option<Duration>) {
    // A lost wake-up fails the test instead of hanging it.
    let limit = limit.unwrap_or(Duration::from_secs(20));
    let time = Timespec::try_from(limit).unwrap();
    let ready = poll(&mut [PollFd::new(descriptor, PollFlags::IN)], Some(&time)).unwrap();
    assert!(ready == 1 || limit < Duration::from_secs(20), "nothing woke the waiting thread in {limit:?}");
}

/// Moves all blocks with few in flight. Returns the number of waits.
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

fn forced_writes(volume: &Volume) {
    let batch = volume.batch(&BatchOptions::new(4, BLOCK)).unwrap();
    run(batch, |buffer, block| Request::write(buffer, block * BLOCK as u64).durable(true));
}

#[test]
fn every_engine_announces_completions() {
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
        forced_writes(&volume);
    }
}

#[test]
fn a_disk_in_memory_announces_completions() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BLOCKS * BLOCK as u64)).unwrap();
    reads(&Volume::memory(&disk, &Options::new()).unwrap());
}

#[test]
fn forced_writes_beside_a_page_cache_complete() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    let options = options().write(true).direct(false).cache_bytes(24 * 4096);
    forced_writes(&Volume::open(&path, &options).unwrap());
}

#[test]
fn every_elevator_lets_an_event_loop_go_on() {
    let Some((_directory, path)) = scratch(BLOCKS * BLOCK as u64) else { return };
    for elevator in iopath::ELEVATORS {
        reads(&Volume::open(&path, &options().elevator(elevator.name)).unwrap());
    }
}

#[test]
fn the_descriptor_comes_before_the_first_request() {
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
