//! Statistics of a page cache, in pages.

use super::{Meta, PageCache, State};
use crate::file::page::{Page, PageRange};

/// Counts since the cache was made, and its content now. Does not include the hits that [`super::Hot`] served: see
/// [`Hot::visits`](super::Hot::visits).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct CacheStats {
    /// Reads through the state machine that found their page.
    pub hits: u64,
    /// Reads and partial writes that did not find their page and started a read.
    pub misses: u64,
    /// Reads and writes that found their page being read.
    pub joins: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages written to the device.
    pub pages_written: u64,
    /// Pages of appends that were written past the cache and kept in it.
    pub appended: u64,
    /// Page writes that failed.
    pub writes_failed: u64,
    /// Pages that readahead requested.
    pub readahead: u64,
    /// Pages read ahead that were used.
    pub readahead_used: u64,
    /// Pages read ahead that left the cache unused.
    pub readahead_wasted: u64,
    /// Clean pages that were evicted.
    pub evicted: u64,
    /// Calls that found no free frame: all frames were dirty, pinned or in flight.
    pub starved: u64,
    /// Writes that moved a pinned page to another frame.
    pub moved: u64,
    /// Now: pages with bytes that the device lacks.
    pub dirty: u64,
    /// Now: pages being written.
    pub writing: u64,
    /// Now: pages whose last write-back failed.
    pub failed: u64,
}

impl PageCache {
    /// Pages with bytes that the device lacks, now.
    pub const fn dirty_pages(&self) -> u32 {
        self.unsaved
    }

    /// The pages that a read would find, in ranges in ascending order. O(frames log frames).
    pub fn cached(&self) -> Vec<PageRange> {
        self.runs_of(|(meta, frame)| {
            !meta.is_orphan && meta.state != State::Free && self.hot.is_valid(*frame)
        })
    }

    /// The number of page writes and of device flushes that have failed so far.
    pub const fn failures(&self) -> (u64, u64) {
        (self.stats.writes_failed, self.flushes.failures())
    }

    /// The pages whose last write-back failed, in ranges in ascending order. O(frames log frames).
    pub fn unwritable_pages(&self) -> Vec<PageRange> {
        self.runs_of(|(meta, _)| meta.is_failed)
    }

    /// The pages of these frames, in ranges in ascending order.
    fn runs_of(&self, is_wanted: impl Fn(&(&Meta, u32)) -> bool) -> Vec<PageRange> {
        let mut pages: Vec<Page> =
            self.frames.iter().zip(0..).filter(is_wanted).map(|(meta, _)| meta.page).collect();
        pages.sort_unstable();
        let runs = pages.chunk_by(|page, next| *page + 1 == *next);
        runs.map(|run| PageRange::new(run[0], run.len() as u64)).collect()
    }

    /// All counts. O(frames).
    pub fn stats(&self) -> CacheStats {
        let dirty = u64::from(self.unsaved);
        let failed = u64::from(self.room.failed());
        let mut stats = CacheStats { dirty, failed, ..self.stats };
        for (meta, frame) in self.frames.iter().zip(0..) {
            let is_used = meta.is_ahead && self.hot.is_valid(frame) && self.hot.touches(frame) > 0;
            stats.readahead_used += u64::from(is_used);
            stats.writing += u64::from(meta.state == State::Writing);
        }
        stats
    }
}
