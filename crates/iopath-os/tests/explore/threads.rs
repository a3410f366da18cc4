//! The threads engine. The caller executes some jobs, and the threads of the engine execute the others. Tested alone,
//! with a wait by its watch and by a notifier, and under a page cache.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{BlockDevice, Extent, Io, Limits, Op, QueueConfig, Tag};
use iopath_os::sync::{Exploration, pick};
use iopath_os::{Notifier, RealDevice, Threads, ThreadsConfig, now};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::buffered::{buffered_with, on_threads, read};
use crate::device::segment;

const PAGE: usize = 4096;

/// A file in memory. All bytes of a page are its number.
fn file(pages: u8) -> Arc<File> {
    let file = File::from(memfd_create("explored", MemfdFlags::CLOEXEC).unwrap());
    for page in 0..pages {
        file.write_all_at(&[page; PAGE], u64::from(page) * PAGE as u64).unwrap();
    }
    Arc::new(file)
}

/// The engine on such a file. Its first I/Os decide whether it treats the file as fast.
pub(crate) fn engine(pages: u8) -> Threads {
    let request_bytes_max = [PAGE as u64, 1 << 20][pick(2) as usize];
    let capacity = u64::from(pages) * PAGE as u64 / 512;
    let limits = Limits { segments_max: 16, request_bytes_max, ..Limits::with_capacity(capacity) };
    let config = ThreadsConfig { depth: 1 << pick(4), threads_max: 2 };
    Threads::new(file(pages), &limits, &config).unwrap()
}

/// Readahead with small windows, or no readahead.
pub(crate) fn readahead() -> Option<ReadaheadConfig> {
    let page_bytes = PAGE as u32;
    let small = ReadaheadConfig {
        page_bytes,
        request_bytes: 8192,
        budget_bytes: 16384,
        streams_max: 4,
        ..ReadaheadConfig::default()
    };
    (pick(2) == 0).then_some(small)
}

/// How a test waits for a device.
enum Way {
    Device,
    Watch,
    Notifier(Notifier),
}

/// Reads some pages at a time and waits for all of them. Some waits start before the first poll, as the contract
/// allows.
fn read_and_wait(device: &mut impl RealDevice, way: &Way, rounds: u64) {
    let watch = device.watch();
    for _ in 0..rounds {
        let count = (1 + pick(3) as u32).min(device.limits().depth_max);
        let mut memory = vec![vec![0xee; PAGE]; count as usize];
        for (tag, memory) in memory.iter_mut().enumerate() {
            let extent = Extent::from_bytes((tag * PAGE) as u64, PAGE as u64).unwrap();
            let (tag, segments) = (Tag::from_bits(tag as u32), [segment(memory)]);
            device.submit(&Io::new(tag, Op::Read, extent, &segments), now()).unwrap();
        }
        device.commit(now());
        let (mut over, mut polls) = (0, pick(2) == 0);
        loop {
            while polls && let Some(done) = device.poll_completion(now()) {
                done.result.unwrap();
                over += 1;
            }
            if over == count {
                break;
            }
            match way {
                Way::Device => device.commit_and_wait(1, None).unwrap(),
                Way::Watch => watch.wait(None).unwrap(),
                Way::Notifier(notifier) => drop(notifier.wait(None).unwrap()),
            }
            polls = true;
        }
        for (page, bytes) in memory.iter().enumerate() {
            assert!(bytes.iter().all(|byte| *byte == page as u8), "page {page}");
        }
    }
}

#[test]
fn waits_for_an_engine_end() {
    Exploration::new("waits_for_an_engine_end").within(Duration::ZERO).run(|| {
        read_and_wait(&mut engine(4), &Way::Device, 6);
    });
}

#[test]
fn waits_by_the_watch_of_an_engine_end() {
    Exploration::new("waits_by_the_watch_of_an_engine_end").within(Duration::ZERO).run(|| {
        read_and_wait(&mut engine(4), &Way::Watch, 6);
    });
}

#[test]
fn waits_for_an_engine_by_a_notifier_end() {
    Exploration::new("waits_for_an_engine_by_a_notifier_end").within(Duration::ZERO).run(|| {
        let (mut device, notifier) = (engine(4), Notifier::new().unwrap());
        device.set_notifier(&notifier).unwrap();
        read_and_wait(&mut device, &Way::Notifier(notifier), 6);
    });
}

#[test]
fn an_engine_is_dropped_with_requests_in_flight() {
    Exploration::new("an_engine_is_dropped_with_requests_in_flight").within(Duration::ZERO).run(|| {
        let mut memory = [0; PAGE];
        let mut device = engine(4);
        let extent = Extent::from_bytes(0, PAGE as u64).unwrap();
        device.submit(&Io::new(Tag::from_bits(0), Op::Read, extent, &[segment(&mut memory)]), now()).unwrap();
        if pick(2) == 0 {
            device.commit(now());
        }
        drop(device);
    });
}

#[test]
fn a_cache_over_an_engine_ends() {
    Exploration::new("a_cache_over_an_engine_ends").within(Duration::from_millis(600)).run(|| {
        let elevator: ElevatorSpec = ["none", "deadline", "ascend"][pick(3) as usize].parse().unwrap();
        let queue = QueueConfig { elevator, depth: 1 << pick(4), ..QueueConfig::default() };
        let buffered = buffered_with(8, 16, Box::new(engine(16)), readahead(), &queue);
        on_threads(2, move |number| {
            for round in 0..8 {
                let page = 8 * number + if pick(4) == 0 { pick(8) } else { round };
                if pick(3) == 0 {
                    buffered.write_at(&[page as u8; PAGE], page * PAGE as u64).unwrap();
                } else {
                    assert_eq!(read(&buffered, page), page as u8);
                }
                if pick(4) == 0 {
                    buffered.flush().unwrap();
                }
            }
        });
    });
}
