//! The page cache and readahead: pages and ranges at any position, on devices of any speed.

use super::{EDGES, pairs};
use iopath_core::cache::{CacheConfig, DirectStep, Lookup, Outcome, PageCache, Part, WriteStep};
use iopath_core::readahead::{Pattern, Readahead, ReadaheadConfig};
use iopath_core::{Duration, Instant, Op, Page, PageRange};

/// Valid pages: no range includes the highest number.
fn pages() -> impl Iterator<Item = Page> {
    EDGES.into_iter().filter(|page| *page < u64::MAX).map(Page)
}

/// Completes all I/O of the cache; returns the outcomes of the waiters.
fn drain(cache: &mut PageCache, now: Instant) -> Vec<Outcome> {
    let mut told = Vec::new();
    loop {
        while let Some(ready) = cache.poll_ready() {
            if let Outcome::Pinned(frame) = ready.outcome {
                cache.hot().unpin(frame);
            }
            if let Outcome::Writable(frame) = ready.outcome {
                cache.end_write(frame, now);
            }
            if let Outcome::Direct(tag) = ready.outcome {
                cache.end_direct(tag);
            }
            told.push(ready.outcome);
        }
        let Some(io) = cache.poll_io(now) else { return told };
        assert!(io.pages.pages() == cache.frames_of(io.tag).count() as u64);
        cache.handle_completion(io.tag, Ok(()), now);
    }
}

#[test]
fn pages_and_ranges_at_any_position_are_cached_written_and_dropped() {
    for expire in [Duration::ZERO, Duration::MAX] {
        let config = CacheConfig { frames: 16, expire, ..CacheConfig::default() };
        let mut cache = PageCache::new(config);
        for nanos in [0, u64::MAX] {
            let now = Instant::from_nanos(nanos);
            for page in pages() {
                assert_eq!(cache.read(page, 1), Lookup::Wait, "page {page}");
                drain(&mut cache, now);
                assert!(
                    matches!(cache.read(page, 1), Lookup::Hit(pinned) if !cache.hot().unpin(pinned.frame))
                );
                for part in [Part::Some, Part::Whole] {
                    if let WriteStep::Into(frame) = cache.begin_write(page, part, 2) {
                        cache.end_write(frame, now);
                    }
                    drain(&mut cache, now);
                }
                cache.prefetch(page);
                cache.take_mark(page);
                cache.poll_timeout();
            }
            for (start, count) in pairs() {
                let range = PageRange::new(Page(start), count);
                for flush in [PageCache::flush_range, PageCache::write_back] {
                    flush(&mut cache, range, 3);
                    assert_eq!(drain(&mut cache, now), [Outcome::Done], "{range}");
                }
                for op in [Op::Read, Op::Write, Op::Discard] {
                    match cache.begin_direct(op, range, 4) {
                        DirectStep::Go(tag) => cache.end_direct(tag),
                        DirectStep::Wait => {}
                    }
                    drain(&mut cache, now);
                }
                let prefetched = cache.read_ahead(range, |page| page.0 % 2 == 0);
                assert!(prefetched <= 16);
                drain(&mut cache, now);
                assert!(cache.invalidate(range).kept == 0 && cache.discard(range).kept == 0);
                if let DirectStep::Go(tag) = cache.begin_truncate(Page(start), 5) {
                    cache.end_direct(tag);
                }
                drain(&mut cache, now);
            }
            cache.forget_loss();
        }
    }
}

#[test]
fn a_cache_of_any_configuration_works() {
    let most = u32::MAX;
    for (page_bytes, io_pages_max, ios_max) in [(most, most, most), (512, 1, most), (4096, most, 1)] {
        for (background_percent, limit_percent) in [(0, 0), (255, 255), (255, 0), (0, 255)] {
            let mut cache = PageCache::new(CacheConfig {
                frames: 64,
                page_bytes,
                io_pages_max,
                reads_max: ios_max,
                writes_max: ios_max,
                background_percent,
                limit_percent,
                expire: Duration::MAX,
            });
            for page in 0..40 {
                if let WriteStep::Into(frame) = cache.begin_write(Page(page), Part::Whole, 0) {
                    cache.end_write(frame, Instant::from_nanos(page << 58));
                }
            }
            cache.flush(1);
            assert_eq!(drain(&mut cache, Instant::from_nanos(u64::MAX)), [Outcome::Done]);
        }
    }
}

#[test]
fn readahead_at_any_position_requests_valid_pages() {
    for (request_bytes, budget_bytes) in pairs().filter(|(a, b)| *a > 0 && *b > 0) {
        for page_bytes in [1, 4096, u32::MAX] {
            let config = ReadaheadConfig {
                page_bytes,
                request_bytes,
                budget_bytes,
                streams_max: 4,
                ..ReadaheadConfig::default()
            };
            let mut readahead = Readahead::new(config, Page(u64::MAX));
            for pattern in [Pattern::Normal, Pattern::Sequential, Pattern::Random] {
                readahead.set_pattern(pattern);
                for end in [0, 1 << 40, u64::MAX] {
                    readahead.set_end(Page(end));
                    reads(&mut readahead);
                }
            }
        }
    }
}

fn reads(readahead: &mut Readahead) {
    let mut now = Instant::ZERO;
    // One step back, one step forward, strides, and one read of all pages.
    let around =
        |page: Page| [page, page + 1, page + 2, page, page - 1, page - 2, page + 100, page + 200, page + 300];
    for page in EDGES.map(Page).into_iter().flat_map(around) {
        for pages in [1, 1 << 33, u64::MAX] {
            let at = PageRange::new(page, pages);
            if at.is_empty() {
                continue;
            }
            now = now + Duration::from_millis(1);
            let window = readahead.on_miss(at, |page| page.0 % 3 == 0, now);
            check(&window, at);
            if let Some(window) = readahead.on_marker(at, |_| false, now) {
                check(&window, at);
            }
            readahead.on_evicted_unused(page);
        }
    }
    for bytes in EDGES {
        readahead.on_issued(bytes, now);
        readahead.on_issued(u64::MAX, now);
        readahead.on_completed(bytes, bytes, Instant::from_nanos(u64::MAX));
        readahead.on_completed(u64::MAX, u64::MAX, Instant::from_nanos(u64::MAX));
    }
    assert!(readahead.distance_bytes() > 0);
    let _ = (readahead.stats(), readahead.bytes_per_second());
}

fn check(window: &iopath_core::readahead::Window, at: PageRange) {
    assert!(window.pages() > 0 && window.async_pages() <= window.pages(), "{window:?} for {at}");
    for range in window.ranges() {
        for page in [range.start(), range.end() - 1, Page(0), Page(i64::MAX as u64), Page(u64::MAX)] {
            window.is_marked(page);
        }
    }
}
