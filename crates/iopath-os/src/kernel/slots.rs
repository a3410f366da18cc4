//! The buffers of a connection, one for each slot, in one region. The connection records the slots in flight.

use std::ptr::NonNull;

use super::Stamp;
use crate::{AlignedBuf, NoMemory, page_bytes};

/// The memory of buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// On huge pages if the kernel gives them.
    #[default]
    Advised,
    /// As the memory of most programs, without advice to the kernel.
    Ordinary,
    /// On huge pages that the administrator has reserved (`vm.nr_hugepages`).
    Reserved,
}

/// `depth` buffers of `block_bytes` each in one region, each aligned to a page.
#[derive(Debug)]
pub struct Slots {
    memory: AlignedBuf,
    depth: u32,
    block_bytes: u32,
    /// The distance between buffers: `block_bytes` rounded up to whole pages.
    stride_bytes: usize,
    stamp: Stamp,
}

impl Slots {
    /// Allocates the buffers. `fill` sets the bytes for writes: random bytes, so that compression and deduplication
    /// below do not improve a measurement.
    ///
    /// # Panics
    /// If `depth` or `block_bytes` is 0.
    pub fn new(depth: u32, block_bytes: u32, fill: impl FnOnce(&mut [u8])) -> Result<Self, NoMemory> {
        Self::in_memory(AlignedBuf::for_transfers, depth, block_bytes, fill)
    }

    /// Does the same as [`Self::new`], in this memory.
    ///
    /// # Errors
    /// [`NoMemory`]: there is no such memory.
    ///
    /// # Panics
    /// Panics like [`Self::new`].
    pub fn on_pages(
        pages: Pages,
        depth: u32,
        block_bytes: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self, NoMemory> {
        let take = match pages {
            Pages::Advised => AlignedBuf::for_transfers,
            Pages::Ordinary => AlignedBuf::ordinary,
            Pages::Reserved => AlignedBuf::on_huge_pages,
        };
        Self::in_memory(take, depth, block_bytes, fill)
    }

    fn in_memory(
        take: fn(usize) -> Result<AlignedBuf, NoMemory>,
        depth: u32,
        block_bytes: u32,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<Self, NoMemory> {
        assert!(depth > 0 && block_bytes > 0, "{depth} slots of {block_bytes} bytes");
        let stride_bytes = (block_bytes as usize).next_multiple_of(page_bytes());
        let bytes = (depth as usize).checked_mul(stride_bytes);
        let mut memory = take(bytes.unwrap_or(usize::MAX))?;
        fill(&mut memory);
        Ok(Self { memory, depth, block_bytes, stride_bytes, stamp: Stamp::default() })
    }

    /// The same buffers, whose content a write leaves as it is: for a caller that fills them.
    #[must_use]
    pub fn without_stamps(self) -> Self {
        Self { stamp: Stamp::off(), ..self }
    }

    /// The number of buffers.
    pub fn depth(&self) -> u32 {
        self.depth
    }

    /// The length of each, in bytes.
    pub fn block_bytes(&self) -> u32 {
        self.block_bytes
    }

    /// The first byte of a slot's buffer; `block_bytes` of them are valid as long as this value lives.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(super) fn start(&self, slot: u32) -> NonNull<u8> {
        assert!(slot < self.depth, "slot {slot} of {}", self.depth);
        // SAFETY: the region has `depth * stride_bytes` bytes, and the slot is below `depth`.
        unsafe { self.memory.start().add(slot as usize * self.stride_bytes) }
    }

    /// A slot's buffer.
    ///
    /// # Safety
    /// The slot is not in flight: the kernel neither writes nor reads the buffer while the reference lives.
    ///
    /// # Panics
    /// If there is no such slot.
    pub(super) unsafe fn buffer(&mut self, slot: u32) -> &mut [u8] {
        // SAFETY: live, initialised bytes of our own region; not in flight by the caller's promise, and `&mut self`
        // makes this the only reference into the region.
        unsafe { std::slice::from_raw_parts_mut(self.start(slot).as_ptr(), self.block_bytes as usize) }
    }

    /// Makes the content of a slot's buffer unique.
    ///
    /// # Safety
    /// The conditions of [`Self::buffer`] hold.
    pub(super) unsafe fn stamp(&mut self, slot: u32, offset: u64) {
        let mut stamp = std::mem::take(&mut self.stamp);
        // SAFETY: the caller's promise.
        stamp.put(unsafe { self.buffer(slot) }, offset);
        self.stamp = stamp;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_buffer_starts_on_a_page_and_buffers_are_disjoint() {
        let mut slots = Slots::new(3, 512, |bytes| bytes.fill(7)).unwrap();
        for slot in 0..3 {
            assert_eq!(slots.start(slot).as_ptr() as usize % page_bytes(), 0);
            // SAFETY: nothing is in flight in this test.
            let buffer = unsafe { slots.buffer(slot) };
            assert_eq!(buffer, [7; 512], "slot {slot}");
            buffer.fill(slot as u8);
        }
        // SAFETY: as above.
        assert_eq!(unsafe { slots.buffer(1) }, [1; 512]);
    }

    #[test]
    #[should_panic(expected = "slot 2 of 2")]
    fn a_slot_beyond_the_last_is_a_bug() {
        Slots::new(2, 512, |_| ()).unwrap().start(2);
    }
}
