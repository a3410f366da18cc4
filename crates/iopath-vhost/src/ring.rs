//! A split virtqueue, from the side of the device: the available and the used ring, and the suppression of
//! notifications. Does not follow descriptors: see `chain.rs`. (Virtual I/O Device 1.2, section 2.7.)
//!
//! `virtio-queue` has such a ring. This one differs in three points: it accesses memory in which a truncated file is an
//! error and no signal; it distinguishes the end of a chain from a mistake in it; and it publishes completions in
//! batches, with the record of requests in flight in between.

use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::{VRING_AVAIL_F_NO_INTERRUPT, VRING_USED_F_NO_NOTIFY};

use crate::fault::Fault;
use crate::memory::{Area, GuestMemory};

/// The largest queue.
pub const QUEUE_SIZE_MAX: u16 = 1024;

/// The places of a queue, in addresses of the front end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RingPlaces {
    /// The number of descriptors.
    pub size: u16,
    /// The table of descriptors.
    pub descriptors: u64,
    /// The available ring.
    pub available: u64,
    /// The used ring.
    pub used: u64,
}

/// A queue whose memory is resolved.
#[derive(Debug)]
pub struct Ring {
    size: u16,
    descriptors: Area,
    available: Area,
    used: Area,
    /// Suppression by indices instead of flags.
    has_event_index: bool,
    next_available: u16,
    /// The last index of the driver that was read.
    available_end: u16,
    next_used: u16,
    /// The index of the used ring at the last decision to notify the driver.
    notified: u16,
}

/// A descriptor, copied out of the memory of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptor {
    /// The address of the bytes.
    pub address: u64,
    /// Their number.
    pub bytes: u32,
    /// Flags.
    pub flags: u16,
    /// The next descriptor, if the flags say that there is one.
    pub next: u16,
}

impl Descriptor {
    /// The size in a table.
    pub const BYTES: u64 = 16;

    /// The descriptor of its two numbers of 64 bits.
    fn of(numbers: [u64; 2]) -> Self {
        let [address, rest] = numbers;
        Self { address, bytes: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    /// A descriptor of an indirect table.
    ///
    /// # Errors
    /// It is not in the memory of the guest.
    pub fn read_at(memory: &GuestMemory, address: u64) -> Result<Self, Fault> {
        let mut bytes = [0; 16];
        memory.read(address, &mut bytes)?;
        let number = |at: usize| {
            let mut number = [0; 8];
            number.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(number)
        };
        Ok(Self::of([number(0), number(8)]))
    }
}

impl Ring {
    /// Resolves a queue. `next` is the index of the first request.
    ///
    /// # Errors
    /// The size is not valid, or a ring is not aligned or not in the memory.
    pub fn new(
        places: RingPlaces,
        memory: &GuestMemory,
        next: u16,
        has_event_index: bool,
    ) -> Result<Self, Fault> {
        let RingPlaces { size, descriptors, available, used } = places;
        if !size.is_power_of_two() || size > QUEUE_SIZE_MAX {
            return Err(Fault::Size { size: u32::from(size), max: QUEUE_SIZE_MAX });
        }
        let count = u64::from(size);
        let find = |address: u64, bytes: u64, align: u64| {
            let area = memory.find_user(address, bytes)?;
            // The number that counts is the address here; a mapping starts on a page.
            if area.memory.address(area.at).is_multiple_of(align as usize) {
                Ok(area)
            } else {
                Err(Fault::Unaligned { address, align })
            }
        };
        let descriptors = find(descriptors, count * Descriptor::BYTES, 16)?;
        let available = find(available, 6 + 2 * count, 2)?;
        let used = find(used, 6 + 8 * count, 4)?;
        let mut ring = Self {
            size,
            descriptors,
            available,
            used,
            has_event_index,
            next_available: next,
            available_end: next,
            next_used: 0,
            notified: 0,
        };
        ring.next_used = ring.published()?;
        ring.notified = ring.next_used;
        Ok(ring)
    }

    /// The number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// The index of the next request.
    pub fn next_available(&self) -> u16 {
        self.next_available
    }

    /// The index of the used ring in memory: completions that the driver may see.
    ///
    /// # Errors
    /// The front end has truncated the memory.
    pub fn published(&self) -> Result<u16, Fault> {
        self.used.memory.load_u16(self.used.at + 2, Ordering::Acquire).ok_or(Fault::Truncated)
    }

    /// Sets the index of the next request, after requests that were in flight.
    pub fn set_next_available(&mut self, index: u16) {
        self.next_available = index;
        self.available_end = index;
    }

    /// The first descriptor of the next request, if there is one.
    ///
    /// # Errors
    /// The driver's index jumped, or the number is not in the table.
    pub fn pop(&mut self) -> Result<Option<u16>, Fault> {
        if self.next_available == self.available_end {
            self.load_end()?;
            if self.next_available == self.available_end {
                return Ok(None);
            }
        }
        let slot = u64::from(self.next_available & (self.size - 1));
        let at = self.available.at + 4 + 2 * slot;
        let head = self.available.memory.load_u16(at, Ordering::Relaxed).ok_or(Fault::Truncated)?;
        if head >= self.size {
            return Err(Fault::Descriptor { index: head, size: u32::from(self.size) });
        }
        self.next_available = self.next_available.wrapping_add(1);
        Ok(Some(head))
    }

    fn load_end(&mut self) -> Result<(), Fault> {
        let end = self.available.memory.load_u16(self.available.at + 2, Ordering::Acquire);
        let to = end.ok_or(Fault::Truncated)?;
        if to.wrapping_sub(self.next_available) > self.size {
            return Err(Fault::Jump { from: self.next_available, to, size: self.size });
        }
        self.available_end = to;
        Ok(())
    }

    /// A descriptor of the table.
    ///
    /// # Errors
    /// The number is not in the table.
    pub fn descriptor(&self, index: u16) -> Result<Descriptor, Fault> {
        if index >= self.size {
            return Err(Fault::Descriptor { index, size: u32::from(self.size) });
        }
        let at = self.descriptors.at + u64::from(index) * Descriptor::BYTES;
        let number =
            |at: u64| self.descriptors.memory.load_u64(at, Ordering::Relaxed).ok_or(Fault::Truncated);
        Ok(Descriptor::of([number(at)?, number(at + 8)?]))
    }

    /// Adds a completed request to the used ring. The driver sees it after [`Ring::publish`].
    ///
    /// # Errors
    /// The front end has truncated the memory.
    pub fn push(&mut self, head: u16, written: u32) -> Result<(), Fault> {
        let slot = u64::from(self.next_used & (self.size - 1));
        let at = self.used.at + 4 + 8 * slot;
        let memory = &self.used.memory;
        memory.store_u32(at, u32::from(head), Ordering::Relaxed).ok_or(Fault::Truncated)?;
        memory.store_u32(at + 4, written, Ordering::Relaxed).ok_or(Fault::Truncated)?;
        self.next_used = self.next_used.wrapping_add(1);
        Ok(())
    }

    /// Shows the driver the requests that were added.
    ///
    /// # Errors
    /// The front end has truncated the memory.
    pub fn publish(&mut self) -> Result<(), Fault> {
        // Release: the driver that reads the index sees the entries, the data and the status.
        self.used
            .memory
            .store_u16(self.used.at + 2, self.next_used, Ordering::Release)
            .ok_or(Fault::Truncated)
    }

    /// The index after the last completed request.
    pub fn next_used(&self) -> u16 {
        self.next_used
    }

    /// Whether the driver wants a notification of the requests published since the last call.
    ///
    /// # Errors
    /// The front end has truncated the memory.
    pub fn needs_notification(&mut self) -> Result<bool, Fault> {
        let (old, new) = (self.notified, self.next_used);
        self.notified = new;
        if old == new {
            return Ok(false);
        }
        // The driver writes its wish and then reads the index of the used ring. Here, the index was written before.
        fence(Ordering::SeqCst);
        let memory = &self.available.memory;
        if self.has_event_index {
            let at = self.available.at + 4 + 2 * u64::from(self.size);
            let wanted = memory.load_u16(at, Ordering::Relaxed).ok_or(Fault::Truncated)?;
            return Ok(new.wrapping_sub(wanted).wrapping_sub(1) < new.wrapping_sub(old));
        }
        let flags = memory.load_u16(self.available.at, Ordering::Relaxed).ok_or(Fault::Truncated)?;
        Ok(flags & VRING_AVAIL_F_NO_INTERRUPT as u16 == 0)
    }

    /// Asks the driver for a notification of the next request. Returns whether there is one already, of which it may
    /// not notify.
    ///
    /// # Errors
    /// The driver's index jumped.
    pub fn enable_notification(&mut self) -> Result<bool, Fault> {
        let memory = &self.used.memory;
        let asked = if self.has_event_index {
            let at = self.used.at + 4 + 8 * u64::from(self.size);
            memory.store_u16(at, self.next_available, Ordering::Relaxed)
        } else {
            memory.store_u16(self.used.at, 0, Ordering::Relaxed)
        };
        asked.ok_or(Fault::Truncated)?;
        // The driver writes its index and then reads the wish.
        fence(Ordering::SeqCst);
        if self.next_available == self.available_end {
            self.load_end()?;
        }
        Ok(self.next_available != self.available_end)
    }

    /// Asks the driver for no notifications. With indices, it sends one at most until the next
    /// [`Ring::enable_notification`].
    ///
    /// # Errors
    /// The front end has truncated the memory.
    pub fn disable_notification(&mut self) -> Result<(), Fault> {
        if self.has_event_index {
            return Ok(());
        }
        let flags = VRING_USED_F_NO_NOTIFY as u16;
        self.used.memory.store_u16(self.used.at, flags, Ordering::Relaxed).ok_or(Fault::Truncated)
    }
}
