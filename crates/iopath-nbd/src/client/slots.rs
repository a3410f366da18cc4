//! The requests of a client that are in flight, each in a slot. Cookies name a slot and its generation, so a late or
//! invented reply never reaches another request. Encodes nothing.

use crate::client::chunks::Chunks;
use crate::errno::Errno;
use crate::meta::BlockExtent;

/// A request of a client. Offsets and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientOperation {
    /// Reads a range.
    Read {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Writes a range. The data follows the request.
    Write {
        /// Byte offset.
        offset: u64,
        /// Bytes.
        length: u32,
        /// The reply follows when the data is on the medium.
        fua: bool,
    },
    /// Completed writes are on the medium when it completes.
    Flush,
    /// Discards a range.
    Trim {
        /// Byte offset.
        offset: u64,
        /// Bytes; below 4 GiB without extended headers.
        length: u64,
        /// The reply follows when the change is on the medium.
        fua: bool,
    },
    /// Writes zeroes.
    WriteZeroes {
        /// Byte offset.
        offset: u64,
        /// Bytes; below 4 GiB without extended headers.
        length: u64,
        /// The reply follows when the change is on the medium.
        fua: bool,
        /// Keep the space allocated.
        no_hole: bool,
    },
    /// Reports the state of a range.
    BlockStatus {
        /// Byte offset.
        offset: u64,
        /// Bytes; below 4 GiB without extended headers.
        length: u64,
    },
}

impl ClientOperation {
    /// Offset and length of the range.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match *self {
            Self::Read { offset, length } | Self::Write { offset, length, .. } => (offset, length.into()),
            Self::Trim { offset, length, .. }
            | Self::WriteZeroes { offset, length, .. }
            | Self::BlockStatus { offset, length } => (offset, length),
            Self::Flush => (0, 0),
        }
    }
}

/// A request in flight.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) key: u64,
    pub(crate) operation: ClientOperation,
    /// The data of a read that has arrived.
    pub(crate) chunks: Chunks,
    pub(crate) error: Option<Errno>,
    pub(crate) extents: Vec<BlockExtent>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    pending: Option<Pending>,
}

/// A fixed number of slots.
#[derive(Debug)]
pub(crate) struct Slots {
    all: Vec<Slot>,
    free: Vec<u32>,
    /// Memory of completed requests, for later ones.
    spare: Vec<Chunks>,
}

impl Slots {
    pub(crate) fn new(count: u32) -> Self {
        let all = (0..count).map(|_| Slot::default()).collect();
        Self { all, free: (0..count).rev().collect(), spare: Vec::new() }
    }

    /// The cookie of a new request, or `None` if all slots are in use.
    pub(crate) fn insert(&mut self, key: u64, operation: ClientOperation) -> Option<u64> {
        let index = self.free.pop()?;
        let slot = &mut self.all[index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        let chunks = self.spare.pop().unwrap_or_default();
        slot.pending = Some(Pending { key, operation, chunks, error: None, extents: Vec::new() });
        Some(u64::from(slot.generation) << 32 | u64::from(index))
    }

    pub(crate) fn get_mut(&mut self, cookie: u64) -> Option<&mut Pending> {
        let slot = self.all.get_mut((cookie & u64::from(u32::MAX)) as usize)?;
        if u64::from(slot.generation) != cookie >> 32 {
            return None;
        }
        slot.pending.as_mut()
    }

    /// Removes the request of a cookie that [`Slots::get_mut`] knows.
    pub(crate) fn remove(&mut self, cookie: u64) -> Pending {
        let index = (cookie & u64::from(u32::MAX)) as u32;
        self.free.push(index);
        self.all[index as usize].pending.take().expect("the request is in flight")
    }

    /// Keeps the memory of a completed request.
    pub(crate) fn recycle(&mut self, mut chunks: Chunks) {
        chunks.clear();
        self.spare.push(chunks);
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.all.len() - self.free.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.all.iter().filter_map(|slot| slot.pending.as_ref())
    }
}
