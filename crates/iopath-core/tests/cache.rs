//! The contract of the page cache, one guarantee per test, and its lock-free half under threads. `cache_model` checks
//! the bytes against a model.

mod cancelled;
mod direct;
mod earlier;
mod room;
mod streams;

use iopath_core::cache::{
    CacheConfig, DirectStep, Frame, Lookup, Outcome, PageCache, PageIo, Part, WriteStep,
};
use iopath_core::{Duration, Instant, IoError, Op, Page, PageRange};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const NOW: Instant = Instant::ZERO;

fn cache(frames: u32) -> PageCache {
    PageCache::new(CacheConfig { frames, ..CacheConfig::default() })
}

fn write(cache: &mut PageCache, page: u64, now: Instant) -> Duration {
    let WriteStep::Into(frame) = cache.begin_write(Page(page), Part::Whole, 0) else {
        panic!("page {page} cannot be written at once");
    };
    cache.end_write(frame, now)
}

fn all_io(cache: &mut PageCache, now: Instant) -> Vec<PageIo> {
    std::iter::from_fn(|| cache.poll_io(now)).collect()
}

fn finish(cache: &mut PageCache, ios: &[PageIo], result: Result<(), IoError>) {
    for io in ios {
        cache.handle_completion(io.tag, result, NOW);
    }
}

fn outcomes(cache: &mut PageCache) -> Vec<(u64, Outcome)> {
    std::iter::from_fn(|| cache.poll_ready()).map(|ready| (ready.waiter, ready.outcome)).collect()
}

#[test]
fn a_miss_of_many_callers_is_read_once() {
    let mut cache = cache(8);
    for waiter in 0..100 {
        assert_eq!(cache.read(Page(5), waiter), Lookup::Wait);
    }
    let ios = all_io(&mut cache, NOW);
    assert_eq!(
        ios.iter().map(|io| (io.op, io.pages)).collect::<Vec<_>>(),
        [(Op::Read, PageRange::new(Page(5), 1))]
    );
    finish(&mut cache, &ios, Ok(()));
    let ready = outcomes(&mut cache);
    assert_eq!(ready.len(), 100);
    for (_, outcome) in ready {
        let Outcome::Pinned(frame) = outcome else { panic!("{outcome:?}") };
        cache.hot().unpin(frame);
    }
    assert_eq!(cache.stats().pages_read, 1);
}

#[test]
fn a_window_is_read_as_one_run_with_the_page_that_missed() {
    let mut cache = cache(512);
    cache.read(Page(100), 0);
    cache.read_ahead(PageRange::new(Page(100), 128), |page| page == Page(101));
    let ios = all_io(&mut cache, NOW);
    assert_eq!(ios.iter().map(|io| io.pages).collect::<Vec<_>>(), [PageRange::new(Page(100), 128)]);
    finish(&mut cache, &ios, Ok(()));
    assert!(cache.hot().try_pin(Page(101)).unwrap().is_marked);
    assert!(!cache.hot().try_pin(Page(102)).unwrap().is_marked);
}

#[test]
fn a_failed_readahead_is_silent_and_the_requested_page_is_read_alone() {
    let mut cache = cache(64);
    cache.read(Page(0), 7);
    cache.read_ahead(PageRange::new(Page(0), 8), |_| false);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Err(IoError::Media));
    assert_eq!(outcomes(&mut cache), []);
    let alone = all_io(&mut cache, NOW);
    assert_eq!(alone.iter().map(|io| io.pages).collect::<Vec<_>>(), [PageRange::new(Page(0), 1)]);
    finish(&mut cache, &alone, Err(IoError::Media));
    assert_eq!(outcomes(&mut cache), [(7, Outcome::Failed(IoError::Media))]);
    assert!(!cache.is_cached(Page(0)) && !cache.is_cached(Page(3)));
}

#[test]
fn a_whole_page_is_written_without_a_read_and_a_partial_write_reads_once() {
    let mut cache = cache(8);
    write(&mut cache, 0, NOW);
    assert_eq!(cache.stats().pages_read, 0);
    assert_eq!(cache.begin_write(Page(1), Part::Some, 3), WriteStep::Wait);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    let ready = outcomes(&mut cache);
    let [(3, Outcome::Writable(frame))] = ready[..] else { panic!("{ready:?}") };
    cache.end_write(frame, NOW);
    assert!(matches!(cache.begin_write(Page(1), Part::Some, 3), WriteStep::Into(_)));
    assert_eq!(cache.stats().pages_read, 1);
}

#[test]
fn a_borrowed_page_is_written_in_another_frame() {
    let mut cache = cache(8);
    write(&mut cache, 0, NOW);
    let borrowed = cache.hot().try_pin(Page(0)).unwrap().frame;
    let WriteStep::Copy { from, to } = cache.begin_write(Page(0), Part::Some, 0) else {
        panic!("written in place")
    };
    assert_eq!(from, borrowed);
    cache.hot().unpin(from);
    cache.end_write(to, NOW);
    assert_eq!(cache.hot().try_pin(Page(0)).unwrap().frame, to);
}

#[test]
fn a_page_that_moves_to_another_frame_stays_as_old_as_it_is() {
    let mut cache = cache(8);
    let later = NOW + cache.config().expire / 2;
    write(&mut cache, 0, NOW);
    write(&mut cache, 1, later);
    // Page 1 is overwritten while it is borrowed, page 0 likewise: page 0 moves last.
    for page in [1, 0] {
        let borrowed = cache.hot().try_pin(Page(page)).unwrap().frame;
        let WriteStep::Copy { to, .. } = cache.begin_write(Page(page), Part::Some, 0) else {
            panic!("written in place")
        };
        cache.hot().unpin(borrowed);
        cache.end_write(to, later);
    }
    // Page 1 is held by a writer while page 0 becomes due.
    let WriteStep::Into(held) = cache.begin_write(Page(1), Part::Some, 0) else { panic!("not in place") };
    let due = cache.poll_timeout().expect("page 0 is dirty");
    assert_eq!(due, NOW + cache.config().expire);
    let ios = all_io(&mut cache, due);
    assert_eq!(ios.iter().map(|io| io.pages.start()).collect::<Vec<_>>(), [Page(0)], "due, so it is written");
    finish(&mut cache, &ios, Ok(()));
    cache.end_write(held, later);
}

#[test]
fn dirty_and_borrowed_pages_are_never_evicted() {
    let mut cache = cache(4);
    write(&mut cache, 0, NOW);
    write(&mut cache, 1, NOW);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    let borrowed = cache.hot().try_pin(Page(0)).unwrap().frame;
    for page in 10..100 {
        if cache.read(Page(page), 0) == Lookup::Wait {
            let reads: Vec<PageIo> =
                all_io(&mut cache, NOW).into_iter().filter(|io| io.op == Op::Read).collect();
            finish(&mut cache, &reads, Ok(()));
        }
        for (_, outcome) in outcomes(&mut cache) {
            if let Outcome::Pinned(frame) = outcome {
                assert_ne!(frame, borrowed);
                cache.hot().unpin(frame);
            }
        }
    }
    assert!(cache.is_cached(Page(0)));
}

#[test]
fn write_back_goes_in_sector_order_as_large_requests() {
    let mut cache = cache(1024);
    // Every page of 0..256, scattered.
    for index in 0..256 {
        write(&mut cache, index * 77 % 256, NOW);
    }
    cache.flush(1);
    let ios = all_io(&mut cache, NOW);
    let runs: Vec<PageRange> = ios.iter().filter(|io| io.op == Op::Write).map(|io| io.pages).collect();
    let sweep: Vec<u64> = runs.iter().map(|run| run.start().0).collect();
    assert!(sweep.windows(2).filter(|pair| pair[0] > pair[1]).count() <= 1, "one sweep: {runs:?}");
    assert_eq!(runs.iter().map(|run| run.pages()).sum::<u64>(), 256);
    assert!(runs.len() <= 6, "{runs:?}");
}

#[test]
fn old_pages_are_written_back_and_young_pages_are_not() {
    let mut cache = cache(1024);
    write(&mut cache, 3, NOW);
    assert_eq!(all_io(&mut cache, NOW), []);
    let due = cache.poll_timeout().unwrap();
    assert_eq!(due, NOW + cache.config().expire);
    let ios = all_io(&mut cache, due);
    assert_eq!(ios.len(), 1);
    finish(&mut cache, &ios, Ok(()));
    assert_eq!(cache.poll_timeout(), None);
}

#[test]
fn a_page_that_is_written_again_stays_as_old_as_it_is() {
    let mut cache = cache(1024);
    write(&mut cache, 3, NOW);
    write(&mut cache, 4, NOW);
    let due = cache.poll_timeout().expect("two pages are dirty");
    let ios = all_io(&mut cache, due);
    assert_eq!(ios.len(), 1);
    // A younger page becomes dirty before the run fails. The pages of the run are old, and are written alone at once.
    write(&mut cache, 9, due);
    finish(&mut cache, &ios, Err(IoError::Media));
    assert_eq!(cache.poll_timeout(), Some(due));
    let mut pages: Vec<_> = all_io(&mut cache, due).iter().map(|io| io.pages.start().0).collect();
    pages.sort_unstable();
    assert_eq!(pages, [3, 4]);
}

#[test]
fn a_flush_writes_pages_that_were_dirty_at_its_call_and_no_others() {
    let mut cache = cache(10_000);
    for page in 0..100 {
        write(&mut cache, page * 2, NOW);
    }
    cache.flush(9);
    let mut written = 0;
    for round in 0..1_000 {
        // Another stream continues, ahead of the sweep and between its pages.
        write(&mut cache, 1 + round % 100 * 2, NOW);
        let Some(io) = cache.poll_io(NOW) else { break };
        written += io.pages.pages();
        finish(&mut cache, &[io], Ok(()));
        if outcomes(&mut cache) == [(9, Outcome::Done)] {
            break;
        }
    }
    assert_eq!(written, 100);
    assert!(cache.stats().dirty > 50);
}

#[test]
fn a_failed_write_back_fails_every_flush_until_it_succeeds_or_is_dropped() {
    let flush = |cache: &mut PageCache, result| {
        cache.flush(1);
        loop {
            let ios = all_io(cache, NOW);
            finish(cache, &ios, result);
            if let [(1, outcome)] = outcomes(cache)[..] {
                return outcome;
            }
        }
    };
    let failed = Outcome::Failed(IoError::Media);
    for way_out in 0..3 {
        let mut cache = cache(64);
        write(&mut cache, 0, NOW);
        for _ in 0..3 {
            assert_eq!(flush(&mut cache, Err(IoError::Media)), failed);
            assert_eq!(cache.stats().dirty, 1);
        }
        match way_out {
            0 => assert_eq!(flush(&mut cache, Ok(())), Outcome::Done, "the retry succeeds"),
            1 => {
                write(&mut cache, 0, NOW);
                assert_eq!(
                    flush(&mut cache, Err(IoError::Media)),
                    failed,
                    "the page that replaces it must be written, too"
                );
                assert_eq!(flush(&mut cache, Ok(())), Outcome::Done);
            }
            _ => {
                cache.discard(PageRange::new(Page(0), 1));
                assert_eq!(flush(&mut cache, Ok(())), Outcome::Done, "the page was discarded");
            }
        }
    }
}

/// A flush of the device fails. Returns the I/Os that began while it was in flight.
fn flush_that_fails(
    cache: &mut PageCache,
    meanwhile: impl FnOnce(&mut PageCache) -> Vec<PageIo>,
) -> Vec<PageIo> {
    cache.flush(1);
    let flush = all_io(cache, NOW);
    assert_eq!(flush.iter().map(|io| io.op).collect::<Vec<_>>(), [Op::Flush]);
    let ios = meanwhile(cache);
    finish(cache, &flush, Err(IoError::Media));
    assert!(outcomes(cache).contains(&(1, Outcome::Failed(IoError::Media))));
    ios
}

/// The pages that a flush writes, and its outcome.
fn flush_well(cache: &mut PageCache) -> (Vec<u64>, Outcome) {
    cache.flush(2);
    let mut written = Vec::new();
    loop {
        let ios = all_io(cache, NOW);
        let writes = ios.iter().filter(|io| io.op == Op::Write);
        written.extend(writes.flat_map(|io| io.pages.iter()).map(|page| page.0));
        finish(cache, &ios, Ok(()));
        if let Some((2, outcome)) = outcomes(cache).pop() {
            return (written, outcome);
        }
    }
}

#[test]
fn pages_being_written_while_a_flush_fails_are_written_again() {
    let mut cache = cache(64);
    let writes = flush_that_fails(&mut cache, |cache| {
        (3..6).for_each(|page| {
            write(cache, page, NOW);
        });
        cache.write_back(PageRange::ALL, 7);
        all_io(cache, NOW)
    });
    finish(&mut cache, &writes, Ok(()));
    assert_eq!(cache.stats().dirty, 3, "the device may have taken them before the loss");
    assert_eq!(flush_well(&mut cache), (vec![3, 4, 5], Outcome::Done));
    assert_eq!(flush_well(&mut cache), (vec![], Outcome::Done));
}

#[test]
fn a_page_overwritten_while_it_is_being_written_and_a_flush_fails_is_not_lost() {
    let mut cache = cache(64);
    let writes = flush_that_fails(&mut cache, |cache| {
        write(cache, 3, NOW);
        cache.write_back(PageRange::ALL, 7);
        all_io(cache, NOW)
    });
    // The page moves to another frame; only a part of the bytes is new.
    let step = cache.begin_write(Page(3), Part::Some, 8);
    let WriteStep::Copy { from, to } = step else { panic!("{step:?}") };
    cache.hot().unpin(from);
    cache.flush(9);
    finish(&mut cache, &writes, Ok(()));
    let ready = outcomes(&mut cache);
    assert!(ready.contains(&(9, Outcome::Failed(IoError::Media))), "its bytes are lost: {ready:?}");
    cache.end_write(to, NOW);
    assert_eq!(flush_well(&mut cache), (vec![3], Outcome::Done));
}

#[test]
fn pages_being_read_while_a_flush_fails_are_read_again() {
    let mut cache = cache(64);
    write(&mut cache, 3, NOW);
    cache.write_back(PageRange::ALL, 7);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    cache.invalidate(PageRange::ALL);
    outcomes(&mut cache);
    let reads = flush_that_fails(&mut cache, |cache| {
        assert_eq!(cache.read(Page(3), 8), Lookup::Wait);
        all_io(cache, NOW)
    });
    assert_eq!(cache.loss(), Some(IoError::Media));
    finish(&mut cache, &reads, Ok(()));
    let ended = outcomes(&mut cache);
    assert!(ended.iter().all(|(_, outcome)| !matches!(outcome, Outcome::Pinned(_))), "{ended:?}");
    assert!(!cache.is_cached(Page(3)), "the device may have lost the bytes that were read");
}

/// Reads a page that is not cached.
fn read(cache: &mut PageCache, page: u64) {
    assert_eq!(cache.read(Page(page), 8), Lookup::Wait);
    let ios = all_io(cache, NOW);
    finish(cache, &ios, Ok(()));
    let Some((8, Outcome::Pinned(frame))) = outcomes(cache).pop() else { panic!("page {page} is not read") };
    cache.hot().unpin(frame);
}

#[test]
fn a_failed_flush_makes_no_page_dirty_that_was_only_read() {
    let mut cache = cache(64);
    read(&mut cache, 1);
    // Pages whose last write only the device has: written by direct I/O, and evicted.
    let DirectStep::Go(tag) = cache.begin_direct(Op::Write, PageRange::new(Page(8), 2), 7) else {
        panic!("no page is dirty")
    };
    cache.end_direct(tag);
    write(&mut cache, 3, NOW);
    cache.write_back(PageRange::ALL, 7);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    outcomes(&mut cache);
    cache.invalidate(PageRange::new(Page(3), 1));
    for page in [2, 3, 4, 7, 9, 10] {
        read(&mut cache, page);
    }
    flush_that_fails(&mut cache, |_| Vec::new());
    assert_eq!(cache.loss(), Some(IoError::Media), "page 8 is not cached");
    cache.forget_loss();
    assert_eq!(flush_well(&mut cache), (vec![3, 9], Outcome::Done));
    // A good flush saves what has left the cache.
    flush_that_fails(&mut cache, |_| Vec::new());
    assert_eq!((cache.loss(), flush_well(&mut cache)), (None, (vec![], Outcome::Done)));
}

#[test]
fn direct_writes_in_flight_while_a_flush_fails_may_be_lost() {
    let mut cache = cache(64);
    let DirectStep::Go(tag) = cache.begin_direct(Op::Write, PageRange::new(Page(3), 1), 7) else {
        panic!("no page is dirty")
    };
    flush_that_fails(&mut cache, |_| Vec::new());
    cache.end_direct(tag);
    assert_eq!(flush_well(&mut cache).1, Outcome::Failed(IoError::Media));
    cache.forget_loss();
    assert_eq!(flush_well(&mut cache).1, Outcome::Done);
}

/// A stripe may report a failed flush long after a member has lost its bytes. Writes that the member receives in
/// between are not lost, until its next flush fails.
#[test]
fn each_failed_flush_is_a_loss_of_pages_that_have_left_until_a_flush_succeeds() {
    for is_direct in [true, false] {
        for is_during in [true, false] {
            let mut cache = cache(64);
            let write_and_leave = |cache: &mut PageCache| {
                if is_direct {
                    let step = cache.begin_direct(Op::Write, PageRange::new(Page(3), 1), 7);
                    let DirectStep::Go(tag) = step else { panic!("no page is dirty") };
                    cache.end_direct(tag);
                } else {
                    write(cache, 3, NOW);
                    cache.write_back(PageRange::ALL, 7);
                    let ios = all_io(cache, NOW);
                    finish(cache, &ios, Ok(()));
                    outcomes(cache);
                    cache.invalidate(PageRange::ALL);
                }
            };
            if !is_during {
                write_and_leave(&mut cache);
            }
            flush_that_fails(&mut cache, |cache| {
                if is_during {
                    write_and_leave(cache);
                }
                Vec::new()
            });
            for nth in 1..4 {
                let case = format!("failure {nth}, direct: {is_direct}, during the flush: {is_during}");
                assert_eq!(cache.loss(), Some(IoError::Media), "{case}");
                cache.forget_loss();
                flush_that_fails(&mut cache, |_| Vec::new());
            }
            assert_eq!(flush_well(&mut cache), (vec![], Outcome::Failed(IoError::Media)));
            cache.forget_loss();
            flush_that_fails(&mut cache, |_| Vec::new());
            assert_eq!((cache.loss(), flush_well(&mut cache)), (None, (vec![], Outcome::Done)));
        }
    }
}

#[test]
fn a_flush_of_a_range_leaves_the_rest_dirty_and_flushes_the_device() {
    let mut cache = cache(64);
    (0..6).for_each(|page| {
        write(&mut cache, page, NOW);
    });
    cache.flush_range(PageRange::new(Page(2), 3), 1);
    let writes = all_io(&mut cache, NOW);
    assert_eq!(writes.iter().map(|io| io.pages).collect::<Vec<_>>(), [PageRange::new(Page(2), 3)]);
    finish(&mut cache, &writes, Ok(()));
    assert_eq!(outcomes(&mut cache), []);
    let flush = all_io(&mut cache, NOW);
    assert_eq!(flush.iter().map(|io| io.op).collect::<Vec<_>>(), [Op::Flush]);
    finish(&mut cache, &flush, Ok(()));
    assert_eq!((outcomes(&mut cache), cache.stats().dirty), (vec![(1, Outcome::Done)], 3));
}

#[test]
fn writers_are_slowed_smoothly_and_stay_below_the_limit() {
    // A writer that pauses as requested, and a device of 50 MiB/s.
    let mut cache = cache(10_000);
    let page_time = Duration::from_nanos(4096 * 1_000_000_000 / (50 << 20));
    let (mut now, mut device_free, mut longest) = (NOW, NOW, Duration::ZERO);
    let mut in_flight: Vec<(PageIo, Instant)> = Vec::new();
    let mut dirty_most = 0;
    for page in 0..60_000_u64 {
        let pause = write(&mut cache, page, now);
        longest = longest.max(pause);
        now = now + pause + Duration::from_micros(1);
        while let Some(io) = cache.poll_io(now) {
            device_free = device_free.max(now) + page_time * io.pages.pages() as u32;
            in_flight.push((io, device_free));
        }
        in_flight.retain(|(io, done)| {
            let is_done = *done <= now;
            if is_done {
                cache.handle_completion(io.tag, Ok(()), *done);
            }
            !is_done
        });
        dirty_most = dirty_most.max(cache.stats().dirty);
    }
    assert!(dirty_most < 4_000, "{dirty_most} of 10,000 pages dirty: the limit is 4,000");
    assert!(longest < page_time * 20, "a pause of {longest:?}, a page takes {page_time:?}");
    let rate = 60_000.0 * 4096.0 / now.as_nanos() as f64 * 1e9 / f64::from(50 << 20);
    assert!(rate > 0.95, "the writer gets {rate:.2} of the device's bandwidth");
}

#[test]
fn borrowers_keep_their_page_and_later_readers_see_the_device() {
    let mut cache = cache(4);
    cache.read(Page(0), 0);
    let ios = all_io(&mut cache, NOW);
    finish(&mut cache, &ios, Ok(()));
    let ready = outcomes(&mut cache);
    let [(0, Outcome::Pinned(frame))] = ready[..] else { panic!("{ready:?}") };
    assert_eq!(cache.invalidate(PageRange::ALL).dropped, 1);
    assert_eq!(cache.read(Page(0), 1), Lookup::Wait);
    let other: Vec<Frame> = all_io(&mut cache, NOW).iter().flat_map(|io| cache.frames_of(io.tag)).collect();
    assert_ne!(other, [frame]);
}

#[test]
fn pages_that_threads_pin_or_visit_do_not_change() {
    // Miri is slow and explores weak memory orders: few operations.
    let (frames, pages, rounds) = if cfg!(miri) { (3_u32, 6_u64, 150) } else { (64, 200, 200_000) };
    let mut cache = cache(frames);
    let hot = std::sync::Arc::clone(cache.hot());
    // The content of a frame: the page that it was read for.
    let arena: Vec<AtomicU64> = (0..frames).map(|_| AtomicU64::new(u64::MAX)).collect();
    let is_over = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 1..=3_u64 {
            let (hot, arena, is_over, hits) = (&hot, &arena, &is_over, &hits);
            scope.spawn(move || {
                let mut state = seed << 40;
                while !is_over.load(Ordering::Relaxed) {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let page = (state >> 33) % pages;
                    let look_at = |frame: Frame| {
                        for _ in 0..4 {
                            assert_eq!(arena[frame.0 as usize].load(Ordering::Relaxed), page);
                        }
                        hits.fetch_add(1, Ordering::Relaxed);
                    };
                    if state >> 63 == 0 {
                        hot.visit(seed as usize, Page(page), |_| (), |pinned| look_at(pinned.frame));
                    } else if let Ok(pinned) = hot.try_pin(Page(page)) {
                        look_at(pinned.frame);
                        hot.unpin(pinned.frame);
                    }
                }
            });
        }
        let mut state = 1_u64;
        for _ in 0..rounds {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if let Lookup::Hit(pinned) = cache.read(Page((state >> 33) % pages), 0) {
                cache.hot().unpin(pinned.frame);
            }
            for io in all_io(&mut cache, NOW) {
                for (page, frame) in io.pages.iter().zip(cache.frames_of(io.tag)) {
                    arena[frame.0 as usize].store(page.0, Ordering::Relaxed);
                }
                cache.handle_completion(io.tag, Ok(()), NOW);
            }
            for (_, outcome) in outcomes(&mut cache) {
                if let Outcome::Pinned(frame) = outcome {
                    cache.hot().unpin(frame);
                }
            }
            cache.handle_unpinned();
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(hits.load(Ordering::Relaxed) > 0, "no thread ever hit");
}

#[test]
fn pinned_pages_of_one_queue_do_not_prevent_evictions_from_the_other() {
    const FRAMES: u32 = 20;
    let mut cache = cache(FRAMES);
    for page in 0..u64::from(FRAMES) {
        cache.read(Page(page), page);
        let ios = all_io(&mut cache, NOW);
        finish(&mut cache, &ios, Ok(()));
        let ready = outcomes(&mut cache);
        let [(_, Outcome::Pinned(frame))] = ready[..] else { panic!("{ready:?}") };
        if page < 10 {
            cache.hot().unpin(frame);
            // Touched again: it moves to the main queue when it is checked.
            let again = cache.hot().try_pin(Page(page)).expect("it was just read");
            cache.hot().unpin(again.frame);
        }
    }
    assert_eq!(cache.read(Page(100), 0), Lookup::Wait);
    assert_eq!(cache.stats().starved, 0, "ten pages are not pinned");
}
