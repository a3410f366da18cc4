//! Counts the requests of a direct read as the kernel makes them: bios of at most 256 pages, split at the limits of the
//! disk, and merged in the plug with the request before. Knows no file: `requests.rs` has the transfers.

use iopath_core::{Extent, SECTOR_BYTES};

/// The most pages of a bio, `BIO_MAX_VECS` of the kernel.
const BIO_PAGES_MAX: u64 = 256;

/// The memory of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Memory {
    /// Contiguous, as in huge pages: one segment.
    Contiguous,
    /// Each page is a segment of its own: the worst case of ordinary memory.
    Pages {
        page_bytes: u64,
        /// The most segments of a request.
        segments_max: u64,
    },
}

/// The requests so far, and the last one, which may still grow.
#[derive(Debug, Clone)]
pub(super) struct Counter {
    request_bytes_max: u64,
    chunk_sectors: u64,
    memory: Memory,
    merges: bool,
    count: u64,
    last: Option<Request>,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    start_byte: u64,
    end_byte: u64,
    segments: u64,
}

impl Counter {
    /// No requests yet. Without `merges`, adjacent bios stay requests of their own.
    pub(super) fn new(request_bytes_max: u64, chunk_sectors: u64, memory: Memory, merges: bool) -> Self {
        Self { request_bytes_max, chunk_sectors, memory, merges, count: 0, last: None }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// The next read begins. Its requests are not merged with those before, which are already at the disk.
    pub(super) fn begin_read(&mut self) {
        self.last = None;
    }

    /// Adds a contiguous transfer. `memory_offset` is its offset in the buffer, which begins at a page.
    pub(super) fn add(&mut self, extent: Extent, memory_offset: u64) {
        let (mut at, mut rest) = (extent.start().0 * SECTOR_BYTES, extent.bytes());
        let Memory::Pages { page_bytes, segments_max } = self.memory else {
            return self.push(Request { start_byte: at, end_byte: at + rest, segments: 1 });
        };
        let mut offset = memory_offset;
        while rest > 0 {
            let into_page = offset % page_bytes;
            let mut bio = rest.min(BIO_PAGES_MAX * page_bytes - into_page);
            rest -= bio;
            while bio > 0 {
                let into_page = offset % page_bytes;
                let bytes = bio.min(self.request_bytes_max).min(segments_max * page_bytes - into_page);
                let segments = (into_page + bytes).div_ceil(page_bytes);
                self.push(Request { start_byte: at, end_byte: at + bytes, segments });
                (at, offset, bio) = (at + bytes, offset + bytes, bio - bytes);
            }
        }
    }

    /// Merges a bio into the last request, at its back or at its front, if the limits permit it.
    fn push(&mut self, bio: Request) {
        let merged = self.last.filter(|_| self.merges).and_then(|last| {
            let is_adjacent = last.end_byte == bio.start_byte || bio.end_byte == last.start_byte;
            let joined = Request {
                start_byte: last.start_byte.min(bio.start_byte),
                end_byte: last.end_byte.max(bio.end_byte),
                segments: last.segments + bio.segments,
            };
            (is_adjacent && self.fits(joined)).then_some(joined)
        });
        self.count += u64::from(merged.is_none());
        self.last = Some(merged.unwrap_or(bio));
    }

    fn fits(&self, request: Request) -> bool {
        let chunk_bytes = self.chunk_sectors * SECTOR_BYTES;
        let is_in_chunk =
            chunk_bytes == 0 || request.start_byte / chunk_bytes == (request.end_byte - 1) / chunk_bytes;
        let has_segments = match self.memory {
            Memory::Contiguous => true,
            Memory::Pages { segments_max, .. } => request.segments <= segments_max,
        };
        request.end_byte - request.start_byte <= self.request_bytes_max && is_in_chunk && has_segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1 << 10;

    fn counted(memory: Memory, chunk_sectors: u64, transfers: &[(u64, u64)]) -> u64 {
        let mut counter = Counter::new(1280 * KIB, chunk_sectors, memory, true);
        counter.begin_read();
        let mut offset = 0;
        for (start, bytes) in transfers {
            counter.add(Extent::from_bytes(*start, *bytes).unwrap(), offset);
            offset += bytes;
        }
        counter.count()
    }

    const PAGES: Memory = Memory::Pages { page_bytes: 4 * KIB, segments_max: 128 };

    #[test]
    fn pages_of_their_own_are_limited_by_segments() {
        assert_eq!(counted(Memory::Contiguous, 0, &[(0, 1024 * KIB)]), 1);
        assert_eq!(counted(PAGES, 0, &[(0, 1024 * KIB)]), 2);
        assert_eq!(counted(PAGES, 0, &[(0, 512 * KIB)]), 1);
        // Bios of 1 MiB: 512 + 512, and not 1,280 + 768 cut at segments.
        assert_eq!(counted(PAGES, 0, &[(0, 2048 * KIB)]), 4);
        let many = Memory::Pages { page_bytes: 4 * KIB, segments_max: 254 };
        assert_eq!(counted(many, 0, &[(0, 1024 * KIB)]), 2);
        assert_eq!(counted(many, 0, &[(0, 1016 * KIB)]), 1);
    }

    #[test]
    fn transfers_adjacent_on_the_disk_are_one_request_within_the_limits() {
        let pieces: Vec<(u64, u64)> = (0..4).map(|piece| (piece * 4 * KIB, 4 * KIB)).collect();
        assert_eq!(counted(Memory::Contiguous, 0, &pieces), 1);
        assert_eq!(counted(PAGES, 0, &pieces), 1);
        assert_eq!(counted(PAGES, 16, &pieces), 2, "not across chunks of 8 KiB");
        let backward: Vec<(u64, u64)> = pieces.iter().rev().copied().collect();
        assert_eq!(counted(Memory::Contiguous, 0, &backward), 1, "merges at the front");
        assert_eq!(counted(Memory::Contiguous, 0, &[(0, 4096), (8192, 4096)]), 2);
        assert_eq!(counted(Memory::Contiguous, 0, &[(0, 1280 * KIB), (1280 * KIB, 4096)]), 2);
        let mut counter = Counter::new(1280 * KIB, 0, Memory::Contiguous, false);
        for (start, bytes) in &pieces {
            counter.add(Extent::from_bytes(*start, *bytes).unwrap(), 0);
        }
        assert_eq!(counter.count(), 4);
    }
}
