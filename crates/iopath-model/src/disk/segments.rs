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
}

impl Segments {
    /// At most 256 segments of `sectors_max` sectors. A disk without a buffer has one segment without sectors.
    pub(crate) fn new(count: u32, sectors_max: u64) -> Self {
        let count = count.clamp(1, 256);
        let runs = vec![Segment { start: 0, end: 0 }; count as usize];
        Self { runs, order: (0..count).map(|number| number as u8).collect(), sectors_max }
    }

    pub(crate) fn get(&self, index: usize) -> Segment {
        self.runs[index]
    }

    /// The segment that contains `start` or ends at `start`.
    pub(crate) fn find(&mut self, start: u64) -> Option<usize> {
        // One comparison for each segment, and it is seldom true, so the processor predicts it well. Comparisons with both
        // ends would be mispredicted half of the time.
        let contains = |run: &Segment| start.wrapping_sub(run.start) <= run.end - run.start;
        let index = self.runs.iter().position(|run| contains(run) && run.start < run.end)?;
        self.touch(index);
        Some(index)
    }

    /// Begins a run at `start` in the segment that was used least recently.
    pub(crate) fn begin(&mut self, start: u64) -> usize {
        let last = self.order.len() - 1;
        let index = usize::from(self.order[last]);
        self.runs[index] = Segment { start, end: start };
        self.move_to_front(last);
        index
    }

    /// Extends a run to `end`. Drops its first sectors if the segment has no room for all.
    pub(crate) fn extend(&mut self, index: usize, end: u64) {
        let run = &mut self.runs[index];
        run.end = run.end.max(end);
        run.start = run.start.max(run.end.saturating_sub(self.sectors_max));
    }

    /// Removes the sectors of a write.
    pub(crate) fn invalidate(&mut self, start: u64, end: u64) {
        for run in &mut self.runs {
            if run.start < end && start < run.end {
                run.end = start.max(run.start);
            }
        }
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
