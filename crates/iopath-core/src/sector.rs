//! Sectors, and ranges of sectors with their arithmetic.

use std::fmt;

/// Bytes in a sector: always 512, independent of the block size of the device (as in Linux).
pub const SECTOR_BYTES: u64 = 512;

/// log2 of [`SECTOR_BYTES`].
pub const SECTOR_SHIFT: u32 = 9;

/// A sector number: a position on a device in units of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

impl Sector {
    /// The highest sector number: its byte offset fits 64 bits.
    pub const MAX: Self = Self(u64::MAX >> SECTOR_SHIFT);

    /// The byte offset of this sector; `u64::MAX` above [`Sector::MAX`].
    pub const fn offset(self) -> u64 {
        self.0.saturating_mul(SECTOR_BYTES)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of sectors on a device.
///
/// It ends at or before [`Sector::MAX`], so arithmetic inside a range cannot overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    start: Sector,
    sectors: u64,
}

impl Extent {
    /// The empty range, at sector 0.
    pub const EMPTY: Self = Self { start: Sector(0), sectors: 0 };

    /// `sectors` sectors from `start`; `None` if they extend past [`Sector::MAX`].
    pub const fn new(start: Sector, sectors: u64) -> Option<Self> {
        match start.0.checked_add(sectors) {
            Some(end) if end <= Sector::MAX.0 => Some(Self { start, sectors }),
            _ => None,
        }
    }

    /// The range of `bytes` bytes at byte `offset`; `None` unless both are multiples of a sector and in range.
    pub const fn from_bytes(offset: u64, bytes: u64) -> Option<Self> {
        if !offset.is_multiple_of(SECTOR_BYTES) || !bytes.is_multiple_of(SECTOR_BYTES) {
            return None;
        }
        Self::new(Sector(offset >> SECTOR_SHIFT), bytes >> SECTOR_SHIFT)
    }

    /// The first sector.
    pub const fn start(self) -> Sector {
        self.start
    }

    /// The sector after the last one.
    pub const fn end(self) -> Sector {
        Sector(self.start.0 + self.sectors)
    }

    /// The number of sectors.
    pub const fn sectors(self) -> u64 {
        self.sectors
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.sectors << SECTOR_SHIFT
    }

    /// The byte offset of the first sector.
    pub const fn offset(self) -> u64 {
        self.start.0 << SECTOR_SHIFT
    }

    /// Whether the range has no sector.
    pub const fn is_empty(self) -> bool {
        self.sectors == 0
    }

    /// Whether both ranges have a sector in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// Whether `next` starts where this range ends.
    pub const fn is_followed_by(self, next: Self) -> bool {
        self.end().0 == next.start.0
    }

    /// Both as one range, if `next` starts where this range ends.
    pub const fn join(self, next: Self) -> Option<Self> {
        if self.is_followed_by(next) {
            Some(Self { start: self.start, sectors: self.sectors + next.sectors })
        } else {
            None
        }
    }

    /// The first `sectors` sectors, and the rest.
    ///
    /// # Panics
    /// If the range has fewer sectors: a bug of the caller.
    pub fn split_at(self, sectors: u64) -> (Self, Self) {
        assert!(sectors <= self.sectors, "split at {sectors} of {} sectors", self.sectors);
        (
            Self { start: self.start, sectors },
            Self { start: Sector(self.start.0 + sectors), sectors: self.sectors - sectors },
        )
    }

    /// The sectors from the start of the range to the next multiple of `boundary` sectors, or to its end if that is
    /// nearer.
    ///
    /// # Panics
    /// If `boundary` is zero: a bug of the caller.
    pub fn sectors_to_boundary(self, boundary: u64) -> u64 {
        (boundary - self.start.0 % boundary).min(self.sectors)
    }
}

impl fmt::Display for Extent {
    /// The first sector and the number of sectors, as blkparse prints them: `2048 + 8`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} + {}", self.start, self.sectors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extent(start: u64, sectors: u64) -> Extent {
        Extent::new(Sector(start), sectors).unwrap()
    }

    #[test]
    fn an_extent_is_whole_sectors() {
        assert_eq!(Extent::from_bytes(1024, 512), Some(extent(2, 1)));
        assert_eq!(Extent::from_bytes(1, 512), None);
        assert_eq!(Extent::from_bytes(0, 511), None);
    }

    #[test]
    fn an_extent_never_passes_the_last_sector() {
        assert!(Extent::new(Sector::MAX, 0).is_some());
        assert_eq!(Extent::new(Sector::MAX, 1), None);
        assert_eq!(Extent::new(Sector(u64::MAX), u64::MAX), None);
    }

    #[test]
    fn adjacent_extents_join_and_do_not_overlap() {
        let (a, b) = (extent(0, 8), extent(8, 8));
        assert!(a.is_followed_by(b) && !b.is_followed_by(a));
        assert!(!a.overlaps(b) && a.overlaps(extent(7, 1)));
        assert_eq!(a.join(b), Some(extent(0, 16)));
        assert_eq!(b.join(a), None);
        assert_eq!(extent(0, 16).split_at(8), (a, b));
    }

    #[test]
    fn the_empty_extent_overlaps_nothing() {
        assert!(!extent(4, 0).overlaps(extent(4, 4)));
    }

    #[test]
    fn boundaries_are_multiples_from_the_start_of_the_device() {
        assert_eq!(extent(6, 100).sectors_to_boundary(8), 2);
        assert_eq!(extent(8, 100).sectors_to_boundary(8), 8);
        assert_eq!(extent(8, 3).sectors_to_boundary(8), 3);
    }
}
