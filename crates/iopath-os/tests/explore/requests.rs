//! Queues of requests beside threads that block, over devices that complete at once or later: no wake-up is lost,
//! whether the owner waits or an event loop waits for its notifier.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iopath_core::Op;
use iopath_os::sync::{Exploration, pick, thread};
use iopath_os::{BufferPool, Buffered, CacheQueue, CacheRequest, Notifier};

use crate::buffered::{buffered, held_back, on_threads, read};
use crate::device::{Delayed, Failures, disk_of, limits_of};
use crate::hold::HELD_FOR;

const PAGE: u64 = 4096;

fn delayed_or_not(frames: u32, pages: u64) -> Arc<Buffered> {
    let disk = disk_of(pages * PAGE);
    if pick(2) == 0 {
        buffered(frames, pages, Box::new(disk.open_with(limits_of(&disk))))
    } else {
        buffered(frames, pages, Box::new(Delayed::new(&disk, &Failures::default())))
    }
}

fn read_of(pool: &BufferPool, page: u64) -> CacheRequest {
    let buffer = Some(pool.take().unwrap());
    CacheRequest {
        op: Op::Read,
        offset: page * PAGE,
        bytes: PAGE,
        buffer,
        is_durable: false,
        unit_bytes: 1,
        token: page,
    }
}

/// Part of a page, so that the page is read; or all of it.
fn write_of(pool: &BufferPool, page: u64, value: u8, is_durable: bool) -> CacheRequest {
    let mut request = read_of(pool, page);
    request.op = Op::Write;
    request.bytes = if pick(2) == 0 { PAGE } else { 100 };
    request.is_durable = is_durable;
    request.buffer.as_mut().unwrap().fill(value);
    request
}

/// A queue for `depth` requests, and a buffer for each.
fn queue_of(buffered: &Buffered, depth: u32) -> (BufferPool, CacheQueue) {
    (BufferPool::new(depth, PAGE as usize).unwrap(), buffered.request_queue(depth, 1))
}

/// Queues four reads of random pages.
fn queue_reads(queue: &mut CacheQueue, pool: &BufferPool) {
    for _ in 0..4 {
        queue.queue(read_of(pool, pick(6))).unwrap();
    }
}

/// Blocking reads of three random pages.
fn read_some(buffered: &Buffered) {
    for _ in 0..3 {
        let page = pick(6);
        assert_eq!(read(buffered, page), page as u8);
    }
}

/// Whether all have completed. Reads are checked.
fn take_completed(queue: &mut CacheQueue) -> bool {
    while let Some(done) = queue.next_completed() {
        assert!(done.result.is_ok(), "{done:?}");
        if done.op == Op::Read {
            let page = &done.buffer.as_ref().unwrap()[..PAGE as usize];
            assert!(page.iter().all(|byte| u64::from(*byte) == done.token), "page {} is wrong", done.token);
        }
    }
    queue.in_flight() == 0
}

#[test]
fn an_owner_that_waits_beside_readers_ends() {
    let checks = Duration::from_millis(4);
    Exploration::new("an_owner_that_waits_beside_readers_ends").within(checks).run(|| {
        let buffered = delayed_or_not(3, 6);
        on_threads(3, move |number| {
            if number > 0 {
                return read_some(&buffered);
            }
            let (pool, mut queue) = queue_of(&buffered, 4);
            queue_reads(&mut queue, &pool);
            while !take_completed(&mut queue) {
                queue.wait(1 + pick(3) as u32).unwrap();
            }
        });
    });
}

#[test]
fn an_event_loop_beside_readers_is_woken() {
    let checks = Duration::from_millis(10);
    Exploration::new("an_event_loop_beside_readers_is_woken").within(checks).run(|| {
        let buffered = delayed_or_not(3, 6);
        on_threads(2, move |number| {
            if number > 0 {
                return read_some(&buffered);
            }
            let (pool, mut queue) = queue_of(&buffered, 4);
            let notifier = Notifier::new().unwrap();
            notifier.arm();
            queue.set_notifier(&notifier).unwrap();
            queue_reads(&mut queue, &pool);
            queue.submit();
            loop {
                queue.poll();
                if take_completed(&mut queue) {
                    break;
                }
                let _ = notifier.wait(queue.next_timeout()).unwrap();
            }
            drop(queue);
        });
    });
}

/// The thread in the background polls for the first read when the second is held back. No thread sleeps.
#[test]
fn a_read_of_an_event_loop_that_is_held_back_goes_in_time() {
    const LATER: Duration = Duration::from_millis(2);
    const TAKES: Duration = Duration::from_millis(4);
    let exploration = Exploration::new("a_read_of_an_event_loop_that_is_held_back_goes_in_time");
    exploration.within(LATER + HELD_FOR + TAKES).run(|| {
        let buffered = held_back(Delayed::slow(&disk_of(8 * PAGE), TAKES));
        let (pool, mut queue) = queue_of(&buffered, 2);
        let notifier = Notifier::new().unwrap();
        notifier.arm();
        queue.set_notifier(&notifier).unwrap();
        for page in 0..2 {
            thread::sleep(LATER * page as u32);
            queue.queue(read_of(&pool, page)).unwrap();
            queue.submit();
        }
        while !take_completed(&mut queue) {
            let _ = notifier.wait(queue.next_timeout()).unwrap();
            queue.poll();
        }
    });
}

#[test]
fn an_owner_that_waits_beside_a_writer_and_direct_io_ends() {
    let limit = Duration::from_millis(600);
    Exploration::new("an_owner_that_waits_beside_a_writer_and_direct_io_ends").within(limit).run(|| {
        let buffered = delayed_or_not(3, 6);
        on_threads(3, move |number| match number {
            0 => {
                let (pool, mut queue) = queue_of(&buffered, 6);
                for round in 0..2 {
                    queue.queue(write_of(&pool, pick(2), 1, round == 1)).unwrap();
                    queue.queue(read_of(&pool, 4 + pick(2))).unwrap();
                }
                let (op, offset) = (Op::WriteZeroes, pick(2) * PAGE);
                let zeroes = CacheRequest { op, offset, bytes: PAGE, buffer: None, ..read_of(&pool, 0) };
                queue.queue(zeroes).unwrap();
                if pick(2) == 0 {
                    // Its writes are executed.
                    return;
                }
                while !take_completed(&mut queue) {
                    queue.wait(1).unwrap();
                }
            }
            1 => {
                for _ in 0..2 {
                    buffered.write_at(&[9; PAGE as usize], pick(3) * PAGE).unwrap();
                }
                buffered.flush().unwrap();
            }
            _ => {
                for _ in 0..2 {
                    let guard = buffered.begin_direct(Op::Write, pick(3) * PAGE, PAGE).unwrap();
                    thread::yield_now();
                    drop(guard);
                }
            }
        });
    });
}

/// While the end is inside of a page, that page has zeroes past it.
#[test]
fn no_read_beside_a_resize_that_fails_returns_zeroes_past_the_temporary_end() {
    fn check<'a>(mut pieces: impl Iterator<Item = &'a [u8]>) {
        assert!(pieces.all(|bytes| bytes.iter().all(|byte| *byte == 2)), "a byte past the temporary end");
    }
    static BORROWED: AtomicBool = AtomicBool::new(false);
    let limit = Duration::from_millis(4);
    let name = "no_read_beside_a_resize_that_fails_returns_zeroes_past_the_temporary_end";
    Exploration::new(name).within(limit).run(|| {
        // A queue borrows one of 16 frames.
        let buffered = delayed_or_not(16, 3);
        on_threads(3, move |number| match number {
            0 => {
                let resized = buffered.resize(2 * PAGE + 512, || {
                    thread::yield_now();
                    Err(())
                });
                resized.unwrap().unwrap_err();
            }
            1 => {
                for _ in 0..2 {
                    let mut bytes = [0xee; PAGE as usize];
                    let there = buffered.read_at(&mut bytes, 2 * PAGE).unwrap();
                    check([&bytes[..there]].into_iter());
                    check(buffered.borrow(2 * PAGE, PAGE as usize).unwrap().slices());
                }
            }
            _ => {
                let (pool, mut queue) = queue_of(&buffered, 1);
                for _ in 0..2 {
                    if let Some(borrowed) = queue.borrow(2 * PAGE, PAGE as usize) {
                        BORROWED.store(true, Ordering::Relaxed);
                        check(borrowed.slices());
                    }
                    queue.queue(read_of(&pool, 2)).unwrap();
                    while queue.in_flight() > 0 {
                        queue.wait(1).unwrap();
                        while let Some(done) = queue.next_completed() {
                            check([&done.buffer.unwrap()[..done.result.unwrap()]].into_iter());
                        }
                    }
                }
            }
        });
    });
    assert!(BORROWED.load(Ordering::Relaxed), "no schedule has borrowed a page");
}
