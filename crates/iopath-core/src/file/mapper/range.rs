//! A range of a file, in bytes. A range of a device is an `Extent`.

use std::fmt;

/// Bytes of a file, from `start` to before `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FileRange {
    start: u64,
    end: u64,
}

impl FileRange {
    /// `bytes` bytes from `offset` on, up to the largest offset.
    pub const fn new(offset: u64, bytes: u64) -> Self {
        Self { start: offset, end: offset.saturating_add(bytes) }
    }

    /// From `start` to before `end`; empty if `end` lies before `start`.
    pub const fn between(start: u64, end: u64) -> Self {
        Self { start, end: if end < start { start } else { end } }
    }

    /// The first byte.
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The byte after the last.
    pub const fn end(self) -> u64 {
        self.end
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.end - self.start
    }

    /// Whether it has no byte.
    pub const fn is_empty(self) -> bool {
        self.start == self.end
    }

    /// Whether `next` begins where this ends.
    pub const fn is_followed_by(self, next: Self) -> bool {
        self.end == next.start
    }

    /// The intersection; empty if they do not overlap.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::between(self.start.max(other.start), self.end.min(other.end))
    }

    /// The part from `offset` on.
    #[must_use]
    pub fn from_offset(self, offset: u64) -> Self {
        Self::between(self.start.max(offset), self.end)
    }

    /// The part before `offset`.
    #[must_use]
    pub fn up_to(self, offset: u64) -> Self {
        Self::between(self.start, self.end.min(offset))
    }

    /// Extended to whole units of `unit` bytes.
    #[must_use]
    pub fn outward(self, unit: u64) -> Self {
        let end = self.end.checked_next_multiple_of(unit).unwrap_or(u64::MAX / unit * unit);
        Self::between(self.start / unit * unit, end)
    }

    /// Shrunk to whole units of `unit` bytes.
    #[must_use]
    pub fn inward(self, unit: u64) -> Self {
        let start = self.start.checked_next_multiple_of(unit).unwrap_or(u64::MAX / unit * unit);
        Self::between(start, self.end / unit * unit)
    }

    /// Whether both ends are multiples of `unit` bytes.
    pub const fn is_whole(self, unit: u64) -> bool {
        self.start.is_multiple_of(unit) && self.end.is_multiple_of(unit)
    }
}

impl fmt::Display for FileRange {
    /// First byte and count: `4096 + 512`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}", self.start, self.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_units_are_those_touched_or_those_inside() {
        let range = FileRange::new(100, 1000);
        assert_eq!(range.outward(512), FileRange::new(0, 1536));
        assert_eq!(range.inward(512), FileRange::new(512, 512));
        assert!(FileRange::new(100, 300).inward(512).is_empty());
        assert!(range.outward(512).is_whole(512) && !range.is_whole(512));
    }

    #[test]
    fn the_end_of_all_offsets_is_an_end() {
        let last = FileRange::new(u64::MAX - 1, 100);
        assert_eq!(last.bytes(), 1);
        assert!(last.outward(4096).is_whole(4096) && last.inward(4096).is_empty());
    }

    #[test]
    fn disjoint_ranges_have_an_empty_intersection() {
        assert!(FileRange::new(0, 10).and(FileRange::new(20, 5)).is_empty());
        assert_eq!(FileRange::new(0, 30).and(FileRange::new(20, 50)), FileRange::new(20, 10));
        assert_eq!(FileRange::new(0, 30).from_offset(10).up_to(20), FileRange::new(10, 10));
    }
}
