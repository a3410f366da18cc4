//! A stripe, which waits for several members by a notifier. The members complete later or at once, or are threads
//! engines. The stripe is tested alone and under a page cache.

use std::sync::Arc;
use std::time::Duration;

use iopath_core::{BlockDevice, Extent, Io, Op, QueueConfig, StripeConfig, Tag};
use iopath_os::sync::atomic::{AtomicU64, Ordering};
use iopath_os::sync::{Exploration, pick, thread};
use iopath_os::{Notifier, RealDevice, Striped, now};

use crate::buffered::{buffered_with, on_threads, read};
use crate::device::{Delayed, Failures, disk_of, limits_of, segment};
use crate::threads::{engine, readahead};

const PAGE: usize = 4096;
const MEMBER_PAGES: u64 = 4;

type Member = Box<dyn RealDevice + Send>;

#[derive(Clone, Copy)]
enum Kind {
    Delayed,
    Memory,
    Engine,
}

fn member(kind: Kind) -> Member {
    let disk = || disk_of(MEMBER_PAGES * PAGE as u64);
    match kind {
        Kind::Delayed => Box::new(Delayed::new(&disk(), &Failures::default())),
        Kind::Memory => {
            let disk = disk();
            Box::new(disk.open_with(limits_of(&disk)))
        }
        Kind::Engine => Box::new(engine(MEMBER_PAGES as u8)),
    }
}

/// A stripe of two members with chunks of one page: page `n` is page `n / 2` of a member.
fn stripe(kinds: [Kind; 2]) -> Striped<Member> {
    let config = StripeConfig { chunk_sectors: PAGE as u64 / 512, ..StripeConfig::default() };
    Striped::new(kinds.map(member).into(), &config).unwrap()
}

/// Reads some pages at a time and waits for the device or its watch. Some waits start before the first poll, as the
/// contract allows.
fn read_all(device: &mut Striped<Member>, by_watch: bool) {
    let watch = device.watch();
    for first in 0..2 * MEMBER_PAGES {
        let pages = 1 + pick((2 * MEMBER_PAGES - first).min(device.limits().request_bytes_max / PAGE as u64));
        let mut memory = vec![0xee; pages as usize * PAGE];
        let extent = Extent::from_bytes(first * PAGE as u64, memory.len() as u64).unwrap();
        let segments = [segment(&mut memory)];
        device.submit(&Io::new(Tag::from_bits(0), Op::Read, extent, &segments), now()).unwrap();
        device.commit(now());
        let mut polls = pick(2) == 0;
        let done = loop {
            if polls && let Some(done) = device.poll_completion(now()) {
                break done;
            }
            if by_watch {
                watch.wait(None).unwrap();
            } else {
                device.commit_and_wait(1, None).unwrap();
            }
            polls = true;
        };
        done.result.unwrap();
        for (page, bytes) in (first..).zip(memory.chunks(PAGE)) {
            assert!(bytes.iter().all(|byte| *byte == (page / 2) as u8), "page {page}");
        }
    }
}

#[test]
fn no_notification_is_lost() {
    Exploration::new("no_notification_is_lost").within(Duration::ZERO).run(|| {
        const NOTIFICATIONS: u64 = 4;
        let (notifier, over) = (Notifier::new().unwrap(), Arc::new(AtomicU64::new(0)));
        let ringers: Vec<_> = (0..2)
            .map(|_| {
                let (notifier, over) = (notifier.clone(), Arc::clone(&over));
                thread::spawn(move || {
                    for _ in 0..NOTIFICATIONS / 2 {
                        over.fetch_add(1, Ordering::SeqCst);
                        notifier.notify();
                    }
                })
            })
            .collect();
        while over.load(Ordering::SeqCst) < NOTIFICATIONS {
            // If the timeout passes before all notifications have arrived, one was lost.
            let timeout = (pick(2) == 0).then_some(Duration::from_millis(1));
            notifier.wait(timeout).unwrap();
        }
        for ringer in ringers {
            ringer.join().unwrap();
        }
    });
}

fn explore(name: &'static str, kinds: [Kind; 2]) {
    Exploration::new(name).within(Duration::ZERO).run(move || {
        read_all(&mut stripe(kinds), pick(2) == 0);
    });
}

#[test]
fn waits_for_a_stripe_of_slow_devices_end() {
    explore("waits_for_a_stripe_of_slow_devices_end", [Kind::Delayed, Kind::Delayed]);
}

#[test]
fn waits_for_a_stripe_of_devices_that_complete_at_once_end() {
    explore("waits_for_a_stripe_of_devices_that_complete_at_once_end", [Kind::Memory, Kind::Memory]);
}

#[test]
fn waits_for_a_stripe_of_a_slow_and_a_fast_device_end() {
    explore("waits_for_a_stripe_of_a_slow_and_a_fast_device_end", [Kind::Delayed, Kind::Memory]);
}

#[test]
fn waits_for_a_stripe_of_engines_end() {
    explore("waits_for_a_stripe_of_engines_end", [Kind::Engine, Kind::Engine]);
}

#[test]
fn a_cache_over_a_stripe_ends() {
    Exploration::new("a_cache_over_a_stripe_ends").within(Duration::from_millis(600)).run(|| {
        let kind = || [Kind::Delayed, Kind::Memory, Kind::Engine][pick(3) as usize];
        let device = Box::new(stripe([kind(), kind()]));
        let buffered = buffered_with(4, 2 * MEMBER_PAGES, device, readahead(), &QueueConfig::default());
        on_threads(2, move |number| {
            for _ in 0..4 {
                let page = 4 * number + pick(4);
                if pick(3) == 0 {
                    buffered.write_at(&[(page / 2) as u8; PAGE], page * PAGE as u64).unwrap();
                } else {
                    assert_eq!(read(&buffered, page), (page / 2) as u8);
                }
                if pick(4) == 0 {
                    buffered.flush().unwrap();
                }
            }
        });
    });
}
