//! The owner of the memory of a cache, as the cache sees it.

use std::fmt;
use std::sync::Arc;

use iopath_core::cache::Frame;

use super::SharedFlusher;

/// The owner of the memory of several caches.
pub trait Demand: fmt::Debug + Send + Sync {
    /// A cache has evicted pages, or exceeded its budget, for lack of frames. Called with the lock of the cache: it
    /// must return soon, and must not call the cache.
    fn notify(&self);

    /// The thread that writes back dirty pages for all of its caches.
    fn flusher(&self) -> SharedFlusher;
}

/// The owner of the memory of a cache. It is notified once until it looks at the cache.
#[derive(Debug)]
pub(super) struct MemoryOwner {
    demand: Arc<dyn Demand>,
    is_notified: bool,
    /// The number of its calls of the state machine.
    calls: u64,
    /// Frames to be released; allocated once.
    frames: Vec<Frame>,
}

impl MemoryOwner {
    pub(super) fn new(demand: Arc<dyn Demand>) -> Self {
        Self { demand, is_notified: false, calls: 0, frames: Vec::new() }
    }

    /// The budget is too small.
    pub(super) fn notify(&mut self) {
        if !std::mem::replace(&mut self.is_notified, true) {
            self.demand.notify();
        }
    }

    pub(super) const fn count_call(&mut self) {
        self.calls += 1;
    }

    pub(super) const fn calls(&self) -> u64 {
        self.calls
    }

    /// An empty list of frames.
    pub(super) fn take_frames(&mut self) -> Vec<Frame> {
        std::mem::take(&mut self.frames)
    }

    /// Keeps the list for the next release.
    pub(super) fn keep_frames(&mut self, frames: Vec<Frame>) {
        self.frames = frames;
    }

    /// The owner looks at the cache.
    pub(super) const fn look(&mut self) {
        self.is_notified = false;
    }
}
