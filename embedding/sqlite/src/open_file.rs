//! A file that connections of this process share: one volume, so one page cache, and the locks.

use crate::lock::Locks;
use crate::shm::Shm;
use crate::store::Store;
use iopath::{Error, ErrorKind, IoError, Volume};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A file and its state.
#[derive(Debug)]
pub(crate) struct OpenFile {
    /// `None` only while it is dropped.
    volume: Option<Volume>,
    pub(crate) path: PathBuf,
    pub(crate) is_writable: bool,
    /// Created, and the directory was not synced since.
    is_new: AtomicBool,
    has_failed_sync: AtomicBool,
    locks: Mutex<Locks>,
    shm: Mutex<Shm>,
}

impl OpenFile {
    pub(crate) fn new(volume: Volume, path: PathBuf, is_writable: bool, is_new: bool) -> Self {
        Self {
            volume: Some(volume),
            path,
            is_writable,
            is_new: AtomicBool::new(is_new),
            has_failed_sync: AtomicBool::new(false),
            locks: Mutex::default(),
            shm: Mutex::default(),
        }
    }

    pub(crate) fn locks(&self) -> MutexGuard<'_, Locks> {
        self.locks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn shm(&self) -> MutexGuard<'_, Shm> {
        self.shm.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self) -> &Volume {
        self.volume.as_ref().expect("the volume is open until the drop")
    }

    pub(crate) fn len(&self) -> u64 {
        self.volume().size_bytes()
    }

    pub(crate) fn read(&self, buffer: &mut [u8], offset: u64) -> VfsResult<usize> {
        self.volume().read_at(buffer, offset).map_err(|error| code_of(&error, vars::SQLITE_IOERR_READ))
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> VfsResult<()> {
        self.volume().write_at(bytes, offset).map_err(|error| code_of(&error, vars::SQLITE_IOERR_WRITE))
    }

    pub(crate) fn truncate(&self, bytes: u64) -> VfsResult<()> {
        self.volume().resize(bytes).map_err(|error| code_of(&error, vars::SQLITE_IOERR_TRUNCATE))
    }

    /// A failed sync fails until the file is closed: a later success would promise bytes that are lost.
    pub(crate) fn sync(&self, store: &dyn Store) -> VfsResult<()> {
        if self.has_failed_sync.load(Ordering::Acquire) {
            return Err(vars::SQLITE_IOERR_FSYNC);
        }
        let flushed = self.volume().flush().map_err(|error| code_of(&error, vars::SQLITE_IOERR_FSYNC));
        let synced = flushed.and_then(|()| {
            if self.is_new.load(Ordering::Acquire) {
                store.sync_directory_of(&self.path)?;
                self.is_new.store(false, Ordering::Release);
            }
            Ok(())
        });
        if synced.is_err() {
            self.has_failed_sync.store(true, Ordering::Release);
        }
        synced
    }
}

/// After a failed sync, the pages of the failed transaction must not be written later.
impl Drop for OpenFile {
    fn drop(&mut self) {
        if let Some(volume) = self.volume.take()
            && *self.has_failed_sync.get_mut()
        {
            let abandoned = volume.abandon();
            debug_assert!(abandoned.is_ok(), "the volume has one handle");
        }
    }
}

fn code_of(error: &Error, other: i32) -> i32 {
    match error.kind() {
        ErrorKind::Io(IoError::NoSpace) | ErrorKind::Unwritable { source: IoError::NoSpace, .. } => {
            vars::SQLITE_FULL
        }
        ErrorKind::NoMemory => vars::SQLITE_IOERR_NOMEM,
        _ => other,
    }
}
