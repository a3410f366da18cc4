//! I/O that the calling thread performs. For most misses without readahead, and for most flushes, no other thread
//! waits. If such an I/O used the ring, the caller would sleep and another thread would wake it: a thread of the
//! kernel, for a flush. A plain system call saves these context switches.
//!
//! Such I/O bypasses the queue. So it is used only if the queue would have no effect: no elevator, no log, no write in
//! flight for which it would have to wait (rule 1 of the path), and for a flush no I/O at all.

use std::fs::File;

use iopath_core::buffered::InlineIo;
use iopath_core::cache::IoTag;
use iopath_core::{Instant, IoError, Op, Page};

use super::CacheShared;
use super::state::State;
use super::wait::Locked;
use super::waiter::OwnFlush;
use crate::clock;
use crate::device::{OWN_SEGMENTS_MAX, flush_now, transfer_now};
use crate::memory::Segment;

impl CacheShared {
    /// Advances the state machine. The calling thread performs the read of `page` if it may.
    pub(super) fn read_inline<'a>(&'a self, mut state: Locked<'a>, page: Page, now: Instant) -> Locked<'a> {
        let file = self.plain_file.as_ref().filter(|_| state.may_bypass_queue());
        let read = file.and_then(|file| {
            let read = state.path.take_inline_read::<OWN_SEGMENTS_MAX>(page, now)?;
            Some((file, read))
        });
        state.advance(now);
        let Some((file, read)) = read else { return state };
        let (mut state, result) = self.transfer(state, file, Op::Read, &read);
        let now = clock::now();
        state.path.handle_completion(read.tag, result, now);
        state.advance(now);
        state
    }

    /// Advances the state machine for a thread that has called a flush. The thread performs the I/O if there is one
    /// write or none, and then the flush of the device.
    pub(super) fn flush_inline<'a>(&'a self, mut state: Locked<'a>) -> Locked<'a> {
        let file = self.plain_file.as_ref().filter(|_| state.may_flush_inline());
        let now = clock::now();
        let write = file.and_then(|file| Some((file, state.path.take_lone_write::<OWN_SEGMENTS_MAX>(now)?)));
        let Some((file, write)) = write else { return self.act_for_flush(state, State::advance) };
        let (mut state, result) = self.transfer(state, file, Op::Write, &write);
        state.end_own(write.tag, result, Op::Write);
        self.act_for_flush(state, State::advance)
    }

    /// Performs a read or write without the lock.
    fn transfer<'a>(
        &'a self,
        state: Locked<'a>,
        file: &File,
        op: Op,
        io: &InlineIo<Segment, OWN_SEGMENTS_MAX>,
    ) -> (Locked<'a>, Result<(), IoError>) {
        let geometry = *state.path.geometry();
        drop(state);
        let block_bytes = u64::from(geometry.block_bytes);
        let result = transfer_now(file, block_bytes, geometry.sectors(), (op, io.extent), &io.segments);
        (self.lock(), result)
    }

    /// Calls `act` for a thread that waits for a flush of the device. The thread performs that flush if `act` begins
    /// it.
    pub(super) fn act_for_flush<'a>(
        &'a self,
        mut state: Locked<'a>,
        act: impl FnOnce(&mut State, Instant),
    ) -> Locked<'a> {
        let Some(file) = &self.plain_file else {
            act(&mut state, clock::now());
            return state;
        };
        state.own_flush = OwnFlush::Wanted;
        act(&mut state, clock::now());
        // Without the lock, other threads pass flushes to the queue.
        let OwnFlush::Taken(tag) = std::mem::take(&mut state.own_flush) else { return state };
        drop(state);
        let result = flush_now(file);
        let mut state = self.lock();
        state.end_own(tag, result, Op::Flush);
        state.advance(clock::now());
        state
    }
}

impl State {
    /// Whether a flush of the device may bypass the queue: it has no I/O, and would pass the flush to the device.
    fn may_flush_inline(&self) -> bool {
        self.may_bypass_queue() && !self.has_bios() && self.has_volatile_cache() && self.broken.is_none()
    }

    /// Takes a flush of the device from the steps, if the calling thread wants it. Returns whether it has.
    pub(super) fn take_flush(&mut self, tag: IoTag) -> bool {
        let is_taken = matches!(self.own_flush, OwnFlush::Wanted) && self.may_flush_inline();
        if is_taken {
            self.own_flush = OwnFlush::Taken(tag);
        }
        is_taken
    }

    /// Handles the completion of a write or flush that the calling thread has performed.
    fn end_own(&mut self, tag: IoTag, result: Result<(), IoError>, op: Op) {
        self.reaped += 1;
        self.path.handle_completion(tag, result, clock::now());
        self.handle_result(op, result);
    }
}
