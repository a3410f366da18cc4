//! Follows a chain of descriptors. Every mistake of the driver is a [`Fault`], and the number of steps has a bound.
//! Does not know what the bytes mean: see `request.rs`.

use virtio_bindings::virtio_ring::{VRING_DESC_F_INDIRECT, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE};

use crate::fault::Fault;
use crate::memory::GuestMemory;
use crate::ring::{Descriptor, Ring};

const NEXT: u16 = VRING_DESC_F_NEXT as u16;
const WRITE: u16 = VRING_DESC_F_WRITE as u16;
const INDIRECT: u16 = VRING_DESC_F_INDIRECT as u16;

/// The longest chain, with those of indirect tables: the segments of the largest queue, a header and a status.
pub const CHAIN_MAX: u32 = 1026;

/// Bytes of a request in the memory of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// The guest address.
    pub address: u64,
    /// The number of bytes, which is not zero.
    pub bytes: u32,
    /// Whether the device may write them; otherwise it may read them.
    pub is_writable: bool,
}

/// Appends the parts of the chain that starts at descriptor `head` to `parts`: the readable ones, then the writable
/// ones. All of them lie in the memory.
///
/// # Errors
/// A mistake of the driver. The content of `parts` is then undefined.
pub fn read_chain(
    ring: &Ring,
    memory: &GuestMemory,
    head: u16,
    has_indirect: bool,
    parts: &mut Vec<Part>,
) -> Result<(), Fault> {
    let mut chain = Chain { memory, head, parts, left: CHAIN_MAX, bytes: 0 };
    let mut index = head;
    // A chain in the table has at most as many descriptors as the table.
    for _ in 0..ring.size() {
        let descriptor = ring.descriptor(index)?;
        if descriptor.flags & INDIRECT != 0 {
            if !has_indirect {
                return Err(chain.indirect("the driver has not negotiated them"));
            }
            // The table ends the chain.
            return chain.add_table(descriptor);
        }
        chain.add(descriptor)?;
        if descriptor.flags & NEXT == 0 {
            return Ok(());
        }
        index = descriptor.next;
    }
    Err(Fault::Loop { head, max: u32::from(ring.size()) })
}

/// A chain, as far as it has been followed.
struct Chain<'a> {
    memory: &'a GuestMemory,
    head: u16,
    parts: &'a mut Vec<Part>,
    /// Descriptors that may follow.
    left: u32,
    /// Bytes so far.
    bytes: u32,
}

impl Chain<'_> {
    fn add(&mut self, descriptor: Descriptor) -> Result<(), Fault> {
        let Self { head, .. } = *self;
        let Descriptor { address, bytes, flags, .. } = descriptor;
        self.left = self.left.checked_sub(1).ok_or(Fault::Loop { head, max: CHAIN_MAX })?;
        self.bytes = self.bytes.checked_add(bytes).ok_or(Fault::TooLong { head })?;
        let is_writable = flags & WRITE != 0;
        if !is_writable && self.parts.last().is_some_and(|last| last.is_writable) {
            return Err(Fault::Order { head });
        }
        self.memory.for_parts(address, u64::from(bytes), |_, _, _| ())?;
        if bytes > 0 {
            self.parts.push(Part { address, bytes, is_writable });
        }
        Ok(())
    }

    /// Adds the chain of an indirect table, which starts at its first descriptor.
    fn add_table(&mut self, table: Descriptor) -> Result<(), Fault> {
        if table.flags & NEXT != 0 {
            return Err(self.indirect("it is not the end of the chain"));
        }
        let bytes = u64::from(table.bytes);
        if bytes == 0 || !bytes.is_multiple_of(Descriptor::BYTES) {
            return Err(self.indirect("its length is no multiple of 16"));
        }
        self.memory.for_parts(table.address, bytes, |_, _, _| ())?;
        let size = table.bytes / Descriptor::BYTES as u32;
        let mut index = 0;
        loop {
            if u32::from(index) >= size {
                return Err(Fault::Descriptor { index, size });
            }
            let address = table.address + u64::from(index) * Descriptor::BYTES;
            let descriptor = Descriptor::read_at(self.memory, address)?;
            if descriptor.flags & INDIRECT != 0 {
                return Err(self.indirect("it contains another one"));
            }
            // Counts the descriptors, so that a loop ends.
            self.add(descriptor)?;
            if descriptor.flags & NEXT == 0 {
                return Ok(());
            }
            index = descriptor.next;
        }
    }

    fn indirect(&self, reason: &'static str) -> Fault {
        Fault::Indirect { head: self.head, reason }
    }
}
