//! The version of a file to which the pages of a cache belong, from the open to the close of the cache.
//!
//! ```text
//!   open  ── look ──▶ reads ─▶ close ── look ──▶ equal: the pages belong to that version, if the first look is a proof
//!                                                else: to the last version, if only this volume can have written
//! ```
//!
//! A page was read after the first look. A version that is the same at a later time, and a proof at the first look,
//! excludes every change between the two, so the page is still that of the file. After a write of the volume, versions
//! do not show other writes. Then only a lock ([`Options::lock`](crate::Options::lock)) excludes them.

use iopath_os::KeptPages;
use iopath_os::target::FileVersion;
use std::fs::File;
use std::sync::Arc;

/// A cache on a file, from its open on.
#[derive(Debug)]
pub(crate) struct Life {
    file: Arc<File>,
    opened: FileVersion,
    /// A change since the first look would have changed the version.
    is_proof: bool,
    /// No other program that locks the file can write to it.
    is_locked_exclusively: bool,
}

/// The version of the pages of a closed cache.
#[derive(Debug, Clone, Copy)]
pub(super) struct Closed {
    pub(super) version: FileVersion,
    /// The volume may have written: nothing else of this process may have.
    pub(super) is_changed: bool,
}

impl Life {
    /// Begins before the cache reads its first page. `None`: the pages cannot be kept.
    pub(crate) fn begin(
        file: Arc<File>,
        size_bytes: u64,
        is_locked: bool,
        is_writable: bool,
    ) -> Option<Self> {
        let look = FileVersion::look(&file)?;
        (look.version.size_bytes() == size_bytes).then(|| Self {
            file,
            opened: look.version,
            is_proof: look.is_proof(is_locked),
            is_locked_exclusively: is_locked && is_writable,
        })
    }

    /// The version at the open.
    pub(super) const fn opened(&self) -> &FileVersion {
        &self.opened
    }

    /// The cache has pages of the version at the open, which was a proof when they were read.
    pub(super) const fn take_over(&mut self) {
        self.is_proof = true;
    }

    /// Ends after the last I/O of the cache. `None`: the bytes of the file may be others than those of the pages.
    pub(super) fn end(&self, pages: &KeptPages) -> Option<Closed> {
        let look = FileVersion::look_again(&self.file)?;
        let version = look.version;
        let is_changed = version != self.opened;
        let is_certain =
            if is_changed { self.is_locked_exclusively && look.is_proof(true) } else { self.is_proof };
        let is_same_file = version.id() == self.opened.id() && version.size_bytes() == pages.size_bytes();
        (is_certain && is_same_file).then_some(Closed { version, is_changed })
    }
}
