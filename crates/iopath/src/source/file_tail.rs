//! Writes the bytes after the last whole block of a file, through a second descriptor without `O_DIRECT`. Most volumes
//! write no such bytes, so the descriptor is opened when it is first needed. A new file has the one that created it.

use super::system;
use crate::error::OpenError;
use iopath_core::{IoError, Op};
use iopath_os::target::{FileId, Target};
use iopath_os::{Tail, io_error_of};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// The second descriptor of a file. A clone is a handle of the same one.
#[derive(Debug, Clone)]
pub(super) struct FileTail {
    file: Arc<File>,
    target: Arc<Target>,
    opened: Arc<OnceLock<File>>,
}

impl FileTail {
    pub(super) fn new(file: &Arc<File>, target: &Arc<Target>) -> Self {
        Self { file: Arc::clone(file), target: Arc::clone(target), opened: Arc::default() }
    }

    /// Uses `created`, a descriptor of the file without `O_DIRECT`, as the second one.
    pub(super) fn keep(&self, created: File) {
        // Nothing has opened one before.
        let _ = self.opened.set(created);
    }

    /// Opens the file once more, unless it is.
    pub(super) fn open(&self) -> Result<(), OpenError> {
        self.opened().map(drop).map_err(system(&self.target.path, "opened for writing"))
    }

    fn opened(&self) -> io::Result<&File> {
        match self.opened.get() {
            Some(opened) => Ok(opened),
            // Two threads may open it at once; one descriptor is closed again.
            None => self.reopen().map(|opened| self.opened.get_or_init(|| opened)),
        }
    }

    /// Opens the file, whose path may lead to another file by now.
    fn reopen(&self) -> io::Result<File> {
        let open = |path: &Path| OpenOptions::new().write(true).open(path);
        if let Ok(again) = open(&PathBuf::from(format!("/proc/self/fd/{}", self.file.as_raw_fd()))) {
            return Ok(again);
        }
        // Without `/proc`.
        let again = open(&self.target.path)?;
        if FileId::from(&again.metadata()?) == self.target.id { Ok(again) } else { Err(Errno::STALE.into()) }
    }
}

impl Tail for FileTail {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, IoError> {
        let opened = self.opened().map_err(|error| io_error_of(Op::Write, &error))?;
        Tail::write_at(opened, bytes, offset)
    }

    fn handle_failed_flush(&self) {
        // All descriptors share the kernel's copy. Without a second one, this volume has no bytes there.
        if let Some(opened) = self.opened.get() {
            opened.handle_failed_flush();
        }
    }
}
