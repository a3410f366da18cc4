//! Completions: of requests, of parts of them, of flushes, and of bios without a request.

use super::super::event::KernelIo;
use super::super::table::NONE;
use super::{Bio, LATE_MAX, Queue, Request, extent, of_bio, of_request};
use iopath_core::log::Event;
use iopath_core::{Instant, Op};

impl Queue {
    /// Sectors of a request have completed.
    pub(in super::super) fn complete(&mut self, io: KernelIo, errno: u32, now: Instant) {
        if io.sectors == 0 {
            return self.complete_flush(&io, errno, now);
        }
        let number = if let Some(number) = self.find_dispatched(&io) {
            self.dispatched.remove(self.requests[number].start, number);
            number
        } else if let Some(number) = self.find_queued(&io) {
            // The event of its issue was lost.
            self.remove_queued(number);
            number
        } else {
            self.counts.unknown_completions += 1;
            return;
        };
        let request = self.requests[number];
        if u64::from(io.sectors) < request.sectors {
            self.counts.partial_completions += 1;
            return self.complete_part(number, io.sectors.into(), errno, now);
        }
        self.complete_request(number, errno, now);
    }

    /// A bio without a request has completed.
    pub(in super::super) fn complete_bio(&mut self, io: KernelIo, errno: u32, now: Instant) {
        if !self.has_requests {
            let is_it = |number: &u32| self.requests[*number].start == io.sector;
            // A driver may have advanced the start of the bio.
            let of_end = || self.direct.of(io.end());
            let Some(number) = of_end().find(is_it).or_else(|| of_end().next()) else {
                self.counts.unknown_completions += 1;
                return;
            };
            self.direct.remove(io.end(), number);
            return self.complete_request(number, errno, now);
        }
        // The kernel ended a bio before it had a request.
        let Some(slot) = self.find_waiting(&io) else {
            self.counts.unknown_completions += 1;
            return;
        };
        self.waiting.remove(self.bios[slot].start, slot);
        self.end_bio(slot, errno, now);
    }

    fn complete_flush(&mut self, io: &KernelIo, errno: u32, now: Instant) {
        if io.op == Some(Op::Flush) {
            let Some(number) = self.device_flushes.pop_front() else {
                self.counts.unknown_completions += 1;
                return;
            };
            let step = of_request(Event::Complete, number, &self.requests[number]).with_other(errno);
            self.log.record(&step, now);
            self.requests.remove(number);
        } else if io.op.is_none() {
            self.counts.commands += 1;
        } else if let Some(index) = self.late.iter().position(|slot| self.bios[*slot].start == io.sector) {
            if let Some(slot) = self.late.remove(index) {
                self.end_bio(slot, errno, now);
            }
        } else if io.sector == 0
            && let Some(slot) = self.flushes.pop_front()
        {
            // The letters of the event no longer have the flush: the kernel has executed it.
            self.end_bio(slot, errno, now);
        }
    }

    /// Completes a request that is in no index.
    fn complete_request(&mut self, number: u32, errno: u32, now: Instant) {
        let request = self.requests[number];
        let mut step = of_request(Event::Complete, number, &request).with_other(errno);
        let first = request.first;
        let is_only = first != NONE && self.bios[first].next == NONE;
        step.is_last = is_only && self.bios[first].whole == NONE && !self.bios[first].ends_late;
        if request.sectors == 0 && first != NONE {
            step.extent = extent(self.bios[first].start, self.bios[first].sectors);
        }
        self.log.record(&step, now);
        self.requests.remove(number);
        if step.is_last {
            self.above.extend(self.bios[first].above);
            self.bios.remove(first);
            return;
        }
        let mut slot = first;
        while slot != NONE {
            let next = self.bios[slot].next;
            if self.bios[slot].ends_late && self.bios[slot].whole == NONE {
                self.wait_for_flush(slot, errno, now);
            } else {
                self.end_bio(slot, errno, now);
            }
            slot = next;
        }
    }

    /// The data of a write has completed. Its request completes a second time after the flush.
    fn wait_for_flush(&mut self, slot: u32, errno: u32, now: Instant) {
        self.late.push_back(slot);
        if self.late.len() > LATE_MAX
            && let Some(oldest) = self.late.pop_front()
        {
            self.counts.forgotten += 1;
            self.end_bio(oldest, errno, now);
        }
    }

    /// Completes the first sectors of a request that is in no index.
    fn complete_part(&mut self, number: u32, sectors: u64, errno: u32, now: Instant) {
        let request = &mut self.requests[number];
        request.start += sectors;
        request.sectors -= sectors;
        let Request { start, first, .. } = *request;
        self.dispatched.insert(start, number);
        let mut kept = Vec::new();
        let mut slot = first;
        while slot != NONE {
            let Bio { next, start: bio_start, sectors, .. } = self.bios[slot];
            if bio_start.saturating_add(sectors) <= start {
                self.end_bio(slot, errno, now);
            } else {
                kept.push(slot);
            }
            slot = next;
        }
        self.requests[number].first = NONE;
        self.requests[number].last = NONE;
        for slot in kept {
            self.append_bios(number, slot, slot);
        }
    }

    /// A bio or piece that is in no index has ended.
    fn end_bio(&mut self, slot: u32, errno: u32, now: Instant) {
        let bio = self.bios[slot];
        self.bios.remove(slot);
        if bio.whole == NONE {
            self.above.extend(bio.above);
            self.log.record(&of_bio(Event::Complete, slot, &bio).with_other(errno), now);
            return;
        }
        let whole = &mut self.bios[bio.whole];
        whole.left = whole.left.saturating_sub(bio.sectors);
        if whole.left == 0 && whole.is_split {
            whole.is_split = false;
            self.end_bio(bio.whole, errno, now);
        }
    }
}
