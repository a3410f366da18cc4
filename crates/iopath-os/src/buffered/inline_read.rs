//! Reads that the calling thread performs itself. Most misses without readahead are awaited by no other thread. If such a
//! read went through the ring, the caller would sleep and another thread would wake it: two context switches that a plain
//! system call does not need.
//!
//! Such a read passes the queue, so it is used only where the queue adds nothing: no elevator, no log, and no write in
//! flight that the read would have to wait for (rule 1 of the path).

use iopath_core::{Instant, Page};

use super::Shared;
use super::wait::Locked;
use crate::clock;
use crate::device::{OWN_SEGMENTS_MAX, read_now};

impl Shared {
    /// Advances the state machine. The calling thread performs the read of `page` itself where it may.
    pub(super) fn read_inline<'a>(&'a self, mut state: Locked<'a>, page: Page, now: Instant) -> Locked<'a> {
        let file = self.inline_reads.as_ref().filter(|_| state.may_pass_the_queue());
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
