//! Settings and counters of iopath's page cache. The cache itself belongs to the volume.

use iopath::Readahead;
use iopath::stats::BufferedStats;
use iopath_report::result::{CacheFacts, CacheUse};
use iopath_report::size::parse_size;

/// The default size of the cache, in bytes.
pub const CACHE_BYTES: u64 = 256 << 20;

/// The default size of a page, in bytes.
pub const PAGE_BYTES: u32 = 4 << 10;

/// Settings of iopath's page cache. An unset value means the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheSettings {
    /// The memory of the cache, in bytes.
    pub cache_bytes: Option<u64>,
    /// The size of a page, in bytes.
    pub page_bytes: Option<u32>,
    /// The readahead of the cache.
    pub readahead: Option<Readahead>,
    /// Whether reads borrow the cached bytes instead of copying them.
    pub borrow: bool,
}

impl CacheSettings {
    /// The memory of the cache, in bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_bytes.unwrap_or(CACHE_BYTES)
    }

    /// The settings on a target with this block size: a page without a set size holds at least one block.
    pub(crate) fn on_block(self, block_bytes: u32) -> Self {
        Self { page_bytes: Some(self.page_bytes.unwrap_or(PAGE_BYTES.max(block_bytes))), ..self }
    }

    /// The size of a page, in bytes.
    pub fn page_bytes(&self) -> u32 {
        self.page_bytes.unwrap_or(PAGE_BYTES)
    }

    /// The readahead of the cache.
    pub fn readahead(&self) -> Readahead {
        self.readahead.unwrap_or_default()
    }

    /// The settings and counters, for results.
    pub(crate) fn facts(&self, used: CacheUse) -> CacheFacts {
        CacheFacts {
            cache_bytes: self.cache_bytes(),
            page_bytes: self.page_bytes(),
            readahead: readahead_text(self.readahead()),
            borrow: self.borrow,
            used,
        }
    }
}

/// Parses `auto`, `off`, a size, or `linux:` and a size. A size of 0 is `off`.
pub fn parse_readahead(text: &str) -> Result<Readahead, String> {
    let bytes = |size| {
        parse_size(size).map_err(|_| {
            format!("`{text}` is neither auto, off, a size (1m, 512k) nor Linux's windows (linux:128k)")
        })
    };
    let parsed = match text {
        "auto" => Readahead::Auto,
        "off" => Readahead::Off,
        _ => match text.strip_prefix("linux:") {
            Some(size) => Readahead::Linux(bytes(size)?),
            None => Readahead::Bytes(bytes(text)?),
        },
    };
    Ok(if matches!(parsed, Readahead::Linux(0) | Readahead::Bytes(0)) { Readahead::Off } else { parsed })
}

/// A readahead as an option has it.
pub fn readahead_text(readahead: Readahead) -> String {
    match readahead {
        Readahead::Auto => "auto".to_owned(),
        Readahead::Off => "off".to_owned(),
        Readahead::Bytes(bytes) => bytes.to_string(),
        Readahead::Linux(bytes) => format!("linux:{bytes}"),
        // `parse_readahead` makes no other.
        other => format!("{other:?}"),
    }
}

/// The difference of two states of the counters.
pub(crate) fn used_between(before: &BufferedStats, after: &BufferedStats) -> CacheUse {
    let (was, is) = (&before.cache, &after.cache);
    CacheUse {
        hits: (after.hits + is.hits).saturating_sub(before.hits + was.hits),
        misses: is.misses.saturating_sub(was.misses),
        joins: is.joins.saturating_sub(was.joins),
        readahead: is.readahead.saturating_sub(was.readahead),
        readahead_used: is.readahead_used.saturating_sub(was.readahead_used),
        readahead_wasted: is.readahead_wasted.saturating_sub(was.readahead_wasted),
        pages_read: is.pages_read.saturating_sub(was.pages_read),
        pages_written: is.pages_written.saturating_sub(was.pages_written),
        evicted: is.evicted.saturating_sub(was.evicted),
        dirty: is.dirty,
        writing: is.writing,
        readahead_bytes: after.readahead_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readahead_parses_from_its_text() {
        assert_eq!(parse_readahead("auto"), Ok(Readahead::Auto));
        assert_eq!(parse_readahead("off"), Ok(Readahead::Off));
        assert_eq!(parse_readahead("512k"), Ok(Readahead::Bytes(512 << 10)));
        assert_eq!(parse_readahead("linux:128k"), Ok(Readahead::Linux(128 << 10)));
        // As `read_ahead_kb` 0 of Linux. The result states `off`.
        for none in ["0", "0k", "linux:0"] {
            assert_eq!(parse_readahead(none), Ok(Readahead::Off), "{none}");
        }
        assert!(parse_readahead("far").unwrap_err().contains("`far`"));
        assert!(parse_readahead("linux:far").unwrap_err().contains("`linux:far`"));
        for text in ["auto", "off", "524288", "linux:131072"] {
            assert_eq!(readahead_text(parse_readahead(text).unwrap()), text);
        }
    }

    #[test]
    fn counters_are_subtracted_and_added_and_the_last_state_is_kept() {
        let stats = |hits, dirty| {
            let mut stats = BufferedStats::default();
            stats.hits = hits;
            (stats.cache.hits, stats.cache.misses, stats.cache.dirty) = (2 * hits, hits, dirty);
            stats
        };
        let first = used_between(&stats(10, 5), &stats(30, 3));
        assert_eq!((first.hits, first.misses, first.dirty), (60, 20, 3));
        let sum: CacheUse = [first, used_between(&stats(0, 0), &stats(1, 0))].into_iter().sum();
        assert_eq!((sum.hits, sum.misses, sum.dirty), (63, 21, 0));
    }
}
