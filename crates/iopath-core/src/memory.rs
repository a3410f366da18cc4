//! The caller's memory as the queue sees it: its length, how to slice it, and whether two pieces are contiguous.
//!
//! The core never sees an address. The device defines the handle: the handle of `iopath-os` has a pointer, the handle
//! of a model has only a length.

use std::fmt;

/// A handle to contiguous memory: one segment of an I/O.
///
/// Copying the handle does not copy the memory. The submitter must keep the memory valid until the bio completes.
pub trait Memory: Copy + fmt::Debug {
    /// The length in bytes.
    fn bytes(&self) -> u64;

    /// The part of `bytes` bytes from `offset` on. It must lie inside this memory.
    #[must_use]
    fn slice(self, offset: u64, bytes: u64) -> Self;

    /// Both as one handle, if `next` begins where this ends and a device can transfer them as one segment.
    fn join(self, next: Self) -> Option<Self>;
}

/// Memory without contents, as a modelled host has it: a handle of any length can be made.
pub trait ModelMemory: Memory {
    /// A handle of `bytes` bytes.
    fn of_length(bytes: u64) -> Self;
}

/// Memory that has only a length: for modelled disks and for devices that transfer no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthOnly {
    bytes: u64,
}

impl LengthOnly {
    /// A handle of `bytes` bytes.
    pub const fn new(bytes: u64) -> Self {
        Self { bytes }
    }
}

impl Memory for LengthOnly {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn slice(self, _offset: u64, bytes: u64) -> Self {
        Self { bytes }
    }

    fn join(self, _next: Self) -> Option<Self> {
        None
    }
}

impl ModelMemory for LengthOnly {
    fn of_length(bytes: u64) -> Self {
        Self::new(bytes)
    }
}
