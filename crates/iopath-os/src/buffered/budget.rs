//! The budget of a cache that shares its memory with other caches. Does not divide the memory: the owner of the caches
//! does, from their usage.

use std::sync::{Arc, Weak};

use super::demand::MemoryOwner;
use super::state::State;
use super::{Buffered, CacheShared};
use crate::clock;

/// The budget of one cache, for the owner of its memory. Does not keep the cache open.
#[derive(Debug, Clone)]
pub struct CacheBudget {
    shared: Weak<CacheShared>,
}

/// The memory that a cache has and uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheUsage {
    /// Pages that may have memory.
    pub budget_pages: u32,
    /// The largest budget.
    pub budget_pages_max: u32,
    /// Pages that have memory. More than the budget while dirty, borrowed and transferred pages need it.
    pub used_pages: u32,
    /// How often the budget was too small since the last look.
    pub pressure: u32,
    /// Counts the uses of the cache: reads that found their pages, and calls that took the lock, except those of its
    /// owner.
    pub activity: u64,
}

impl Buffered {
    /// A handle for changes of the budget.
    ///
    /// # Panics
    /// If the cache was opened without [`BufferedConfig::demand`](super::BufferedConfig::demand): a bug of the caller.
    pub fn budget(&self) -> CacheBudget {
        assert!(self.shared.lock().shares_memory(), "the memory of this cache is registered, and stays");
        CacheBudget { shared: Arc::downgrade(&self.shared) }
    }
}

impl CacheBudget {
    /// The usage now. `None`: the cache is closed.
    pub fn usage(&self) -> Option<CacheUsage> {
        let shared = self.shared.upgrade()?;
        let state = shared.lock_if_sound()?;
        Some(shared.usage(&state))
    }

    /// Does the same as [`CacheBudget::usage`], and counts the pressure anew.
    pub fn take_usage(&self) -> Option<CacheUsage> {
        let shared = self.shared.upgrade()?;
        let mut state = shared.lock_if_sound()?;
        let usage = shared.usage(&state);
        if state.lacks_flusher() {
            // A flush has failed after the thread had ended, and its pages are dirty again.
            shared.start_flusher();
        }
        if let Some(owner) = &mut state.owner_of_memory {
            owner.look();
        }
        state.path.reset_pressure();
        Some(usage)
    }

    /// Sets the number of pages that may have memory, from one to the maximum. If the cache uses more, it evicts clean
    /// pages now, and others when they are clean and no caller borrows them.
    pub fn set_pages(&self, pages: u32) {
        let Some(shared) = self.shared.upgrade() else { return };
        let Some(mut state) = shared.lock_if_sound() else { return };
        state.path.set_budget(pages);
        if let Some(owner) = &mut state.owner_of_memory {
            owner.count_call();
        }
        // Takes the completions of write-back, too: their pages may be evicted.
        state.poll(clock::now());
        state.wake_flusher();
    }
}

impl CacheShared {
    fn usage(&self, state: &State) -> CacheUsage {
        let cache = state.path.cache();
        let own_calls = state.owner_of_memory.as_ref().map_or(0, MemoryOwner::calls);
        CacheUsage {
            budget_pages: cache.budget(),
            budget_pages_max: cache.budget_max(),
            used_pages: cache.used_frames(),
            pressure: cache.pressure(),
            activity: state.activity - own_calls + self.hot.visits() + self.borrowed_hits.sum(),
        }
    }
}

impl State {
    /// Whether the memory is shared with other caches.
    pub(super) const fn shares_memory(&self) -> bool {
        self.owner_of_memory.is_some()
    }

    /// Releases the memory of vacated frames, and notifies the owner of the memory if the budget is too small.
    pub(super) fn follow_budget(&mut self) {
        let Some(owner) = &mut self.owner_of_memory else { return };
        if self.path.cache().pressure() > 0 {
            owner.notify();
        }
        let mut frames = owner.take_frames();
        frames.extend(std::iter::from_fn(|| self.path.poll_vacated()));
        // SAFETY: no reader has pinned a vacated frame or visits it, and it has no I/O. The arena was made for it, as
        // there is an owner of the memory.
        unsafe { self.release(&mut frames) };
        frames.clear();
        if let Some(owner) = &mut self.owner_of_memory {
            owner.keep_frames(frames);
        }
    }
}
