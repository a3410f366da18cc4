//! A disk that is full: writes fail soon, by threads and by requests, reads succeed, and nothing is lost. The times and
//! counts are checked in virtual time: `iopath-core/tests/buffered`.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use iopath_core::cache::CacheConfig;
use iopath_core::{IoError, Op};
use iopath_os::{
    BufferPool, Buffered, BufferedConfig, BufferedError, CacheQueue, Fault, Faults, Faulty, MemoryConfig,
    MemoryDisk, Notifier,
};

use super::requests::request;
use super::rig;

const PAGE: u64 = 4096;
const BYTES: u64 = 4 << 20;

/// Pages that may be dirty in a cache of 64.
const ROOM: u64 = 56;

/// The time after which a test has hung.
const HANG: Duration = Duration::from_secs(60);

fn open(faults: &Faults) -> Arc<Buffered> {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BYTES)).unwrap();
    let config = rig::config(BYTES);
    // Failed pages are retried very late: no writer may depend on it.
    let cache = CacheConfig { expire: Duration::from_secs(100_000), ..config.cache };
    Arc::new(rig::open(
        BufferedConfig { cache, ..config },
        Faulty::new(Box::new(disk.open()), faults),
        |_| (),
    ))
}

fn fill_disk(faults: &Faults) {
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
}

fn page(number: u64) -> [u8; PAGE as usize] {
    [number as u8; PAGE as usize]
}

fn is_no_space<T>(result: &Result<T, BufferedError>) -> bool {
    matches!(result, Err(BufferedError::Unwritable { source: IoError::NoSpace, .. }))
}

/// Runs `act` in a thread. If it hangs, the thread is not joined.
fn ends<T: Send + 'static>(act: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(act()));
    receiver.recv_timeout(HANG).expect("a call hangs")
}

fn check_reads(buffered: &Buffered) {
    let mut bytes = page(0);
    for number in 200..500 {
        buffered.read_at(&mut bytes, number * PAGE).expect("reads have frames");
    }
    for number in 0..ROOM {
        buffered.read_at(&mut bytes, number * PAGE).expect("the page is in the cache");
        assert_eq!(bytes, page(number), "page {number}");
    }
    drop(buffered.begin_direct(Op::Read, 300 * PAGE, PAGE).expect("no dirty page is in the range"));
    drop(buffered.begin_direct(Op::Write, 300 * PAGE, PAGE).expect("no dirty page is in the range"));
    let direct = buffered.begin_direct(Op::Read, 0, PAGE).map(drop);
    assert!(matches!(direct, Err(BufferedError::Io(IoError::NoSpace))), "{direct:?}");
}

#[test]
fn threads_that_write_to_a_full_disk_get_its_error_and_reads_go_on() {
    let faults = Faults::new(1);
    let buffered = open(&faults);
    fill_disk(&faults);
    let writer = Arc::clone(&buffered);
    let (written, error) = ends(move || {
        let mut results = (0..).map(|number| (number, writer.write_at(&page(number), number * PAGE)));
        results.find(|(_, result)| result.is_err()).unwrap()
    });
    assert!(is_no_space(&error), "{error:?}");
    assert_eq!(written, ROOM);
    let threads: Vec<_> = (0..4u64)
        .map(|thread| {
            let buffered = Arc::clone(&buffered);
            move || {
                (0..20).all(|nth| is_no_space(&buffered.write_at(&page(1), (600 + thread * 20 + nth) * PAGE)))
            }
        })
        .collect();
    let failed = ends(move || {
        let threads: Vec<_> = threads.into_iter().map(std::thread::spawn).collect();
        threads.into_iter().all(|thread| thread.join().unwrap())
    });
    assert!(failed, "each write fails with the error of the disk");
    check_reads(&buffered);
    assert!(buffered.flush().is_err() && buffered.flush().is_err(), "rule 6: once lost, never reported once");
    faults.clear();
    buffered.write_at(&page(100), 100 * PAGE).unwrap();
    buffered.flush().unwrap();
    check_written(&buffered);
}

/// All pages are on the disk, and no longer needed in the cache.
fn check_written(buffered: &Buffered) {
    assert_eq!((buffered.stats().cache.dirty, buffered.stats().cache.failed), (0, 0));
    buffered.advise(0, BYTES, iopath_os::Advice::DontNeed);
    let mut bytes = page(0);
    for number in (0..ROOM).chain([100]) {
        buffered.read_at(&mut bytes, number * PAGE).unwrap();
        assert_eq!(bytes, page(number), "page {number}");
    }
}

/// Queues writes of whole pages and waits for all. Returns the number of those that succeeded; the others found no
/// room.
fn write_pages(queue: &mut CacheQueue, pool: &BufferPool, pages: std::ops::Range<u64>) -> u64 {
    let mut good = 0;
    let mut wait = |queue: &mut CacheQueue, left: u32| {
        while queue.in_flight() > left {
            queue.wait(1).unwrap();
            while let Some(done) = queue.next_completed() {
                assert!(done.result.is_ok() || is_no_space(&done.result), "{done:?}");
                good += u64::from(done.result.is_ok());
            }
        }
    };
    for number in pages {
        wait(queue, 7);
        let mut buffer = pool.take().unwrap();
        buffer.copy_from_slice(&page(number));
        queue.queue(request(Op::Write, number * PAGE, PAGE, Some(buffer), number)).unwrap();
    }
    wait(queue, 0);
    good
}

#[test]
fn requests_that_write_to_a_full_disk_get_its_error_and_reads_go_on() {
    for has_notifier in [false, true] {
        let faults = Faults::new(1);
        let buffered = open(&faults);
        fill_disk(&faults);
        let (pool, mut queue) = (BufferPool::new(16, PAGE as usize).unwrap(), buffered.request_queue(8, 0));
        let notifier = Notifier::new().unwrap();
        if has_notifier {
            queue.set_notifier(&notifier).unwrap();
        }
        let written = ends(move || {
            let first = write_pages(&mut queue, &pool, 0..ROOM + 40);
            (first, write_pages(&mut queue, &pool, 600..620))
        });
        assert_eq!(written, (ROOM, 0));
        check_reads(&buffered);
        faults.clear();
        buffered.write_at(&page(100), 100 * PAGE).unwrap();
        buffered.flush().unwrap();
        check_written(&buffered);
    }
}
