//! The bound on dirty pages: readers find a frame also while all write-back fails, and a writer without room waits, or
//! fails at once if the pages that occupy the room cannot be written.

use super::*;

/// Two of these frames are a reserve for reads.
const FRAMES: u32 = 16;
const ROOM: u64 = 14;

fn write_all(cache: &mut PageCache, pages: impl IntoIterator<Item = u64>) {
    for page in pages {
        write(cache, page, NOW);
    }
}

/// Writes pages until the next has no room. That writer waits as number 1000.
fn full_of_dirty_pages() -> PageCache {
    let mut cache = cache(FRAMES);
    write_all(&mut cache, (0..ROOM).map(|page| page * 2));
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 1000), WriteStep::Wait);
    cache
}

/// The same, and every page write has failed.
fn full_of_failed_pages() -> PageCache {
    let mut cache = full_of_dirty_pages();
    loop {
        let ios = all_io(&mut cache, NOW);
        if ios.is_empty() {
            break;
        }
        finish(&mut cache, &ios, Err(IoError::NoSpace));
    }
    assert_eq!(outcomes(&mut cache), [(1000, unwritable(ROOM))]);
    cache
}

fn unwritable(pages: u64) -> Outcome {
    Outcome::Unwritable { pages: pages as u32, source: IoError::NoSpace }
}

fn pages_of(ios: &[PageIo]) -> Vec<PageRange> {
    ios.iter().map(|io| io.pages).collect()
}

#[test]
fn dirty_pages_never_occupy_the_frames_for_reads() {
    let mut cache = full_of_dirty_pages();
    assert!(!cache.is_starved(1000), "a writer without room lacks no frame");
    for (page, waiter) in [(100, 1), (200, 2)] {
        assert_eq!(cache.read(Page(page), waiter), Lookup::Wait);
        assert!(!cache.is_starved(waiter));
    }
    let ios = all_io(&mut cache, NOW);
    let reads = ios.iter().filter(|io| io.op == Op::Read).count();
    assert_eq!((reads, ios.len()), (2, 2 + ROOM as usize), "a writer that waits starts write-back");
}

#[test]
fn a_writer_continues_when_a_page_has_been_written() {
    let mut cache = full_of_dirty_pages();
    let ios = all_io(&mut cache, NOW);
    assert_eq!(outcomes(&mut cache), []);
    finish(&mut cache, &ios[..1], Ok(()));
    assert_eq!(outcomes(&mut cache), [(1000, Outcome::Retry)]);
    write(&mut cache, 999, NOW);
    assert_eq!(cache.begin_write(Page(998), Part::Whole, 4), WriteStep::Wait);
}

#[test]
fn pages_that_writers_fill_have_room_and_a_page_that_stays_clean_returns_it() {
    let mut cache = cache(FRAMES);
    assert_eq!(cache.begin_write(Page(1), Part::Some, 3), WriteStep::Wait);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    let [(3, Outcome::Writable(held))] = outcomes(&mut cache)[..] else { panic!("no writer got the page") };
    for page in 1..ROOM {
        assert!(matches!(cache.begin_write(Page(page * 2), Part::Whole, 0), WriteStep::Into(_)));
    }
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 4), WriteStep::Wait);
    cache.abandon_write(held, NOW);
    assert_eq!(outcomes(&mut cache), [(4, Outcome::Retry)]);
}

#[test]
fn a_partial_write_waits_for_room_before_its_page_is_read_and_after() {
    let mut cache = cache(FRAMES);
    assert_eq!(cache.begin_write(Page(999), Part::Some, 3), WriteStep::Wait);
    let read = all_io(&mut cache, NOW);
    write_all(&mut cache, (0..ROOM).map(|page| page * 2));
    finish(&mut cache, &read, Ok(()));
    assert_eq!(outcomes(&mut cache), [(3, Outcome::Retry)], "the page may not become dirty");
    assert_eq!(cache.begin_write(Page(999), Part::Some, 3), WriteStep::Wait);
    assert_eq!(cache.begin_write(Page(777), Part::Some, 4), WriteStep::Wait);
    assert!(!cache.is_cached(Page(777)));
    assert_eq!(cache.discard(PageRange::new(Page(0), 1)).dropped, 1);
    assert_eq!(outcomes(&mut cache), [(3, Outcome::Retry), (4, Outcome::Retry)]);
}

#[test]
fn a_writer_behind_failed_pages_gets_the_error_of_one_more_write() {
    let mut cache = full_of_failed_pages();
    assert_eq!(all_io(&mut cache, NOW), [], "no page is retried before its time without a reason");
    let mut probed = Vec::new();
    for waiter in 0..ROOM {
        assert_eq!(cache.begin_write(Page(999), Part::Whole, waiter), WriteStep::Wait);
        assert_eq!(cache.begin_write(Page(998), Part::Whole, 100 + waiter), WriteStep::Wait);
        let ios = all_io(&mut cache, NOW);
        assert_eq!(ios.len(), 1, "two writers need one probe");
        finish(&mut cache, &ios, Err(IoError::NoSpace));
        assert_eq!(outcomes(&mut cache), [(waiter, unwritable(ROOM)), (100 + waiter, unwritable(ROOM))]);
        probed.extend(pages_of(&ios));
        assert_eq!(all_io(&mut cache, NOW), []);
    }
    probed.sort_by_key(|pages| pages.start());
    probed.dedup();
    assert_eq!(probed.len() as u64, ROOM, "each failed page is tried in turn");
    assert_eq!(cache.unwritable(), Some((ROOM as u32, IoError::NoSpace)));
}

#[test]
fn a_writer_behind_failed_pages_continues_when_the_probe_succeeds() {
    let mut cache = full_of_failed_pages();
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 5), WriteStep::Wait);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    assert_eq!(outcomes(&mut cache), [(5, Outcome::Retry)]);
    write(&mut cache, 999, NOW);
    assert_eq!(cache.unwritable(), Some((ROOM as u32 - 1, IoError::NoSpace)));
}

#[test]
fn few_failed_pages_fail_no_writer() {
    let mut cache = full_of_dirty_pages();
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios[1..], Err(IoError::Media));
    assert_eq!(outcomes(&mut cache), [], "the write that is in flight can make room");
    finish(&mut cache, &ios[..1], Ok(()));
    assert_eq!(outcomes(&mut cache), [(1000, Outcome::Retry)]);
}

#[test]
fn a_dirty_page_is_written_again_without_room_and_replaces_the_failed_bytes() {
    let mut cache = full_of_failed_pages();
    write(&mut cache, 0, NOW);
    assert_eq!(cache.unwritable(), Some((ROOM as u32 - 1, IoError::NoSpace)));
}

#[test]
fn a_writer_of_a_failed_page_at_the_device_gets_the_error_of_that_write() {
    let mut cache = full_of_failed_pages();
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 0), WriteStep::Wait);
    let mut at_device = all_io(&mut cache, NOW);
    outcomes(&mut cache);
    // Each writer calls while its page is at the device as the probe for the writer before. If it had to retry, its
    // page could be there again, as the probe for the writer after it.
    for waiter in 1..10 {
        let [PageIo { pages, .. }] = at_device[..] else { panic!("one page is tried: {at_device:?}") };
        assert_eq!(cache.begin_write(pages.start(), Part::Whole, waiter), WriteStep::Wait);
        let next = all_io(&mut cache, NOW);
        finish(&mut cache, &at_device, Err(IoError::NoSpace));
        assert!(outcomes(&mut cache).contains(&(waiter, unwritable(ROOM))));
        at_device = next;
    }
    finish(&mut cache, &at_device, Err(IoError::NoSpace));
    assert_eq!((outcomes(&mut cache), all_io(&mut cache, NOW)), (vec![], vec![]));
    write(&mut cache, 0, NOW);
}

#[test]
fn more_dirty_pages_than_room_after_a_failed_flush_become_fewer() {
    let mut cache = cache(FRAMES);
    write_all(&mut cache, (0..ROOM).map(|page| page * 2));
    cache.flush(7);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    let flush = all_io(&mut cache, NOW);
    write_all(&mut cache, [100, 102]);
    finish(&mut cache, &flush, Err(IoError::Media));
    assert_eq!(cache.dirty_pages(), FRAMES, "the pages of the failed flush are dirty again");
    outcomes(&mut cache);
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 5), WriteStep::Wait);
    for _ in 0..FRAMES {
        let ios = all_io(&mut cache, NOW);
        finish(&mut cache, &ios, Err(IoError::NoSpace));
    }
    assert_eq!(outcomes(&mut cache), [(5, unwritable(ROOM))]);
    assert_eq!(cache.unwritable(), Some((FRAMES, IoError::NoSpace)));
    // Each page that can be written is, until there is room.
    assert_eq!(cache.begin_write(Page(999), Part::Whole, 5), WriteStep::Wait);
    for _ in 0..3 {
        assert_eq!(outcomes(&mut cache), []);
        let ios = all_io(&mut cache, NOW);
        assert_eq!(ios.len(), 1);
        finish(&mut cache, &ios, Ok(()));
    }
    assert_eq!(outcomes(&mut cache), [(5, Outcome::Retry)]);
}

#[test]
fn a_cache_of_one_frame_takes_one_dirty_page() {
    let mut cache = cache(1);
    write(&mut cache, 0, NOW);
    assert_eq!(cache.begin_write(Page(1), Part::Whole, 5), WriteStep::Wait);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    assert_eq!(outcomes(&mut cache), [(5, Outcome::Retry)]);
    write(&mut cache, 1, NOW);
}
