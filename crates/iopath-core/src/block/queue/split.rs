//! Turns bios into requests: splits a bio that exceeds the limits of the device, merges adjacent ones, and takes
//! request slots for the others. A bio or piece that finds no slot waits in order.

use super::RequestQueue;
use crate::block::bio::Bio;
use crate::block::log::{Event, Subject};
use crate::block::request::{Chain, NONE};
use crate::block::table::BioSlot;
use crate::memory::Memory;
use crate::sector::SECTOR_SHIFT;
use crate::time::Instant;

impl<M: Memory> RequestQueue<M> {
    /// Continues with a bio that no earlier overlapping bio holds back.
    #[inline]
    pub(super) fn admit(&mut self, slot: u32, now: Instant) {
        // Bios that wait for a slot go first: later bios that need fewer slots could pass them forever.
        if !self.waiting.is_empty() || !self.stage(slot, now) {
            self.waiting.push_back(slot);
        }
    }

    /// Continues with bios that wait for a request slot, as long as there are free slots.
    #[inline]
    pub(super) fn admit_waiting(&mut self, now: Instant) {
        if !self.waiting.is_empty() {
            self.stage_waiting(now);
        }
    }

    fn stage_waiting(&mut self, now: Instant) {
        while let Some(slot) = self.waiting.front().copied() {
            if !self.stage(slot, now) {
                return;
            }
            self.waiting.pop_front();
        }
    }

    /// Turns a bio, or the rest of it, into requests. Returns whether all of it is in requests.
    #[expect(clippy::inline_always, reason = "see `submit_bio`")]
    #[inline(always)]
    fn stage(&mut self, slot: u32, now: Instant) -> bool {
        let BioSlot { bio, .. } = &self.bios[slot];
        if self.limits.fits(bio.op, bio.extent) { self.stage_piece(slot, now) } else { self.split(slot, now) }
    }

    /// Splits a bio, or the rest of it, into requests. Returns whether all of it is in requests.
    fn split(&mut self, slot: u32, now: Instant) -> bool {
        while self.has_rest(slot, now) {
            if self.pieces == self.pieces_max {
                // Unplug before the bio waits, since it may wait for pieces in the plug.
                self.empty_plug(now);
                return false;
            }
            if !self.stage_next_piece(slot, now) {
                return false;
            }
        }
        true
    }

    /// Whether a bio has sectors that are not yet split off. After an error, the rest is not submitted.
    fn has_rest(&mut self, slot: u32, now: Instant) -> bool {
        let (parent, split) = self.bios.split_mut(slot);
        let sectors = parent.bio.extent.sectors();
        if split.error.is_none() {
            return split.sectors < sectors;
        }
        split.sectors = sectors;
        if split.pieces == 0 {
            let result = self.bios.end_split(slot);
            self.finish(slot, result, now);
        }
        false
    }

    fn stage_next_piece(&mut self, slot: u32, now: Instant) -> bool {
        let (BioSlot { bio, .. }, split) = self.bios.split_mut(slot);
        let (bio, split) = (*bio, split.sectors);
        let (_, rest) = bio.extent.split_at(split);
        let (extent, _) = rest.split_at(self.limits.first_piece(bio.op, rest));
        let memory = bio.memory.map(|memory| memory.slice(split << SECTOR_SHIFT, extent.bytes()));
        let piece_slot = self.bios.insert(Bio { extent, memory, ..bio }, Some(slot));
        self.log_bio(Event::Split, piece_slot, slot, now);
        if !self.stage_piece(piece_slot, now) {
            self.bios.remove(piece_slot);
            return false;
        }
        let (_, split) = self.bios.split_mut(slot);
        self.stats.split += u64::from(split.sectors == 0);
        split.sectors += extent.sectors();
        split.pieces += 1;
        self.pieces += 1;
        true
    }

    /// Merges a piece into a request or takes a slot for it. Returns `false` if no slot is free.
    fn stage_piece(&mut self, slot: u32, now: Instant) -> bool {
        let chain = Chain::of_bio(slot, &self.bios[slot].bio);
        self.bios[slot].next = NONE;
        if self.merge_in_plug(&chain, now) {
            return true;
        }
        // Build the chain again, in registers. `chain` is in memory: a copy would use wider loads than the recent
        // stores to its fields, and stall until these stores are done.
        let chain = Chain::of_bio(slot, &self.bios[slot].bio);
        let Some(tag) = self.requests.take(chain, now) else { return self.stage_without_slot(slot, now) };
        self.log_got(tag, slot, now);
        if self.plug.is_on() {
            if self.plug.is_full() {
                self.empty_plug(now);
            }
            if self.plug.len() == 0 {
                self.log_plugged(tag, now);
            }
            self.plug.push(tag, chain.extent);
        } else {
            self.insert(tag, now);
        }
        true
    }

    /// Merges a piece into a queued request, which needs no slot. Empties the plug first, since a plugged request would
    /// never release its slot.
    #[cold]
    fn stage_without_slot(&mut self, slot: u32, now: Instant) -> bool {
        self.empty_plug(now);
        let subject = Subject::Bio(slot);
        let chain = Chain::of_bio(slot, &self.bios[slot].bio);
        let merged = self.merge_in_elevator(subject, &chain, now);
        if let Err(reason) = merged {
            self.stats.slot_waits += 1;
            self.log_unmerged(Event::SlotWait, subject, &chain, reason, now);
        }
        merged.is_ok()
    }
}
