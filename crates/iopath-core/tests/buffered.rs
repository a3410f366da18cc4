//! The buffered path in virtual time: one loop drives state machine, queue and a modelled disk. These tests check
//! times, the order of steps and a full queue. `cache_model` checks the bytes against a model.

mod append;
mod calls;
mod driver;

use driver::{Disk, Driver, PAGE, Spaces};
use iopath_core::buffered::{NoFrame, PageBio, ReadStep, ResizeStep, Step};
use iopath_core::cache::{CacheConfig, DirectStep, Outcome};
use iopath_core::readahead::ReadaheadConfig;
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange, QueueConfig};

const MIB: u64 = 1 << 20;
const RATE: u64 = 200 * MIB;

fn disk() -> Disk {
    Disk::new(64 * MIB, Duration::from_micros(100), RATE)
}

fn driver(frames: u32, readahead: Option<ReadaheadConfig>) -> Driver {
    let cache = CacheConfig { frames, ..CacheConfig::default() };
    Driver::new(cache, readahead, 64 * MIB, Spaces { joins: true }, disk(), &QueueConfig::default())
}

/// Fills the cache with dirty pages that cannot be written, and with borrowed pages.
fn with_unwritable_pages() -> Driver {
    let mut driver = driver(16, None);
    driver.disk.device_mut().write_error = Some(IoError::Media);
    for page in 0..14 {
        driver.write(2 * page * PAGE, PAGE as usize);
    }
    for page in [100, 102] {
        driver.read(page * PAGE, PAGE);
        assert!(driver.path.cache().hot().try_pin(Page(page)).is_ok());
    }
    driver.path.write_back(PageRange::ALL, 7);
    assert_eq!(driver.wait(7), Outcome::Failed(IoError::Media));
    driver
}

/// A read of one page begins, and lacks a frame.
fn read_without_a_frame(driver: &mut Driver, page: u64, waiter: u64) {
    let step = driver.begin_read(page * PAGE, waiter);
    assert!(matches!(step, ReadStep::Wait { .. }), "{step:?}");
    assert!(driver.path.is_starved(waiter));
}

#[test]
fn a_stream_reaches_the_bandwidth_of_the_disk_in_virtual_time_and_each_run_is_the_same() {
    let run = || {
        let mut driver =
            driver(4096, Some(ReadaheadConfig { budget_bytes: 4 * MIB, ..ReadaheadConfig::default() }));
        for request in 0..64 * MIB / (4 * PAGE) {
            driver.read(request * 4 * PAGE, 4 * PAGE);
        }
        (driver.now, driver.disk.device().reads)
    };
    let (end, reads) = run();
    let ideal = Duration::from_nanos(64 * MIB * 1_000_000_000 / RATE);
    let taken = end - Instant::ZERO;
    assert!(
        taken >= ideal && taken < ideal * 10 / 9,
        "64 MiB take {taken:?}, the disk's bandwidth is {ideal:?}"
    );
    assert!(reads < 300, "{reads} requests: readahead does not use whole requests");
    assert_eq!(run(), (end, reads));
}

#[test]
fn a_dirty_page_is_written_at_its_age_and_the_clock_jumps_there() {
    let mut driver = driver(64, None);
    let expire = driver.path.cache().config().expire;
    driver.sleep_until(Instant::from_nanos(123));
    driver.write(0, PAGE as usize);
    assert_eq!(driver.due(), Some(Instant::from_nanos(123) + expire));
    while driver.jump() {}
    assert_eq!(driver.disk.device().writes, [(Instant::from_nanos(123) + expire, 0)]);
    assert_eq!(driver.path.cache().stats().dirty, 0);
}

#[test]
fn failed_pages_are_retried_sooner_while_a_caller_lacks_a_frame_and_the_time_is_known() {
    let mut driver = with_unwritable_pages();
    let (failed_at, expire) = (driver.now, driver.path.cache().config().expire);
    assert!(driver.due().is_some_and(|due| due > failed_at + expire / 2), "no caller lacks a frame yet");
    let tried = driver.disk.device().writes.len();
    read_without_a_frame(&mut driver, 1000, 3);
    driver.advance();
    assert_eq!(driver.disk.device().writes.len(), tried, "not at once: that would be a hot loop");
    let due = driver.due().expect("the retry");
    assert!(due <= failed_at + expire / 100, "{due:?} after {failed_at:?}");
    driver.disk.device_mut().write_error = None;
    assert_eq!(driver.wait(3), Outcome::Retry);
    assert!(driver.now <= failed_at + expire / 50, "the frame was free at {:?}", driver.now);
    assert_eq!(driver.disk.device().writes[tried].0, due);
}

#[test]
fn a_caller_that_never_gets_a_frame_fails_with_the_reason() {
    let mut driver = with_unwritable_pages();
    read_without_a_frame(&mut driver, 1000, 3);
    let start = driver.now;
    let error = driver.starve(3).expect("no frame");
    assert!(matches!(error, NoFrame::Unwritable { source: IoError::Media, .. }), "{error:?}");
    assert!(driver.now - start < Duration::from_secs(3), "{:?}", driver.now - start);
}

/// The disk is full for all pages that `driver` writes. Returns the number of pages that it has written until an error.
fn fill_a_full_disk(driver: &mut Driver) -> u64 {
    driver.disk.device_mut().write_error = Some(IoError::NoSpace);
    let error =
        (0..).find_map(|page| driver.try_write(page * PAGE, PAGE as usize).err().map(|why| (page, why)));
    let (pages, why) = error.expect("the disk is full");
    assert_eq!(why, IoError::NoSpace);
    pages
}

#[test]
fn a_write_to_a_full_disk_fails_at_once_and_reads_get_frames() {
    let mut driver = driver(64, None);
    assert_eq!(fill_a_full_disk(&mut driver), 56, "an eighth of the frames is for reads");
    // No writer has waited for the time of a retry, and none has paused for a device that takes no bytes.
    let expire = driver.path.cache().config().expire;
    assert!(driver.now - Instant::ZERO < expire / 100, "{:?}", driver.now);
    // The device is asked once for each further call.
    for _ in 0..3 {
        let (tried, start) = (driver.disk.device().writes.len(), driver.now);
        assert_eq!(driver.try_write(500 * PAGE, PAGE as usize), Err(IoError::NoSpace));
        assert_eq!(driver.disk.device().writes.len(), tried + 1);
        assert!(driver.now - start < expire / 1000, "{:?}", driver.now - start);
    }
    let failed = driver.path.cache().stats().failed;
    assert_eq!(failed, 56, "no page that could not be written is dropped");
    driver.read(1000 * PAGE, 200 * PAGE);
    driver.read(0, 56 * PAGE);
    assert_eq!(driver.path.cache().stats().starved, 0, "a caller has lacked a frame");
    // A write into a dirty page needs no room.
    driver.write(0, PAGE as usize);
    assert_eq!(driver.flush(), Outcome::Failed(IoError::NoSpace));
    assert_eq!(driver.flush(), Outcome::Failed(IoError::NoSpace));
}

#[test]
fn direct_io_beside_pages_that_cannot_be_written_does_not_wait() {
    let mut driver = driver(64, None);
    fill_a_full_disk(&mut driver);
    for op in [Op::Read, Op::Write, Op::Discard] {
        let step = driver.path.begin_direct(op, 1000 * PAGE, PAGE, 1, 5);
        let DirectStep::Go(tag) = step else { panic!("a direct {op} waits for pages of another range") };
        driver.path.end_direct(tag);
    }
    for op in [Op::Read, Op::Write] {
        assert_eq!(driver.path.begin_direct(op, 0, PAGE, 1, 5), DirectStep::Wait);
        assert_eq!(driver.wait(5), Outcome::Failed(IoError::NoSpace));
    }
    // A discard drops the page, which makes room for another.
    let DirectStep::Go(tag) = driver.path.begin_direct(Op::Discard, 0, PAGE, 1, 5) else {
        panic!("it waits")
    };
    driver.path.end_direct(tag);
    driver.write(500 * PAGE, PAGE as usize);
}

#[test]
fn the_first_write_after_a_full_disk_has_space_succeeds_and_nothing_is_lost() {
    let mut driver = driver(64, None);
    let pages = fill_a_full_disk(&mut driver);
    driver.disk.device_mut().write_error = None;
    let start = driver.now;
    driver.write(500 * PAGE, PAGE as usize);
    let expire = driver.path.cache().config().expire;
    assert!(driver.now - start < expire / 1000, "it has waited for a retry: {:?}", driver.now - start);
    assert_eq!(driver.flush(), Outcome::Done);
    let stats = driver.path.cache().stats();
    assert_eq!((stats.dirty, stats.failed, stats.pages_written), (0, 0, pages + 1));
    // The time of failed writes has not made the device look slow.
    let start = driver.now;
    (0..16).for_each(|page| driver.write(page * PAGE, PAGE as usize));
    assert!(driver.now - start < expire / 1000, "{:?}", driver.now - start);
}

#[test]
fn a_writer_waits_for_a_slow_disk_as_long_as_pages_can_be_written() {
    let mut driver = driver(64, None);
    driver.write(0, 4096 * PAGE as usize);
    let stats = driver.path.cache().stats();
    assert!(stats.dirty <= 56, "{} dirty pages of 64", stats.dirty);
    assert_eq!(driver.flush(), Outcome::Done);
    assert_eq!(driver.path.cache().stats().pages_written, 4096);
}

#[test]
fn a_fast_writer_pauses_until_it_is_as_fast_as_the_disk() {
    let mut driver = driver(1024, None);
    for piece in 0..4096 {
        driver.write(piece * 4 * PAGE, 4 * PAGE as usize);
    }
    let stats = driver.path.cache().stats();
    assert!(stats.dirty < 1024 * 4 / 10, "{} dirty pages, the limit is 40%", stats.dirty);
    assert_eq!(driver.flush(), Outcome::Done);
    let ideal = Duration::from_nanos(64 * MIB * 1_000_000_000 / RATE);
    let taken = driver.now - Instant::ZERO;
    assert!(taken < ideal * 3 / 2, "64 MiB take {taken:?}, the disk needs {ideal:?}");
}

#[test]
fn a_full_queue_delays_bios_and_loses_none() {
    // Each frame is a bio of its own, and the queue holds two bios.
    let queue = QueueConfig { bios_max: 2, ..QueueConfig::default() };
    let cache = CacheConfig { frames: 256, ..CacheConfig::default() };
    let mut driver = Driver::new(cache, None, 64 * MIB, Spaces { joins: false }, disk(), &queue);
    driver.write(0, 64 * PAGE as usize);
    assert_eq!(driver.flush(), Outcome::Done);
    driver.read(100 * PAGE, 50 * PAGE);
    let stats = driver.path.cache().stats();
    assert_eq!((stats.pages_written, stats.dirty, stats.pages_read), (64, 0, 50));
}

#[test]
fn a_read_in_flight_during_a_truncation_is_repeated_without_an_error() {
    let mut driver = driver(64, None);
    driver.write(6 * PAGE, PAGE as usize);
    driver.path.write_back(PageRange::ALL, 1);
    driver.advance();
    // The truncation waits for that write. Meanwhile a read of the page with the new end begins.
    let mut resize = driver.path.begin_resize(3 * PAGE + 512);
    assert_eq!(driver.path.continue_resize(&mut resize, 2), Ok(ResizeStep::Wait));
    assert!(matches!(driver.begin_read(3 * PAGE, 3), ReadStep::Wait { .. }));
    let outcome = driver.wait(2);
    resize.handle_outcome(outcome);
    assert_eq!(driver.path.continue_resize(&mut resize, 2), Ok(ResizeStep::Resize));
    driver.disk.device_mut().end_bytes = 3 * PAGE + 512;
    assert_eq!(driver.wait(3), Outcome::Retry, "the read meets the new end");
    driver.path.end_resize(resize, true);
    assert_eq!(driver.read(3 * PAGE, 2 * PAGE), 512);
    assert_eq!(driver.begin_read(4 * PAGE, 4), ReadStep::End);
}

#[test]
fn a_canceled_resize_lets_writers_to_the_cut_page_continue() {
    let mut driver = driver(64, None);
    driver.write(6 * PAGE, PAGE as usize);
    driver.path.write_back(PageRange::ALL, 1);
    driver.advance();
    // The page that is cut inside is free; the page behind is being written.
    let mut resize = driver.path.begin_resize(3 * PAGE + 512);
    assert_eq!(driver.path.continue_resize(&mut resize, 2), Ok(ResizeStep::Wait));
    driver.path.cancel_resize(resize);
    driver.write(3 * PAGE, PAGE as usize);
    assert_eq!(driver.flush(), Outcome::Done);
}

#[test]
fn the_tail_is_written_before_the_blocks_of_its_page_and_a_read_zeroes_past_the_end() {
    let size_bytes = 2 * PAGE + 700;
    let cache = CacheConfig { frames: 16, ..CacheConfig::default() };
    let spaces = Spaces { joins: true };
    let disk = Disk::new(2 * PAGE + 1024, Duration::from_micros(100), RATE);
    let mut driver = Driver::new(cache, None, size_bytes, spaces, disk, &QueueConfig::default());
    driver.write(0, size_bytes as usize);
    assert_eq!(driver.flush(), Outcome::Done);
    let [Step::WriteTail { from: 512, bytes: 188, offset, .. }, Step::Submit(bio), Step::Submit(flush)] =
        driver.steps[..]
    else {
        panic!("{:?}", driver.steps)
    };
    assert_eq!((offset, bio.op, bio.extent.bytes()), (2 * PAGE + 512, Op::Write, 2 * PAGE + 512));
    assert_eq!(flush.op, Op::Flush);
    driver.path.advise(0, size_bytes, iopath_core::buffered::Advice::DontNeed);
    driver.steps.clear();
    driver.read(2 * PAGE, 700);
    let [Step::Zero { from: 1024, .. }, Step::Submit(PageBio { op: Op::Read, extent, .. })] =
        driver.steps[..]
    else {
        panic!("{:?}", driver.steps)
    };
    assert_eq!(extent.bytes(), 1024, "the block in which the volume ends is read whole");
}

#[test]
fn an_inline_read_completes_no_earlier_than_its_page_is_zeroed_past_the_end() {
    let size_bytes = 64 * PAGE + 700;
    let queue = QueueConfig { bios_max: 1, ..QueueConfig::default() };
    let new = || {
        let cache = CacheConfig { frames: 16, ..CacheConfig::default() };
        let disk = Disk::new(64 * PAGE + 1024, Duration::from_micros(100), RATE);
        Driver::new(cache, None, size_bytes, Spaces { joins: true }, disk, &queue)
    };
    let read = |driver: &mut Driver, page, waiter| {
        assert_eq!(driver.begin_read(page * PAGE, waiter), ReadStep::Wait { is_single: true });
    };

    // The queue is full: no step is executed, so no read bypasses it.
    let mut driver = new();
    for (page, waiter) in [(10, 1), (20, 2)] {
        read(&mut driver, page, waiter);
        driver.advance();
    }
    read(&mut driver, 64, 3);
    let last = driver.path.geometry().locate(64 * PAGE).0;
    assert!(driver.path.take_inline_read::<4>(last, driver.now).is_none(), "the queue is full");
    assert!(matches!(driver.wait(3), Outcome::Pinned(_)));

    // The queue will refuse an earlier bio: the page is zeroed first.
    let mut driver = new();
    for (page, waiter) in [(10, 1), (20, 2), (64, 3)] {
        read(&mut driver, page, waiter);
    }
    let inline = driver.path.take_inline_read::<4>(last, driver.now).expect("the queue has room");
    driver.advance();
    assert!(matches!(driver.steps[0], Step::Zero { from: 1024, .. }), "{:?}", driver.steps);
    driver.path.handle_completion(inline.tag, Ok(()), driver.now);
    for waiter in 1..=3 {
        assert!(matches!(driver.wait(waiter), Outcome::Pinned(_)));
    }
}
