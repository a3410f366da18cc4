//! Completion: from a completed request to its bios, and to the bios that waited for them.

use super::log::errno;
use super::{Gate, RequestQueue};
use crate::block::bio::{Bio, BioDone, Op};
use crate::block::log::Event;
use crate::block::request::{Chain, NONE, State, Tag};
use crate::error::IoError;
use crate::memory::Memory;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// A request from [`RequestQueue::poll_dispatch`] has completed.
    ///
    /// If a merged request fails, each of its bios is retried alone, since only one of them may cover the bad sector.
    ///
    /// # Panics
    /// If the request is not in flight: a bug of the device.
    #[expect(clippy::inline_always, reason = "see `submit_bio`")]
    #[inline(always)]
    pub fn handle_completion(&mut self, tag: Tag, result: Result<(), IoError>, now: Instant) {
        self.leave_device(tag, State::Done);
        self.gate = Gate::Open;
        if tag == self.flush.tag {
            self.log_completion(tag, result, false, now);
            self.flush.finish();
            while let Some(slot) = self.flush.poll_covered() {
                self.complete(slot, result, LastStep::Flush, now);
            }
        } else {
            // Before the release of the row, which the elevator reads.
            self.elevator.completed(tag, &self.requests, now);
            self.finish_request(tag, result, now);
            self.requests.release(tag);
        }
        // Bios that wait for a slot were submitted before the bios that this completion releases.
        self.admit_waiting(now);
        if self.order.has_released() {
            self.admit_released(now);
        }
    }

    /// Continues with bios that an overlapping one held back.
    fn admit_released(&mut self, now: Instant) {
        // A released bio may complete at once and so release others.
        while let Some(slot) = self.order.poll_released() {
            self.admit(slot, now);
            self.admit_waiting(now);
        }
    }

    /// Completes each bio of a request, or retries each alone if a merged request failed.
    #[expect(clippy::inline_always, reason = "see `submit_bio`")]
    #[inline(always)]
    fn finish_request(&mut self, tag: Tag, result: Result<(), IoError>, now: Instant) {
        let Chain { first, last, .. } = self.requests[tag].chain;
        if first == last && self.is_whole(first) {
            self.log_completion(tag, result, true, now);
            self.release(first, result, LastStep::Transfer);
        } else {
            self.finish_bios(tag, result, now);
        }
    }

    fn finish_bios(&mut self, tag: Tag, result: Result<(), IoError>, now: Instant) {
        let chain = self.requests[tag].chain;
        self.log_completion(tag, result, false, now);
        let retry_alone = result.is_err() && chain.is_merged();
        let mut slot = chain.first;
        while slot != NONE {
            let next = self.bios[slot].next;
            if retry_alone {
                self.bios[slot].set_alone();
                // Before the bios that are not yet split, since these may wait for the slot of this piece.
                self.waiting.push_front(slot);
                self.log_bio(Event::Retry, slot, 0, now);
            } else {
                self.finish(slot, result, now);
            }
            slot = next;
        }
    }

    /// Whether a bio completes with its request: it is not a piece and needs no flush.
    fn is_whole(&self, slot: u32) -> bool {
        let bio = &self.bios[slot];
        bio.parent().is_none() && (!bio.bio.fua || self.limits.fua)
    }

    /// The transfer of a bio or piece has completed.
    pub(super) fn finish(&mut self, slot: u32, result: Result<(), IoError>, now: Instant) {
        if let Some(parent) = self.bios[slot].parent() {
            self.finish_piece(slot, parent, result, now);
        } else if result.is_err() || self.is_whole(slot) {
            self.complete(slot, result, LastStep::Transfer, now);
        } else {
            self.flush_or_complete(slot, now);
        }
    }

    /// Completes a split bio with its first error, once all of its pieces have completed.
    fn finish_piece(&mut self, slot: u32, parent_slot: u32, result: Result<(), IoError>, now: Instant) {
        self.bios.remove(slot);
        self.pieces -= 1;
        let (parent, split) = self.bios.split_mut(parent_slot);
        split.pieces -= 1;
        split.error = split.error.or(result.err());
        // All pieces so far may complete before the rest of the bio is split.
        if split.pieces == 0 && split.sectors == parent.bio.extent.sectors() {
            let result = self.bios.end_split(parent_slot);
            self.finish(parent_slot, result, now);
        }
    }

    /// Lets a bio wait for the next flush, if the device has a volatile cache.
    pub(super) fn flush_or_complete(&mut self, slot: u32, now: Instant) {
        if self.limits.volatile_cache {
            self.log_bio(Event::Flush, slot, 0, now);
            self.flush.wait(slot);
        } else {
            self.complete(slot, Ok(()), LastStep::Transfer, now);
        }
    }

    fn complete(&mut self, slot: u32, result: Result<(), IoError>, last: LastStep, now: Instant) {
        self.log_bio(Event::Complete, slot, errno(result), now);
        self.release(slot, result, last);
    }

    /// Releases a completed bio: its submitter may collect it, and bios that it held back may continue.
    #[inline]
    fn release(&mut self, slot: u32, result: Result<(), IoError>, last: LastStep) {
        let Bio { op, token, fua, .. } = self.bios.remove(slot).bio;
        if op != Op::Flush {
            self.order.complete(slot);
        }
        if let Err(error) = result {
            let is_both = fua && self.limits.fua && error.may_come_from_flush();
            if matches!(last, LastStep::Flush) || is_both {
                self.failed_flush = Some(error);
            }
        }
        self.done.push_back(BioDone { token, result });
    }
}

/// The last step of a bio.
#[derive(Debug, Clone, Copy)]
enum LastStep {
    Transfer,
    Flush,
}
