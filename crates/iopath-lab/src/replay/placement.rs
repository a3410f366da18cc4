//! Where a recorded range lies on the target: at the same place, wrapped or scaled into a smaller target, and widened
//! to its alignment.

use iopath_report::replay::ReplayFit;

/// A scaled device keeps the order of bytes within regions of this size.
const REGION_BYTES: u64 = 1 << 20;

/// Maps the ranges of a recorded device to a target.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    fit: ReplayFit,
    align_bytes: u64,
    /// The usable bytes of the target: a multiple of the alignment.
    size_bytes: u64,
    /// The end of the highest recorded range.
    end_bytes: u64,
    region_bytes: u64,
}

/// A range of the target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) offset: u64,
    pub(super) bytes: u64,
    /// Whether it is larger than the recorded one.
    pub(super) is_widened: bool,
}

impl Placement {
    /// For ranges up to `end_bytes`, on a target of this size and alignment.
    pub(super) fn new(fit: ReplayFit, align_bytes: u64, size_bytes: u64, end_bytes: u64) -> Self {
        let align_bytes = align_bytes.max(1);
        Self {
            fit,
            align_bytes,
            size_bytes: size_bytes - size_bytes % align_bytes,
            end_bytes,
            region_bytes: REGION_BYTES.next_multiple_of(align_bytes),
        }
    }

    /// The bytes of the target that the ranges need.
    pub(super) fn needed_bytes(&self) -> u64 {
        self.end_bytes.next_multiple_of(self.align_bytes)
    }

    pub(super) const fn align_bytes(&self) -> u64 {
        self.align_bytes
    }

    /// Whether all ranges lie on the target where they were recorded.
    pub(super) fn fits(&self) -> bool {
        self.needed_bytes() <= self.size_bytes
    }

    /// The place of a range; none if the target is smaller than the range.
    pub(super) fn place(&self, offset: u64, bytes: u64) -> Option<Placed> {
        let start = offset - offset % self.align_bytes;
        let end = (offset + bytes).next_multiple_of(self.align_bytes);
        let length = end - start;
        let last = self.size_bytes.checked_sub(length)?;
        let start = match self.fit {
            _ if self.fits() => start,
            ReplayFit::Reject => return None,
            ReplayFit::Wrap => start % self.size_bytes,
            ReplayFit::Scale => self.scaled(start),
        };
        // A range that crosses the end moves down as a whole: it stays one I/O.
        Some(Placed { offset: start.min(last), bytes: length, is_widened: length != bytes })
    }

    fn scaled(&self, start: u64) -> u64 {
        let recorded = self.end_bytes.div_ceil(self.region_bytes).max(1);
        let here = (self.size_bytes / self.region_bytes).max(1);
        let region = u128::from(start / self.region_bytes) * u128::from(here) / u128::from(recorded);
        region as u64 * self.region_bytes + start % self.region_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn placed(offset: u64, bytes: u64, is_widened: bool) -> Placed {
        Placed { offset, bytes, is_widened }
    }

    #[test]
    fn a_range_that_fits_stays_where_it_was_recorded() {
        for fit in [ReplayFit::Reject, ReplayFit::Wrap, ReplayFit::Scale] {
            let placement = Placement::new(fit, 512, 4096, 4096);
            assert!(placement.fits());
            assert_eq!(placement.place(512, 3584), Some(placed(512, 3584, false)), "{fit:?}");
        }
    }

    #[test]
    fn ranges_are_widened_to_the_alignment() {
        let placement = Placement::new(ReplayFit::Reject, 4096, 16384, 12000);
        assert_eq!(placement.place(512, 512), Some(placed(0, 4096, true)));
        assert_eq!(placement.place(4096, 4096), Some(placed(4096, 4096, false)));
        assert_eq!(placement.place(8000, 4000), Some(placed(4096, 8192, true)));
        // The end of the target is not aligned, and the widened range needs it.
        let placement = Placement::new(ReplayFit::Reject, 4096, 12000, 12000);
        assert!(!placement.fits());
        assert_eq!(placement.place(8192, 512), None);
    }

    #[test]
    fn wrapped_ranges_begin_again_at_the_start_and_never_cross_the_end() {
        let placement = Placement::new(ReplayFit::Wrap, 512, 10 * 4096, 1 << 40);
        assert_eq!(placement.place(4096, 4096), Some(placed(4096, 4096, false)));
        assert_eq!(placement.place(12 * 4096, 4096), Some(placed(2 * 4096, 4096, false)));
        assert_eq!(placement.place(9 * 4096, 8192), Some(placed(8 * 4096, 8192, false)));
        assert_eq!(placement.place(0, 11 * 4096), None);
    }

    #[test]
    fn scaled_ranges_keep_runs_and_the_order_of_regions() {
        let placement = Placement::new(ReplayFit::Scale, 512, 25 * MIB, 100 * MIB);
        let offset = |start: u64| placement.place(start, 4096).unwrap().offset;
        assert_eq!(offset(0), 0);
        assert_eq!(offset(8192), 8192);
        assert_eq!(offset(99 * MIB), 24 * MIB);
        assert_eq!(offset(40 * MIB + 4096) - offset(40 * MIB), 4096);
        let starts: Vec<u64> = (0..100).map(|region| offset(region * MIB)).collect();
        assert!(starts.is_sorted());
    }

    #[test]
    fn every_place_is_on_the_target() {
        for fit in [ReplayFit::Wrap, ReplayFit::Scale] {
            for (align, size, end) in
                [(512, 1000, u64::MAX / 2), (4096, 3 * MIB + 5, 77 * MIB), (4096, 4096, 1 << 57), (1, 1, 2)]
            {
                let placement = Placement::new(fit, align, size, end);
                for offset in [0, 1, 511, 4095, MIB - 1, end / 3, end - 1] {
                    let Some(placed) = placement.place(offset, 1) else { continue };
                    assert!(
                        placed.offset + placed.bytes <= size,
                        "{fit:?} {align} {size} {offset}: {placed:?}"
                    );
                    assert_eq!((placed.offset % align, placed.bytes % align), (0, 0));
                }
            }
        }
    }
}
