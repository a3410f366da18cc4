//! The buffered path on a disk in memory: write-back without callers, and the requirements of its constructor.

mod end;
mod full_disk;
mod gated;
mod requests;
mod requests_model;
mod resize;
mod rig;
mod slow;
mod starved;

use std::time::{Duration, Instant};

use rig::Device;

use iopath_core::cache::CacheConfig;
use iopath_core::{Extent, IoError, Op, Priority, Stream};
use iopath_os::{
    BufferPool, Buffered, BufferedConfig, Fault, Faults, Faulty, Job, MemoryConfig, MemoryDisk, Runner,
};

fn open(faults: &Faults, prepare: impl FnOnce(&mut Runner<Device>)) -> Buffered {
    // The disk has a write cache: without one, flushes do not reach it.
    let disk = MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 20) };
    let disk = MemoryDisk::new(&disk).unwrap();
    let config = rig::config(1 << 20);
    let expire = Duration::from_millis(10);
    let config = BufferedConfig { cache: CacheConfig { expire, ..config.cache }, ..config };
    rig::open(config, Faulty::new(Box::new(disk.open()), faults), prepare)
}

/// Whether the condition becomes true within some seconds.
fn soon(is_so: impl Fn() -> bool) -> bool {
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        if is_so() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    false
}

#[test]
fn old_pages_are_written_back_without_a_caller() {
    let buffered = open(&Faults::new(1), |_| ());
    for round in 0..2 {
        buffered.write_at(&[1; 100], 5000 * round).unwrap();
        assert!(soon(|| buffered.stats().cache.dirty == 0), "round {round}");
    }
}

#[test]
fn pages_that_a_failed_flush_makes_dirty_are_written_back_without_a_caller() {
    let faults = Faults::new(2);
    let buffered = open(&faults, |_| ());
    buffered.write_at(&[1; 4096], 0).unwrap();
    buffered.write_back().unwrap();
    // Enough time for the flusher to see that all pages are clean.
    std::thread::sleep(Duration::from_millis(600));
    faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    buffered.flush().unwrap_err();
    let written = buffered.stats().cache.pages_written;
    assert!(soon(|| buffered.stats().cache.dirty == 0));
    assert_eq!(buffered.stats().cache.pages_written, written + 1);
}

#[test]
#[should_panic(expected = "already has 1 jobs in flight")]
fn a_runner_with_jobs_is_refused() {
    open(&Faults::new(3), |runner| {
        let buffer = BufferPool::new(1, 4096).unwrap().take();
        let extent = Extent::from_bytes(0, 4096).unwrap();
        let (stream, priority) = (Stream(0), Priority::default());
        runner.queue(Job { op: Op::Read, extent, buffer, fua: false, stream, priority, token: 0 }).unwrap();
    });
}
