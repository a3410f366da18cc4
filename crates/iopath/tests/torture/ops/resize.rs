//! Operations that move the end of an open volume, and reads and writes around a moving end.

use crate::settings::pick;
use crate::trial::{SIZE_MAX, random_size};
use crate::worker::{Failure, Work};
use iopath::{Error, ErrorKind, IoError};
use rand::Rng;
use std::sync::Arc;

/// The distances of the end above the floor: within a block, within a page, over several pages.
const ABOVE_FLOOR: [usize; 3] = [500, 5_000, 60_000];

/// A resize by the only worker. The worker then owns all bytes.
pub(super) fn alone(work: &mut Work<'_>) -> Result<(), Failure> {
    let size = random_size(&mut work.worker.random);
    let size = if work.conditions.mode.is_raw { size.next_multiple_of(work.block()) } else { size };
    let is_ok = work.outcome(&work.volume.resize(size as u64))?;
    work.note("resize", (size, 0), None, is_ok);
    if is_ok {
        work.worker.model.resize(size);
        work.worker.owned.clear();
        work.worker.owned.push(0..size);
    }
    Ok(())
}

/// A write past the end by the only worker, mostly at the end, sometimes after a gap. The worker owns the new bytes.
pub(super) fn append(work: &mut Work<'_>) -> Result<(), Failure> {
    let unit = if work.conditions.mode.accepts_unaligned { 1 } else { work.block() };
    let size = work.worker.model.size();
    let random = &mut work.worker.random;
    let gap = *pick(random, &[0, 0, 0, 700, 9_000]);
    let offset = (size + random.random_range(0..=gap)).next_multiple_of(unit);
    let most: usize = *pick(random, &[16, 1_000, 1_000, 20_000]);
    let bytes = random.random_range(1..=most).next_multiple_of(unit);
    if offset + bytes > SIZE_MAX {
        return Ok(());
    }
    let forced = work.worker.random.random_range(0..16) == 0;
    let from = work.from(bytes);
    let source = Arc::clone(&work.worker.source);
    let data = &source.random[from..from + bytes];
    let result = if forced {
        work.volume.write_durably_at(data, offset as u64)
    } else {
        work.volume.write_at(data, offset as u64)
    };
    let is_ok = if forced { work.outcome_of_flush(&result)? } else { work.outcome(&result)? };
    work.note("append", (offset, bytes), Some(from), is_ok);
    let end = work.volume.size_bytes() as usize;
    if end != if is_ok { offset + bytes } else { end.max(size) } {
        return Err(Failure::Outcome(format!(
            "{bytes} bytes at {offset} of {size}: the volume ends at {end}"
        )));
    }
    if end > size {
        work.worker.model.resize(end);
        work.worker.owned.clear();
        work.worker.owned.push(0..end);
    }
    if is_ok {
        work.worker.model.write(offset, data, false);
    } else if end >= offset + bytes {
        work.worker.model.write_failed(offset, data);
    }
    if !is_ok && forced {
        work.flush_failed();
    }
    Ok(())
}

/// A resize while other workers read, write and resize: never below the floor, where the model ends.
pub(super) fn concurrent(work: &mut Work<'_>) -> Result<(), Failure> {
    let above = *pick(&mut work.worker.random, &ABOVE_FLOOR);
    let size = work.worker.model.size() + work.worker.random.random_range(0..=above);
    let size = if work.conditions.mode.is_raw { size.next_multiple_of(work.block()) } else { size };
    let is_ok = work.outcome(&work.volume.resize(size as u64))?;
    work.note("resize", (size, 0), None, is_ok);
    Ok(())
}

/// Writes the pattern: the bytes of the source at the same offset. The range may be removed at any moment.
pub(super) fn write_above_floor(work: &mut Work<'_>) -> Result<(), Failure> {
    let (offset, bytes) = range_above_floor(work);
    let data = &work.worker.source.random[offset..offset + bytes];
    let result = match work.worker.random.random_range(0..6) {
        0 => work.volume.write_durably_at(data, offset as u64),
        1 if is_aligned(work, offset, bytes) => work.volume.direct().write_at(data, offset as u64),
        _ => work.volume.write_at(data, offset as u64),
    };
    let is_ok = !is_cut_off(&result) && work.outcome_of_flush(&result)?;
    work.note("write above", (offset, bytes), Some(offset), is_ok);
    Ok(())
}

/// Reads up to the end: each byte is the byte of the pattern, or zero.
pub(super) fn read_above_floor(work: &mut Work<'_>) -> Result<(), Failure> {
    let (offset, bytes) = range_above_floor(work);
    let is_direct = is_aligned(work, offset, bytes) && work.worker.random.random_range(0..4) == 0;
    let found = &mut work.worker.buffer[..bytes];
    found.fill(0xa5);
    let read = if is_direct {
        work.volume.direct().read_at(found, offset as u64)
    } else {
        work.volume.read_at(found, offset as u64)
    };
    let count = *read.as_ref().unwrap_or(&0);
    let result = read.map(drop);
    // Only a raw volume may refuse: others end the read at the end of the volume.
    let is_refused = work.conditions.mode.is_raw && is_cut_off(&result);
    let is_ok = !is_refused && work.outcome(&result)?;
    work.note("read above", (offset, bytes), None, is_ok);
    let (found, pattern) = (&work.worker.buffer[..count], &work.worker.source.random[offset..]);
    match found.iter().zip(pattern).position(|(found, pattern)| *found != 0 && found != pattern) {
        None => Ok(()),
        Some(at) => Err(Failure::Outcome(format!(
            "byte {} is {:#04x}, which was never written there, only {:#04x} was; read {count} of {bytes} bytes from {offset}",
            offset + at,
            found[at],
            pattern[at]
        ))),
    }
}

/// A range that begins at or above the floor, possibly past the end; whole blocks if the volume requires them.
fn range_above_floor(work: &mut Work<'_>) -> (usize, usize) {
    let unit =
        if work.conditions.mode.accepts_unaligned && work.worker.random.random() { 1 } else { work.block() };
    let floor = work.worker.model.size().next_multiple_of(unit);
    let random = &mut work.worker.random;
    let (above, most) = (*pick(random, &ABOVE_FLOOR), *pick(random, &ABOVE_FLOOR));
    let start = random.random_range(0..=above) / unit * unit;
    (floor + start, random.random_range(1..=most).next_multiple_of(unit))
}

/// Whether direct I/O on a volume with a page cache accepts the range and its bytes in the source.
fn is_aligned(work: &Work<'_>, offset: usize, bytes: usize) -> bool {
    work.conditions.mode.is_cached && (offset | bytes).is_multiple_of(work.block())
}

/// Whether a part of the range was past the end.
fn is_cut_off<T>(result: &Result<T, Error>) -> bool {
    let kind = result.as_ref().err().map(Error::kind);
    matches!(kind, Some(ErrorKind::PastEnd { .. } | ErrorKind::Io(IoError::EndOfDevice)))
}
