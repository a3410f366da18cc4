//! Sequential writers: the time at which the pages that they have passed are written back.

use super::{all_io, finish, write};
use iopath_core::cache::{CacheConfig, PageCache, PageIo};
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange};

const NOW: Instant = Instant::ZERO;
const REQUEST: u64 = 4;

fn cache(frames: u32) -> PageCache {
    PageCache::new(CacheConfig { frames, io_pages_max: REQUEST as u32, ..CacheConfig::default() })
}

fn write_all(cache: &mut PageCache, pages: std::ops::Range<u64>) {
    for page in pages {
        write(cache, page, NOW);
    }
}

fn pages_of(ios: &[PageIo]) -> Vec<PageRange> {
    assert!(ios.iter().all(|io| io.op == Op::Write));
    ios.iter().map(|io| io.pages).collect()
}

#[test]
fn pages_that_streams_have_passed_are_written_at_once_in_whole_requests() {
    let mut cache = cache(1000);
    for page in 0..REQUEST - 1 {
        write(&mut cache, 100 + page, NOW);
        write(&mut cache, 500 + page, NOW);
        assert_eq!(all_io(&mut cache, NOW), [], "no request is full");
    }
    write(&mut cache, 500 + REQUEST - 1, NOW);
    assert_eq!(pages_of(&all_io(&mut cache, NOW)), [PageRange::new(Page(500), REQUEST)]);
    write(&mut cache, 100 + REQUEST - 1, NOW);
    assert_eq!(pages_of(&all_io(&mut cache, NOW)), [PageRange::new(Page(100), REQUEST)]);
}

#[test]
fn a_stream_does_not_delay_old_dirty_pages() {
    let mut cache = PageCache::new(CacheConfig {
        frames: 1000,
        io_pages_max: REQUEST as u32,
        writes_max: 1,
        ..CacheConfig::default()
    });
    write(&mut cache, 700, NOW);
    let later = NOW + CacheConfig::default().expire;
    for page in 0..REQUEST {
        write(&mut cache, page, later);
    }
    let ios = all_io(&mut cache, later);
    assert_eq!(pages_of(&ios), [PageRange::new(Page(700), 1)]);
    finish(&mut cache, &ios, Ok(()));
    assert_eq!(pages_of(&all_io(&mut cache, later)), [PageRange::new(Page(0), REQUEST)]);
}

#[test]
fn pages_written_twice_are_left_to_age() {
    let mut cache = cache(1000);
    write_all(&mut cache, 0..REQUEST);
    let ios = all_io(&mut cache, NOW);
    assert_eq!(pages_of(&ios), [PageRange::new(Page(0), REQUEST)]);
    finish(&mut cache, &ios, Ok(()));
    assert!(!cache.is_streamed(Page(0)) && cache.is_streamed(Page(REQUEST)));
    write_all(&mut cache, 0..REQUEST);
    assert_eq!(all_io(&mut cache, NOW), []);
    let later = NOW + CacheConfig::default().expire + Duration::from_nanos(1);
    assert_eq!(pages_of(&all_io(&mut cache, later)), [PageRange::new(Page(0), REQUEST)]);
}

#[test]
fn pages_written_soon_after_eviction_are_left_to_age() {
    let mut cache = cache(100);
    for page in 0..160 {
        write(&mut cache, page, NOW);
        let ios = all_io(&mut cache, NOW);
        finish(&mut cache, &ios, Ok(()));
    }
    let is_gone = |first: &u64| (*first..first + REQUEST).all(|page| !cache.is_cached(Page(page)));
    let first = (0..160).step_by(REQUEST as usize).find(is_gone).expect("some had to make room");
    write_all(&mut cache, first..first + REQUEST);
    assert_eq!(all_io(&mut cache, NOW), []);
}

#[test]
fn failed_pages_of_a_stream_wait_for_age_or_a_flush() {
    let mut cache = cache(1000);
    write_all(&mut cache, 0..REQUEST);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Err(IoError::Media));
    assert_eq!(all_io(&mut cache, NOW), [], "no hot loop");
    assert_eq!(u64::from(cache.dirty_pages()), REQUEST);
    cache.flush(1);
    let alone: Vec<_> = (0..REQUEST).map(|page| PageRange::new(Page(page), 1)).collect();
    assert_eq!(pages_of(&all_io(&mut cache, NOW)), alone);
}
