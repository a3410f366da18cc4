//! The pages of a closed cache, kept for a later cache in front of the same, unchanged device. Has no device, no thread
//! and no lock. Does not know whether the device is unchanged: the owner of the pages does.

use std::fmt;
use std::sync::Arc;

use iopath_core::buffered::BufferedPath;
use iopath_core::cache::CacheConfig;
use iopath_core::readahead::ReadaheadConfig;

use super::arena::Arena;
use super::state::{DeviceFrames, State};
use super::{Buffered, BufferedConfig};
use crate::clock;
use crate::device::{WaitError, Watch};
use crate::election::Polled;

/// The pages that a cache left ([`Buffered::keep`]), with their memory. All are clean, and on the medium.
pub struct KeptPages {
    path: BufferedPath<DeviceFrames>,
    arena: Arc<Arena>,
    made_for: MadeFor,
}

/// The part of its configuration that a cache keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MadeFor {
    cache: CacheConfig,
    readahead: Option<ReadaheadConfig>,
}

impl fmt::Debug for KeptPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeptPages").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl Buffered {
    /// Closes the cache as its drop does, and keeps its pages. `None` if they cannot be kept: not all writes are on the
    /// medium, bytes are lost or borrowed, or the cache was opened without [`BufferedConfig::demand`].
    pub fn keep(self) -> Option<KeptPages> {
        let shared = Arc::clone(&self.shared);
        // Ends the threads, and writes dirty pages back.
        drop(self);
        // `None`: borrowed bytes share it.
        let shared = Arc::into_inner(shared)?;
        let made_for = shared.made_for;
        // An error: a thread has panicked in the cache.
        let mut state = shared.state.into_inner().ok()?;
        state.end_io(&*shared.watch);
        let (path, arena) = state.into_pages()?;
        Some(KeptPages { path, arena, made_for })
    }
}

impl KeptPages {
    /// Whether a cache of this configuration can have the pages, if its device is the same and unchanged.
    pub fn fits(&self, config: &BufferedConfig) -> bool {
        config.demand.is_some()
            && self.made_for == MadeFor::of(config)
            && *self.path.geometry() == config.geometry()
    }

    /// The size of the volume that had them.
    pub fn size_bytes(&self) -> u64 {
        self.path.geometry().size_bytes
    }

    /// The memory of the pages.
    pub fn bytes(&self) -> u64 {
        u64::from(self.path.cache().used_frames()) * self.page_bytes()
    }

    /// Evicts the coldest pages, until their memory is at most `bytes`. Returns whether it is: one page stays.
    pub fn shrink(&mut self, bytes: u64) -> bool {
        self.path.set_budget(u32::try_from(bytes / self.page_bytes()).unwrap_or(u32::MAX));
        let mut frames: Vec<_> = std::iter::from_fn(|| self.path.poll_vacated()).collect();
        // SAFETY: a cache with an owner of its memory had the arena. No I/O and no thread accesses it.
        unsafe { self.arena.release(&mut frames) };
        self.bytes() <= bytes
    }

    fn page_bytes(&self) -> u64 {
        self.made_for.cache.page_bytes.into()
    }

    /// The pages for another cache.
    pub(super) fn into_parts(self) -> (BufferedPath<DeviceFrames>, Arc<Arena>) {
        let Self { mut path, arena, .. } = self;
        path.change_owner();
        (path, arena)
    }
}

impl MadeFor {
    pub(super) const fn of(config: &BufferedConfig) -> Self {
        Self { cache: config.cache, readahead: config.readahead }
    }
}

impl State {
    /// Waits for I/O that no caller waits for: readahead. The drop of the device would wait for it as well, and lose
    /// the pages and the ring.
    fn end_io(&mut self, watch: &dyn Watch) {
        while self.broken.is_none() && self.has_bios() {
            let before = self.reaped;
            let now = clock::now();
            self.reap(now);
            if self.reaped != before {
                continue;
            }
            let due = self.due().map(|due| due.saturating_since(now));
            if !self.has_io() && due.is_none() {
                // Nothing announces an end.
                return;
            }
            if let Err(WaitError { source }) = watch.wait(due) {
                self.broken = Some(source.raw_os_error().unwrap_or_default());
            }
        }
    }

    /// The pages, if no caller, no I/O and no unflushed write needs the device any more. Closes the device.
    fn into_pages(self) -> Option<(BufferedPath<DeviceFrames>, Arc<Arena>)> {
        let has_callers = !(self.waiters.is_empty() && self.owners.is_empty() && self.commands.is_empty());
        let is_sound = self.broken.is_none() && !self.is_abandoned && !self.has_io();
        let can_keep = is_sound && !has_callers && self.shares_memory() && self.path.is_settled();
        can_keep.then(|| self.close())
    }
}
