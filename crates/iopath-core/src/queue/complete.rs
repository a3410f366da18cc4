//! The way back: from a request that is over to the bios it was made of, and on to what waited for them.

use super::{Gate, RequestQueue};
use crate::bio::{Bio, BioDone, Op};
use crate::error::IoError;
use crate::memory::Memory;
use crate::table::{NONE, State, Tag};
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// A request that [`RequestQueue::poll_dispatch`] gave out is over.
    ///
    /// If several bios were merged into a request that failed, each is tried again on its own: the
    /// neighbour of a bad sector is not bad.
    ///
    /// # Panics
    /// If the request is not at the device: a bug of the device.
    pub fn handle_completion(&mut self, tag: Tag, result: Result<(), IoError>, now: Instant) {
        self.leave_device(tag, State::Done);
        self.gate = Gate::Open;
        if tag == self.flush.tag {
            self.flush.finish();
            while let Some(slot) = self.flush.poll_covered() {
                self.complete(slot, result);
            }
        } else {
            self.elevator.completed(tag, &self.requests, now);
            let chain = self.requests[tag].chain;
            let try_alone = result.is_err() && chain.is_merged();
            let mut slot = chain.first;
            while slot != NONE {
                let next = self.bios[slot].next;
                if try_alone {
                    self.bios[slot].alone = true;
                    // Ahead of bios yet to be cut: they may need the slot that this piece holds.
                    self.waiting.push_front(slot);
                } else {
                    self.finish(slot, result);
                }
                slot = next;
            }
            self.requests.give_back(tag);
        }
        self.admit_waiting(now);
        // A bio that goes on may end at once, and so release others.
        while let Some(slot) = self.order.poll_released() {
            self.admit(slot, now);
            self.admit_waiting(now);
        }
    }

    /// Bio or piece `slot` has been carried out.
    pub(super) fn finish(&mut self, slot: u32, result: Result<(), IoError>) {
        if self.bios[slot].parent != NONE {
            self.finish_piece(slot, result);
        } else if self.bios[slot].bio.fua && !self.limits.fua && result.is_ok() {
            self.flush_or_complete(slot);
        } else {
            self.complete(slot, result);
        }
    }

    /// The first error of a split bio wins, and ends it as soon as its other pieces are over.
    fn finish_piece(&mut self, slot: u32, result: Result<(), IoError>) {
        let parent_slot = self.bios.remove(slot).parent;
        self.pieces -= 1;
        let parent = &mut self.bios[parent_slot];
        parent.pieces -= 1;
        parent.error = parent.error.or(result.err());
        if parent.pieces == 0 && parent.sectors_cut == parent.bio.extent.sectors() {
            let result = parent.error.map_or(Ok(()), Err);
            self.finish(parent_slot, result);
        }
    }

    /// Lets a bio wait for the next flush, if the device has anything to flush.
    pub(super) fn flush_or_complete(&mut self, slot: u32) {
        if self.limits.volatile_cache {
            self.flush.wait(slot);
        } else {
            self.complete(slot, Ok(()));
        }
    }

    /// The bio is over: its submitter may collect it, and what waited for it may go on.
    fn complete(&mut self, slot: u32, result: Result<(), IoError>) {
        let Bio { op, token, .. } = self.bios.remove(slot).bio;
        if op != Op::Flush {
            self.order.complete(slot);
        }
        self.done.push_back(BioDone { token, result });
    }
}
