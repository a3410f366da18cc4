//! Writers that leave their page unchanged: an append that the file refuses, a writer that continues later.

use super::*;

const FULL: Result<(), IoError> = Err(IoError::NoSpace);

/// A page that is being written, and has moved to another frame for a writer.
fn moved_while_written() -> (PageCache, Vec<PageIo>, Frame) {
    let mut cache = cache(8);
    write(&mut cache, 1, NOW);
    cache.flush(7);
    let ios = all_io(&mut cache, NOW);
    let step = cache.begin_write(Page(1), Part::Some, 0);
    let WriteStep::Copy { from, to } = step else { panic!("{step:?}") };
    cache.hot().unpin(from);
    (cache, ios, to)
}

fn is_written_by_next_flush(cache: &mut PageCache) -> bool {
    let before = cache.stats().pages_written;
    cache.flush(8);
    loop {
        let ios = all_io(cache, NOW);
        if ios.is_empty() {
            break;
        }
        finish(cache, &ios, Ok(()));
    }
    assert_eq!(outcomes(cache), [(8, Outcome::Done)]);
    cache.stats().pages_written == before + 1
}

#[test]
fn a_page_whose_write_fails_after_its_writer_has_left_is_written_again() {
    let leave: [fn(&mut PageCache, Frame); 2] = [
        |cache, frame| cache.cancel_write(frame, NOW),
        |cache, frame| {
            cache.abandon_write(frame, NOW);
            cache.hot().unpin(frame);
        },
    ];
    for leave in leave {
        let (mut cache, ios, held) = moved_while_written();
        leave(&mut cache, held);
        finish(&mut cache, &ios, FULL);
        assert_eq!(outcomes(&mut cache), [(7, Outcome::Failed(IoError::NoSpace))]);
        assert_eq!(cache.stats().dirty, 1, "only the cache has the bytes");
        assert!(is_written_by_next_flush(&mut cache));
    }
}

#[test]
fn a_page_whose_writer_has_left_stays_in_the_cache_until_its_write_has_ended() {
    let (mut cache, ios, held) = moved_while_written();
    cache.cancel_write(held, NOW);
    for page in 10..30 {
        assert_eq!(cache.read(Page(page), page), Lookup::Wait);
        let reads = all_io(&mut cache, NOW);
        finish(&mut cache, &reads, Ok(()));
        for (_, outcome) in outcomes(&mut cache) {
            if let Outcome::Pinned(frame) = outcome {
                cache.hot().unpin(frame);
            }
        }
    }
    assert!(cache.is_cached(Page(1)), "a read from the device may return older bytes");
    finish(&mut cache, &ios, Ok(()));
}

#[test]
fn a_writer_that_leaves_a_clean_page_makes_it_no_more_dirty() {
    let mut cache = cache(8);
    write(&mut cache, 1, NOW);
    assert!(is_written_by_next_flush(&mut cache));
    let step = cache.begin_write(Page(1), Part::Some, 0);
    let WriteStep::Into(frame) = step else { panic!("{step:?}") };
    cache.cancel_write(frame, NOW);
    assert_eq!(cache.stats().dirty, 0);
}
