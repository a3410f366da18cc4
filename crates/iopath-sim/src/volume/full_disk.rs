//! Disks without space: they refuse all writes for a time. The page cache must serve reads meanwhile.

use super::Volume;
use super::call::{Call, Kind};

impl Volume {
    pub(crate) fn set_full(&mut self, is_full: bool) {
        self.faults.iter().for_each(|faults| faults.borrow_mut().space.is_full = is_full);
    }

    /// The number of writes that full disks have refused.
    pub(super) fn refused(&self) -> u64 {
        self.faults.iter().map(|faults| faults.borrow().space.refused).sum()
    }

    /// Rule 8: dirty pages leave frames for reads, also while no page can be written back.
    pub(super) fn check_frames(&self) {
        let (Some(path), Some(cache)) = (&self.path, self.plan.cache) else { return };
        if self.has_failed_flush {
            return;
        }
        let dirty = path.cache().dirty_pages();
        assert!(dirty < cache.frames, "rule 8: all {dirty} frames have dirty pages");
        let lacks_frame = |(index, call): (usize, &Option<Call>)| {
            let is_read = call.as_ref().is_some_and(|call| matches!(call.kind, Kind::Read { .. }));
            is_read && path.is_starved(index as u64)
        };
        let is_busy = self.calls.iter().flatten().any(Call::holds_page)
            || self.queues.iter().any(|queue| queue.device.queue().bios_in() > 0);
        assert!(
            is_busy || !self.calls.iter().enumerate().any(lacks_frame),
            "rule 8: a read lacks a frame, and neither I/O nor a borrowed page has it"
        );
    }
}
