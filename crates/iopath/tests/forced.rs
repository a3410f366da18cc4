//! Forced direct writes on a volume with a page cache, on a device whose flushes fail. No flush succeeds if another
//! flush has lost bytes, even if the batch of that other flush has not been polled. No thread waits for a batch that is
//! never polled.

use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Batch, BatchOptions, IoError, Op};
use iopath::{Options, Request, Volume};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// A disk whose failed flushes lose the write cache, a buffered volume on it, and a second volume that reads the
/// medium.
struct Setup {
    faults: Faults,
    volume: Volume,
    disk: Volume,
}

impl Setup {
    fn new(fua: bool) -> Self {
        let faults = Faults::new(1);
        let config = MemoryConfig { cache_bytes: 8 << 20, fua, ..MemoryConfig::of_bytes(1 << 20) };
        let disk = MemoryDisk::new(&config).unwrap();
        let options = Options::new().direct(false).cache_bytes(64 * PAGE).write(true).faults(&faults);
        let volume = Volume::memory(&disk, &options).unwrap();
        faults.lose_on_failed_flush(&disk);
        Self { faults, volume, disk: Volume::memory(&disk, &Options::new()).unwrap() }
    }

    fn fail_flushes(&self, times: u64) {
        self.faults.add(Fault::error(IoError::Media).on(Op::Flush).times(times));
    }

    /// Writes the page to the device without a flush.
    fn write_back(&self, page: u64, value: u8) {
        self.volume.write_at(&[value; PAGE as usize], page * PAGE).unwrap();
        self.volume.direct().read_at(&mut memory(0), page * PAGE).unwrap();
        assert_eq!(self.volume.stats().unwrap().cache.dirty, 0);
    }

    /// Whether the device has the whole page. A failed flush loses some sectors of it.
    fn holds(&self, page: u64, value: u8) -> bool {
        let mut bytes = memory(!value);
        self.disk.read_at(&mut bytes, page * PAGE).unwrap();
        bytes.iter().all(|byte| *byte == value)
    }

    fn batch(&self) -> Batch {
        self.volume.batch(&BatchOptions::new(8, PAGE as usize).buffered(false)).unwrap()
    }
}

fn memory(value: u8) -> AlignedBuf {
    let mut memory = AlignedBuf::new(PAGE as usize).unwrap();
    memory.fill(value);
    memory
}

fn write(batch: &mut Batch, page: u64, value: u8, durable: bool) {
    let mut buffer = batch.buffer().unwrap();
    buffer.fill(value);
    let request = Request::write(buffer, page * PAGE).bytes(PAGE as usize).token(page);
    batch.queue(request.durable(durable)).unwrap();
    batch.submit();
}

#[test]
fn a_flush_reports_the_loss_of_an_unpolled_forced_write() {
    for fua in [false, true] {
        let setup = Setup::new(fua);
        setup.write_back(3, 7);
        setup.fail_flushes(1);
        let mut batch = setup.batch();
        write(&mut batch, 100, 9, true);
        // The write is complete. The flush after it may run and fail from now on; the batch is not polled again.
        let _ = batch.poll();
        let flushed = setup.volume.flush();
        assert!(flushed.is_err() || setup.holds(3, 7), "the flush is Ok, and the device has lost the page");
        setup.volume.accept_loss().unwrap();
        setup.volume.flush().unwrap();
        assert!(setup.holds(3, 7), "the page was not written again");
    }
}

#[test]
fn a_thread_flushes_the_volume_with_forced_writes_of_its_own_in_flight() {
    let setup = Setup::new(false);
    let mut batch = setup.batch();
    // Not polled, polled once, and polled until the flush may have ended: none of them delays a flush.
    for polls in 0..3 {
        write(&mut batch, 10 + polls, 1, true);
        (0..polls).for_each(|_| drop(batch.poll()));
        setup.volume.write_at(&[polls as u8; PAGE as usize], 3 * PAGE).unwrap();
        setup.volume.flush().unwrap();
        assert!(setup.holds(3, polls as u8));
    }
    while let Some(done) = batch.wait().unwrap() {
        done.result.unwrap();
    }
    assert_eq!(batch.in_flight(), 0);
}

#[test]
fn a_forced_write_of_a_batch_fails_with_any_flush_that_may_have_lost_it() {
    let setup = Setup::new(true);
    let mut batch = setup.batch();
    write(&mut batch, 20, 5, true);
    // The device has the write, and the flush of another thread loses it before the batch requests its own flush.
    setup.fail_flushes(1);
    setup.volume.flush().unwrap_err();
    setup.volume.accept_loss().unwrap();
    setup.volume.flush().unwrap();
    let done = batch.wait().unwrap().unwrap();
    assert_eq!((done.token, done.result.is_err()), (20, true), "the device has it: {}", setup.holds(20, 5));
    // A forced write reports the loss of its own bytes, not earlier losses.
    setup.fail_flushes(1);
    write(&mut batch, 21, 6, true);
    batch.wait().unwrap().unwrap().result.unwrap_err();
    write(&mut batch, 22, 7, true);
    batch.wait().unwrap().unwrap().result.unwrap();
    assert!(setup.volume.accept_loss().unwrap());
}

#[test]
fn a_forced_write_that_a_poll_completes_is_on_the_medium() {
    for fua in [false, true] {
        let faults = Faults::new(1);
        let config = MemoryConfig { cache_bytes: 1 << 20, fua, ..MemoryConfig::of_bytes(1 << 20) };
        let disk = MemoryDisk::new(&config).unwrap();
        let options = Options::new().direct(false).cache_bytes(64 * PAGE).write(true).faults(&faults);
        let volume = Volume::memory(&disk, &options).unwrap();
        let mut batch = volume.batch(&BatchOptions::new(8, PAGE as usize).buffered(false)).unwrap();
        (0..4).for_each(|page| write(&mut batch, page, 3, true));
        write(&mut batch, 10, 3, false);
        let (mut completed, deadline) = (Vec::new(), Instant::now() + Duration::from_secs(10));
        while completed.len() < 5 && Instant::now() < deadline {
            completed.extend(batch.poll().map(|done| done.result.map(|bytes| (done.token, bytes)).unwrap()));
        }
        completed.sort_unstable();
        assert_eq!(completed, [0, 1, 2, 3, 10].map(|page| (page, PAGE as usize)));
        batch.queue(Request::flush().token(50)).unwrap();
        assert_eq!(batch.in_flight(), 1);
        assert_eq!(batch.wait().unwrap().map(|done| done.token), Some(50));
        disk.crash(|_| 0);
        let after = Volume::memory(&disk, &Options::new()).unwrap();
        let mut bytes = memory(0);
        for page in [0, 1, 2, 3, 10] {
            after.read_at(&mut bytes, page * PAGE).unwrap();
            assert_eq!(bytes[0], 3, "page {page}");
        }
    }
}

#[test]
fn forced_writes_that_wait_for_a_flush_count_as_in_flight() {
    let setup = Setup::new(false);
    let mut batch = setup.batch();
    (0..8).for_each(|page| write(&mut batch, page, 1, true));
    setup.volume.flush().unwrap();
    assert_eq!(batch.in_flight(), 8);
    let refused = batch.queue(Request::flush()).unwrap_err();
    assert!(refused.error.kind() == iopath::ErrorKind::BatchFull { depth: 8 }, "{refused}");
    drop(batch);
    assert!(setup.holds(7, 1));
}

/// Flushes, forced writes and batches of several threads on a device that fails one flush in three.
#[test]
fn no_concurrent_flush_succeeds_after_a_loss() {
    let setup = Setup::new(false);
    setup.faults.add(Fault::error(IoError::Media).on(Op::Flush).one_in(3));
    let (stop, setup) = (&AtomicBool::new(false), &setup);
    std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                while !stop.load(SeqCst) {
                    let _ = setup.volume.direct().write_durably_at(&memory(1), (100 + thread) * PAGE);
                }
            });
        }
        scope.spawn(move || {
            let mut batch = setup.batch();
            while !stop.load(SeqCst) {
                (110..114).for_each(|page| write(&mut batch, page, 1, true));
                let _ = batch.poll();
                std::thread::yield_now();
                while batch.wait().unwrap().is_some() {}
            }
        });
        let (end, mut version, mut ok) = (Instant::now() + Duration::from_secs(3), 0_u64, 0_u64);
        let mut wrong = None;
        while wrong.is_none() && Instant::now() < end {
            version += 1;
            setup.volume.write_at(&version.to_le_bytes(), 3 * PAGE).unwrap();
            if setup.volume.flush().is_err() {
                setup.volume.accept_loss().unwrap();
                continue;
            }
            ok += 1;
            let mut seen = memory(0);
            setup.disk.read_at(&mut seen, 3 * PAGE).unwrap();
            let stored = u64::from_le_bytes(seen[..8].try_into().unwrap());
            wrong = (stored != version).then_some((version, stored));
        }
        stop.store(true, SeqCst);
        assert_eq!(wrong, None, "flush number {ok} is Ok: (written, at the device)");
        assert!(ok > 100, "only {ok} flushes succeeded");
    });
}
