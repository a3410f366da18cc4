//! Sectors and ranges of them. Ranges do their own arithmetic here, so that nobody else has to.

use std::fmt;

/// Bytes in a sector: 512, whatever block size a device has (as in Linux).
pub const SECTOR_BYTES: u64 = 512;

/// log2 of [`SECTOR_BYTES`].
pub const SECTOR_SHIFT: u32 = 9;

/// A sector number: a position on a device in units of 512 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Sector(pub u64);

impl Sector {
    /// The highest sector number there is; a byte offset still fits 64 bits.
    pub const MAX: Self = Self(u64::MAX >> SECTOR_SHIFT);

    /// The byte offset of this sector; `u64::MAX` past [`Sector::MAX`], where there is none.
    pub const fn offset(self) -> u64 {
        self.0.saturating_mul(SECTOR_BYTES)
    }
}

impl fmt::Display for Sector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A range of sectors on a device: `sectors` of them from `start` on.
///
/// Ends at [`Sector::MAX`] or before, so that arithmetic inside a range cannot overflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Extent {
    start: Sector,
    sectors: u64,
}

impl Extent {
    /// The empty range, at sector 0.
    pub const EMPTY: Self = Self { start: Sector(0), sectors: 0 };

    /// `sectors` sectors from `start` on; `None` if that reaches past [`Sector::MAX`].
    pub const fn new(start: Sector, sectors: u64) -> Option<Self> {
        match start.0.checked_add(sectors) {
            Some(end) if end <= Sector::MAX.0 => Some(Self { start, sectors }),
            _ => None,
        }
    }

    /// The range of `bytes` bytes at byte `offset`; `None` unless both are whole sectors in range.
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

    /// How many sectors.
    pub const fn sectors(self) -> u64 {
        self.sectors
    }

    /// How many bytes.
    pub const fn bytes(self) -> u64 {
        self.sectors << SECTOR_SHIFT
    }

    /// The byte offset of the first sector.
    pub const fn offset(self) -> u64 {
        self.start.0 << SECTOR_SHIFT
    }

    /// Whether there is no sector in it.
    pub const fn is_empty(self) -> bool {
        self.sectors == 0
    }

    /// Whether some sector lies in both.
    pub const fn overlaps(self, other: Self) -> bool {
        self.start.0 < other.end().0 && other.start.0 < self.end().0
    }

    /// Whether `next` begins just where this ends.
    pub const fn is_followed_by(self, next: Self) -> bool {
        self.end().0 == next.start.0
    }

    /// Both as one range, if `next` follows.
    pub const fn join(self, next: Self) -> Option<Self> {
        if self.is_followed_by(next) {
            Some(Self { start: self.start, sectors: self.sectors + next.sectors })
        } else {
            None
        }
    }

    /// Cuts after `sectors` sectors: the part before, the part after.
    ///
    /// # Panics
    /// If the cut lies outside the range: a bug of the caller.
    pub fn split_at(self, sectors: u64) -> (Self, Self) {
        assert!(sectors <= self.sectors, "cut at {sectors} of {} sectors", self.sectors);
        (
            Self { start: self.start, sectors },
            Self { start: Sector(self.start.0 + sectors), sectors: self.sectors - sectors },
        )
    }

    /// How many sectors from the start of the range to the next multiple of `boundary` sectors, at
    /// most to its end.
    ///
    /// # Panics
    /// If `boundary` is zero: a bug of the caller.
    pub fn sectors_to_boundary(self, boundary: u64) -> u64 {
        (boundary - self.start.0 % boundary).min(self.sectors)
    }
}

impl fmt::Display for Extent {
    /// First sector and count, as blkparse prints them: `2048 + 8`.
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
    fn only_whole_sectors_make_an_extent() {
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
    fn neighbours_join_but_do_not_overlap() {
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
    fn a_boundary_is_counted_from_the_start_of_the_device() {
        assert_eq!(extent(6, 100).sectors_to_boundary(8), 2);
        assert_eq!(extent(8, 100).sectors_to_boundary(8), 8);
        assert_eq!(extent(8, 3).sectors_to_boundary(8), 3);
    }
}
