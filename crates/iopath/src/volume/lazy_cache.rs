//! The page cache of a volume, which may be opened later than the volume.

use super::Volume;
use crate::error::{Cause, ErrorKind, OpenError, Result};
use crate::storage::cache::LazyCache;
use iopath_os::Buffered;

impl Volume {
    /// Whether there is a page cache, open or not.
    pub(crate) fn has_cache(&self) -> bool {
        self.shared.cache.is_some()
    }

    /// The page cache, if it is open: always in a batch, which opens it.
    #[inline]
    pub(crate) fn cache_if_any(&self) -> Option<&Buffered> {
        self.shared.cache.as_ref().and_then(LazyCache::get)
    }

    /// The page cache, if there is one. The first I/O opens it, if the volume did not.
    ///
    /// # Errors
    /// It cannot be opened.
    #[inline]
    pub(crate) fn cache_or_open(&self) -> Result<Option<&Buffered>, OpenError> {
        let Some(lazy) = &self.shared.cache else { return Ok(None) };
        match lazy.get() {
            Some(cache) => Ok(Some(cache)),
            None => self.open_cache(lazy).map(Some),
        }
    }

    /// Does the same as [`Volume::cache_or_open`], with the error of an I/O.
    #[inline]
    pub(crate) fn cache_for_io(&self) -> Result<Option<&Buffered>> {
        self.cache_or_open()
            .map_err(|error| self.error(ErrorKind::Cache).because(Cause::Open(Box::new(error))))
    }

    #[cold]
    fn open_cache<'a>(&'a self, lazy: &'a LazyCache) -> Result<&'a Buffered, OpenError> {
        let cache = lazy.get_or_open(self.storage(), &self.shared.facts, || self.size_bytes())?;
        // The elevator may have changed while the cache was opened.
        self.tune_cache();
        Ok(cache)
    }

    /// The page cache, if it is not open.
    #[inline]
    pub(super) fn unopened_cache(&self) -> Option<&LazyCache> {
        self.shared.cache.as_ref().filter(|lazy| lazy.get().is_none())
    }
}
