//! Requests in flight from one owner: hits, a device that does not answer, errors, abandoned requests, and the
//! notifier.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use iopath_core::cache::CacheConfig;
use iopath_core::{Extent, IoError, Op, QueueConfig};
use iopath_os::{
    BufferPool, Buffered, BufferedConfig, BufferedError, CacheQueue, CacheRequest, Completed, Fault, Faults,
    Faulty, MemoryConfig, MemoryDisk, Notifier, PoolBuf,
};

use super::gated::{Gate, Gated};
use super::rig;

const PAGE: u64 = 4096;
const BYTES: u64 = 1 << 20;

pub(crate) fn request(op: Op, offset: u64, bytes: u64, buffer: Option<PoolBuf>, token: u64) -> CacheRequest {
    CacheRequest { op, offset, bytes, buffer, is_durable: false, unit_bytes: 1, token }
}

fn read(pool: &BufferPool, offset: u64, bytes: u64) -> CacheRequest {
    request(Op::Read, offset, bytes, Some(pool.take().unwrap()), offset)
}

fn write(pool: &BufferPool, offset: u64, bytes: u64, value: u8) -> CacheRequest {
    let mut buffer = pool.take().unwrap();
    buffer[..bytes as usize].fill(value);
    request(Op::Write, offset, bytes, Some(buffer), offset)
}

/// A disk, each page full of its number.
fn disk() -> MemoryDisk {
    let config = MemoryConfig { cache_bytes: BYTES, ..MemoryConfig::of_bytes(BYTES) };
    let disk = MemoryDisk::new(&config).unwrap();
    let buffered = rig::open(rig::config(BYTES), disk.open(), |_| ());
    (0..BYTES / PAGE).for_each(|page| buffered.write_at(&[page as u8; PAGE as usize], page * PAGE).unwrap());
    buffered.flush().unwrap();
    disk
}

fn gated(frames: u32) -> (Arc<Buffered>, Gate) {
    let gate = Gate::default();
    let config = rig::config(BYTES);
    let config = BufferedConfig { cache: CacheConfig { frames, ..config.cache }, ..config };
    (Arc::new(rig::open(config, Gated::new(disk().open(), &gate), |_| ())), gate)
}

fn pool() -> BufferPool {
    BufferPool::new(16, 16 * PAGE as usize).unwrap()
}

fn expect(done: &Completed, bytes: usize, value: u8) {
    assert_eq!(*done.result.as_ref().unwrap(), bytes, "{done:?}");
    assert!(done.buffer.as_ref().unwrap()[..bytes].iter().all(|byte| *byte == value), "not {value}");
}

/// Runs `act` in a thread; it ends soon.
fn ends(act: impl FnOnce() + Send + 'static) {
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || {
        act();
        let _ = ended.send(());
    });
    assert!(ends.recv_timeout(Duration::from_secs(10)).is_ok(), "a call blocks");
}

#[test]
fn hits_complete_at_once_without_io() {
    let buffered = rig::open(rig::config(BYTES), disk().open(), |_| ());
    buffered.read_at(&mut [0; 2 * PAGE as usize], 5 * PAGE).unwrap();
    let reads = buffered.queue_stats().dispatched;
    let (pool, mut queue) = (pool(), buffered.request_queue(4, 32));
    queue.queue(read(&pool, 5 * PAGE + 100, 1000)).unwrap();
    queue.queue(read(&pool, 6 * PAGE - 1, 2)).unwrap();
    expect(&queue.next_completed().unwrap(), 1000, 5);
    let done = queue.next_completed().unwrap();
    assert_eq!(done.buffer.unwrap()[..2], [5, 6]);
    assert_eq!(buffered.queue_stats().dispatched, reads);
    // The end of the volume cuts a read off, here to nothing.
    queue.queue(read(&pool, BYTES, 10)).unwrap();
    assert_eq!(queue.next_completed().unwrap().result.unwrap(), 0);
}

#[test]
fn misses_are_submitted_together_and_complete_with_their_pages() {
    let (buffered, gate) = gated(64);
    gate.close();
    let (pool, mut queue) = (pool(), buffered.request_queue(8, 32));
    for page in 0..4 {
        queue.queue(read(&pool, page * PAGE, PAGE)).unwrap();
    }
    queue.poll();
    assert_eq!(buffered.queue_stats().bios, 0, "held back for the submission");
    queue.submit();
    queue.poll();
    assert!(queue.next_completed().is_none());
    assert_eq!((queue.in_flight(), buffered.queue_stats().bios), (4, 1), "one bio for adjacent pages");
    gate.open();
    queue.wait(4).unwrap();
    for page in 0..4 {
        expect(&queue.next_completed().unwrap(), PAGE as usize, page);
    }
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_device_that_does_not_answer_blocks_no_call_but_wait() {
    let (buffered, gate) = gated(4);
    gate.close();
    let opens = gate.clone();
    ends(move || {
        let (pool, mut queue) = (pool(), buffered.request_queue(16, 0));
        // More than the cache holds: reads, whole and partial writes, a flush, a discard.
        for page in 0..6 {
            queue.queue(read(&pool, 3 * page * PAGE, 2 * PAGE)).unwrap();
        }
        queue.queue(write(&pool, 100 * PAGE, 5 * PAGE, 1)).unwrap();
        queue.queue(write(&pool, 120 * PAGE + 1, 10, 2)).unwrap();
        queue.queue(request(Op::Flush, 0, 0, None, 7)).unwrap();
        queue.queue(request(Op::Discard, 140 * PAGE + 5, 3 * PAGE, None, 8)).unwrap();
        queue.poll();
        assert!(queue.next_completed().is_none() && queue.in_flight() == 10);
        opens.open();
        queue.wait(10).unwrap();
        let mut count = 0;
        while let Some(done) = queue.next_completed() {
            assert!(done.result.is_ok(), "{done:?}");
            count += 1;
        }
        assert_eq!(count, 10);
        let mut bytes = [0; 3];
        buffered.read_at(&mut bytes, 120 * PAGE).unwrap();
        assert_eq!(bytes, [120, 2, 2]);
    });
}

#[test]
fn overlapping_requests_keep_their_order() {
    let (buffered, gate) = gated(16);
    gate.close();
    let (pool, mut queue) = (pool(), buffered.request_queue(16, 0));
    // The write waits for its page, the read for the write, the second write for the read.
    queue.queue(write(&pool, 9 * PAGE + 10, 100, 1)).unwrap();
    queue.queue(read(&pool, 9 * PAGE + 20, 10)).unwrap();
    queue.queue(write(&pool, 9 * PAGE + 5, 100, 2)).unwrap();
    queue.queue(read(&pool, 9 * PAGE + 5, 50)).unwrap();
    // In the same page, and in the way of none.
    queue.queue(read(&pool, 9 * PAGE, 5)).unwrap();
    gate.open();
    queue.wait(5).unwrap();
    let mut done: Vec<Completed> = std::iter::from_fn(|| queue.next_completed()).collect();
    done.retain(|done| done.op == Op::Read);
    done.sort_by_key(|done| std::cmp::Reverse(done.bytes));
    expect(&done[0], 50, 2);
    expect(&done[1], 10, 1);
    expect(&done[2], 5, 9);
}

#[test]
fn an_error_reaches_only_its_request() {
    let faults = Faults::new(1);
    let bad = Extent::from_bytes(3 * PAGE, PAGE).unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Read).within(bad));
    let buffered = rig::open(rig::config(BYTES), Faulty::new(Box::new(disk().open()), &faults), |_| ());
    let (pool, mut queue) = (pool(), buffered.request_queue(8, 32));
    for page in 0..6 {
        queue.queue(read(&pool, page * PAGE, PAGE)).unwrap();
    }
    queue.queue(write(&pool, 3 * PAGE + 1, 1, 1)).unwrap();
    queue.wait(7).unwrap();
    while let Some(done) = queue.next_completed() {
        if done.offset / PAGE == 3 {
            let error = done.result.unwrap_err();
            assert!(matches!(error, BufferedError::Io(IoError::Media)), "{error}");
        } else {
            expect(&done, PAGE as usize, (done.offset / PAGE) as u8);
        }
    }
}

#[test]
fn requests_of_an_owner_that_stays_away_hold_no_page() {
    let (buffered, gate) = gated(4);
    gate.close();
    let (pool, mut queue) = (pool(), buffered.request_queue(8, 0));
    for page in 0..4 {
        queue.queue(read(&pool, page * PAGE, PAGE)).unwrap();
    }
    queue.queue(write(&pool, 3 * PAGE + 1, 1, 77)).unwrap();
    gate.open();
    // Each needs every frame. With pins they would fail after 10 s.
    for round in 0..3 {
        for page in 10..18 {
            let borrowed = buffered.borrow(page * PAGE, PAGE as usize).unwrap();
            assert_eq!(borrowed.as_slice().unwrap()[round], page as u8);
        }
        buffered.flush().unwrap();
    }
    // Their pages were evicted meanwhile: they are read again.
    queue.wait(5).unwrap();
    let mut values: Vec<u8> =
        std::iter::from_fn(|| queue.next_completed()).map(|done| done.buffer.unwrap()[0]).collect();
    values.sort_unstable();
    assert_eq!(values, [0, 1, 2, 3, 77]);
}

#[test]
fn a_dropped_queue_executes_writes_and_abandons_reads() {
    let (buffered, gate) = gated(8);
    gate.close();
    let (pool, mut queue) = (pool(), buffered.request_queue(16, 2));
    for page in 0..12 {
        queue.queue(read(&pool, page * PAGE, PAGE)).unwrap();
    }
    assert!(pool.take().is_some());
    drop(queue);
    let free: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
    assert_eq!(free.len(), 16, "a buffer is in use after the drop");
    drop(free);
    let mut queue = buffered.request_queue(16, 2);
    // One write waits for its page, and another for that one.
    queue.queue(write(&pool, 40 * PAGE + 1, 10, 1)).unwrap();
    queue.queue(write(&pool, 40 * PAGE + 5, 10, 2)).unwrap();
    queue.queue(read(&pool, 40 * PAGE, 10)).unwrap();
    let opener = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(20));
        gate.open();
    });
    drop(queue);
    let mut bytes = [0; 16];
    buffered.read_at(&mut bytes, 40 * PAGE).unwrap();
    assert_eq!(bytes, [40, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 40]);
    opener.join().unwrap();
    // Outcomes of abandoned requests arrive in an empty place.
    buffered.read_at(&mut vec![0; 12 * PAGE as usize], 0).unwrap();
    buffered.flush().unwrap();
}

#[test]
fn a_reader_of_borrowed_pages_fails_without_a_wait_of_the_caller() {
    let (buffered, _gate) = gated(4);
    let all: Vec<_> = (0..4).map(|page| buffered.borrow(page * PAGE, 1).unwrap()).collect();
    let (pool, mut queue) = (pool(), buffered.request_queue(4, 0));
    queue.queue(read(&pool, 9 * PAGE, 1)).unwrap();
    assert!(queue.next_timeout().is_some());
    let end = Instant::now() + Duration::from_secs(14);
    let done = loop {
        queue.poll();
        if let Some(done) = queue.next_completed() {
            break done;
        }
        assert!(Instant::now() < end, "the read never ends");
        std::thread::sleep(queue.next_timeout().unwrap());
    };
    assert!(matches!(done.result, Err(BufferedError::AllBorrowed { pages: 4 })), "{done:?}");
    drop(all);
    queue.queue(read(&pool, 9 * PAGE, 1)).unwrap();
    queue.wait(1).unwrap();
    expect(&queue.next_completed().unwrap(), 1, 9);
}

/// The drop finds the read starved and takes the pins of the other queue, which frees a frame for the read.
#[test]
fn a_starved_read_is_abandoned_although_pages_of_another_queue_become_free() {
    let (buffered, gate) = gated(4);
    gate.close();
    let (pool, mut away, mut queue) = (pool(), buffered.request_queue(4, 0), buffered.request_queue(4, 0));
    for page in 0..4 {
        away.queue(read(&pool, page * PAGE, PAGE)).unwrap();
    }
    queue.queue(read(&pool, 9 * PAGE, 1)).unwrap();
    assert!(queue.next_timeout().is_some(), "the read does not lack a frame");
    gate.open();
    // Polls the device: the four pages are pinned for their requests.
    buffered.flush().unwrap();
    std::thread::sleep(Duration::from_millis(10));
    drop(queue);
    away.wait(4).unwrap();
    for _ in 0..4 {
        let done = away.next_completed().unwrap();
        expect(&done, PAGE as usize, (done.offset / PAGE) as u8);
    }
}

#[test]
fn a_page_is_read_after_discards_have_filled_the_queue_of_the_device() {
    let (buffered, gate) = gated(64);
    gate.close();
    let discards = QueueConfig::default().bios_max;
    let (pool, mut queue) = (pool(), buffered.request_queue(discards + 1, 0));
    for block in 0..u64::from(discards) {
        queue.queue(request(Op::Discard, BYTES / 2 + 512 * block, 512, None, 0)).unwrap();
    }
    queue.queue(read(&pool, 5 * PAGE, PAGE)).unwrap();
    gate.open();
    ends(move || {
        queue.wait(discards + 1).unwrap();
        let mut done = std::iter::from_fn(|| queue.next_completed());
        expect(&done.find(|done| done.op == Op::Read).unwrap(), PAGE as usize, 5);
        assert!(done.all(|done| done.result.is_ok()));
    });
}

#[test]
fn a_range_past_the_highest_offset_is_an_error() {
    let buffered = rig::open(rig::config(BYTES), disk().open(), |_| ());
    let (pool, mut queue) = (pool(), buffered.request_queue(4, 0));
    queue.queue(write(&pool, u64::MAX - 5, 10, 1)).unwrap();
    queue.queue(request(Op::Discard, u64::MAX - 511, 4096, None, 0)).unwrap();
    queue.queue(request(Op::WriteZeroes, 10, u64::MAX - 5, None, 0)).unwrap();
    queue.wait(3).unwrap();
    for _ in 0..3 {
        let error = queue.next_completed().unwrap().result.unwrap_err();
        assert!(matches!(error, BufferedError::Io(IoError::EndOfDevice)), "{error}");
    }
}

/// Whether the owner is notified within `limit`.
fn is_notified(notifier: &Notifier, limit: Duration) -> bool {
    use std::os::fd::AsFd;
    let descriptor = notifier.descriptor().unwrap();
    let mut descriptors =
        [rustix::event::PollFd::from_borrowed_fd(descriptor.as_fd(), rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut descriptors, Some(&limit.try_into().unwrap())).unwrap() == 1
}

fn armed(queue: &mut CacheQueue) -> Notifier {
    let notifier = Notifier::new().unwrap();
    notifier.arm();
    queue.set_notifier(&notifier).unwrap();
    notifier
}

#[test]
fn the_owner_is_notified_when_a_request_completes_and_not_before() {
    let (buffered, gate) = gated(16);
    let (pool, mut queue) = (pool(), buffered.request_queue(8, 0));
    let notifier = armed(&mut queue);
    let (soon, now) = (Duration::from_secs(10), Duration::ZERO);
    assert!(!is_notified(&notifier, now));
    // A hit at once, and an idle queue not.
    buffered.read_at(&mut [0; 1], 5 * PAGE).unwrap();
    queue.queue(read(&pool, 5 * PAGE, 10)).unwrap();
    assert!(is_notified(&notifier, now));
    queue.poll();
    expect(&queue.next_completed().unwrap(), 10, 5);
    assert!(!is_notified(&notifier, now));
    // A miss when its page is there, although no thread of the program waits in the device.
    for round in 0..3 {
        gate.close();
        queue.queue(read(&pool, (6 + round) * PAGE, 10)).unwrap();
        assert!(!is_notified(&notifier, Duration::from_millis(20)), "round {round}");
        gate.open();
        assert!(is_notified(&notifier, soon), "round {round}");
        queue.poll();
        expect(&queue.next_completed().unwrap(), 10, 6 + round as u8);
        queue.poll();
        assert!(!is_notified(&notifier, now));
    }
    // A write at once, a flush when it is over.
    queue.queue(write(&pool, 50 * PAGE, PAGE, 3)).unwrap();
    assert!(is_notified(&notifier, now));
    queue.poll();
    assert!(queue.next_completed().unwrap().result.is_ok());
    gate.close();
    queue.queue(request(Op::Flush, 0, 0, None, 0)).unwrap();
    assert!(!is_notified(&notifier, Duration::from_millis(20)));
    gate.open();
    let end = Instant::now() + soon;
    while queue.next_completed().is_none() {
        assert!(is_notified(&notifier, soon) && Instant::now() < end);
        queue.poll();
    }
    // The cache closes although its poller waits.
    gate.close();
    queue.queue(read(&pool, 60 * PAGE, 10)).unwrap();
    drop(queue);
    gate.open();
    ends(move || drop(buffered));
}

#[test]
fn a_discard_and_zeroes_of_any_range_are_executed_in_order() {
    let buffered = rig::open(rig::config(BYTES), disk().open(), |_| ());
    let (pool, mut queue) = (pool(), buffered.request_queue(8, 0));
    queue.queue(write(&pool, 10 * PAGE, 4 * PAGE, 9)).unwrap();
    queue.queue(request(Op::WriteZeroes, 10 * PAGE + 100, 2 * PAGE, None, 1)).unwrap();
    queue.queue(write(&pool, 11 * PAGE, 10, 8)).unwrap();
    queue.queue(request(Op::WriteZeroes, 13 * PAGE + 7, 3, None, 1)).unwrap();
    queue.wait(4).unwrap();
    while let Some(done) = queue.next_completed() {
        assert!(done.result.is_ok(), "{done:?}");
    }
    let mut expected = vec![9; 4 * PAGE as usize];
    expected[100..100 + 2 * PAGE as usize].fill(0);
    expected[PAGE as usize..PAGE as usize + 10].fill(8);
    expected[3 * PAGE as usize + 7..3 * PAGE as usize + 10].fill(0);
    let mut bytes = vec![0; expected.len()];
    buffered.read_at(&mut bytes, 10 * PAGE).unwrap();
    assert_eq!(bytes, expected);
}

#[test]
fn throttled_writes_wait_and_do_not_block_the_caller() {
    let faults = Faults::new(3);
    faults.shuffle(true);
    let config = rig::config(BYTES);
    let cache = CacheConfig { frames: 16, background_percent: 10, limit_percent: 20, ..config.cache };
    let buffered =
        rig::open(BufferedConfig { cache, ..config }, Faulty::new(Box::new(disk().open()), &faults), |_| ());
    let (pool, mut queue) = (pool(), buffered.request_queue(16, 0));
    let (mut longest, mut was_paused) = (Duration::ZERO, false);
    let mut next = 0;
    while next < 200 {
        while next < 200
            && let Some(mut buffer) = pool.take()
        {
            buffer[..PAGE as usize].fill(next as u8);
            let begun = Instant::now();
            queue.queue(request(Op::Write, next * PAGE, PAGE, Some(buffer), 0)).unwrap();
            longest = longest.max(begun.elapsed());
            was_paused |= queue.next_timeout().is_some();
            next += 1;
        }
        queue.wait(1).unwrap();
        while let Some(done) = queue.next_completed() {
            assert!(done.result.is_ok(), "{done:?}");
        }
    }
    assert!(was_paused, "the device kept up");
    assert!(longest < Duration::from_secs(60), "a call waits for the device: {longest:?}");
    drop(queue);
    let mut bytes = vec![0; 200 * PAGE as usize];
    buffered.read_at(&mut bytes, 0).unwrap();
    assert!(bytes.chunks(PAGE as usize).enumerate().all(|(page, bytes)| bytes[0] == page as u8));
}
