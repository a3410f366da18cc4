//! The memory of a page cache: its owner takes frames away and returns them while the cache is in use.

use iopath_core::Instant;

use super::Volume;

impl Volume {
    /// From now on, so many frames may have memory.
    pub(super) fn set_budget(&mut self, frames: u32, now: Instant) {
        let Some(path) = &mut self.path else { return };
        path.set_budget(frames);
        self.log(now, 0, "budget", 0, frames.into());
    }

    /// Releases the memory of frames that the cache has given up: their bytes are gone.
    pub(super) fn release_frames(&mut self) -> bool {
        let (Some(path), Some(frames)) = (&mut self.path, self.frames) else { return false };
        let mut is_changed = false;
        while let Some(frame) = path.poll_vacated() {
            is_changed = true;
            // A stale byte is never a valid content.
            self.arena.with(frames.whole(frame), |bytes| bytes.fill(0xA5));
        }
        is_changed
    }

    /// A cache at rest gives up all frames above its budget, when it is asked again: a page that was pinned at the
    /// first time keeps its frame until then, or until the next I/O.
    pub(crate) fn check_budget(&mut self) {
        let (Some(path), true) = (&mut self.path, self.plan.extras.changes_budget) else { return };
        let budget = path.cache().budget();
        path.set_budget(budget);
        let used = path.cache().used_frames();
        assert!(used <= budget, "rule 8: an idle cache has {used} frames, and may have {budget}");
    }
}
