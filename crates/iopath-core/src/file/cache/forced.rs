//! Forced direct writes, which are on the medium when they end. The caller executes the write (`direct.rs`). The cache
//! then flushes the device (`flush.rs`).
//!
//! ```text
//!   begin_direct ──▶ Go ──▶ plain write ──▶ end_forced ──▶ next flush of the device ──▶ Ok, or the error
//! ```
//!
//! The write itself neither flushes the device nor uses forced unit access. The reason: a failing flush may lose every
//! byte written since the last good flush, including bytes of the cache. The device reports the failure once, to the
//! queue that flushed. The owner of that queue forwards the failure; a batch does so at its owner's next poll. Until
//! then, a flush on another queue would succeed although bytes are lost. (Linux may execute a forced write as a write
//! and a flush, and then the write fails like a flush.) With one sequence of device flushes, this cannot happen. No
//! caller waits for the owner of another queue, and writes that end together share a flush.

use super::{DirectTag, Outcome, PageCache, Ready};
use crate::error::IoError;

/// A forced direct write that has completed at the device and needs a flush. Dropping this handle has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the write is on the medium only when `PageCache::forced` returns success"]
pub struct Forced {
    /// The device flush that covers it.
    flush: u64,
    /// The number of failed device flushes before its submission.
    failures: u64,
}

impl PageCache {
    /// Call this when a forced direct write has succeeded at the device. As [`PageCache::end_direct`], and requests a
    /// device flush, which [`PageCache::poll_io`] returns. For a failed write, call [`PageCache::end_direct`].
    ///
    /// # Panics
    /// If the write has completed before, has not begun, or is a read: a bug of the caller.
    pub fn end_forced(&mut self, tag: DirectTag) -> Forced {
        let failures = self.end_registered(tag);
        Forced { flush: self.flushes.want_next(), failures }
    }

    /// Whether a forced direct write is on the medium; `None` while that is not known. It fails if any device flush has
    /// failed since the write began. That flush may have lost the write, even if the next flush succeeds.
    pub fn forced(&self, forced: Forced) -> Option<Result<(), IoError>> {
        self.flushes.outcome_of(forced.flush, forced.failures)
    }

    /// When the outcome of the write is known, [`PageCache::poll_ready`] names `waiter` with [`Outcome::Done`] or
    /// [`Outcome::Failed`].
    pub fn await_forced(&mut self, forced: Forced, waiter: u64) {
        match self.forced(forced) {
            Some(result) => {
                let outcome = result.map_or_else(Outcome::Failed, |()| Outcome::Done);
                self.ready.push_back(Ready { waiter, outcome });
            }
            None => self.flushes.join(forced.flush, waiter),
        }
    }
}
