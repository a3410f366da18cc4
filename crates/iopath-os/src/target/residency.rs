//! Counts the pages of a file or block device in the page cache, and drops them.
//!
//! Caches below are not visible. `target/beneath.rs` finds files beneath a loop device. No call shows the cache of a
//! drive, or of the host of a virtual machine.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::thread;
use std::time::Duration;

use rustix::fs::Advice;

use super::ffi;

/// Pages of a range in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Residency {
    /// Bytes in a page.
    pub page_bytes: u64,
    /// Pages that the range touches.
    pub pages: u64,
    /// The number of these pages in the cache.
    pub resident: u64,
    /// Resident pages not yet written back, or being written back; `None` if only mincore(2) is available.
    pub dirty: Option<u64>,
}

impl Residency {
    /// Whether no page of the range is in the cache.
    pub fn is_cold(&self) -> bool {
        self.resident == 0
    }

    /// Share of the range that is in the cache, 0 to 1; 0 for an empty range.
    pub fn resident_share(&self) -> f64 {
        if self.pages == 0 { 0.0 } else { self.resident as f64 / self.pages as f64 }
    }
}

/// The reason why residency cannot be counted or changed.
#[derive(Debug, thiserror::Error)]
pub enum ResidencyError {
    /// The file's length cannot be read.
    #[error("cannot read the length of the file: {0}")]
    Length(io::Error),
    /// Neither cachestat nor mincore works on it.
    #[error(
        "cannot count the cached pages of bytes {start}..{end}: {source}; open the file for reading, as its owner"
    )]
    Ask {
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// The error of mincore(2).
        source: io::Error,
    },
    /// Dirty pages could not be written back.
    #[error("cannot write back dirty pages: {0}; the device may have failed")]
    WriteBack(io::Error),
    /// `posix_fadvise` failed.
    #[error("cannot drop cached pages: {0}")]
    Drop(io::Error),
}

/// Counts the pages of `range` in the page cache. `range` is in bytes and is cut at the end of the file, so that
/// `0..u64::MAX` is the whole file.
///
/// Uses cachestat(2) (Linux 6.5), otherwise mincore(2). mincore reports every page as resident if the caller neither
/// owns the file nor may write to it. On a filesystem whose pages belong to files of another filesystem (overlay),
/// cachestat counts no pages, and mincore counts the pages of the file below. So mincore is used there.
///
/// # Errors
/// [`ResidencyError`].
pub fn residency(file: &File, range: Range<u64>) -> Result<Residency, ResidencyError> {
    let range = whole_pages(file, range)?;
    let page_bytes = page_bytes();
    let pages = (range.end - range.start).div_ceil(page_bytes);
    if pages == 0 {
        return Ok(Residency { page_bytes, pages, resident: 0, dirty: Some(0) });
    }
    if caches_in_another_file(file) {
        return by_mincore(file, range, page_bytes, pages);
    }
    match ffi::cachestat(file, &range) {
        Ok(stat) => Ok(Residency {
            page_bytes,
            pages,
            resident: stat.cached,
            dirty: Some(stat.dirty + stat.writeback),
        }),
        Err(_refused_or_unknown) => by_mincore(file, range, page_bytes, pages),
    }
}

/// Whether the filesystem passes reads and mappings to a file of another filesystem, which then has the pages.
fn caches_in_another_file(file: &File) -> bool {
    // Magic numbers of <linux/magic.h>; aufs and shiftfs are built outside the kernel's tree.
    const OVERLAY: u64 = 0x794c_7630;
    const AUFS: u64 = 0x6175_6673;
    const SHIFTFS: u64 = 0x6a65_6a62;
    rustix::fs::fstatfs(file).is_ok_and(|found| [OVERLAY, AUFS, SHIFTFS].contains(&(found.f_type as u64)))
}

/// Address space mapped at a time: 256 KiB of answers from mincore with pages of 4 KiB.
const MINCORE_WINDOW_BYTES: u64 = 1 << 30;

fn by_mincore(
    file: &File,
    range: Range<u64>,
    page_bytes: u64,
    pages: u64,
) -> Result<Residency, ResidencyError> {
    let mut resident = 0;
    let mut start = range.start;
    while start < range.end {
        let end = range.end.min(start + MINCORE_WINDOW_BYTES);
        resident += ffi::resident_pages(file, &(start..end)).map_err(|source| ResidencyError::Ask {
            start,
            end,
            source,
        })?;
        start = end;
    }
    Ok(Residency { page_bytes, pages, resident, dirty: None })
}

/// Pauses between attempts to drop pages, 0.13 s in total. Pages of readahead in flight are locked, and a spinning disk
/// needs that time to complete the readahead.
const PAUSES_MS: [u64; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Writes back dirty pages, drops `range` from the page cache and returns the pages that are still resident. Mapped
/// pages and pages in use cannot be dropped; the call retries for 0.13 s. On a block device it also flushes all
/// buffers (`BLKFLSBUF`) if pages are left and the caller may do that.
///
/// # Errors
/// [`ResidencyError`].
pub fn drop_cached(file: &File, range: Range<u64>) -> Result<Residency, ResidencyError> {
    drop_cached_down_to(file, range, 0)
}

/// Does the same as [`drop_cached`], but without further attempts once at most `resident_max` pages are left. For files
/// of which an earlier call left that many pages.
///
/// # Errors
/// Returns the errors of [`drop_cached`].
pub fn drop_cached_down_to(
    file: &File,
    range: Range<u64>,
    resident_max: u64,
) -> Result<Residency, ResidencyError> {
    let mut left = residency(file, range.clone())?;
    let mut pauses = PAUSES_MS.into_iter();
    while !left.is_cold() {
        drop_once(file, &range, left)?;
        left = residency(file, range.clone())?;
        match pauses.next() {
            Some(pause_ms) if left.resident > resident_max => thread::sleep(Duration::from_millis(pause_ms)),
            _ => break,
        }
    }
    Ok(left)
}

fn drop_once(file: &File, range: &Range<u64>, found: Residency) -> Result<(), ResidencyError> {
    if found.dirty != Some(0) {
        rustix::fs::fdatasync(file).map_err(|e| ResidencyError::WriteBack(e.into()))?;
    }
    let whole = whole_pages(file, range.clone())?;
    // Extended to a whole page at the end: the kernel keeps a partly covered page, except the last page of the file.
    let length = NonZeroU64::new(whole.end.next_multiple_of(page_bytes()) - whole.start);
    rustix::fs::fadvise(file, whole.start, length, Advice::DontNeed)
        .map_err(|e| ResidencyError::Drop(e.into()))?;
    if !residency(file, range.clone())?.is_cold() {
        // Refused for regular files and without the capability. The caller counts the pages that are left.
        let _ = ffi::flush_buffers(file);
    }
    Ok(())
}

/// `range` cut at the end of the file and extended down to the start of a page; 0..0 if that is empty.
fn whole_pages(file: &File, range: Range<u64>) -> Result<Range<u64>, ResidencyError> {
    let end = range.end.min(length_of(file).map_err(ResidencyError::Length)?);
    if range.start >= end {
        return Ok(0..0);
    }
    Ok(range.start - range.start % page_bytes()..end)
}

/// Bytes of a file or block device.
fn length_of(file: &File) -> io::Result<u64> {
    let meta = file.metadata()?;
    if meta.file_type().is_block_device() { ffi::block_device_bytes(file) } else { Ok(meta.len()) }
}

fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn cachestat_and_mincore_agree() {
        let mut file = tempfile::NamedTempFile::new().expect("temporary file");
        file.write_all(&vec![1; 300_001]).expect("room for the file");
        let file = file.as_file();
        for range in [0..300_001, 4096..100_000, 65_536..65_537] {
            let asked = residency(file, range.clone()).expect("it is ours");
            let whole = whole_pages(file, range).expect("it is ours");
            let counted = by_mincore(file, whole, page_bytes(), asked.pages).expect("it is ours");
            assert_eq!((counted.resident, counted.pages), (asked.resident, asked.pages));
            assert_eq!(asked.resident, asked.pages, "just written");
        }
    }

    #[test]
    fn a_range_is_cut_to_whole_pages_within_the_file() {
        let file = tempfile::tempfile().expect("temporary file");
        file.set_len(10 * page_bytes() + 1).expect("sparse files work here");
        let pages = |range| residency(&file, range).expect("it is ours").pages;
        let page = page_bytes();
        assert_eq!(pages(0..u64::MAX), 11);
        assert_eq!(pages(page - 1..page + 1), 2);
        assert_eq!(pages(5..5), 0);
        assert_eq!(pages(11 * page..12 * page), 0);
    }

    #[test]
    fn an_empty_range_is_cold() {
        let nothing = Residency { page_bytes: 4096, pages: 0, resident: 0, dirty: Some(0) };
        assert!(nothing.is_cold());
        assert!(nothing.resident_share().abs() < f64::EPSILON);
        let half = Residency { pages: 4, resident: 2, ..nothing };
        assert!(!half.is_cold() && (half.resident_share() - 0.5).abs() < f64::EPSILON);
    }
}
