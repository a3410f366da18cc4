//! Many concurrent I/Os, in a batch.

use crate::settings::pick;
use crate::worker::{Failure, Work};
use iopath::{BatchOptions, Completion, Request};
use rand::Rng;
use std::time::Duration;

const BURST: u32 = 12;
const BURST_BYTES: usize = 16 << 10;

/// An I/O of a burst: a read, or a write of bytes from the source.
struct Part {
    offset: usize,
    bytes: usize,
    from: Option<usize>,
    forced: bool,
    done: Option<Completion>,
}

/// Many concurrent I/Os, which may overlap: they take effect in the order in which they are queued.
pub(super) fn burst(work: &mut Work<'_>) -> Result<(), Failure> {
    let mut batch = work.batch.take().unwrap_or_else(|| {
        // Through the cache, or past it.
        let is_buffered = work.conditions.mode.is_cached && work.worker.random.random();
        work.volume.batch(&BatchOptions::new(BURST, BURST_BYTES).buffered(is_buffered)).expect("a queue")
    });
    let mut parts: Vec<Part> = Vec::with_capacity(BURST as usize);
    for _ in 0..work.worker.random.random_range(2..=BURST) {
        let Some((offset, bytes)) = work.range() else { break };
        let bytes = bytes.min(BURST_BYTES);
        let mut buffer = batch.buffer().expect("a buffer for each request");
        let token = parts.len() as u64;
        let from = work.worker.random.random::<bool>().then(|| work.from(bytes));
        let forced = from.is_some() && work.worker.random.random_range(0..8) == 0;
        let request = if let Some(from) = from {
            buffer[..bytes].copy_from_slice(&work.worker.source.random[from..from + bytes]);
            Request::write(buffer, offset as u64).durable(forced)
        } else {
            buffer[..bytes].fill(0xa5);
            Request::read(buffer, offset as u64)
        };
        if let Err(refused) = batch.queue(request.bytes(bytes).token(token)) {
            // Dirty pages of the range cannot be written back, so the request was not begun.
            work.outcome(&Err(refused.error))?;
            continue;
        }
        parts.push(Part { offset, bytes, from, forced, done: None });
        if work.worker.random.random_range(0..4) == 0 {
            batch.submit();
        }
    }
    if work.conditions.is_shared && work.worker.random.random_range(0..4) == 0 {
        // Completed requests stay in the batch for a while.
        batch.submit();
        std::thread::sleep(Duration::from_micros(*pick(&mut work.worker.random, &[1, 100, 1000])));
    }
    while let Some(done) = batch.wait().map_err(|error| Failure::Outcome(error.to_string()))? {
        let token = done.token as usize;
        parts[token].done = Some(done);
    }
    // A failed forced write may lose other writes of the burst, before or after they are read.
    let has_failed = |part: &Part| part.done.as_ref().is_some_and(|done| done.result.is_err());
    let loses = work.conditions.may_lose && parts.iter().any(|part| part.forced && has_failed(part));
    parts.into_iter().try_for_each(|part| judge(work, part, loses))?;
    if loses {
        work.flush_failed();
    }
    work.batch = Some(batch);
    Ok(())
}

fn judge(work: &mut Work<'_>, part: Part, loses: bool) -> Result<(), Failure> {
    let Part { offset, bytes, from, forced, done } = part;
    let never =
        || Failure::Outcome(format!("the I/O of {bytes} bytes at {offset} in a burst has not completed"));
    let Completion { buffer, result, .. } = done.ok_or_else(never)?;
    let result = result.map(drop);
    // With a page cache, the cache forces a write by a flush.
    let flushes_cache = forced && work.conditions.mode.is_cached;
    let is_ok = if flushes_cache { work.outcome_of_flush(&result)? } else { work.outcome(&result)? };
    let what = match from {
        None => "burst read",
        Some(_) if forced => "burst durably",
        Some(_) => "burst write",
    };
    work.note(what, (offset, bytes), from, is_ok);
    let Some(from) = from else {
        let buffer = buffer.expect("the buffer of the request");
        let found = &buffer[..bytes];
        return match is_ok {
            false => Ok(()),
            true if loses => work.check_beside_loss(what, offset, found),
            true => work.check(what, offset, found),
        };
    };
    let data = &work.worker.source.random[from..from + bytes];
    if is_ok {
        let is_saved = forced && !work.conditions.loses_meanwhile();
        work.worker.model.write(offset, data, is_saved);
    } else {
        work.worker.model.write_failed(offset, data);
    }
    Ok(())
}
