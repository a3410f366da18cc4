//! Memory of a modelled host: addresses without bytes. Adjacent spans merge into one segment, as real buffers do.

use iopath_core::buffered::Frames;
use iopath_core::cache::Frame;
use iopath_core::{Memory, ModelMemory};

/// A range of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

impl Span {
    /// `bytes` bytes from `address` on.
    pub const fn at(address: u64, bytes: u64) -> Self {
        Self { address, bytes }
    }
}

impl Memory for Span {
    #[inline]
    fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    fn slice(self, offset: u64, bytes: u64) -> Self {
        Self { address: self.address + offset, bytes }
    }

    #[inline]
    fn join(self, next: Self) -> Option<Self> {
        let is_next = self.address + self.bytes == next.address;
        is_next.then_some(Self { bytes: self.bytes + next.bytes, ..self })
    }
}

/// Memory of the model itself. It belongs to no job.
impl ModelMemory for Span {
    fn of_length(bytes: u64) -> Self {
        Self { address: 0, bytes }
    }
}

/// The frames of a page cache at adjacent addresses.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameSpans {
    pub(super) page_bytes: u32,
}

impl Frames for FrameSpans {
    type Memory = Span;

    fn memory(&self, frame: Frame, bytes: u64) -> Span {
        Span { address: u64::from(frame.0) * u64::from(self.page_bytes), bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_at_adjacent_addresses_are_one_segment() {
        let frames = FrameSpans { page_bytes: 4096 };
        let [first, second, fourth] = [0, 1, 3].map(|frame| frames.memory(Frame(frame), 4096));
        assert_eq!(first.join(second), Some(Span { address: 0, bytes: 8192 }));
        assert_eq!(second.join(fourth), None);
        assert_eq!(first.slice(512, 1024), Span { address: 512, bytes: 1024 });
    }
}
