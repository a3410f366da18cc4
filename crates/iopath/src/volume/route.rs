//! The path of a read or write, with the page cache or the bounce buffer that it needs: `iopath_core::volume` decides.

use super::{Volume, VolumeShared};
use crate::bounce::Bounce;
use crate::error::Result;
use crate::facts::Facts;
use crate::options::{IoMode, Unaligned};
use crate::storage::Storage;
use iopath_core::volume::{CacheUse, Route, VolumeShape};
use iopath_os::{Buffered, page_bytes};

/// The path of a read or write.
pub(super) enum Routed<'a> {
    Direct,
    Cached(&'a Buffered),
    Bounced(&'a Bounce),
}

/// The properties of a volume that decide paths and checks.
pub(super) fn shape_of(storage: &Storage, facts: &Facts) -> VolumeShape {
    let options = &storage.options;
    VolumeShape {
        block_bytes: facts.block_bytes,
        memory_align_bytes: facts.memory_align_bytes,
        page_bytes: page_bytes() as u32,
        cache: match options.mode {
            IoMode::Buffered => CacheUse::All,
            IoMode::Direct | IoMode::Raw if options.is_cached() => CacheUse::Unaligned,
            IoMode::Direct | IoMode::Raw => CacheUse::None,
        },
        bounces: options.unaligned == Unaligned::Bounce,
        is_writable: options.write,
        cuts_off_at_end: options.mode != IoMode::Raw,
        writes_last_block: storage.writes_last_block,
        is_resizable: storage.source.can_resize(),
        extends: options.extend,
    }
}

impl Volume {
    /// The path of a read or write of `memory` at `offset`.
    #[inline]
    pub(super) fn route(&self, offset: u64, memory: &[u8]) -> Result<Routed<'_>> {
        let cache = self.cache_for_io()?;
        let VolumeShared { shape, bounce, .. } = &*self.shared;
        let route = shape.route(offset, memory.len() as u64, memory.as_ptr().addr());
        Ok(match (route, cache, bounce) {
            (Route::Cached, Some(cache), _) => Routed::Cached(cache),
            (Route::Bounced, _, Some(bounce)) => Routed::Bounced(bounce),
            (route, ..) => {
                debug_assert_eq!(route, Route::Direct, "a route needs a cache or a bounce buffer");
                Routed::Direct
            }
        })
    }
}
