//! A list of ranges with data, for sources that find them in pieces.

use std::ops::Range;

/// Appends the part within `range`, joined with the last one if they are adjacent.
pub(super) fn push(found: &mut Vec<Range<u64>>, start: u64, end: u64, range: &Range<u64>) {
    let (start, end) = (start.max(range.start), end.min(range.end));
    match found.last_mut() {
        _ if start >= end => {}
        Some(last) if last.end == start => last.end = end,
        _ => found.push(start..end),
    }
}
