//! Operations on ranges without data of the caller: discard, zero, allocate, flush, find data.

use super::Volume;
use crate::error::{ErrorKind, Result};
use crate::source::SourceError;
use iopath_core::buffered::ClearParts;
use iopath_core::{Extent, IoError, Op};
use std::ops::Range;

/// Written to the parts of blocks at the ends of a range.
static ZEROES: [u8; 4096] = [0; 4096];

/// The operations on ranges that a volume supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct RangeSupport {
    /// [`Volume::discard`].
    pub discard: bool,
    /// [`Volume::discard`] makes whole blocks read as zeroes, and neither the kernel nor iopath writes them: it changes
    /// metadata, or the device has a command for it. Without such a command it fails.
    pub discard_zeroes: bool,
    /// [`Volume::write_zeroes`]. The kernel may write each block.
    pub zero: bool,
}

impl Volume {
    /// The operations on ranges that the volume supports: none if it is open for reading.
    #[must_use]
    pub fn range_support(&self) -> RangeSupport {
        let limits = &self.storage().limits;
        let discard = limits.sectors_max(Op::Discard) > 0;
        let zero = limits.sectors_max(Op::WriteZeroes) > 0;
        RangeSupport { discard, discard_zeroes: discard && self.source().discard_zeroes(), zero }
    }

    /// Frees the space of `bytes` bytes at `offset`, whose content the caller no longer needs.
    ///
    /// A volume with a page cache or a bounce buffer accepts any range, and zeroes parts of blocks at its ends. Other
    /// volumes accept whole blocks ([`Facts::block_bytes`](crate::Facts::block_bytes)). The content afterwards:
    ///
    /// | source | whole blocks read as | space |
    /// |---|---|---|
    /// | file | zeroes | freed (a hole) |
    /// | mapped file | zeroes | freed |
    /// | block device, stripe, disk in memory | undefined | may be freed |
    ///
    /// After an error, the content is undefined for every source. Cached pages inside the range are dropped, including
    /// pages that could not be written back: flushes no longer fail because of them. Concurrent reads may see a part of
    /// the effect.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the source cannot discard, and as [`Volume::write_at`].
    pub fn discard(&self, offset: u64, bytes: u64) -> Result<()> {
        self.clear(Op::Discard, offset, bytes)
    }

    /// Zeroes `bytes` bytes at `offset`, without a transfer of zeroes if the source supports that: files and block
    /// devices zero or unmap the range, mapped files free it.
    ///
    /// A volume with a page cache or a bounce buffer accepts any range, other volumes whole blocks
    /// ([`Facts::block_bytes`](crate::Facts::block_bytes)).
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if the source cannot zero a range, and as [`Volume::write_at`].
    pub fn write_zeroes(&self, offset: u64, bytes: u64) -> Result<()> {
        self.clear(Op::WriteZeroes, offset, bytes)
    }

    /// Allocates space for `bytes` bytes at `offset`, so that later writes to the range cannot fail for lack of space.
    /// Does not change content or size. The range may reach past the end of a file, to reserve space for appends.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if space cannot be reserved: block devices, stripes, mapped files, and filesystems
    /// without `fallocate(2)`. [`ErrorKind::Io`] with [`IoError::NoSpace`] if there is no space.
    pub fn allocate(&self, offset: u64, bytes: u64) -> Result<()> {
        self.check_writable(Op::Write, offset, bytes)?;
        if bytes == 0 {
            return Ok(());
        }
        let failed = |error: SourceError| {
            let kind = match error.of_io(Op::Write) {
                IoError::Unsupported => ErrorKind::Unsupported,
                IoError::EndOfDevice => ErrorKind::PastEnd { size_bytes: self.size_bytes() },
                error => ErrorKind::Io(error),
            };
            self.error(kind).of_range(Op::Write, offset, bytes)
        };
        self.source().allocate(offset, bytes).map_err(failed)
    }

    /// The ranges with data in the `bytes` bytes at `offset`, in ascending order. The rest are holes, which read as
    /// zeroes (`SEEK_DATA` and `SEEK_HOLE`, the mapping of a mapped file). Space that is allocated and not yet written
    /// counts as a hole.
    ///
    /// Dirty pages of the range are written back first. A source without a record of holes reports the whole range:
    /// block devices, disks in memory, exports of servers, some filesystems, and mapped files from the first metadata
    /// on that is not in memory. A stripe has the holes of its members.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if dirty pages cannot be written back, or the system refuses.
    pub fn data_ranges(&self, offset: u64, bytes: u64) -> Result<Vec<Range<u64>>> {
        self.first_data_ranges(offset, bytes, usize::MAX)
    }

    /// Does the same as [`Volume::data_ranges`], but at most the first `ranges_max` ranges, in a time that depends on
    /// their number. If there are as many, nothing is known of the bytes after the last one. A stripe searches its
    /// members to the end of the range.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::data_ranges`].
    pub fn first_data_ranges(&self, offset: u64, bytes: u64, ranges_max: usize) -> Result<Vec<Range<u64>>> {
        let end = offset.saturating_add(bytes).min(self.size_bytes());
        if offset >= end {
            return Ok(Vec::new());
        }
        let block = u64::from(self.facts().block_bytes);
        let start = offset / block * block;
        let blocks_end = end.next_multiple_of(block);
        let extent = Extent::from_bytes(start, blocks_end - start).unwrap_or_default();
        let _guard = self.begin_direct(Op::Read, extent)?;
        let found = self.source().data_ranges(offset..end, ranges_max);
        let mut found =
            found.map_err(|error| self.io_error(Op::Read, offset, bytes, error.of_io(Op::Read)))?;
        found.truncate(ranges_max);
        Ok(found)
    }

    /// Makes all writes to the `bytes` bytes at `offset` durable that returned before this call. Dirty pages outside
    /// the range may stay in the page cache. A volume without a page cache flushes the device.
    ///
    /// # Errors
    /// Returns the errors of [`Volume::flush`].
    pub fn flush_range(&self, offset: u64, bytes: u64) -> Result<()> {
        self.check_writable(Op::Flush, offset, bytes)?;
        if let Some(flushed) = self.flush_new_file(offset, bytes) {
            return flushed;
        }
        match self.cache_for_io()? {
            Some(cache) => {
                self.trim_file()?;
                let flushed = cache.flush_range(offset, bytes);
                flushed.map_err(|error| self.uncached(Op::Flush, offset, bytes, error))
            }
            None => self.flush_device(),
        }
    }

    fn clear(&self, op: Op, offset: u64, bytes: u64) -> Result<()> {
        if !self.shape().accepts_any_range() {
            let extent = self.writable(op, offset, bytes)?;
            return if extent.is_empty() { Ok(()) } else { self.command(op, extent) };
        }
        self.check_writable(op, offset, bytes)?;
        self.check_within(op, offset, bytes)?;
        let ClearParts { head, blocks, tail } =
            ClearParts::new(offset, bytes, self.facts().block_bytes.into());
        self.zero(head)?;
        if !blocks.is_empty() {
            // Prevents a bounced write of a part of a block from restoring the rest of the block.
            let _locked =
                self.bounce().map(|bounce| self.lock_blocks(bounce, blocks.offset(), blocks.bytes()));
            self.command(op, blocks)?;
        }
        self.zero(tail)
    }

    /// Writes zeroes to a range shorter than a block.
    fn zero(&self, range: Range<u64>) -> Result<()> {
        let mut offset = range.start;
        while offset < range.end {
            let bytes = (range.end - offset).min(ZEROES.len() as u64);
            // Within the range that was checked: a volume that a resize has made shorter stays short.
            self.write_within(&ZEROES[..bytes as usize], offset, false)?;
            offset += bytes;
        }
        Ok(())
    }
}
