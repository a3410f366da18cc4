//! What a page cache has done, in pages.

use super::{PageCache, State};

/// Counts since the cache was made, and what is in it now. Hits that [`super::Hot`] served are not in here: whoever
/// serves them counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheStats {
    /// Reads through the state machine that found their page.
    pub hits: u64,
    /// Reads and writes of a part that did not, and started reading it.
    pub misses: u64,
    /// Reads and writes that found their page on its way.
    pub joins: u64,
    /// Pages read from the device.
    pub pages_read: u64,
    /// Pages written to the device.
    pub pages_written: u64,
    /// Pages whose write failed, each time.
    pub writes_failed: u64,
    /// Pages asked for by readahead.
    pub readahead: u64,
    /// Of those, the ones that were used.
    pub readahead_used: u64,
    /// Of those, the ones that left the cache unused.
    pub readahead_wasted: u64,
    /// Clean pages that made room for others.
    pub evicted: u64,
    /// Calls that found no frame: all dirty, pinned or on their way.
    pub starved: u64,
    /// Writes that moved a pinned page to another frame.
    pub moved: u64,
    /// Now: pages whose bytes are nowhere else.
    pub dirty: u64,
    /// Now: pages at the device to be written.
    pub writing: u64,
    /// Now: pages whose last write-back failed.
    pub failed: u64,
}

impl PageCache {
    /// Pages whose bytes are nowhere else, now.
    pub const fn dirty_pages(&self) -> u32 {
        self.unsaved
    }

    /// Looks at every frame.
    pub fn stats(&self) -> CacheStats {
        let mut stats = CacheStats { dirty: u64::from(self.unsaved), ..self.stats };
        for (meta, frame) in self.frames.iter().zip(0..) {
            let is_used = meta.is_ahead && self.hot.is_valid(frame) && self.hot.touches(frame) > 0;
            stats.readahead_used += u64::from(is_used);
            stats.writing += u64::from(meta.state == State::Writing);
            stats.failed += u64::from(meta.is_failed);
        }
        stats
    }
}
