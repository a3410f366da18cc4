//! The write cache of a disk: runs of sectors that are not yet on the medium. `disk.rs` decides when they are written.

use std::collections::VecDeque;

use crate::disk::geometry::{Geometry, Track};

/// A run of cached sectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The number of its oldest write.
    pub(crate) oldest: u64,
    /// The track of its first sector.
    pub(crate) track: Track,
}

/// The cached writes, by sector. Adjacent ones are one run.
#[derive(Debug)]
pub(crate) struct WriteCache {
    runs: Vec<Run>,
    /// Sectors in the cache, including those being written to the medium.
    sectors: u64,
    sectors_max: u64,
    runs_max: usize,
    writes: u64,
    /// The run that is being written to the medium.
    in_transfer: Option<Run>,
    /// Flushes, each with the number of the last write that it covers.
    flushes: VecDeque<(u64, iopath_core::Tag)>,
}

impl WriteCache {
    pub(crate) fn new(sectors_max: u64, runs_max: u32) -> Self {
        let runs_max = runs_max as usize;
        let runs = Vec::with_capacity(runs_max + 1);
        let flushes = VecDeque::new();
        Self { runs, sectors: 0, sectors_max, runs_max, writes: 0, in_transfer: None, flushes }
    }

    /// Whether the disk has a write cache.
    pub(crate) const fn is_on(&self) -> bool {
        self.sectors_max > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Whether more than half of the sectors or runs are used.
    pub(crate) fn is_half_full(&self) -> bool {
        self.sectors * 2 > self.sectors_max || self.runs.len() * 2 > self.runs_max
    }

    /// Whether a write of `sectors` sectors fits. An empty cache accepts a write of any size.
    pub(crate) fn has_room(&self, sectors: u64) -> bool {
        self.runs.len() < self.runs_max && (self.sectors == 0 || self.sectors + sectors <= self.sectors_max)
    }

    /// Whether the cache has all sectors of a read.
    pub(crate) fn contains(&self, start: u64, end: u64) -> bool {
        let after = self.runs.partition_point(|run| run.start <= start);
        after > 0 && self.runs[after - 1].end >= end
    }

    /// Caches a write.
    pub(crate) fn insert(&mut self, start: u64, end: u64, geometry: &Geometry) {
        self.writes += 1;
        let first = self.runs.partition_point(|run| run.end < start);
        let last = first + self.runs[first..].partition_point(|run| run.start <= end);
        let Some(touched) = self.runs.get(first..last).filter(|touched| !touched.is_empty()) else {
            let track = geometry.track(start);
            self.runs.insert(first, Run { start, end, oldest: self.writes, track });
            self.sectors += end - start;
            return;
        };
        let before: u64 = touched.iter().map(|run| run.end - run.start).sum();
        let oldest = touched.iter().map(|run| run.oldest).min().unwrap_or(self.writes);
        let whole_start = start.min(touched[0].start);
        let whole_end = end.max(touched[touched.len() - 1].end);
        let track =
            if whole_start == touched[0].start { touched[0].track } else { geometry.track(whole_start) };
        self.runs[first] = Run { start: whole_start, end: whole_end, oldest, track };
        self.runs.drain(first + 1..last);
        self.sectors = self.sectors + (whole_end - whole_start) - before;
    }

    /// Removes the first `sectors_max` sectors of a run, to write them to the medium.
    pub(crate) fn take(&mut self, index: usize, sectors_max: u64, geometry: &Geometry) -> Run {
        let run = self.runs[index];
        let end = run.end.min(run.start + sectors_max);
        if end == run.end {
            self.runs.remove(index);
        } else {
            self.runs[index] = Run { start: end, track: geometry.track(end), ..run };
        }
        let taken = Run { end, ..run };
        self.in_transfer = Some(taken);
        taken
    }

    /// Call this when the run from [`WriteCache::take`] is on the medium.
    pub(crate) fn written(&mut self) {
        if let Some(run) = self.in_transfer.take() {
            self.sectors -= run.end - run.start;
        }
    }

    /// Adds a flush of all writes cached so far.
    pub(crate) fn flush(&mut self, tag: iopath_core::Tag) {
        self.flushes.push_back((self.writes, tag));
    }

    /// The number of the last write that the oldest flush covers.
    pub(crate) fn flush_up_to(&self) -> Option<u64> {
        self.flushes.front().map(|(writes, _)| *writes)
    }

    /// The next flush whose writes are on the medium.
    pub(crate) fn pop_flushed(&mut self) -> Option<iopath_core::Tag> {
        let up_to = self.flush_up_to()?;
        let waits = self.runs.iter().chain(&self.in_transfer).any(|run| run.oldest <= up_to);
        if waits { None } else { self.flushes.pop_front().map(|(_, tag)| tag) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::geometry::Zone;

    fn rig() -> (WriteCache, Geometry) {
        let zones = [Zone { cylinders: 100, sectors_per_track: 100 }];
        (WriteCache::new(1000, 4), Geometry::new(&zones, 2, 1_000_000, 0, 0))
    }

    #[test]
    fn adjacent_and_overlapping_writes_are_one_run() {
        let (mut cache, geometry) = rig();
        for (start, end) in [(10, 20), (40, 50), (20, 30), (25, 42)] {
            cache.insert(start, end, &geometry);
        }
        let runs: Vec<_> = cache.runs().iter().map(|run| (run.start, run.end, run.oldest)).collect();
        assert_eq!((runs, cache.sectors), (vec![(10, 50, 1)], 40));
        assert!(cache.contains(12, 50) && !cache.contains(12, 51) && !cache.contains(9, 11));
    }

    #[test]
    fn a_flush_waits_for_the_writes_before_it_only() {
        let (mut cache, geometry) = rig();
        cache.insert(0, 10, &geometry);
        let tag = iopath_core::Tag::from_bits(5);
        cache.flush(tag);
        cache.insert(500, 510, &geometry);
        assert_eq!(cache.pop_flushed(), None);
        let taken = cache.take(0, 6, &geometry);
        assert_eq!((taken.start, taken.end, cache.runs()[0].start), (0, 6, 6));
        cache.written();
        assert_eq!(cache.pop_flushed(), None, "4 sectors are left");
        cache.take(0, 100, &geometry);
        assert_eq!(cache.pop_flushed(), None, "the run is in transfer");
        cache.written();
        assert_eq!((cache.pop_flushed(), cache.sectors), (Some(tag), 10));
    }

    #[test]
    fn the_cache_has_room_by_sectors_and_by_runs() {
        let (mut cache, geometry) = rig();
        assert!(cache.has_room(5000), "a write larger than the cache passes through an empty one");
        cache.insert(0, 900, &geometry);
        assert!(cache.has_room(100) && !cache.has_room(101));
        for start in [2000, 4000, 6000] {
            cache.insert(start, start + 1, &geometry);
        }
        assert!(!cache.has_room(1), "four runs");
    }
}
