//! The directories of sysfs, procfs and devtmpfs, and the identities of devices and files.
//!
//! Names are ambiguous (links, bind mounts, renamed nodes), but numbers are not. So `target/` compares only by these
//! types.

use std::fmt;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use iopath_core::debug;
use rustix::fs::Statx;

/// The directories from which properties are read. [`Roots::live`] is this machine; tests use other directories.
#[derive(Clone, PartialEq, Eq)]
pub struct Roots {
    /// The mount point of sysfs: `/sys`.
    pub sys: PathBuf,
    /// The mount point of procfs: `/proc`.
    pub proc: PathBuf,
    /// The directory of device nodes: `/dev`.
    pub dev: PathBuf,
}

impl fmt::Debug for Roots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Roots")
            .field("sys", &debug::Text(&self.sys))
            .field("proc", &debug::Text(&self.proc))
            .field("dev", &debug::Text(&self.dev))
            .finish()
    }
}

impl Roots {
    /// The directories of this machine.
    pub fn live() -> Self {
        Self { sys: "/sys".into(), proc: "/proc".into(), dev: "/dev".into() }
    }
}

/// The reason why a table of the kernel (`/proc/self/mountinfo`, `/proc/swaps`) cannot be used.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// It cannot be read.
    #[error("cannot read {path}: {source}; check that procfs is mounted")]
    Read {
        /// The table's file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line has an unknown form. It is not skipped, because it may name a user of a target.
    #[error(
        "line {line} of {path} has an unknown form: {text:?}; please report it with the kernel's version"
    )]
    Malformed {
        /// The table's file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The line.
        text: String,
    },
}

impl fmt::Debug for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug::error("TableError", self, f)
    }
}

/// Major and minor number of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceNumber {
    /// The driver's number; 0 for filesystems without a device.
    pub major: u32,
    /// The device's number within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// From a `dev_t`, as in `stat` and the loop driver.
    pub fn from_raw(raw: u64) -> Self {
        Self { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }

    /// Parses `MAJOR:MINOR`, as sysfs and mountinfo write it.
    pub fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// The number of the block device at `path`, links resolved; `None` for other files.
    pub fn of_block_device(path: &Path) -> Option<Self> {
        path.metadata().ok().as_ref().and_then(Self::of)
    }

    /// The number of a block device; `None` for other kinds of files.
    pub fn of(meta: &std::fs::Metadata) -> Option<Self> {
        meta.file_type().is_block_device().then(|| Self::from_raw(meta.rdev()))
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

/// The identity of a file: the filesystem's device number and the inode number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FileId {
    /// Device number of the filesystem (`st_dev`).
    pub device: DeviceNumber,
    /// Inode number (`st_ino`).
    pub inode: u64,
}

impl FileId {
    /// The identity of the file at `path`, with links resolved; `None` if stat fails.
    pub fn of(path: &Path) -> Option<Self> {
        path.metadata().ok().as_ref().map(Self::from)
    }
}

impl From<&std::fs::Metadata> for FileId {
    fn from(meta: &std::fs::Metadata) -> Self {
        Self { device: DeviceNumber::from_raw(meta.dev()), inode: meta.ino() }
    }
}

impl From<&Statx> for FileId {
    fn from(stat: &Statx) -> Self {
        let device = DeviceNumber { major: stat.stx_dev_major, minor: stat.stx_dev_minor };
        Self { device, inode: stat.stx_ino }
    }
}

/// Decodes the octal escapes (`\040` for a space) of paths in the kernel's tables. Other backslashes stay unchanged.
pub(super) fn unescape_octal(escaped: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(escaped.len());
    let mut rest = escaped;
    while let Some((&byte, after)) = rest.split_first() {
        if let (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', tail @ ..]) = (byte, after) {
            plain.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
            rest = tail;
        } else {
            plain.push(byte);
            rest = after;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_become_bytes_and_the_rest_stays() {
        assert_eq!(unescape_octal(br"/a\040b\134c"), br"/a b\c");
        assert_eq!(unescape_octal(br"\09\400\04"), br"\09\400\04");
    }

    #[test]
    fn device_numbers_parse_from_their_display() {
        let nvme = DeviceNumber { major: 259, minor: 1_048_575 };
        assert_eq!(DeviceNumber::parse(&nvme.to_string()), Some(nvme));
        for bad in ["", "8", "8:", ":1", "8:-1", "8:1:2", "4294967296:0"] {
            assert_eq!(DeviceNumber::parse(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn unescape_never_panics_and_never_grows(bytes: Vec<u8>) {
            prop_assert!(unescape_octal(&bytes).len() <= bytes.len());
        }
    }
}
