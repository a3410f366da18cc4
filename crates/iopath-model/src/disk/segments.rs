//! The read buffer of a disk: segments of sectors in order of use. `position.rs` decides which sectors the heads read
//! into them.

/// A run of sectors in the buffer. It never ends before its start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// The segments. A new run replaces the segment that was used least recently.
#[derive(Debug)]
pub(crate) struct Segments {
    runs: Vec<Segment>,
    /// The numbers of the segments, the most recently used first.
    order: Vec<u8>,
    sectors_max: u64,
    /// The number of runs in each region of the disk, by a hash of the region: most reads are in a region without a
    /// run.
    regions: Box<[u16; REGIONS]>,
    /// The logarithm of the sectors of a region. A run is in at most two regions.
    region_shift: u32,
}

/// Entries for regions.
const REGIONS: usize = 512;

impl Segments {
    /// At most 256 segments of `sectors_max` sectors. A disk without a buffer has one segment without sectors.
    pub(crate) fn new(count: u32, sectors_max: u64) -> Self {
        let count = count.clamp(1, 256);
        let runs = vec![Segment { start: 0, end: 0 }; count as usize];
        let mut regions = Box::new([0; REGIONS]);
        regions[0] = 2 * count as u16;
        Self {
            runs,
            order: (0..count).map(|number| number as u8).collect(),
            sectors_max,
            regions,
            region_shift: sectors_max.checked_ilog2().map_or(0, |log| log + 1),
        }
    }

    pub(crate) fn get(&self, index: usize) -> Segment {
        self.runs[index]
    }

    /// The segment that contains `start` or ends at `start`.
    #[inline]
    pub(crate) fn find(&mut self, start: u64) -> Option<usize> {
        if self.regions[self.region(start)] == 0 { None } else { self.search(start) }
    }

    fn search(&mut self, start: u64) -> Option<usize> {
        // One comparison for each segment, and it is seldom true, so the processor predicts it well. Comparisons with
        // both ends would be mispredicted half of the time.
        let contains = |run: &Segment| start.wrapping_sub(run.start) <= run.end - run.start;
        let index = self.runs.iter().position(|run| contains(run) && run.start < run.end)?;
        self.touch(index);
        Some(index)
    }

    /// Begins a run at `start` in the segment that was used least recently.
    pub(crate) fn begin(&mut self, start: u64) -> usize {
        let last = self.order.len() - 1;
        let index = usize::from(self.order[last]);
        self.set(index, Segment { start, end: start });
        self.move_to_front(last);
        index
    }

    /// Extends a run to `end`. Drops its first sectors if the segment has no room for all.
    pub(crate) fn extend(&mut self, index: usize, end: u64) {
        let Segment { start, end: before } = self.runs[index];
        let end = before.max(end);
        self.set(index, Segment { start: start.max(end.saturating_sub(self.sectors_max)), end });
    }

    /// Removes the sectors of a write.
    pub(crate) fn invalidate(&mut self, start: u64, end: u64) {
        for index in 0..self.runs.len() {
            let run = self.runs[index];
            if run.start < end && start < run.end {
                self.set(index, Segment { end: start.max(run.start), ..run });
            }
        }
    }

    fn set(&mut self, index: usize, run: Segment) {
        let before = std::mem::replace(&mut self.runs[index], run);
        let [old, new] = [before, run].map(|run| [run.start, run.end].map(|sector| self.region(sector)));
        if old != new {
            for region in old {
                self.regions[region] -= 1;
            }
            for region in new {
                self.regions[region] += 1;
            }
        }
    }

    /// The entry of the region of a sector.
    #[inline]
    fn region(&self, sector: u64) -> usize {
        (sector >> self.region_shift) as usize % REGIONS
    }

    /// Marks a segment as the most recently used.
    pub(crate) fn touch(&mut self, index: usize) {
        let number = index as u8;
        if self.order[0] != number {
            let at = self.order.iter().position(|&other| other == number).unwrap_or(0);
            self.move_to_front(at);
        }
    }

    fn move_to_front(&mut self, at: usize) {
        let number = self.order[at];
        self.order.copy_within(..at, 1);
        self.order[0] = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_segment_drops_its_first_sectors_and_a_new_run_replaces_the_least_recently_used() {
        let mut segments = Segments::new(2, 100);
        let first = segments.begin(1000);
        segments.extend(first, 1150);
        assert_eq!((segments.get(first).start, segments.get(first).end), (1050, 1150));
        assert_eq!(segments.find(1150), Some(first));
        assert_eq!(segments.find(1049), None);
        let second = segments.begin(5000);
        segments.extend(second, 5010);
        assert_eq!(segments.find(1100), Some(first));
        assert_eq!(segments.begin(9000), second);
        assert_eq!(segments.find(5005), None);
    }

    #[test]
    fn a_write_removes_the_sectors_that_it_covers_and_those_after_them() {
        let mut segments = Segments::new(1, 100);
        let run = segments.begin(0);
        segments.extend(run, 80);
        segments.invalidate(40, 48);
        assert_eq!((segments.get(run).start, segments.get(run).end), (0, 40));
    }
}
