//! The contract of direct I/O and truncation with a page cache, one guarantee per test. `cache_model` checks the bytes
//! against a model.

use super::{NOW, all_io, cache, finish, outcomes, write};
use iopath_core::cache::{
    CacheConfig, DirectStep, DirectTag, Frame, Lookup, Outcome, PageCache, PageIo, Part, WriteStep,
};
use iopath_core::{IoError, Op, Page, PageRange};

fn write_all(cache: &mut PageCache, range: PageRange) {
    for page in range.iter() {
        write(cache, page.0, NOW);
    }
}

fn go(cache: &mut PageCache, op: Op, range: PageRange) -> DirectTag {
    let DirectStep::Go(tag) = cache.begin_direct(op, range, 0) else { panic!("a direct {op} waits") };
    tag
}

#[test]
fn a_borrowed_page_delays_no_direct_write() {
    let mut cache = cache(8);
    let range = PageRange::new(Page(0), 2);
    write(&mut cache, 0, NOW);
    let borrowed = cache.hot().try_pin(Page(0)).unwrap().frame;
    assert_eq!(cache.begin_direct(Op::Write, range, 5), DirectStep::Wait);
    let ios = all_io(&mut cache, NOW);
    assert_eq!(ios.len(), 1, "the page is written back first");
    finish(&mut cache, &ios, Ok(()));
    let ready = outcomes(&mut cache);
    let [(5, Outcome::Direct(tag))] = ready[..] else { panic!("{ready:?}") };
    cache.end_direct(tag);
    assert_eq!(cache.read(Page(0), 1), Lookup::Wait, "a read now returns the contents of the device");
    let other: Vec<Frame> = all_io(&mut cache, NOW).iter().flat_map(|io| cache.frames_of(io.tag)).collect();
    assert!(!other.contains(&borrowed), "the borrower's frame is read into");
}

#[test]
fn a_writer_waits_for_all_direct_writes_on_its_page_and_for_no_others() {
    let mut cache = cache(8);
    let first = go(&mut cache, Op::Write, PageRange::new(Page(0), 2));
    let second = go(&mut cache, Op::Discard, PageRange::new(Page(1), 2));
    assert_eq!(cache.begin_write(Page(0), Part::Whole, 6), WriteStep::Wait);
    assert_eq!(cache.begin_write(Page(1), Part::Whole, 7), WriteStep::Wait);
    assert_eq!(cache.begin_write(Page(2), Part::Whole, 8), WriteStep::Wait);
    write(&mut cache, 3, NOW);
    cache.end_direct(first);
    assert_eq!(outcomes(&mut cache), [(6, Outcome::Retry)]);
    cache.end_direct(second);
    assert_eq!(outcomes(&mut cache), [(7, Outcome::Retry), (8, Outcome::Retry)]);
    write(&mut cache, 1, NOW);
}

#[test]
fn a_direct_write_over_unwritable_pages_fails_and_admits_writers() {
    let mut cache = cache(8);
    write(&mut cache, 0, NOW);
    assert_eq!(cache.begin_direct(Op::WriteZeroes, PageRange::new(Page(0), 1), 5), DirectStep::Wait);
    assert_eq!(cache.begin_write(Page(0), Part::Whole, 6), WriteStep::Wait);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Err(IoError::Media));
    assert_eq!(outcomes(&mut cache), [(6, Outcome::Retry), (5, Outcome::Failed(IoError::Media))]);
    write(&mut cache, 0, NOW);
    assert_eq!(cache.stats().dirty, 1);
}

#[test]
fn a_direct_read_waits_for_pages_dirty_at_its_call_and_not_for_later_writers() {
    let mut cache = cache(1000);
    let range = PageRange::new(Page(0), 100);
    write_all(&mut cache, range);
    assert_eq!(cache.begin_direct(Op::Read, range, 9), DirectStep::Wait);
    let mut written = 0;
    while let Some(io) = cache.poll_io(NOW) {
        // All pages are written again while they are being written back, and others as well.
        write_all(&mut cache, PageRange::new(Page(0), 200));
        written += io.pages.pages();
        finish(&mut cache, &[io], Ok(()));
        if let [(9, Outcome::Direct(_))] = outcomes(&mut cache)[..] {
            assert_eq!(written, 100);
            return;
        }
    }
    panic!("it waits forever, {written} pages written");
}

#[test]
fn a_direct_read_does_not_wait_for_dirty_pages_outside_its_range() {
    let mut cache = cache(8);
    assert!(cache.hot().is_clean());
    write(&mut cache, 0, NOW);
    assert!(!cache.hot().is_clean());
    let tag = go(&mut cache, Op::Read, PageRange::new(Page(1), 100));
    cache.end_direct(tag);
    cache.flush(0);
    let ios = all_io(&mut cache, NOW);
    assert!(!cache.hot().is_clean(), "a page in flight is not clean");
    finish(&mut cache, &ios, Ok(()));
    assert!(cache.hot().is_clean());
}

#[test]
fn a_truncation_drops_dirty_pages_and_waits_for_writers_and_the_device() {
    let mut cache = cache(8);
    write_all(&mut cache, PageRange::new(Page(0), 4));
    cache.write_back(PageRange::new(Page(1), 1), 1);
    let at_device = all_io(&mut cache, NOW);
    let WriteStep::Into(frame) = cache.begin_write(Page(2), Part::Whole, 2) else { panic!("it waits") };
    assert_eq!(cache.begin_truncate(Page(1), 5), DirectStep::Wait);
    cache.end_write(frame, NOW);
    assert_eq!(outcomes(&mut cache), [], "a write past the new end is in flight");
    finish(&mut cache, &at_device, Err(IoError::Media));
    let ready = outcomes(&mut cache);
    let [(1, Outcome::Done), (5, Outcome::Direct(tag))] = ready[..] else { panic!("{ready:?}") };
    cache.end_direct(tag);
    cache.flush(3);
    let ios = all_io(&mut cache, NOW);
    assert_eq!(ios.iter().map(|io| io.pages).collect::<Vec<_>>(), [PageRange::new(Page(0), 1)]);
}

/// Writes page 3 and flushes it for waiter 1. The write has ended, and the returned flush of the device is in flight.
fn flush_page_3(cache: &mut PageCache) -> Vec<PageIo> {
    write(cache, 3, NOW);
    cache.flush(1);
    let ios = all_io(cache, NOW);
    finish(cache, &ios, Ok(()));
    let flush = all_io(cache, NOW);
    assert_eq!(flush.iter().map(|io| io.op).collect::<Vec<_>>(), [Op::Flush]);
    flush
}

#[test]
fn pages_that_a_failed_flush_may_have_lost_are_not_written_during_a_truncation() {
    let mut cache = cache(8);
    let flush = flush_page_3(&mut cache);
    // A page that was written, has left the cache and is read again may be lost: then it is written again.
    cache.invalidate(PageRange::ALL);
    write(&mut cache, 5, NOW);
    cache.write_back(PageRange::ALL, 2);
    let writes = all_io(&mut cache, NOW);
    assert_eq!(cache.begin_truncate(Page(4), 3), DirectStep::Wait);
    cache.read(Page(5), 4);
    cache.read(Page(3), 4);
    let reads = all_io(&mut cache, NOW);
    finish(&mut cache, &reads, Ok(()));
    finish(&mut cache, &flush, Err(IoError::Media));
    finish(&mut cache, &writes, Ok(()));
    assert_eq!(cache.stats().dirty, 1, "page 3 is before the new end");
    assert!(
        outcomes(&mut cache)
            .iter()
            .any(|(waiter, ready)| *waiter == 3 && matches!(ready, Outcome::Direct(_)))
    );
}

#[test]
fn a_page_that_a_failed_flush_has_made_dirty_is_written_after_its_hold() {
    let mut cache = cache(8);
    let flush = flush_page_3(&mut cache);
    let DirectStep::Go(hold) = cache.begin_hold(PageRange::new(Page(3), 1), 2) else {
        panic!("the page is clean")
    };
    finish(&mut cache, &flush, Err(IoError::Media));
    assert_eq!(cache.stats().dirty, 1);
    cache.flush(3);
    let late = NOW + CacheConfig::default().expire;
    assert_eq!((all_io(&mut cache, late), cache.poll_timeout()), (Vec::new(), None));
    cache.end_direct(hold);
    let ios = all_io(&mut cache, NOW);
    assert_eq!(ios.iter().map(|io| io.pages).collect::<Vec<_>>(), [PageRange::new(Page(3), 1)]);
}

#[test]
fn a_failed_truncation_reports_a_page_whose_write_in_flight_failed() {
    let mut cache = cache(8);
    write(&mut cache, 5, NOW);
    cache.write_back(PageRange::ALL, 1);
    let ios = all_io(&mut cache, NOW);
    assert_eq!(cache.begin_truncate(Page(4), 2), DirectStep::Wait);
    finish(&mut cache, &ios, Err(IoError::Media));
    let ready = outcomes(&mut cache);
    let Some((_, Outcome::Direct(tag))) = ready.iter().find(|(waiter, _)| *waiter == 2) else {
        panic!("{ready:?}")
    };
    cache.fail_truncate(*tag, IoError::ReadOnly);
    assert_eq!(cache.loss(), Some(IoError::ReadOnly), "the bytes are lost");
}
