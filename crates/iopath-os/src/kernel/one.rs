//! One transfer at a time, by a synchronous call: `pread.rs`, `mmap.rs`.

use std::io;

use super::{Done, Slots, Transfer};

/// A synchronous method to move bytes between a file and a buffer. No transfer is in flight between two calls.
pub trait Blocking {
    /// Moves the bytes of a transfer that fits its buffer. A write first makes the buffer's content unique.
    fn run(&mut self, slots: &mut Slots, slot: u32, transfer: Transfer) -> io::Result<()>;

    /// Returns when all written bytes are on the medium.
    fn flush(&mut self) -> io::Result<()>;

    /// As `flush`, with the metadata of the file.
    fn flush_all(&mut self) -> io::Result<()>;
}

/// A synchronous method and its buffers. Depth 1.
#[derive(Debug)]
pub struct OneAtATime<B> {
    method: B,
    slots: Slots,
    pending: Option<(u32, Transfer)>,
}

impl<B: Blocking> OneAtATime<B> {
    /// Transfers between the file of `method` and `slots`.
    pub const fn new(method: B, slots: Slots) -> Self {
        Self { method, slots, pending: None }
    }

    /// Queues a transfer, which runs in [`Self::reap`].
    ///
    /// # Panics
    /// If one is pending, or it does not fit the buffer.
    pub fn submit(&mut self, slot: u32, transfer: Transfer) {
        assert!(self.pending.is_none(), "slot {slot}: one transfer at a time");
        self.check(transfer);
        self.pending = Some((slot, transfer));
    }

    /// Runs the pending transfer to completion.
    pub fn reap(&mut self, done: &mut Vec<Done>) {
        if let Some((slot, transfer)) = self.pending.take() {
            let result = self.method.run(&mut self.slots, slot, transfer);
            done.push(Done { slot, result });
        }
    }

    /// Runs a transfer to completion, without [`Self::submit`].
    ///
    /// # Panics
    /// If one is pending, or it does not fit the buffer.
    pub fn run(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        assert!(self.pending.is_none(), "slot {slot}: one transfer at a time");
        self.check(transfer);
        self.method.run(&mut self.slots, slot, transfer)
    }

    fn check(&self, transfer: Transfer) {
        assert!(transfer.bytes <= self.slots.block_bytes(), "{transfer:?} does not fit its buffer");
    }

    /// The bytes of a slot's buffer.
    pub fn buffer(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: a synchronous method has nothing in flight between two calls.
        unsafe { self.slots.buffer(slot) }
    }

    /// Returns when all written bytes are on the medium.
    pub fn flush(&mut self) -> io::Result<()> {
        self.method.flush()
    }

    /// As [`OneAtATime::flush`], with the metadata of the file (`fsync(2)`).
    pub fn flush_all(&mut self) -> io::Result<()> {
        self.method.flush_all()
    }
}
