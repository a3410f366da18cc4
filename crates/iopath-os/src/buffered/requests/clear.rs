//! Discards, writes of zeroes and flushes: the parts that the device executes. The parts of blocks at the ends of a
//! discard are written by `write.rs`.

use std::ops::Range;
use std::sync::Arc;

use iopath_core::{Extent, Op};

use super::CacheQueue;
use super::request::{Request, Stage};
use crate::clock;
use crate::io_buf::IoBuf;

impl<B: IoBuf> CacheQueue<B> {
    /// Discards or zeroes the whole blocks of a request.
    pub(super) fn begin_clear(&mut self, key: u32) {
        let shared = Arc::clone(&self.shared);
        let request = &self.requests[key as usize];
        let blocks = request.whole_blocks(self.block_bytes);
        let extent = Extent::from_bytes(blocks.start, blocks.end - blocks.start).unwrap_or_default();
        if extent.is_empty() {
            self.end_stage(key);
            return;
        }
        let mut state = shared.lock();
        state.begin_command(self.id(key), request.op, extent, request.unit_bytes);
        state.poll(clock::now());
        self.collect(&mut state);
    }

    /// Flushes the range of a durable write, or everything.
    pub(super) fn begin_flush(&mut self, key: u32) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let waiter = state.add_request(self.id(key));
        let Request { op, offset, bytes, .. } = self.requests[key as usize];
        if op == Op::Flush {
            state.path.flush(waiter as u64);
        } else {
            state.path.flush_range(offset, bytes, waiter as u64);
        }
        self.waits(key, waiter, &state);
        state.poll(clock::now());
        self.collect(&mut state);
    }
}

impl<B: IoBuf> Request<B> {
    /// The bytes that the current stage writes into the cache.
    pub(super) fn written(&self, block_bytes: u64) -> Range<u64> {
        let (start, end) = (self.offset, self.offset + self.bytes);
        let blocks = self.whole_blocks(block_bytes);
        match self.stage {
            Stage::ZeroHead => start..blocks.start,
            Stage::ZeroTail => blocks.end..end,
            _ => start..end,
        }
    }

    /// The whole blocks of the range; an empty range inside it if there are none.
    fn whole_blocks(&self, block_bytes: u64) -> Range<u64> {
        let end = self.offset + self.bytes;
        let first = self.offset.next_multiple_of(block_bytes).min(end);
        first..(end / block_bytes * block_bytes).max(first)
    }
}
