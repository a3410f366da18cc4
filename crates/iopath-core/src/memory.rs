//! What the path knows of a caller's memory: how long it is, how to cut it, what it touches.
//!
//! The core never sees an address. What a piece of memory *is* belongs to the device that will fill or
//! read it: `iopath-os` has one with a pointer, models have one with nothing but a length.

use std::fmt;

/// A handle to contiguous memory that one segment of an I/O is read into or written from.
///
/// A handle, not the memory: copying it copies no byte, and whoever made it keeps the memory alive
/// until the bio completes.
pub trait Memory: Copy + fmt::Debug {
    /// Length in bytes.
    fn bytes(&self) -> u64;

    /// The part of `bytes` bytes from `offset` on. The caller keeps it inside the whole.
    #[must_use]
    fn slice(self, offset: u64, bytes: u64) -> Self;

    /// Both as one handle, if `next` begins where this ends and a device may take them as one segment.
    fn join(self, next: Self) -> Option<Self>;
}

/// Memory of which there is only the length: for modelled disks and for devices that move no bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LengthOnly {
    bytes: u64,
}

impl LengthOnly {
    /// `bytes` bytes of nothing.
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
