//! The operations, one row each. `worker.rs` runs them; `conditions.rs` has the outcomes that they must accept.

mod burst;
mod resize;

use crate::conditions::Conditions;
use crate::settings::pick;
use crate::worker::{Failure, OP_BYTES_MAX, Work};
use iopath::{Advice, Error, Volume};
use rand::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

/// An operation on a volume.
pub(crate) struct Row {
    /// Its frequency, relative to the other rows.
    pub(crate) weight: u32,
    /// Whether conditions allow it.
    pub(crate) fits: fn(&Conditions) -> bool,
    pub(crate) run: fn(&mut Work<'_>) -> Result<(), Failure>,
}

const ALWAYS: fn(&Conditions) -> bool = |_| true;
const CACHED: fn(&Conditions) -> bool = |conditions| conditions.mode.is_cached;
const IN_CONTEXT: fn(&Conditions) -> bool = |conditions| conditions.mode.is_in_context;
/// Several workers and a page cache.
const SHARED: fn(&Conditions) -> bool = |conditions| conditions.is_shared && conditions.mode.is_cached;
/// Flushes of several workers fail, and some lose writes.
const LOSING: fn(&Conditions) -> bool =
    |conditions| conditions.loses_meanwhile() && conditions.mode.is_cached;
/// Several workers move the end.
const RESIZING: fn(&Conditions) -> bool = Conditions::resizes_meanwhile;

/// A batch write must not be in flight while the end moves, or while another worker writes bytes after the last whole
/// block of the same page: the kernel treats this as corruption. Only a page cache serialises the two writes.
const BURSTS: fn(&Conditions) -> bool = |conditions| {
    let is_bounced = conditions.mode.accepts_unaligned && !conditions.mode.is_cached;
    let collides = conditions.is_shared && is_bounced;
    !conditions.resizes_meanwhile() && !collides
};

pub(crate) const OPS: &[Row] = &[
    Row { weight: 40, fits: ALWAYS, run: read },
    Row { weight: 40, fits: ALWAYS, run: |work| write(work, "write", false) },
    Row { weight: 5, fits: ALWAYS, run: |work| write(work, "write durably", true) },
    Row { weight: 4, fits: ALWAYS, run: |work| flush(work).map(drop) },
    Row { weight: 3, fits: ALWAYS, run: discard },
    Row { weight: 3, fits: ALWAYS, run: write_zeroes },
    Row { weight: 3, fits: BURSTS, run: burst::burst },
    Row { weight: 10, fits: CACHED, run: direct_read },
    Row { weight: 10, fits: CACHED, run: |work| direct_write(work, 4) },
    Row { weight: 20, fits: CACHED, run: borrow },
    Row { weight: 2, fits: CACHED, run: advise },
    Row { weight: 6, fits: IN_CONTEXT, run: change_memory },
    Row { weight: 1, fits: Conditions::resizes_alone, run: resize::alone },
    Row { weight: 8, fits: Conditions::extends_alone, run: resize::append },
    Row { weight: 20, fits: SHARED, run: save },
    Row { weight: 20, fits: SHARED, run: |work| flush(work).map(drop) },
    Row { weight: 20, fits: SHARED, run: direct_read },
    Row { weight: 200, fits: LOSING, run: save },
    Row { weight: 200, fits: LOSING, run: |work| direct_write(work, 1) },
    Row { weight: 6, fits: RESIZING, run: resize::concurrent },
    Row { weight: 10, fits: RESIZING, run: resize::write_above_floor },
    Row { weight: 10, fits: RESIZING, run: resize::read_above_floor },
];

/// Draws rows by weight, from the rows that the conditions allow. With several workers, each omits about half of the
/// rows, a different half in each phase, so that some workers write continuously while others mostly flush.
pub(crate) struct Draw {
    /// The rows, each with the sum of weights up to it.
    rows: Vec<(u32, &'static Row)>,
    sum: u32,
}

impl Draw {
    pub(crate) fn new(conditions: Conditions, random: &mut Xoshiro256PlusPlus) -> Self {
        let mut draw = Self { rows: Vec::with_capacity(OPS.len()), sum: 0 };
        while draw.rows.is_empty() {
            for row in OPS.iter().filter(|row| (row.fits)(&conditions)) {
                if !conditions.is_shared || random.random() {
                    draw.sum += row.weight;
                    draw.rows.push((draw.sum, row));
                }
            }
        }
        draw
    }

    pub(crate) fn next(&self, random: &mut Xoshiro256PlusPlus) -> &'static Row {
        let drawn = random.random_range(0..self.sum);
        let row = self.rows.iter().find(|(up_to, _)| drawn < *up_to);
        row.expect("less than the sum").1
    }
}

fn read(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let size = work.worker.model.size();
    let is_at_end = work.worker.owned.last().is_some_and(|last| last.end == size && last.start <= offset);
    let is_last = is_at_end && size - (offset + bytes) < work.block();
    // The volume may end inside a block: read across the end.
    let reads_beyond = is_last && !work.conditions.mode.is_raw;
    let beyond = if reads_beyond { work.block() * work.worker.random.random_range(0..3) } else { 0 };
    work.read(offset, (bytes + beyond).min(OP_BYTES_MAX))
}

fn write(work: &mut Work<'_>, what: &'static str, forced: bool) -> Result<(), Failure> {
    let Some(range) = work.bytes() else { return Ok(()) };
    // A cache or a bounce buffer forces a write by a flush.
    let flushes = forced && (work.conditions.forces_by_flush || work.conditions.mode.accepts_unaligned);
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
) -> Result<(), Failure> {
    let from = work.from(bytes);
    let source = Arc::clone(&work.worker.source);
    let data = &source.random[from..from + bytes];
    let begun = work.worker.losses.now();
    let result = write(work.volume, data, offset as u64);
    let flushes_cache = flushes && work.conditions.mode.is_cached;
    let is_ok = if flushes_cache { work.outcome_of_flush(&result)? } else { work.outcome(&result)? };
    work.note(what, (offset, bytes), Some(from), is_ok);
    if is_ok {
        let is_saved = forced && (!flushes || work.worker.losses.none_since(begun));
        work.worker.model.write(offset, data, is_saved);
    } else {
        work.worker.model.write_failed(offset, data);
        if flushes {
            work.flush_failed();
        }
    }
    Ok(())
}

/// A read by direct I/O on a volume with a page cache.
fn direct_read(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.range() else { return Ok(()) };
    work.read_by("direct read", (offset, bytes), 0..bytes, |volume, buffer| {
        volume.direct().read_at(buffer, offset as u64)
    })
}

fn direct_write(work: &mut Work<'_>, forced_one_in: u32) -> Result<(), Failure> {
    let Some(range) = work.range() else { return Ok(()) };
    let forced = work.worker.random.random_range(0..forced_one_in) == 0;
    // With a page cache, the cache forces the write by a flush.
    let flushes = forced && (work.conditions.forces_by_flush || work.conditions.mode.is_cached);
    // From aligned memory.
    work.conditions.mode.accepts_unaligned = false;
    let result = write_by(work, "direct write", range, forced, flushes, |volume, data, offset| {
        let direct = volume.direct();
        if forced { direct.write_durably_at(data, offset) } else { direct.write_at(data, offset) }
    });
    work.conditions.mode.accepts_unaligned = true;
    result
}

/// Borrowed bytes are the current content, and do not change when the range is overwritten.
fn borrow(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    // Several workers must not borrow all pages of the smallest cache.
    let bytes = bytes.min(if work.conditions.is_shared { 4096 } else { 12_000 });
    let guard = match work.volume.borrow(offset as u64, bytes) {
        Ok(guard) => guard,
        Err(error) => {
            let is_ok = work.outcome(&Err(error))?;
            work.note("borrow", (offset, bytes), None, is_ok);
            return Ok(());
        }
    };
    work.note("borrow", (offset, bytes), None, true);
    let mut found = vec![0; guard.len()];
    guard.copy_to(&mut found);
    if found.len() != bytes {
        return Err(Failure::Outcome(format!("{} of {bytes} bytes at {offset} are borrowed", found.len())));
    }
    work.check("borrow", offset, &found)?;
    if work.worker.random.random() {
        let volume = work.volume;
        write_by(work, "write borrowed", (offset, bytes), false, false, |_, data, offset| {
            volume.write_at(data, offset)
        })?;
        if !guard.slices().flatten().eq(&found) {
            return Err(Failure::Outcome(format!("{bytes} borrowed bytes at {offset} have changed")));
        }
    }
    Ok(())
}

fn advise(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let advices = [
        Advice::Normal,
        Advice::Sequential,
        Advice::Random,
        Advice::WillNeed,
        Advice::DontNeed,
        Advice::NoReuse,
    ];
    let advice = *pick(&mut work.worker.random, &advices);
    let result = work.volume.advise(offset as u64, bytes as u64, advice);
    work.outcome(&result)?;
    work.note("advise", (offset, bytes), None, true);
    Ok(())
}

/// The page cache gets more or less memory; at least its minimum.
#[expect(clippy::unnecessary_wraps, reason = "an operation of the table")]
fn change_memory(work: &mut Work<'_>) -> Result<(), Failure> {
    let bytes = work.worker.random.random_range(0..1 << 20);
    work.context.expect("in a context").set_memory_bytes(bytes);
    work.note("change memory", (0, bytes as usize), None, true);
    Ok(())
}

/// Returns whether the flush succeeded.
fn flush(work: &mut Work<'_>) -> Result<bool, Failure> {
    let is_ok = work.outcome_of_flush(&work.volume.flush())?;
    if is_ok && work.conditions.has_lost {
        return Err(Failure::Outcome("a flush succeeds although bytes were lost".to_owned()));
    }
    if is_ok {
        work.worker.flushed();
    } else {
        work.flush_failed();
    }
    work.note("flush", (0, 0), None, is_ok);
    Ok(is_ok)
}

/// Flushed bytes are on the medium, independent of concurrent failures and of dirty pages elsewhere.
fn save(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.range() else { return Ok(()) };
    let begun = work.worker.losses.now();
    write_by(work, "write to save", (offset, bytes), false, false, |volume, data, offset| {
        volume.write_at(data, offset)
    })?;
    if !flush(work)? {
        return Ok(());
    }
    let Some(medium) = work.medium else { return Ok(()) };
    let found = &mut work.worker.buffer[..bytes];
    let read = medium.read_at(found, offset as u64);
    if !matches!(read, Ok(count) if count == bytes) {
        return Err(Failure::Outcome(format!("the medium cannot be read at {offset}: {read:?}")));
    }
    if work.worker.losses.none_since(begun) { work.check_saved(offset, bytes) } else { Ok(()) }
}

/// The content of a discarded range is undefined; on the storage here it is zeroes or unchanged. A page cache drops
/// dirty pages, so older bytes may reappear.
fn discard(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let is_ok = work.outcome(&work.volume.discard(offset as u64, bytes as u64))?;
    if work.conditions.mode.is_cached || work.conditions.is_cached_below {
        work.worker.model.may_be_older(offset, bytes);
    }
    work.worker.model.write_failed(offset, &work.worker.source.zeroes[..bytes]);
    work.note("discard", (offset, bytes), None, is_ok);
    Ok(())
}

fn write_zeroes(work: &mut Work<'_>) -> Result<(), Failure> {
    let Some((offset, bytes)) = work.bytes() else { return Ok(()) };
    let is_ok = work.outcome(&work.volume.write_zeroes(offset as u64, bytes as u64))?;
    let zeroes = &work.worker.source.zeroes[..bytes];
    if is_ok {
        work.worker.model.write(offset, zeroes, false);
    } else {
        work.worker.model.write_failed(offset, zeroes);
    }
    work.note("write zeroes", (offset, bytes), None, is_ok);
    Ok(())
}
