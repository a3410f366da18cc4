//! Forced direct writes: on the medium when they end. The caller carries out the write (`direct.rs`), the cache the flush
//! of the device that follows it (`flush.rs`).
//!
//! ```text
//!   begin_direct ──▶ Go ──▶ plain write ──▶ end_forced ──▶ next flush of the device ──▶ Ok, or the error
//! ```
//!
//! The write neither flushes the device itself nor uses forced unit access, for this reason: a flush that fails may lose every
//! byte that the device took since its last good flush, those of the cache included. The device reports that once, to the
//! queue that flushed. Until the owner of that queue passes the failure on, which a batch does at its owner's next poll, a
//! flush on another queue would succeed although bytes are lost. (On Linux a forced write may be carried out as a write and a
//! flush, and fails like one.) With all flushes of the device in one sequence this cannot happen, no caller waits for an
//! owner, and writes that end together share a flush.

use super::{DirectTag, Outcome, PageCache, Ready};
use crate::error::IoError;

/// A forced direct write that the device has carried out, and that a flush must take to the medium. Dropping it has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "the write is on the medium when `PageCache::forced` says so"]
pub struct Forced {
    /// The flush of the device that covers it.
    flush: u64,
    /// Flushes of the device that had failed before it went there.
    failures: u64,
}

impl PageCache {
    /// A forced direct write has succeeded at the device: as [`PageCache::end_direct`], and requests a flush of the
    /// device, which [`PageCache::poll_io`] returns. One that failed ends with [`PageCache::end_direct`].
    ///
    /// # Panics
    /// If it had completed before, had not begun, or is a read: a bug of the caller.
    pub fn end_forced(&mut self, tag: DirectTag) -> Forced {
        let failures = self.end_registered(tag);
        Forced { flush: self.flushes.want_next(), failures }
    }

    /// Whether a forced direct write is on the medium; `None` while that is not known. It fails if any flush of the
    /// device failed since the write began: that flush may have lost it, whether the next one succeeds or not.
    pub fn forced(&self, forced: Forced) -> Option<Result<(), IoError>> {
        self.flushes.outcome_of(forced.flush, forced.failures)
    }

    /// [`PageCache::poll_ready`] names `waiter` when [`PageCache::forced`] knows: [`Outcome::Done`] or
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
