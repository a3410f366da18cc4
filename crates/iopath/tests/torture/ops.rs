//! The operations, a row each. What they are carried out on is `hand.rs`.

use crate::hand::{Mode, OP_BYTES_MAX, Weather, Work, Wrong, check};
use crate::life::a_size;
use crate::settings::pick;
use iopath::{Advice, BatchOptions, Done, Error, Volume};
use rand::Rng;
use std::sync::Arc;

/// An operation on a volume.
pub(crate) struct Row {
    /// How often it comes, in proportion to the others.
    pub(crate) weight: u32,
    /// Whether there is such a thing as things stand.
    pub(crate) fits: fn(&Weather) -> bool,
    pub(crate) run: fn(&mut Work<'_>) -> Result<(), Wrong>,
}

const ALWAYS: fn(&Weather) -> bool = |_| true;
const CACHED: fn(&Weather) -> bool = |weather| weather.mode.is_cached;

pub(crate) const OPS: &[Row] = &[
    Row { weight: 40, fits: ALWAYS, run: read },
    Row { weight: 40, fits: ALWAYS, run: |work| write(work, "write", false) },
    Row { weight: 5, fits: ALWAYS, run: |work| write(work, "write durably", true) },
    Row { weight: 4, fits: ALWAYS, run: flush },
    Row { weight: 3, fits: ALWAYS, run: discard },
    Row { weight: 3, fits: ALWAYS, run: write_zeroes },
    Row { weight: 3, fits: ALWAYS, run: burst },
    Row { weight: 10, fits: CACHED, run: direct_read },
    Row { weight: 10, fits: CACHED, run: direct_write },
    Row { weight: 20, fits: CACHED, run: borrow },
    Row { weight: 2, fits: CACHED, run: advise },
    Row { weight: 1, fits: |weather| weather.may_resize, run: resize },
];

fn read(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let size = work.hand.model.size();
    let is_at_end = work.hand.owned.last().is_some_and(|last| last.end == size && last.start <= offset);
    let is_last = is_at_end && size - (offset + bytes) < work.block();
    // The end of the volume may lie inside a block: it is read with the block before, or with what follows it.
    let goes_on = is_last && !work.weather.mode.is_raw;
    let beyond = if goes_on { work.block() * work.hand.random.random_range(0..3) } else { 0 };
    work.read(offset, (bytes + beyond).min(OP_BYTES_MAX))
}

fn write(work: &mut Work<'_>, what: &'static str, forced: bool) -> Result<(), Wrong> {
    let Some(range) = work.bytes() else { return Ok(()) };
    // What goes through a cache or an aligned buffer is forced by a flush.
    let flushes = forced && (work.weather.forces_by_flush || work.weather.mode.takes_any);
    write_by(work, what, range, forced, flushes, |volume, data, offset| {
        if forced { volume.write_durably_at(data, offset) } else { volume.write_at(data, offset) }
    })
}

fn write_by(
    work: &mut Work<'_>,
    what: &'static str,
    (offset, bytes): (usize, usize),
    forced: bool,
    flushes: bool,
    write: impl FnOnce(&Volume, &[u8], u64) -> Result<(), Error>,
) -> Result<(), Wrong> {
    let from = work.from(bytes);
    let source = Arc::clone(&work.hand.source);
    let data = &source.random[from..from + bytes];
    let result = write(work.volume, data, offset as u64);
    let Mode { takes_any, is_cached, .. } = work.weather.mode;
    let flushes_cache = flushes && takes_any && is_cached;
    let is_ok = if flushes_cache { work.outcome_of_flush(&result)? } else { work.outcome(&result)? };
    work.note(what, (offset, bytes), Some(from), is_ok);
    if is_ok {
        work.hand.model.write(offset, data, forced);
    } else {
        work.hand.model.write_failed(offset, data);
        if flushes {
            work.flush_failed();
        }
    }
    Ok(())
}

/// Past the page cache.
fn direct_read(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.range() else { return Ok(()) };
    work.read_by("direct read", (offset, bytes), 0..bytes, |volume, buffer| {
        volume.direct().read_at(buffer, offset as u64)
    })
}

fn direct_write(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some(range) = work.range() else { return Ok(()) };
    let forced = work.hand.random.random_range(0..4) == 0;
    // Beside a page cache it is a flush of the cache that forces it.
    let flushes = forced && (work.weather.forces_by_flush || work.weather.mode.is_cached);
    // From memory that direct I/O takes.
    work.weather.mode.takes_any = false;
    let result = write_by(work, "direct write", range, forced, flushes, |volume, data, offset| {
        let direct = volume.direct();
        if forced { direct.write_durably_at(data, offset) } else { direct.write_at(data, offset) }
    });
    work.weather.mode.takes_any = true;
    result
}

/// What is borrowed is what is there, and stays as it was although it is overwritten.
fn borrow(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let bytes = bytes.min(12_000);
    let lent = match work.volume.borrow(offset as u64, bytes) {
        Ok(lent) => lent,
        Err(error) => {
            let is_ok = work.outcome(&Err(error))?;
            work.note("borrow", (offset, bytes), None, is_ok);
            return Ok(());
        }
    };
    work.note("borrow", (offset, bytes), None, true);
    let mut found = vec![0; lent.len()];
    lent.copy_to(&mut found);
    if found.len() != bytes {
        return Err(Wrong::Outcome(format!("{} bytes are lent of {bytes} at {offset}", found.len())));
    }
    check(&mut work.hand.model, offset, &found)?;
    if work.hand.random.random() {
        let volume = work.volume;
        write_by(work, "write to lent", (offset, bytes), false, false, |_, data, offset| {
            volume.write_at(data, offset)
        })?;
        if !lent.slices().flatten().eq(&found) {
            return Err(Wrong::Outcome(format!("what was lent of {bytes} bytes at {offset} has changed")));
        }
    }
    Ok(())
}

fn advise(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let advices = [
        Advice::Normal,
        Advice::Sequential,
        Advice::Random,
        Advice::WillNeed,
        Advice::DontNeed,
        Advice::NoReuse,
    ];
    let advice = *pick(&mut work.hand.random, &advices);
    let result = work.volume.advise(offset as u64, bytes as u64, advice);
    work.outcome(&result)?;
    work.note("advise", (offset, bytes), None, true);
    Ok(())
}

/// The volume ends elsewhere, while it is open.
fn resize(work: &mut Work<'_>) -> Result<(), Wrong> {
    let size = a_size(&mut work.hand.random);
    let size = if work.weather.mode.is_raw { size.next_multiple_of(work.block()) } else { size };
    let is_ok = work.outcome(&work.volume.resize(size as u64))?;
    work.note("resize", (size, 0), None, is_ok);
    if is_ok {
        work.hand.model.resize(size);
        work.hand.owned.clear();
        work.hand.owned.push(0..size);
    }
    Ok(())
}

fn flush(work: &mut Work<'_>) -> Result<(), Wrong> {
    let is_ok = work.outcome_of_flush(&work.volume.flush())?;
    if is_ok && work.weather.has_lost {
        return Err(Wrong::Outcome("a flush succeeds although bytes were lost".to_owned()));
    }
    if is_ok {
        work.hand.model.flushed();
    } else {
        work.flush_failed();
    }
    work.note("flush", (0, 0), None, is_ok);
    Ok(())
}

/// What a discarded range reads as is not said; it is zeroes or as it was on everything that there is here. A page
/// cache gives up what it has not written, so that older bytes may come back.
fn discard(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.range() else { return Ok(()) };
    let is_ok = work.outcome(&work.volume.discard(offset as u64, bytes as u64))?;
    if work.weather.mode.is_cached {
        work.hand.model.may_be_older(offset, bytes);
    }
    work.hand.model.write_failed(offset, &work.hand.source.zeroes[..bytes]);
    work.note("discard", (offset, bytes), None, is_ok);
    Ok(())
}

fn write_zeroes(work: &mut Work<'_>) -> Result<(), Wrong> {
    let Some((offset, bytes)) = work.range() else { return Ok(()) };
    let is_ok = work.outcome(&work.volume.write_zeroes(offset as u64, bytes as u64))?;
    let zeroes = &work.hand.source.zeroes[..bytes];
    if is_ok {
        work.hand.model.write(offset, zeroes, false);
    } else {
        work.hand.model.write_failed(offset, zeroes);
    }
    work.note("write zeroes", (offset, bytes), None, is_ok);
    Ok(())
}

const BURST: u32 = 12;
const BURST_BYTES: usize = 16 << 10;

/// An I/O of a burst: a read, or a write from that place of the source.
struct Part {
    offset: usize,
    bytes: usize,
    from: Option<usize>,
    done: Option<Done>,
}

/// Many I/Os at once, which may overlap: they take effect in the order in which they were added.
fn burst(work: &mut Work<'_>) -> Result<(), Wrong> {
    let mut batch = match work.batch.take() {
        Some(batch) => batch,
        None => work.volume.batch(&BatchOptions::new(BURST, BURST_BYTES)).expect("a queue"),
    };
    let mut parts: Vec<Part> = Vec::with_capacity(BURST as usize);
    for _ in 0..work.hand.random.random_range(2..=BURST) {
        let Some((offset, bytes)) = work.range() else { break };
        let bytes = bytes.min(BURST_BYTES);
        let mut buffer = batch.buffer().expect("as many as there is room for");
        let token = parts.len() as u64;
        let from = work.hand.random.random::<bool>().then(|| work.from(bytes));
        let added = if let Some(from) = from {
            buffer[..bytes].copy_from_slice(&work.hand.source.random[from..from + bytes]);
            batch.write(buffer, bytes, offset as u64, token)
        } else {
            buffer[..bytes].fill(0xa5);
            batch.read(buffer, bytes, offset as u64, token)
        };
        if let Err(refused) = added {
            // What is dirty there cannot be written back: nothing has begun.
            work.outcome(&Err(refused.error))?;
            continue;
        }
        parts.push(Part { offset, bytes, from, done: None });
        if work.hand.random.random_range(0..4) == 0 {
            batch.submit();
        }
    }
    while let Some(done) = batch.wait().map_err(|error| Wrong::Outcome(error.to_string()))? {
        let token = done.token as usize;
        parts[token].done = Some(done);
    }
    parts.into_iter().try_for_each(|part| judge(work, part))?;
    work.batch = Some(batch);
    Ok(())
}

fn judge(work: &mut Work<'_>, part: Part) -> Result<(), Wrong> {
    let Part { offset, bytes, from, done } = part;
    let never = || Wrong::Outcome(format!("the I/O of {bytes} bytes at {offset} in a burst never ended"));
    let Done { buffer, result, .. } = done.ok_or_else(never)?;
    let is_ok = work.outcome(&result.map(drop))?;
    work.note(if from.is_some() { "burst write" } else { "burst read" }, (offset, bytes), from, is_ok);
    let Some(from) = from else {
        let buffer = buffer.expect("the buffer it was added with");
        return if is_ok { check(&mut work.hand.model, offset, &buffer[..bytes]) } else { Ok(()) };
    };
    let data = &work.hand.source.random[from..from + bytes];
    if is_ok {
        work.hand.model.write(offset, data, false);
    } else {
        work.hand.model.write_failed(offset, data);
    }
    Ok(())
}
