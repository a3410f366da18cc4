//! Checks of a volume: the bytes of reads, the errors of calls, and what is left when all calls have ended. Also its
//! state for the coverage.

use iopath_core::IoError;

use super::call::{Call, Kind};
use super::{DirectBytes, Volume};
use crate::arena::Owner;
use crate::contents::Reader;
use crate::coverage::State;

impl Volume {
    pub(super) fn check_read(&mut self, offset: u64, bytes: &[u8], reader: Reader) {
        self.checked_bytes += bytes.len() as u64;
        match self.contents.check_read(offset, bytes, reader) {
            Ok(damaged) => self.damaged_cells += damaged,
            Err(wrong) => panic!("rule 2: a read returns a wrong byte: {wrong}"),
        }
    }

    /// A caller gets an error. Without an injected fault, no I/O fails.
    pub(super) fn failed(&mut self, index: usize, why: IoError) {
        self.failed_calls += 1;
        let call = self.call(index);
        let (start, end) = (call.start, call.offset + call.bytes);
        // I/O past an end that has moved fails.
        let is_cut = why == IoError::EndOfDevice && (self.is_past_end(end) || self.has_resized_since(start));
        // A full disk fails no buffered read.
        let is_read = matches!(self.call(index).kind, Kind::Read { .. });
        let faults = self.injected() + if is_read { 0 } else { self.refused() };
        assert!(is_cut || faults > 0, "rule 6: a call fails with {why:?}, and no fault was injected");
    }

    /// The state of the volume, as the coverage counts it.
    pub(super) fn state(&self) -> State {
        let stats = self.path.as_ref().map(|path| path.cache().stats());
        let waits = |what: fn(&Call) -> bool| self.calls.iter().flatten().any(what);
        let queues = || self.queues.iter().map(|queue| queue.device.queue());
        State {
            has_cache: self.path.is_some(),
            is_mapped: self.host.is_some(),
            is_queued: queues().any(|queue| queue.bios_in() > queue.in_flight()),
            is_in_flight: queues().any(|queue| queue.in_flight() > 0),
            is_full: queues().any(|queue| queue.bios_in() >= self.plan.bios_max),
            is_plugged: self.queues.iter().any(|queue| queue.plugged_until.is_some()),
            has_held: queues().any(|queue| queue.stats().held > 0),
            is_dirty: stats.is_some_and(|stats| stats.dirty > 0),
            is_writing: stats.is_some_and(|stats| stats.writing > 0),
            has_failed: stats.is_some_and(|stats| stats.failed > 0),
            has_loss: self.path.as_ref().is_some_and(|path| path.loss().is_some()),
            has_guard: waits(Call::holds_page),
            waits_for_gate: waits(Call::waits_for_gate),
            waits_for_lock: waits(Call::waits_for_lock),
            waits_for_frame: waits(Call::waits_for_frame),
            is_appending: waits(Call::is_appending),
            has_own: self.own.as_ref().is_some_and(|own| !own.is_idle()),
            is_new_unflushed: self.new_file_parts().is_some_and(|(unflushed, _)| !unflushed.is_empty()),
            is_new_lost: self.new_file_parts().is_some_and(|(_, lost)| lost.is_some()),
            is_resizing: self.is_resizing(),
            is_blocked: self.queues.iter().any(|queue| queue.device.device().is_blocked()),
        }
    }

    /// Rule 4: the disks have moved all bytes of direct I/O from and to the memory of the programs. Returns them.
    pub(crate) fn check_zero_copy(&self) -> u64 {
        let moved =
            |owner| self.platters.iter().map(|platter| platter.borrow().moved().of(owner)).sum::<u64>();
        let DirectBytes { read, written } = self.direct;
        // A read of a hole moves no bytes.
        let is_mapped = self.host.is_some();
        let least = if is_mapped { written } else { read + written };
        let by_program = moved(Owner::Program);
        // The model does not know which bytes of a lost write the disk has not moved.
        assert!(
            by_program >= least || self.has_damage,
            "rule 4: direct I/O of {least} bytes moves {by_program} bytes in its memory"
        );
        assert!(self.shape.bounces || moved(Owner::Bounce) == 0, "rule 4: direct I/O is copied");
        assert!(is_mapped || moved(Owner::Library) == 0, "rule 4: direct I/O uses other memory than its own");
        assert!(
            self.path.is_some() || moved(Owner::Cache) == 0,
            "rule 4: a volume without a page cache uses one"
        );
        read + written
    }

    /// Checks that nothing of the calls is left.
    pub(crate) fn check_idle(&self) {
        for queue in &self.queues {
            let state = queue.device.queue();
            let left = (state.in_flight(), state.bios_in(), queue.submitted.len());
            assert_eq!(left, (0, 0, 0), "rule 8: requests, bios and tokens are left in an idle queue");
        }
        self.check_trimmed();
        assert!(self.locks.is_idle(), "rule 8: ranges are left locked: {:?}", self.locks);
        if let Some(path) = &self.path {
            let stats = path.cache().stats();
            let left = (stats.dirty, stats.writing, stats.failed);
            assert_eq!(left, (0, 0, 0), "rule 6: dirty, written and failed pages are left after a flush");
        }
    }
}
