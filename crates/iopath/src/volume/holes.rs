//! Finds data and holes: with `lseek(2)` in files, in the members of stripes, and with the mapping of mapped files.
//! Writes no pages back: see `range.rs`.

use std::fs::File;
use std::ops::Range;

use iopath_core::SECTOR_SHIFT;
use iopath_core::mapper::{FileRange, Location};
use iopath_os::FileMap;
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;

use crate::source::Backing;
use crate::source::stripe::{Members, Part};

/// The first `ranges_max` ranges with data, in ascending order. A backing without a record of holes has data
/// everywhere.
pub(super) fn data_ranges(
    backing: &Backing,
    range: Range<u64>,
    ranges_max: usize,
) -> Result<Vec<Range<u64>>, Errno> {
    let mut found = match backing {
        Backing::File(file) => of_file(file, range, ranges_max)?,
        Backing::Stripe(members) => of_stripe(members, range)?,
        Backing::Mapped(mapped) => of_mapped(&mapped.file, range, ranges_max),
        Backing::Memory(_) | Backing::Remote(_) => vec![range],
    };
    found.truncate(ranges_max);
    Ok(found)
}

/// Moves the file position, which no other code uses.
fn of_file(file: &File, range: Range<u64>, ranges_max: usize) -> Result<Vec<Range<u64>>, Errno> {
    let mut found = Vec::new();
    let mut offset = range.start;
    while offset < range.end && found.len() < ranges_max {
        let data = match seek(file, SeekFrom::Data(offset)) {
            Ok(data) => data,
            // No data after the offset.
            Err(Errno::NXIO) => break,
            // A block device, or a filesystem that does not record holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => offset,
            Err(errno) => return Err(errno),
        };
        if data >= range.end {
            break;
        }
        let hole = match seek(file, SeekFrom::Hole(data)) {
            Ok(hole) => hole.min(range.end),
            Err(Errno::NXIO | Errno::INVAL | Errno::OPNOTSUPP) => range.end,
            Err(errno) => return Err(errno),
        };
        found.push(data..hole);
        offset = hole;
    }
    Ok(found)
}

/// Finds the data of each member once, then goes through the chunks.
fn of_stripe(members: &Members, range: Range<u64>) -> Result<Vec<Range<u64>>, Errno> {
    let count = members.parts.len() as u64;
    let chunk = members.chunk_bytes();
    let (first, last) = (range.start / chunk, (range.end - 1) / chunk);
    let of_member = first / count * chunk..(last / count + 1) * chunk;
    let of_part = |part: &Part| match part {
        Part::File(file) => of_file(file, of_member.clone(), usize::MAX),
        Part::Remote(_) => Ok(vec![of_member.clone()]),
    };
    let data = members.parts.iter().map(|(part, _)| of_part(part)).collect::<Result<Vec<_>, _>>()?;
    let mut next = vec![0; data.len()];
    let mut found = Vec::new();
    for number in first..=last {
        let start = number * chunk;
        let of_member = number / count * chunk;
        let member = (number % count) as usize;
        while let Some(run) = data[member].get(next[member]).filter(|run| run.start < of_member + chunk) {
            let from = start + run.start.saturating_sub(of_member);
            push(&mut found, from, start + (run.end - of_member).min(chunk), &range);
            if run.end > of_member + chunk {
                // It continues in the next chunk of this member.
                break;
            }
            next[member] += 1;
        }
    }
    Ok(found)
}

/// A lookup for each run, so that other threads get the mapping in between.
fn of_mapped(file: &FileMap, range: Range<u64>, ranges_max: usize) -> Vec<Range<u64>> {
    let sector = 1 << SECTOR_SHIFT;
    let (mut at, end) = (range.start / sector * sector, range.end.next_multiple_of(sector));
    let mut found = Vec::new();
    // A run after the last range may be adjacent and extend it.
    while at < end && found.len() <= ranges_max {
        let Ok(run) = file.with_mapper(|mapper| mapper.map(FileRange::between(at, end))) else {
            // The metadata is not in memory.
            push(&mut found, at, end, &range);
            break;
        };
        if matches!(run.location, Location::Written(_)) {
            push(&mut found, run.file.start(), run.file.end(), &range);
        }
        at = run.file.end();
    }
    found
}

/// Appends the part within `range`, joined with the last one if they are adjacent.
fn push(found: &mut Vec<Range<u64>>, start: u64, end: u64, range: &Range<u64>) {
    let (start, end) = (start.max(range.start), end.min(range.end));
    match found.last_mut() {
        _ if start >= end => {}
        Some(last) if last.end == start => last.end = end,
        _ => found.push(start..end),
    }
}
