//! Discards, writes of zeroes and flushes: the parts that the device executes. The parts of blocks at the ends of a
//! discard are written by `write.rs`.

use std::ops::Range;
use std::sync::Arc;

use iopath_core::Op;
use iopath_core::buffered::ClearParts;

use super::CacheQueue;
use super::request::{Request, Stage};
use crate::buffered::waiter::Role;
use crate::clock;
use crate::io_buf::IoBuf;

impl<B: IoBuf> CacheQueue<B> {
    /// Discards or zeroes the whole blocks of a request.
    pub(super) fn begin_clear(&mut self, key: u32) {
        let shared = Arc::clone(&self.shared);
        let request = &self.requests[key as usize];
        let ClearParts { blocks, .. } = request.parts(self.block_bytes);
        if blocks.is_empty() {
            self.end_stage(key);
            return;
        }
        let mut state = shared.lock();
        state.begin_command(self.id(key), request.op, blocks, request.unit_bytes);
        self.ensure_poller(&mut state);
        state.poll(clock::now());
        self.collect(&mut state);
    }

    /// Flushes the range of a durable write, or everything.
    pub(super) fn begin_flush(&mut self, key: u32) {
        let shared = Arc::clone(&self.shared);
        let mut state = shared.lock();
        let waiter = state.add(Role::Request(self.id(key)));
        let Request { op, offset, bytes, .. } = self.requests[key as usize];
        if op == Op::Flush {
            state.path.flush(waiter as u64);
        } else {
            state.path.flush_range(offset, bytes, waiter as u64);
        }
        self.waits(key, waiter, &mut state);
        state.poll(clock::now());
        self.collect(&mut state);
    }
}

impl<B: IoBuf> Request<B> {
    /// The bytes that the current stage writes into the cache.
    pub(super) fn written(&self, block_bytes: u64) -> Range<u64> {
        match self.stage {
            Stage::ZeroHead => self.parts(block_bytes).head,
            Stage::ZeroTail => self.parts(block_bytes).tail,
            _ => self.offset..self.offset + self.bytes,
        }
    }

    fn parts(&self, block_bytes: u64) -> ClearParts {
        ClearParts::new(self.offset, self.bytes, block_bytes)
    }
}
