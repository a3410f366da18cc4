//! The cost of the page cache without its memory: a hit, a miss with an eviction, a write with its write-back, and
//! direct I/O beside the cache.

// criterion's macros make an undocumented function.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use iopath_core::cache::{CacheConfig, DirectStep, Lookup, Outcome, PageCache, Part, WriteStep};
use iopath_core::{Instant, Op, Page, PageRange};
use std::hint::black_box;

const FRAMES: u32 = 65_536;
const NOW: Instant = Instant::ZERO;

/// A step of a multiplicative sequence over all pages.
fn next(state: &mut u64, pages: u64) -> Page {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    Page((*state >> 33) % pages)
}

/// Reads a page if it is not cached.
fn read(cache: &mut PageCache, page: Page) {
    let frame = match cache.read(page, 0) {
        Lookup::Hit(pinned) => pinned.frame,
        Lookup::Wait => {
            let io = cache.poll_io(NOW).expect("a miss starts a read");
            cache.handle_completion(io.tag, Ok(()), NOW);
            match cache.poll_ready().expect("the page is there").outcome {
                Outcome::Pinned(frame) => frame,
                outcome => unreachable!("a read ended as {outcome:?}"),
            }
        }
    };
    cache.hot().unpin(frame);
}

fn write(cache: &mut PageCache, page: Page) {
    if let WriteStep::Into(frame) = cache.begin_write(page, Part::Whole, 0) {
        black_box(cache.end_write(frame, NOW));
    }
    while let Some(io) = cache.poll_io(NOW) {
        cache.handle_completion(io.tag, Ok(()), NOW);
    }
}

fn cache(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("cache");
    group.throughput(Throughput::Elements(1));
    let mut state = 1;
    let mut full = PageCache::new(CacheConfig { frames: FRAMES, ..CacheConfig::default() });
    (0..u64::from(FRAMES)).for_each(|page| read(&mut full, Page(page)));
    group.bench_function("hit/random", |bench| {
        bench.iter(|| {
            let pinned =
                full.hot().try_pin(next(&mut state, u64::from(FRAMES))).expect("all pages are there");
            full.hot().unpin(pinned.frame)
        });
    });
    group.bench_function("miss/random", |bench| {
        bench.iter(|| read(&mut full, next(&mut state, u64::from(FRAMES) * 16)));
    });
    // 512 KiB without a cached page: in a full cache, and in an unused one.
    let mut unused = PageCache::new(CacheConfig { frames: FRAMES, ..CacheConfig::default() });
    for (name, cache) in [("full", &mut full), ("unused", &mut unused)] {
        group.bench_function(format!("direct/{name}"), |bench| {
            bench.iter(|| {
                let range = PageRange::new(next(&mut state, 1 << 30) + u64::from(FRAMES) * 16, 128);
                if let DirectStep::Go(tag) = cache.begin_direct(Op::Write, range, 0) {
                    cache.end_direct(black_box(tag));
                }
            });
        });
    }
    let mut page = 0;
    group.bench_function("write/sequential", |bench| {
        bench.iter(|| {
            page += 1;
            write(&mut full, Page(page));
        });
    });
    group.finish();
}

criterion_group!(benches, cache);
criterion_main!(benches);
