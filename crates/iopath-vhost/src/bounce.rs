//! Buffers of this process for requests whose bytes are copied: unaligned ones, and all on a volume with a page cache.
//! Keeps freed buffers for the next request, and limits the bytes in use.

use iopath::AlignedBuf;
use iopath::buffers::NoMemory;

/// The bytes that the requests of a queue may take at a time.
pub(crate) const BYTES_MAX: u64 = 64 << 20;

/// The smallest buffer, as a power of two.
const FIRST_SHIFT: u32 = 12;

/// Buffers of these sizes are kept: 4 KiB to 1 MiB.
const CLASSES: usize = 9;

/// The buffers of one size that are kept.
const KEPT: usize = 32;

/// The buffers of a queue.
#[derive(Debug, Default)]
pub(crate) struct Bounce {
    free: [Vec<AlignedBuf>; CLASSES],
    used_bytes: u64,
}

impl Bounce {
    /// Whether there is room for a request now.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.used_bytes + size_of_buffer(bytes) <= BYTES_MAX
    }

    /// A buffer of at least this many bytes.
    pub(crate) fn take(&mut self, bytes: u64) -> Result<AlignedBuf, NoMemory> {
        let size = size_of_buffer(bytes);
        let kept = self.free.get_mut(class_of(size)).and_then(Vec::pop);
        let buffer = kept.map_or_else(|| AlignedBuf::new(size as usize), Ok)?;
        self.used_bytes += size;
        Ok(buffer)
    }

    /// Takes a buffer back.
    pub(crate) fn put(&mut self, buffer: AlignedBuf) {
        let size = buffer.len() as u64;
        self.used_bytes = self.used_bytes.saturating_sub(size);
        if let Some(kept) = self.free.get_mut(class_of(size)).filter(|kept| kept.len() < KEPT) {
            kept.push(buffer);
        }
    }
}

fn size_of_buffer(bytes: u64) -> u64 {
    bytes.next_power_of_two().max(1 << FIRST_SHIFT)
}

fn class_of(size: u64) -> usize {
    size.trailing_zeros().saturating_sub(FIRST_SHIFT) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_kept_and_limited() {
        let mut bounce = Bounce::default();
        let first = bounce.take(512).unwrap();
        let address = first.as_ptr();
        assert_eq!(first.len(), 4096);
        bounce.put(first);
        assert_eq!(bounce.take(4096).unwrap().as_ptr(), address, "the same buffer again");
        assert!(bounce.has_room(32 << 20));
        let large = bounce.take(33 << 20).unwrap();
        assert!(!bounce.has_room(1));
        bounce.put(large);
        assert!(bounce.has_room(1 << 20));
    }
}
