//! Eviction with readers that enter and leave frames, and with all pages pinned but one. Single-threaded schedules are
//! in `cache_model`.

use iopath_core::cache::{CacheConfig, Lookup, Outcome, PageCache, Part, WriteStep};
use iopath_core::{Instant, Page, PageRange};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Writes a whole page, and completes its write-back.
fn write(cache: &mut PageCache, page: Page) {
    let frame = loop {
        match cache.begin_write(page, Part::Whole, 0) {
            WriteStep::Into(frame) => break frame,
            WriteStep::Copy { .. } => unreachable!("a page that is written whole keeps no bytes"),
            WriteStep::Wait => {
                while cache.poll_ready().is_none() {
                    cache.handle_unpinned();
                }
            }
        }
    };
    cache.end_write(frame, Instant::ZERO);
    cache.write_back(PageRange::ALL, 1);
    while let Some(io) = cache.poll_io(Instant::ZERO) {
        cache.handle_completion(io.tag, Ok(()), Instant::ZERO);
    }
    while cache.poll_ready().is_some() {}
}

#[test]
fn a_page_is_not_evicted_to_make_room_for_itself() {
    let mut cache = PageCache::new(CacheConfig { frames: 2, ..CacheConfig::default() });
    let hot = Arc::clone(cache.hot());
    (0..2).for_each(|page| write(&mut cache, Page(page)));
    let other = hot.try_pin(Page(1)).expect("it was written");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                // Readers enter and leave frames, also between two checks of the writer.
                hot.visit(0, Page(0), |_| (), |_| std::hint::spin_loop());
            }
        });
        (0..50_000).for_each(|_| write(&mut cache, Page(0)));
        is_over.store(true, Relaxed);
    });
    hot.unpin(other.frame);
}

/// Reads a page and leaves it pinned.
fn read(cache: &mut PageCache, page: Page) {
    if let Lookup::Hit(_) = cache.read(page, 0) {
        return;
    }
    while let Some(io) = cache.poll_io(Instant::ZERO) {
        cache.handle_completion(io.tag, Ok(()), Instant::ZERO);
    }
    let ready = cache.poll_ready().expect("there is room");
    assert!(matches!(ready.outcome, Outcome::Pinned(_)), "{ready:?}");
}

#[test]
fn the_only_unpinned_page_is_evicted_after_any_number_of_touches() {
    for frames in 2..9 {
        for (free, touches) in (0..frames).flat_map(|free| (0..5).map(move |touches| (free, touches))) {
            let mut cache = PageCache::new(CacheConfig { frames, ..CacheConfig::default() });
            let hot = Arc::clone(cache.hot());
            (0..frames).for_each(|page| read(&mut cache, Page(u64::from(page))));
            let page = Page(u64::from(free));
            let frame = hot.try_pin(page).expect("it was read").frame;
            for _ in 0..touches {
                hot.visit(0, page, |_| (), |_| ());
            }
            for _ in 0..2 {
                hot.unpin(frame);
            }
            read(&mut cache, Page(u64::from(frames)));
            assert_eq!(cache.stats().starved, 0, "{frames} frames, {touches} touches of page {free}");
        }
    }
}
