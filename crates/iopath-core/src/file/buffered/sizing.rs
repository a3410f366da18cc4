//! The sizes of a page cache and its readahead in front of a device. Not their policies.

use crate::block::limits::Limits;
use crate::file::cache::CacheConfig;
use crate::file::readahead::{ReadaheadConfig, WindowPolicy};

/// The most bytes that are read ahead and not yet used, unless a caller sets another limit.
const READAHEAD_BYTES_MAX: u64 = 64 << 20;

impl CacheConfig {
    /// A cache of `cache_bytes` in pages of `page_bytes`, whose largest I/O is a request of the device.
    pub fn for_device(cache_bytes: u64, page_bytes: u32, limits: &Limits) -> Self {
        let frames = u32::try_from(cache_bytes / u64::from(page_bytes)).unwrap_or(u32::MAX - 1).max(1);
        let io_pages_max = (limits.request_bytes_max / u64::from(page_bytes)).clamp(1, frames.into()) as u32;
        Self { frames, page_bytes, io_pages_max, ..Self::default() }
    }
}

impl ReadaheadConfig {
    /// The readahead of such a cache, which fits the part of the cache for pages that are used once.
    pub fn for_device(cache_bytes: u64, page_bytes: u32, limits: &Limits) -> Self {
        Self::within(Self::budget_of(cache_bytes), page_bytes, limits)
    }

    /// The bytes that such a readahead may have in the cache.
    pub(super) fn budget_of(cache_bytes: u64) -> u64 {
        // A fifth less than the part for pages that are used once.
        (cache_bytes / u64::from(CacheConfig::SCAN_PARTS) / 5 * 4).min(READAHEAD_BYTES_MAX)
    }

    /// Readahead of at most `budget_bytes`, or half the cache if that is less; none if that is zero.
    pub fn limited(budget_bytes: u64, cache_bytes: u64, page_bytes: u32, limits: &Limits) -> Option<Self> {
        let least = u64::from(page_bytes);
        let budget_bytes =
            (budget_bytes > 0).then(|| budget_bytes.clamp(least, (cache_bytes / 2).max(least)))?;
        Some(Self::within(budget_bytes, page_bytes, limits))
    }

    /// Windows of the Linux kernel, of at most `window_bytes` or a quarter of the cache; none if that is zero. Two
    /// windows are read ahead at most.
    pub fn linux(window_bytes: u64, cache_bytes: u64, page_bytes: u32, limits: &Limits) -> Option<Self> {
        let limited = Self::limited(window_bytes.min(cache_bytes / 4), cache_bytes, page_bytes, limits)?;
        Some(Self { policy: WindowPolicy::Linux, ..limited })
    }

    fn within(budget_bytes: u64, page_bytes: u32, limits: &Limits) -> Self {
        let request_bytes = limits.request_bytes_max.min(budget_bytes / 2).max(u64::from(page_bytes));
        Self { page_bytes, request_bytes, budget_bytes, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u32 = 4096;

    fn limits() -> Limits {
        Limits { request_bytes_max: 512 << 10, ..Limits::with_capacity(1 << 20) }
    }

    #[test]
    fn an_io_of_the_cache_is_a_request_of_the_device() {
        let cache = CacheConfig::for_device(1 << 30, PAGE, &limits());
        assert_eq!((cache.frames, cache.io_pages_max), (1 << 18, 128));
        let small = CacheConfig::for_device(64 << 10, PAGE, &limits());
        assert_eq!((small.frames, small.io_pages_max), (16, 16));
    }

    #[test]
    fn readahead_fits_the_cache_and_the_limit() {
        let auto = |cache_bytes| ReadaheadConfig::for_device(cache_bytes, PAGE, &limits());
        assert_eq!((auto(1 << 30).budget_bytes, auto(1 << 30).request_bytes), (64 << 20, 512 << 10));
        assert!(auto(1 << 20).budget_bytes < (1 << 20) / u64::from(CacheConfig::SCAN_PARTS));
        let limited = |bytes| ReadaheadConfig::limited(bytes, 1 << 20, PAGE, &limits());
        assert_eq!(limited(0), None);
        assert_eq!(limited(1).unwrap().budget_bytes, u64::from(PAGE));
        assert_eq!(limited(u64::MAX).unwrap().budget_bytes, 1 << 19);
        let linux = |bytes| ReadaheadConfig::linux(bytes, 1 << 20, PAGE, &limits());
        assert_eq!(linux(0), None);
        let of = |bytes| (linux(bytes).unwrap().budget_bytes, linux(bytes).unwrap().policy);
        assert_eq!(of(128 << 10), (128 << 10, WindowPolicy::Linux));
        assert_eq!(of(u64::MAX), (1 << 18, WindowPolicy::Linux));
    }
}
