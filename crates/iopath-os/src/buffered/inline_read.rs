//! Reads that the calling thread performs. For most misses without readahead, no other thread waits. If such a read
//! used the ring, the caller would sleep and another thread would wake it. A plain system call saves these two context
//! switches.
//!
//! Such a read bypasses the queue. So it is used only if the queue would have no effect: no elevator, no log, and no
//! write in flight for which the read would have to wait (rule 1 of the path).

use iopath_core::{Instant, Page};

use super::CacheShared;
use super::wait::Locked;
use crate::clock;
use crate::device::{OWN_SEGMENTS_MAX, read_now};

impl CacheShared {
    /// Advances the state machine. The calling thread performs the read of `page` if it may.
    pub(super) fn read_inline<'a>(&'a self, mut state: Locked<'a>, page: Page, now: Instant) -> Locked<'a> {
        let file = self.inline_reads.as_ref().filter(|_| state.may_bypass_queue());
        let read = file.and_then(|file| {
            let read = state.path.take_inline_read::<OWN_SEGMENTS_MAX>(page, now)?;
            Some((file, read))
        });
        state.advance(now);
        let Some((file, read)) = read else { return state };
        let geometry = *state.path.geometry();
        drop(state);
        let block_bytes = u64::from(geometry.block_bytes);
        let result = read_now(file, block_bytes, geometry.sectors(), read.extent, &read.segments);
        let mut state = self.lock();
        let now = clock::now();
        state.path.handle_completion(read.tag, result, now);
        state.advance(now);
        state
    }
}
