//! The extents of a file on its device (FIEMAP, kernel `Documentation/filesystems/fiemap.rst`).
//!
//! It does not map offsets to requests. On btrfs, "physical" is an address in the filesystem's own volume, not on a
//! device.

use std::fs::File;
use std::io;
use std::ops::Range;

use super::ffi;

/// Makes the filesystem allocate and write delayed data first.
const FIEMAP_FLAG_SYNC: u32 = 0x1;

/// A range of a file that is contiguous on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileExtent {
    /// Offset in the file, bytes.
    pub logical: u64,
    /// Offset on the filesystem's device, bytes; undefined if [`ExtentFlags::UNKNOWN`] is set.
    pub physical: u64,
    /// Length, bytes. The last extent may extend past the end of the file.
    pub bytes: u64,
    /// Its flags.
    pub flags: ExtentFlags,
}

impl FileExtent {
    /// Its range in the file.
    pub fn logical_range(&self) -> Range<u64> {
        self.logical..self.logical.saturating_add(self.bytes)
    }

    /// Whether it has blocks of its own at a known offset, which hold the file's bytes unchanged once written.
    pub fn has_known_offset(&self) -> bool {
        let elsewhere =
            ExtentFlags::UNKNOWN | ExtentFlags::INLINE | ExtentFlags::ENCODED | ExtentFlags(0x100);
        !self.flags.intersects(elsewhere)
    }

    /// Whether a direct read accesses the device: the extent is written, at a known offset, on blocks of its own.
    pub fn is_written(&self) -> bool {
        !self.flags.intersects(ExtentFlags::UNWRITTEN | ExtentFlags::UNKNOWN | ExtentFlags::INLINE)
    }
}

/// Flags of an extent, the `FIEMAP_EXTENT_*` bits as the kernel returns them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtentFlags(u32);

impl ExtentFlags {
    /// The last extent of the file.
    pub const LAST: Self = Self(0x1);
    /// Its offset on the device is not known.
    pub const UNKNOWN: Self = Self(0x2);
    /// In memory, not yet allocated on the device; [`ExtentFlags::UNKNOWN`] is set too.
    pub const DELALLOC: Self = Self(0x4);
    /// Compressed or encrypted: the device holds other bytes, and fewer.
    pub const ENCODED: Self = Self(0x8);
    /// Stored in the filesystem's metadata or with other files, not on blocks of its own; includes tail-packing.
    pub const INLINE: Self = Self(0x200 | 0x400);
    /// Allocated but never written: reads as zeroes without device I/O.
    pub const UNWRITTEN: Self = Self(0x800);
    /// Merged from single blocks: pointers to blocks (ext2, ext3) map the file, not extents.
    pub const MERGED: Self = Self(0x1000);
    /// Shared with another file (reflink, snapshot): a write goes elsewhere.
    pub const SHARED: Self = Self(0x2000);

    /// The words for all bits with a name in the kernel (`FIEMAP_EXTENT_*`).
    const WORDS: [(u32, &str); 11] = [
        (0x1, "last"),
        (0x2, "unknown place"),
        (0x4, "delayed"),
        (0x8, "encoded"),
        (0x80, "encrypted"),
        (0x100, "not aligned"),
        (0x200, "inline"),
        (0x400, "tail-packed"),
        (0x800, "unwritten"),
        (0x1000, "block-mapped"),
        (0x2000, "shared"),
    ];

    /// Whether any flag of `other` is set.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The words for the bits that are set.
    pub fn words(self) -> impl Iterator<Item = &'static str> {
        Self::WORDS.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, word)| word)
    }

    /// The bits.
    pub fn bits(self) -> u32 {
        self.0
    }
}

impl std::ops::BitOr for ExtentFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The reason why the extents of a file are not known.
#[derive(Debug, thiserror::Error)]
pub enum ExtentError {
    /// The filesystem does not support FIEMAP.
    #[error("this filesystem does not support FIEMAP ({source}); use one that does, such as ext4 or xfs")]
    Unsupported {
        /// The system's error.
        source: io::Error,
    },
    /// FIEMAP failed.
    #[error("cannot read the extents from byte {offset}: {source}")]
    Failed {
        /// The offset in the file.
        offset: u64,
        /// The system's error.
        source: io::Error,
    },
}

/// All extents of a file in order of offset, with holes between them. Delayed data is written first.
///
/// # Errors
/// [`ExtentError`].
pub fn extents(file: &File) -> Result<Vec<FileExtent>, ExtentError> {
    all_batches(|start| ffi::fiemap(file, start, FIEMAP_FLAG_SYNC))
}

/// Calls `batch(offset)` again from the end of the last extent, until it returns no extent or one marked as the last.
fn all_batches(
    mut batch: impl FnMut(u64) -> io::Result<Vec<ffi::FiemapExtent>>,
) -> Result<Vec<FileExtent>, ExtentError> {
    let mut found: Vec<FileExtent> = Vec::new();
    loop {
        let offset = found.last().map_or(0, |extent| extent.logical_range().end);
        let news = batch(offset).map_err(|source| match source.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOTTY) => ExtentError::Unsupported { source },
            _ => ExtentError::Failed { offset, source },
        })?;
        found.extend(news.iter().map(|raw| FileExtent {
            logical: raw.logical,
            physical: raw.physical,
            bytes: raw.length,
            flags: ExtentFlags(raw.flags),
        }));
        let is_complete = match found.last() {
            None => true,
            // Without progress, the next batch would be the same.
            Some(last) => last.flags.intersects(ExtentFlags::LAST) || last.logical_range().end <= offset,
        };
        if news.is_empty() || is_complete {
            return Ok(found);
        }
    }
}

/// The first byte below `size_bytes` that no written extent covers: a hole, or space that was never written. A read of
/// that byte measures no device. `extents` must be in order of offset, as [`extents()`] returns them.
pub fn first_unwritten(extents: &[FileExtent], size_bytes: u64) -> Option<u64> {
    let mut reached = 0;
    for extent in extents.iter().filter(|extent| extent.is_written()) {
        if extent.logical > reached {
            break;
        }
        reached = reached.max(extent.logical_range().end);
    }
    (reached < size_bytes).then_some(reached)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(logical: u64, length: u64, flags: u32) -> ffi::FiemapExtent {
        let mut extent = ffi::FiemapExtent::default();
        (extent.logical, extent.length, extent.flags) = (logical, length, flags);
        extent
    }

    fn written(logical: u64, bytes: u64) -> FileExtent {
        FileExtent { logical, physical: 1 << 20, bytes, flags: ExtentFlags::default() }
    }

    #[test]
    fn batches_are_requested_until_the_last_extent() {
        let mut asked = Vec::new();
        let found = all_batches(|start| {
            asked.push(start);
            Ok(match start {
                0 => vec![raw(0, 10, 0), raw(20, 10, 0)],
                30 => vec![raw(40, 5, ExtentFlags::LAST.bits())],
                _ => unreachable!("asked from {start}"),
            })
        });
        assert_eq!(found.expect("no failure").iter().map(|e| e.logical).collect::<Vec<_>>(), [0, 20, 40]);
        assert_eq!(asked, [0, 30]);
    }

    #[test]
    fn a_filesystem_that_marks_no_last_extent_or_makes_no_progress_ends_too() {
        let found = all_batches(|start| Ok(if start == 0 { vec![raw(0, 10, 0)] } else { vec![] }));
        assert_eq!(found.expect("no failure").len(), 1);
        let found = all_batches(|_| Ok(vec![raw(0, 0, 0)]));
        assert_eq!(found.expect("no failure").len(), 1);
    }

    #[test]
    fn the_error_states_whether_the_filesystem_supports_fiemap() {
        let fails = |errno| all_batches(|_| Err(io::Error::from_raw_os_error(errno))).unwrap_err();
        assert!(matches!(fails(libc::EOPNOTSUPP), ExtentError::Unsupported { .. }));
        assert!(matches!(fails(libc::EIO), ExtentError::Failed { offset: 0, .. }));
    }

    #[test]
    fn flags_have_words() {
        let flags = ExtentFlags::UNWRITTEN | ExtentFlags::LAST | ExtentFlags::MERGED;
        assert_eq!(flags.words().collect::<Vec<_>>(), ["last", "unwritten", "block-mapped"]);
        assert_eq!(ExtentFlags::default().words().count(), 0);
        let compressed = FileExtent { flags: ExtentFlags::ENCODED, ..written(0, 8) };
        assert!(written(0, 8).has_known_offset() && !compressed.has_known_offset());
    }

    #[test]
    fn holes_and_unwritten_extents_are_found_where_they_begin() {
        assert_eq!(first_unwritten(&[written(0, 8), written(8, 8)], 16), None);
        assert_eq!(first_unwritten(&[written(0, 8), written(12, 8)], 16), Some(8));
        assert_eq!(first_unwritten(&[written(4, 8)], 8), Some(0));
        let unwritten = FileExtent { flags: ExtentFlags::UNWRITTEN, ..written(8, 8) };
        assert_eq!(first_unwritten(&[written(0, 8), unwritten], 16), Some(8));
        assert_eq!(first_unwritten(&[], 0), None);
    }

    proptest! {
        #[test]
        fn any_answer_of_the_kernel_ends_without_panic(
            batches in prop::collection::vec(prop::collection::vec((any::<u64>(), any::<u64>(), any::<u32>()), 0..4), 0..8)
        ) {
            let mut batches = batches.into_iter();
            let found = all_batches(|_| {
                Ok(batches.next().unwrap_or_default().into_iter().map(|(at, len, flags)| raw(at, len, flags)).collect())
            });
            first_unwritten(&found.unwrap(), u64::MAX);
        }
    }
}
