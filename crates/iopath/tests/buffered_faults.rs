//! The guarantees of the page cache when the device fails, and under concurrency: buffered and direct I/O, borrowed
//! pages, flushes and resizes on a cache of few pages.

use iopath::source::Extent;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Engine, Error, ErrorKind, IoError, Op, OpenError, WriteBackError};
use iopath::{Options, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;

/// A disk of 1 MiB with a write cache, and a buffered volume on it.
fn memory(faults: &Faults, cache_pages: u64) -> (MemoryDisk, Volume) {
    let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 20) });
    let disk = disk.unwrap();
    let options = Options::new().direct(false).cache_bytes(cache_pages * PAGE).write(true).faults(faults);
    let volume = Volume::memory(&disk, &options).unwrap();
    (disk, volume)
}

fn write(volume: &Volume, page: u64, value: u8) {
    volume.write_at(&[value; PAGE as usize], page * PAGE).unwrap();
}

fn holds(volume: &Volume, page: u64, value: u8) -> bool {
    let mut bytes = [!value; PAGE as usize];
    volume.read_at(&mut bytes, page * PAGE).unwrap();
    bytes.iter().all(|byte| *byte == value)
}

#[test]
fn a_durable_write_is_on_the_medium_and_other_pages_wait_for_write_back() {
    let (disk, volume) = memory(&Faults::new(1), 64);
    write(&volume, 1, 7);
    volume.write_durably_at(&[8; 100], 3 * PAGE - 50).unwrap();
    assert_eq!(volume.stats().unwrap().cache.dirty, 1);
    disk.crash(|_| 0);
    let after = Volume::memory(&disk, &Options::new().direct(false)).unwrap();
    let mut bytes = [0; 100];
    after.read_at(&mut bytes, 3 * PAGE - 50).unwrap();
    assert_eq!(bytes, [8; 100]);
    assert!(holds(&after, 1, 0));
}

#[test]
fn a_page_that_cannot_be_written_fails_every_flush_until_it_is_discarded() {
    let faults = Faults::new(2);
    let (disk, volume) = memory(&faults, 64);
    let bad = Extent::from_bytes(3 * PAGE, PAGE).unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Write).within(bad));
    (2..5).for_each(|page| write(&volume, page, page as u8));
    for _ in 0..3 {
        let error = volume.flush().unwrap_err();
        assert!(error.kind() == ErrorKind::Io(IoError::Media), "{error}");
        assert_eq!((error.op(), error.offset(), error.bytes()), (Some(Op::Flush), 3 * PAGE, PAGE));
        assert_eq!(volume.stats().unwrap().cache.failed, 1);
        assert!(volume.unwritable_ranges().iter().eq([&(3 * PAGE..4 * PAGE)]));
        assert!(holds(&volume, 3, 3));
    }
    // A discard of a part of the page does not drop it.
    volume.discard(3 * PAGE, PAGE / 2).unwrap_err();
    volume.discard(3 * PAGE, PAGE).unwrap();
    assert!(volume.unwritable_ranges().is_empty());
    volume.flush().unwrap();
    volume.close().unwrap();
    let after = Volume::memory(&disk, &Options::new().direct(false)).unwrap();
    assert!(holds(&after, 2, 2) && holds(&after, 4, 4));
}

#[test]
fn a_cache_full_of_unwritable_pages_fails_writes_and_serves_reads() {
    let faults = Faults::new(7);
    let (_disk, volume) = memory(&faults, 16);
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    let fill = |page| volume.write_at(&[1; PAGE as usize], page * PAGE);
    let error = (0..).find_map(|page| fill(page).err()).unwrap();
    let is_full = ErrorKind::Unwritable { pages: 14, source: IoError::NoSpace };
    assert!(error.kind() == is_full, "{error}");
    // The write that found no room, and the pages that take it.
    assert_eq!((error.op(), error.offset(), error.bytes()), (Some(Op::Write), 14 * PAGE, PAGE));
    assert!(volume.unwritable_ranges().iter().eq([&(0..14 * PAGE)]));
    let error = volume.write_durably_at(&[1; 10], 5 * PAGE).unwrap_err();
    assert_eq!((error.op(), error.offset(), error.bytes()), (Some(Op::Flush), 5 * PAGE, 10));
    // The other two frames are for reads.
    assert!((100..120).all(|page| holds(&volume, page, 0)));
    assert!((0..14).all(|page| holds(&volume, page, 1)));
    assert!(fill(50).unwrap_err().kind() == is_full);
    faults.clear();
    fill(50).unwrap();
    volume.flush().unwrap();
    assert!((0..14).chain([50]).all(|page| holds(&volume, page, 1)) && holds(&volume, 100, 0));
}

#[test]
fn a_loss_fails_every_flush_until_it_is_accepted() {
    let faults = Faults::new(3);
    let (disk, volume) = memory(&faults, 16);
    faults.lose_on_failed_flush(&disk);
    // More pages than the cache holds: some are evicted.
    (0..64).for_each(|page| write(&volume, page, 1));
    faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    for _ in 0..3 {
        volume.flush().unwrap_err();
    }
    assert!(volume.accept_loss().unwrap());
    (0..64).for_each(|page| write(&volume, page, 2));
    volume.flush().unwrap();
    assert!(!volume.accept_loss().unwrap());
    disk.crash(|_| 0);
    let after = Volume::memory(&disk, &Options::new().direct(false)).unwrap();
    assert!((0..64).all(|page| holds(&after, page, 2)));
}

#[test]
fn close_reports_an_error_that_drop_ignores() {
    let faults = Faults::new(4);
    let (_disk, volume) = memory(&faults, 64);
    write(&volume, 0, 1);
    faults.add(Fault::error(IoError::Media).on(Op::Write));
    volume.close().unwrap_err();
}

/// Pages that threads write, each page by one thread. Every byte of a page is the number of its last write.
struct Pages {
    /// For each page, the last write that has returned and the last that has begun.
    done: Vec<AtomicU64>,
    begun: Vec<AtomicU64>,
    /// Resizes never remove pages below this number.
    kept: u64,
    is_over: AtomicBool,
}

impl Pages {
    fn new(pages: u64, kept: u64) -> Self {
        let zeroes = || (0..pages).map(|_| AtomicU64::new(0)).collect();
        Self { done: zeroes(), begun: zeroes(), kept, is_over: AtomicBool::new(false) }
    }

    fn count(&self) -> u64 {
        self.done.len() as u64
    }

    /// Accepts errors of the device, and errors for pages that a resize has removed. Any other error is a bug.
    fn tolerate(&self, page: u64, error: &Error) {
        let is_cut_off = matches!(error.kind(), ErrorKind::PastEnd { .. });
        let is_io = matches!(error.kind(), ErrorKind::Io(_) | ErrorKind::Unwritable { .. });
        assert!(is_io || (is_cut_off && page >= self.kept), "page {page}: {error}");
    }

    fn check(&self, page: u64, oldest: u64, bytes: &[u8], path: &str) {
        let newest = self.begun[page as usize].load(SeqCst);
        for number in bytes.chunks_exact(8).map(|part| u64::from_le_bytes(part.try_into().unwrap())) {
            let is_old = number < oldest && page < self.kept;
            assert!(!is_old && number <= newest, "page {page}, {path}: {number}, not {oldest} to {newest}");
        }
    }

    fn write(&self, volume: &Volume, writer: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(writer);
        let mut memory = AlignedBuf::new(PAGE as usize).unwrap();
        let mut round = 0;
        while !self.is_over.load(SeqCst) {
            round += 1;
            let page = rng.random_range(0..self.count() / 2) * 2 + writer;
            memory.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&u64::to_le_bytes(round)));
            self.begun[page as usize].store(round, SeqCst);
            let written = match rng.random_range(0..10) {
                0..3 => volume.direct().write_at(&memory, page * PAGE),
                3 => volume.write_durably_at(&memory, page * PAGE),
                // From inside a page: the rest of the page is read.
                4 => volume
                    .write_at(&memory[..1000], page * PAGE + 8)
                    .and_then(|()| volume.write_at(&memory, page * PAGE)),
                _ => volume.write_at(&memory, page * PAGE),
            };
            match written {
                Ok(()) => self.done[page as usize].store(round, SeqCst),
                Err(error) => self.tolerate(page, &error),
            }
        }
    }

    fn read(&self, volume: &Volume, reader: u64) {
        let mut rng = ChaCha8Rng::seed_from_u64(100 + reader);
        let mut memory = AlignedBuf::new(PAGE as usize).unwrap();
        while !self.is_over.load(SeqCst) {
            let page = rng.random_range(0..self.count());
            let oldest = self.done[page as usize].load(SeqCst);
            let (path, read) = match rng.random_range(0..4) {
                0 => ("direct", volume.direct().read_at(&mut memory, page * PAGE)),
                1 => (
                    "borrowed",
                    volume.borrow(page * PAGE, PAGE as usize).map(|guard| {
                        let before = guard.slices().flatten().copied().collect::<Vec<u8>>();
                        std::thread::yield_now();
                        assert!(
                            guard.slices().flatten().eq(&before),
                            "page {page} changes while it is borrowed"
                        );
                        memory[..before.len()].copy_from_slice(&before);
                        before.len()
                    }),
                ),
                _ => ("read", volume.read_at(&mut memory, page * PAGE)),
            };
            match read {
                Ok(bytes) => self.check(page, oldest, &memory[..bytes / 8 * 8], path),
                Err(error) => self.tolerate(page, &error),
            }
        }
    }

    /// Runs two writers and two readers for a second, and `disturb` repeatedly at the same time.
    fn run(&self, volume: &Volume, disturb: impl Fn(u64)) {
        let end = Instant::now() + Duration::from_secs(1);
        std::thread::scope(|scope| {
            // Ends the other threads, even if `disturb` panics.
            let end_threads = SetOnDrop(&self.is_over);
            for number in 0..2 {
                scope.spawn(move || self.write(volume, number));
                scope.spawn(move || self.read(volume, number));
            }
            for step in 0.. {
                if Instant::now() > end {
                    break;
                }
                disturb(step);
                std::thread::sleep(Duration::from_millis(2));
            }
            drop(end_threads);
        });
    }

    /// After all I/O has completed, pages that no resize removes contain their last write.
    fn check_all(&self, volume: &Volume) {
        let mut memory = AlignedBuf::new(PAGE as usize).unwrap();
        for page in 0..self.kept {
            assert_eq!(volume.read_at(&mut memory, page * PAGE).unwrap() as u64, PAGE);
            self.check(page, self.done[page as usize].load(SeqCst), &memory, "at the end");
        }
        assert!(self.done.iter().any(|done| done.load(SeqCst) > 0), "nothing was ever written");
    }
}

/// Sets the flag when dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

#[test]
fn threads_on_a_failing_disk_read_their_last_writes() {
    let faults = Faults::new(5);
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let options = Options::new().direct(false).cache_bytes(16 * PAGE).write(true).faults(&faults);
    let volume = Volume::memory(&disk, &options).unwrap();
    for op in [Op::Read, Op::Write, Op::Flush] {
        faults.add(Fault::error(IoError::Media).on(op).one_in(30));
    }
    faults.add(Fault::short().one_in(5));
    faults.shuffle(true);
    let pages = Pages::new(64, 64);
    pages.run(&volume, |step| {
        // Failed pages are retried, so that they do not fill the cache.
        let flushed = volume.flush();
        assert!(flushed.is_ok() || faults.injected() > 0, "step {step}: {flushed:?}");
    });
    faults.clear();
    // Fails if I/O in flight fails.
    let _ = volume.flush();
    // Direct writes and evicted pages may be lost, without a record in the cache.
    volume.accept_loss().unwrap();
    volume.flush().unwrap();
    pages.check_all(&volume);
    volume.close().unwrap();
    pages.check_all(&Volume::memory(&disk, &Options::new()).unwrap());
}

#[test]
fn threads_on_a_file_that_is_resized_read_their_last_writes() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("volume");
    let engine = std::env::var("IOPATH_TEST_ENGINE").unwrap_or_else(|_| "auto".to_owned());
    let options =
        Options::new().engine(engine.parse::<Engine>().unwrap()).direct(false).cache_bytes(16 * PAGE);
    std::fs::write(&path, vec![0; 64 * PAGE as usize]).unwrap();
    let volume = match Volume::open(&path, &options.clone().write(true)) {
        Ok(volume) => volume,
        Err(OpenError::Direct(error)) => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    let pages = Pages::new(64, 40);
    pages.run(&volume, |step| {
        volume.resize(40 * PAGE + step * 1234 % (24 * PAGE)).unwrap();
        if step % 5 == 0 {
            volume.flush().unwrap();
        }
    });
    pages.check_all(&volume);
    volume.close().unwrap();
    pages.check_all(&Volume::open(&path, &options).unwrap());
}

#[test]
fn a_failed_flush_of_a_forced_write_makes_saved_pages_dirty_again() {
    let faults = Faults::new(6);
    // The disk has no forced unit access: a forced write is a write and a flush.
    let config = MemoryConfig { cache_bytes: 1 << 20, fua: false, ..MemoryConfig::of_bytes(1 << 20) };
    let disk = MemoryDisk::new(&config).unwrap();
    let options = Options::new().direct(false).cache_bytes(64 * PAGE).write(true).faults(&faults);
    let volume = Volume::memory(&disk, &options).unwrap();
    faults.lose_on_failed_flush(&disk);
    write(&volume, 1, 7);
    // A direct read writes the page back without a flush: the page is clean, and the device may lose it.
    let mut memory = AlignedBuf::new(PAGE as usize).unwrap();
    volume.direct().read_at(&mut memory, PAGE).unwrap();
    assert_eq!(volume.stats().unwrap().cache.dirty, 0);
    faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    volume.direct().write_durably_at(&memory, 10 * PAGE).unwrap_err();
    // The device has lost the page. The cache still contains it, and writes it back again.
    volume.direct().read_at(&mut memory, PAGE).unwrap();
    assert!(memory.iter().all(|byte| *byte == 7), "a direct read does not return the bytes of the cache");
    // The bytes of the forced write may be lost. Flushes fail until the caller accepts the loss.
    volume.flush().unwrap_err();
    volume.accept_loss().unwrap();
    volume.flush().unwrap();
    disk.crash(|_| 0);
    let after = Volume::memory(&disk, &Options::new().direct(false)).unwrap();
    assert!(holds(&after, 1, 7), "a flush succeeded, and the page is lost");
}

/// A volume of which each report of a write-back that fails is sent.
fn reported(faults: &Faults) -> (Volume, Receiver<WriteBackError>) {
    let disk = MemoryDisk::new(&MemoryConfig { cache_bytes: 1 << 20, ..MemoryConfig::of_bytes(1 << 20) });
    let (sender, reports) = channel();
    let options = Options::new().direct(false).cache_bytes(64 * PAGE).write(true).faults(faults);
    let options = options.on_write_error(move |error| {
        sender.send(error.clone()).unwrap();
        // A report that panics stops neither the flush nor later reports.
        panic!("a report");
    });
    (Volume::memory(&disk.unwrap(), &options).unwrap(), reports)
}

#[test]
fn a_failed_flush_reports_each_range() {
    let faults = Faults::new(8);
    let (volume, reports) = reported(&faults);
    let bad = Extent::from_bytes(3 * PAGE, 2 * PAGE).unwrap();
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write).within(bad));
    (2..6).for_each(|page| write(&volume, page, 1));
    let error = volume.flush().unwrap_err();
    assert_eq!((error.offset(), error.bytes()), (3 * PAGE, 2 * PAGE));
    let next = || reports.recv_timeout(Duration::from_secs(60)).unwrap();
    // The thread in the background may have reported the first page before the second one failed.
    let both = std::iter::repeat_with(next).find(|report| report.range == (3 * PAGE..5 * PAGE)).unwrap();
    assert_eq!((both.op, both.error), (Op::Write, IoError::NoSpace));
    faults.clear();
    volume.flush().unwrap();
    faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    volume.flush().unwrap_err();
    let whole = std::iter::repeat_with(next).find(|report| report.op == Op::Flush).unwrap();
    assert_eq!((whole.range, whole.error), (0..1 << 20, IoError::Media));
}

#[test]
fn write_back_in_the_background_and_the_last_drop_report_errors() {
    let faults = Faults::new(9);
    let (volume, reports) = reported(&faults);
    faults.add(Fault::error(IoError::NoSpace).on(Op::Write));
    // More than the background leaves dirty.
    (0..40).for_each(|page| write(&volume, page, 1));
    let report = reports.recv_timeout(Duration::from_secs(60)).unwrap();
    assert_eq!((report.op, report.error), (Op::Write, IoError::NoSpace));
    drop(volume);
    let last = reports.iter().last().unwrap();
    assert_eq!(last.range, 0..40 * PAGE, "the drop tries all pages again, and ends the reports");
}
