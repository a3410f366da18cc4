//! Bytes that were written before there was a cache.

use super::*;

fn flush(cache: &mut PageCache, result: Result<(), IoError>) -> Outcome {
    cache.flush(7);
    let ios = all_io(cache, NOW);
    finish(cache, &ios, result);
    let [(7, outcome)] = outcomes(cache)[..] else { panic!("a flush has one outcome") };
    outcome
}

#[test]
fn a_failed_flush_loses_bytes_that_were_written_before_the_cache() {
    let failed = Outcome::Failed(IoError::Media);
    let mut cache = cache(8);
    assert!(cache.is_flushed());
    assert_eq!(flush(&mut cache, Err(IoError::Media)), failed);
    assert_eq!(cache.loss(), None, "nothing was written");

    cache.handle_earlier_writes(PageRange::new(Page(0), 3), None);
    assert!(!cache.is_flushed());
    assert_eq!(flush(&mut cache, Err(IoError::Media)), failed);
    assert_eq!(cache.loss(), Some(IoError::Media));
    assert_eq!(flush(&mut cache, Ok(())), failed, "until the program accepts the loss");
    cache.forget_loss();
    assert_eq!(flush(&mut cache, Ok(())), Outcome::Done);
    assert!(cache.is_flushed());
}

#[test]
fn a_loss_before_the_cache_is_one_of_the_cache() {
    let mut cache = cache(8);
    cache.handle_earlier_writes(PageRange::new(Page(0), 0), Some(IoError::NoSpace));
    assert_eq!(flush(&mut cache, Ok(())), Outcome::Failed(IoError::NoSpace));
    cache.forget_loss();
    assert_eq!(flush(&mut cache, Ok(())), Outcome::Done);
}
