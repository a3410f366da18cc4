//! Threads on one page cache: readers, borrowers, writers, flushers, direct I/O and the flusher thread, over devices
//! that complete at once or later.

use std::sync::Arc;
use std::time::Duration;

use iopath_core::cache::CacheConfig;
use iopath_core::elevator::ElevatorSpec;
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{Op, QueueConfig};
use iopath_os::sync::{Condvar, Exploration, Mutex, elapsed, is_timed, pick, thread};
use iopath_os::{Buffered, BufferedConfig, BufferedError, NoMemory, RealDevice, Runner};

use crate::device::{Delayed, Failures, disk_of, limits_of};
use crate::hold::{HELD_FOR, HOLD};

const PAGE: u64 = 4096;

/// The sleeps of a thread that waits for a frame that a reader copies from: such a reader wakes no other thread at its
/// end.
const CHECKS: Duration = Duration::from_millis(2);

/// A failed write is retried after `expire`, and a writer fails after a second.
const UNWRITABLE: Duration = Duration::from_secs(4);

type Device = dyn RealDevice + Send;

/// A cache of `frames` pages over a device of `pages` pages. All bytes of a page are its number.
pub(crate) fn buffered(frames: u32, pages: u64, device: Box<Device>) -> Arc<Buffered> {
    buffered_with(frames, pages, device, None, &QueueConfig::default())
}

/// Does the same as [`buffered`], with an elevator and readahead.
pub(crate) fn buffered_with(
    frames: u32,
    pages: u64,
    device: Box<Device>,
    readahead: Option<ReadaheadConfig>,
    queue: &QueueConfig,
) -> Arc<Buffered> {
    let config = BufferedConfig {
        cache: CacheConfig { frames, expire: Duration::from_millis(10), ..CacheConfig::default() },
        readahead,
        ..BufferedConfig::of_bytes(pages * PAGE)
    };
    let opened: Result<_, NoMemory> = Buffered::new(config, |_| Ok(Runner::new(device, queue)));
    Arc::new(opened.unwrap())
}

fn delayed(frames: u32, pages: u64) -> Arc<Buffered> {
    buffered(frames, pages, Box::new(Delayed::new(&disk_of(pages * PAGE), &Failures::default())))
}

/// A device that completes later or a device that completes at once.
fn delayed_or_not(frames: u32, pages: u64) -> Arc<Buffered> {
    let disk = disk_of(pages * PAGE);
    let device: Box<Device> = if pick(2) == 0 {
        Box::new(disk.open_with(limits_of(&disk)))
    } else {
        Box::new(Delayed::new(&disk, &Failures::default()))
    };
    buffered(frames, pages, device)
}

/// Runs `act` on `count` threads at once, each with its number.
pub(crate) fn on_threads(count: u64, act: impl Fn(u64) + Send + Sync + 'static) {
    let act = Arc::new(act);
    let threads: Vec<_> = (0..count)
        .map(|number| {
            let act = Arc::clone(&act);
            thread::Builder::new().name(format!("actor-{number}")).spawn(move || act(number)).unwrap()
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Reads a page, checks that all its bytes are equal, and returns that byte.
pub(crate) fn read(buffered: &Buffered, page: u64) -> u8 {
    let mut bytes = [0xee; PAGE as usize];
    assert_eq!(buffered.read_at(&mut bytes, page * PAGE).unwrap(), bytes.len());
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "page {page} is torn");
    bytes[0]
}

#[test]
fn readers_end() {
    Exploration::new("readers_end").within(CHECKS).run(|| {
        let buffered = delayed_or_not(3, 6);
        on_threads(3, move |_| {
            for _ in 0..4 {
                let page = pick(6);
                assert_eq!(read(&buffered, page), page as u8);
            }
        });
    });
}

/// A cache whose queue holds each request back.
pub(crate) fn held_back(device: Delayed) -> Arc<Buffered> {
    let queue = QueueConfig { elevator: ElevatorSpec::new(HOLD), ..QueueConfig::default() };
    buffered_with(8, 8, Box::new(device), None, &queue)
}

#[test]
fn reads_that_an_elevator_holds_back_go_in_time() {
    const READS: u64 = 2;
    let exploration = Exploration::new("reads_that_an_elevator_holds_back_go_in_time");
    exploration.within(HELD_FOR * READS as u32).run(|| {
        let buffered = held_back(Delayed::new(&disk_of(8 * PAGE), &Failures::default()));
        on_threads(3, move |number| {
            for round in 0..READS {
                // Two threads read the same pages.
                let page = number / 2 * READS + round;
                assert_eq!(read(&buffered, page), page as u8);
            }
        });
    });
}

/// The first read is at the device when the second is held back, and its thread waits without a time limit.
#[test]
fn a_read_that_is_held_back_beside_a_poller_goes_in_time() {
    const LATER: Duration = Duration::from_millis(2);
    const TAKES: Duration = Duration::from_millis(4);
    let exploration = Exploration::new("a_read_that_is_held_back_beside_a_poller_goes_in_time");
    exploration.within(LATER + HELD_FOR + TAKES).run(|| {
        let buffered = held_back(Delayed::slow(&disk_of(8 * PAGE), TAKES));
        on_threads(2, move |page| {
            thread::sleep(LATER * page as u32);
            assert_eq!(read(&buffered, page), page as u8);
        });
    });
}

#[test]
fn borrowers_that_starve_get_a_frame() {
    const HELD: Duration = Duration::from_millis(1);
    Exploration::new("borrowers_that_starve_get_a_frame").run(|| {
        let buffered = delayed_or_not(2, 4);
        on_threads(3, move |_| {
            for _ in 0..3 {
                let page = pick(4);
                let borrowed = buffered.borrow(page * PAGE, PAGE as usize).unwrap();
                // Frames become free only when a borrower ends.
                let is_late = is_timed() && !elapsed().as_nanos().is_multiple_of(HELD.as_nanos());
                assert!(!is_late, "a timed sleep hid a lost wake-up: {:?}", elapsed());
                if pick(2) == 0 {
                    thread::sleep(HELD);
                }
                assert_eq!(borrowed.as_slice().unwrap()[0], page as u8);
            }
        });
    });
}

/// A borrower looks a page up and pins its frame: the page may have moved to another frame before the pin.
#[test]
fn a_pin_that_misses_its_page_frees_the_frame_for_the_starved() {
    const HELD: Duration = Duration::from_millis(1);
    Exploration::new("a_pin_that_misses_its_page_frees_the_frame_for_the_starved").run(|| {
        let disk = disk_of(4 * PAGE);
        let buffered = buffered(2, 4, Box::new(disk.open()));
        (0..2).for_each(|page| drop(buffered.borrow(page * PAGE, 1).unwrap()));
        on_threads(3, move |number| {
            // The second thread moves page 0 to the other frame. The third needs a frame while both are pinned.
            let pages: &[u64] = [&[0][..], &[2, 0], &[3]][number as usize];
            for page in pages {
                let borrowed = buffered.borrow(page * PAGE, 1).unwrap();
                let is_late = is_timed() && !elapsed().as_nanos().is_multiple_of(HELD.as_nanos());
                assert!(!is_late, "a timed sleep hid a lost wake-up: {:?}", elapsed());
                if *page == 0 {
                    thread::sleep(HELD);
                }
                drop(borrowed);
            }
        });
    });
}

#[test]
fn borrowers_and_readers_end() {
    Exploration::new("borrowers_and_readers_end").within(CHECKS).run(|| {
        let buffered = delayed(2, 6);
        on_threads(3, move |number| {
            for _ in 0..3 {
                let page = pick(6);
                if number == 0 {
                    assert_eq!(read(&buffered, page), page as u8);
                } else {
                    let borrowed = buffered.borrow(page * PAGE, PAGE as usize).unwrap();
                    thread::yield_now();
                    assert_eq!(borrowed.as_slice().unwrap()[0], page as u8);
                }
            }
        });
    });
}

#[test]
fn a_starved_reader_fails_because_all_pages_are_borrowed() {
    // The cache fails the read after 10 s. The rest is a margin.
    let patience = Duration::from_secs(13);
    Exploration::new("a_starved_reader_fails_because_all_pages_are_borrowed").within(patience).run(|| {
        let buffered = delayed_or_not(2, 6);
        let all: Vec<_> = (0..2).map(|page| buffered.borrow(page * PAGE, 1).unwrap()).collect();
        let others = Arc::clone(&buffered);
        on_threads(2, move |number| {
            let error = others.borrow((2 + number) * PAGE, 1).err();
            assert!(matches!(error, Some(BufferedError::AllBorrowed { pages: 2 })), "{error:?}");
        });
        drop(all);
        drop(buffered.borrow(4 * PAGE, 1).unwrap());
    });
}

#[test]
fn a_reader_that_starves_beside_a_poller_fails_because_all_pages_are_borrowed() {
    let patience = Duration::from_secs(13);
    let name = "a_reader_that_starves_beside_a_poller_fails_because_all_pages_are_borrowed";
    Exploration::new(name).within(patience).run(|| {
        let buffered = delayed(2, 6);
        let failed = Arc::new((Mutex::new(0), Condvar::new()));
        let kept = buffered.borrow(0, 1).unwrap();
        let others = Arc::clone(&buffered);
        // One thread gets the last frame and keeps it until the other two have failed.
        on_threads(3, move |number| {
            let (count, changed) = &*failed;
            match others.borrow((1 + number) * PAGE, 1) {
                Ok(_last) => drop(changed.wait_while(count.lock().unwrap(), |failed| *failed < 2).unwrap()),
                Err(BufferedError::AllBorrowed { pages: 2 }) => {
                    *count.lock().unwrap() += 1;
                    changed.notify_all();
                }
                Err(error) => panic!("{error}"),
            }
        });
        drop(kept);
    });
}

#[test]
fn writers_and_flushers_end() {
    Exploration::new("writers_and_flushers_end").within(Duration::from_millis(600)).run(|| {
        let buffered = delayed_or_not(3, 6);
        let others = Arc::clone(&buffered);
        on_threads(3, move |number| {
            for round in 0..2 {
                // Each thread has its own pages, so a read must return its last write.
                let (page, byte) = (2 * number + pick(2), 100 + round as u8);
                let bytes = [byte; PAGE as usize];
                let whole = pick(2) == 0;
                others.write_at(if whole { &bytes } else { &bytes[..100] }, page * PAGE).unwrap();
                if pick(2) == 0 {
                    others.flush().unwrap();
                }
                let mut seen = [0];
                others.read_at(&mut seen, page * PAGE).unwrap();
                assert_eq!(seen, [byte]);
            }
        });
        buffered.flush().unwrap();
        assert_eq!(buffered.stats().cache.dirty, 0);
    });
}

#[test]
fn writers_whose_write_back_fails_get_an_error() {
    Exploration::new("writers_whose_write_back_fails_get_an_error").within(UNWRITABLE).run(|| {
        let failures = Failures::default();
        let buffered = buffered(3, 12, Box::new(Delayed::new(&disk_of(12 * PAGE), &failures)));
        failures.fail_writes(u64::MAX);
        let others = Arc::clone(&buffered);
        on_threads(3, move |number| {
            let error = (0..4)
                .find_map(|page| others.write_at(&[1; PAGE as usize], (4 * number + page) * PAGE).err());
            let is_expected = |error: &BufferedError| {
                matches!(error, BufferedError::Unwritable { .. } | BufferedError::Io(_))
            };
            assert!(error.as_ref().is_some_and(is_expected), "{error:?}");
        });
        failures.fail_writes(0);
        while buffered.flush().is_err() {}
        assert_eq!(buffered.stats().cache.dirty, 0);
    });
}

#[test]
fn readers_starve_beside_failing_write_back_and_end() {
    Exploration::new("readers_starve_beside_failing_write_back_and_end").within(UNWRITABLE).run(|| {
        let failures = Failures::default();
        let buffered = buffered(3, 8, Box::new(Delayed::new(&disk_of(8 * PAGE), &failures)));
        failures.fail_writes(1 + pick(6));
        on_threads(3, move |number| {
            for round in 0..3 {
                let page = pick(8);
                if number == 0 {
                    let _ = buffered.write_at(&[round; PAGE as usize], page * PAGE);
                } else if pick(2) == 0 {
                    let _ = buffered.borrow(page * PAGE, 1);
                } else {
                    let _ = buffered.flush();
                }
            }
        });
    });
}

#[test]
fn direct_io_beside_the_cache_ends() {
    Exploration::new("direct_io_beside_the_cache_ends").within(Duration::from_millis(600)).run(|| {
        let buffered = delayed_or_not(3, 4);
        on_threads(3, move |number| {
            for _ in 0..2 {
                let page = pick(4);
                match number {
                    0 => buffered.write_at(&[9; PAGE as usize], page * PAGE).unwrap(),
                    1 => {
                        let op = if pick(2) == 0 { Op::Read } else { Op::Write };
                        let guard = buffered.begin_direct(op, page * PAGE, PAGE).unwrap();
                        thread::yield_now();
                        drop(guard);
                    }
                    _ => {
                        read(&buffered, page);
                    }
                }
            }
        });
    });
}

#[test]
fn a_cache_is_dropped_while_the_flusher_works() {
    Exploration::new("a_cache_is_dropped_while_the_flusher_works").within(Duration::from_secs(2)).run(|| {
        let failures = Failures::default();
        let disk = disk_of(4 * PAGE);
        let buffered = buffered(3, 4, Box::new(Delayed::new(&disk, &failures)));
        failures.fail_writes(pick(3));
        for page in 0..2 {
            buffered.write_at(&[7; 100], page * PAGE).unwrap();
        }
        if pick(2) == 0 {
            thread::sleep(Duration::from_millis(pick(600)));
        }
        drop(buffered);
    });
}
