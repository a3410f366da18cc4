//! Appends whose bytes the caller brings to the device itself: which pages are clean afterwards, and which are written.

use super::driver::{Disk, Driver, PAGE, Spaces};
use iopath_core::buffered::{BufferedWrite, TakeStep};
use iopath_core::cache::{CacheConfig, CacheStats, Outcome};
use iopath_core::{Duration, IoError, Page, QueueConfig};

const END: u64 = 5000;

fn driver() -> Driver {
    let cache = CacheConfig { frames: 64, ..CacheConfig::default() };
    let disk = Disk::new(64 << 20, Duration::from_micros(100), 200 << 20).with_volatile_cache();
    Driver::new(cache, None, END, Spaces { joins: true }, disk, &QueueConfig::default())
}

/// The pages for an append of so many bytes.
fn take(driver: &mut Driver, bytes: usize) -> BufferedWrite {
    let end = driver.path.geometry().size_bytes;
    let mut write = BufferedWrite::appending(end, bytes).unwrap();
    while driver.path.take_pages(&mut write, 0).unwrap() == TakeStep::Wait {
        write.handle_outcome(driver.wait(0));
    }
    assert_eq!(write.taken(), bytes);
    assert_eq!(driver.path.geometry().size_bytes, end, "the file is not that long yet");
    write
}

/// Appends so many bytes.
fn append(driver: &mut Driver, bytes: usize) {
    let mut write = take(driver, bytes);
    assert_eq!(driver.path.begin_append(&mut write), Some(0..bytes));
    driver.path.end_append(&mut write, driver.now);
    driver.advance();
}

fn stats(driver: &Driver) -> CacheStats {
    driver.path.cache().stats()
}

#[test]
fn an_append_moves_the_end_and_a_flush_has_no_page_to_write() {
    let mut driver = driver();
    append(&mut driver, 10_000);
    assert_eq!(driver.path.geometry().size_bytes, END + 10_000);
    append(&mut driver, 1);
    assert_eq!(driver.flush(), Outcome::Done);
    let CacheStats { pages_read, pages_written, appended, dirty, .. } = stats(&driver);
    // The page of the old end, once.
    assert_eq!((pages_read, pages_written, appended, dirty), (1, 0, 4, 0));
    assert!(driver.path.is_settled());
    assert_eq!(driver.read(0, 100_000), END as usize + 10_001);
    // Only the first page was not appended to.
    assert_eq!(stats(&driver).pages_read, 2);
}

#[test]
fn a_page_that_was_dirty_stays_dirty() {
    let mut driver = driver();
    driver.write(END - 100, 50);
    append(&mut driver, 50);
    assert_eq!(stats(&driver).dirty, 1);
    assert_eq!(driver.flush(), Outcome::Done);
    assert_eq!(stats(&driver).pages_written, 1);
}

#[test]
fn an_append_that_is_not_flushed_is_not_settled() {
    let mut driver = driver();
    append(&mut driver, 50);
    assert!(!driver.path.is_settled(), "a power failure would lose it");
    assert_eq!(driver.flush(), Outcome::Done);
    assert!(driver.path.is_settled());
}

/// The kernel reports the loss to this flush only.
#[test]
fn a_failed_flush_makes_appended_pages_dirty() {
    let mut driver = driver();
    append(&mut driver, 10_000);
    driver.disk.device_mut().flush_error = Some(IoError::Media);
    assert_eq!(driver.flush(), Outcome::Failed(IoError::Media));
    assert_eq!(stats(&driver).dirty, 3, "they are written again");
    driver.disk.device_mut().flush_error = None;
    assert_eq!(driver.flush(), Outcome::Done);
    assert_eq!(stats(&driver).pages_written, 3);
}

#[test]
fn a_flush_that_fails_during_an_append_makes_its_pages_dirty() {
    let mut driver = driver();
    append(&mut driver, 1);
    let mut write = take(&mut driver, 10_000);
    assert!(driver.path.begin_append(&mut write).is_some());
    driver.disk.device_mut().flush_error = Some(IoError::Media);
    driver.path.flush(7);
    assert_eq!(driver.wait(7), Outcome::Failed(IoError::Media));
    driver.path.end_append(&mut write, driver.now);
    assert_eq!(stats(&driver).dirty, 3, "the device may have lost any of them");
}

#[test]
fn a_refused_append_changes_nothing() {
    let mut driver = driver();
    append(&mut driver, 1);
    for _ in 0..2 {
        let mut write = take(&mut driver, 10_000);
        assert!(driver.path.begin_append(&mut write).is_some());
        // A reader waits for a page that is not there.
        driver.begin_read(END, 8);
        driver.path.cancel_append(&mut write, driver.now);
        let Outcome::Pinned(frame) = driver.wait(8) else { panic!("the page of the end is cached") };
        driver.unpin(frame);
        assert_eq!(driver.path.geometry().size_bytes, END + 1);
        assert!(driver.path.cache().is_cached(Page(1)) && !driver.path.cache().is_cached(Page(2)));
        assert_eq!(driver.flush(), Outcome::Done);
        assert!(driver.path.is_settled(), "no frame is held");
    }
    append(&mut driver, 10_000);
    assert_eq!((stats(&driver).appended, stats(&driver).dirty), (4, 0));
}

/// An earlier version of a page of the append may be on its way to the device by another path.
#[test]
fn no_append_begins_while_a_write_of_the_cache_is_in_flight() {
    let mut driver = driver();
    driver.write(0, PAGE as usize);
    driver.path.flush(7);
    driver.advance();
    assert!(driver.path.is_writing());
    let mut write = BufferedWrite::appending(END, 10).unwrap();
    let mut step = driver.path.take_pages(&mut write, 0).unwrap();
    if step == TakeStep::Fill {
        assert_eq!(driver.path.begin_append(&mut write), None);
        driver.path.cancel_append(&mut write, driver.now);
    }
    assert_eq!(driver.wait(7), Outcome::Done);
    if step == TakeStep::Wait {
        write.handle_outcome(driver.wait(0));
        step = driver.path.take_pages(&mut write, 0).unwrap();
        assert_eq!(step, TakeStep::Fill);
        assert_eq!(driver.path.begin_append(&mut write), Some(0..10));
        driver.path.end_append(&mut write, driver.now);
    }
    append(&mut driver, 10);
}

/// The kernel zeroes the rest of the last page when the length of a file changes.
#[test]
fn a_hold_keeps_its_page_and_keeps_writers_out() {
    use iopath_core::cache::DirectStep;
    let mut driver = driver();
    driver.write(END - 10, 10);
    assert_eq!(driver.path.begin_hold(END, 5), DirectStep::Wait, "the page is dirty");
    let Outcome::Direct(tag) = driver.wait(5) else { panic!("it can be written back") };
    assert_eq!(stats(&driver).dirty, 0);
    let mut write = BufferedWrite::new(END - 10, 10).unwrap();
    assert_eq!(driver.path.take_pages(&mut write, 6), Ok(TakeStep::Wait));
    let read = stats(&driver).pages_read;
    assert_eq!(driver.read(END - 10, 10), 10);
    driver.path.end_direct(tag);
    write.handle_outcome(driver.wait(6));
    assert_eq!(driver.path.take_pages(&mut write, 6), Ok(TakeStep::Fill));
    driver.path.release_pages(&mut write, driver.now);
    assert_eq!(stats(&driver).pages_read, read, "the page was dropped");
    assert_eq!(driver.flush(), Outcome::Done);
}
