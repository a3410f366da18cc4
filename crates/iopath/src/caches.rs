//! The files that volumes of this process write through a page cache. Does not know the caches of other processes:
//! `Options::lock` excludes them.

use crate::error::OpenError;
use iopath_os::target::{DeviceNumber, FileId};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

/// The number of such volumes on each file. There is more than one only with `Options::second_cache`.
static WRITTEN: LazyLock<Mutex<HashMap<Identity, usize>>> = LazyLock::new(Mutex::default);

/// A file under any path or hard link, or a device under any name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Identity {
    File(FileId),
    Device(DeviceNumber),
}

/// The place of a volume in the table. Drop removes it.
#[derive(Debug)]
pub(crate) struct CachedWriter {
    files: Vec<Identity>,
}

impl CachedWriter {
    /// Adds a volume on `files`, before its cache reads a page.
    ///
    /// # Errors
    /// [`OpenError::SecondCache`] if one of the files has a writable page cache, unless `may_be_second`.
    pub(crate) fn new(files: Vec<Identity>, may_be_second: bool, path: &Path) -> Result<Self, OpenError> {
        let mut written = lock();
        if !may_be_second && files.iter().any(|file| written.contains_key(file)) {
            return Err(OpenError::SecondCache(path.to_owned()));
        }
        for file in &files {
            *written.entry(*file).or_default() += 1;
        }
        Ok(Self { files })
    }
}

impl Drop for CachedWriter {
    fn drop(&mut self) {
        let mut written = lock();
        for file in &self.files {
            if let Some(count) = written.get_mut(file) {
                *count -= 1;
                if *count == 0 {
                    written.remove(file);
                }
            }
        }
    }
}

impl Identity {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let about = file.metadata()?;
        Ok(DeviceNumber::of(&about).map_or_else(|| Self::File(FileId::from(&about)), Self::Device))
    }
}

fn lock() -> MutexGuard<'static, HashMap<Identity, usize>> {
    WRITTEN.lock().unwrap_or_else(PoisonError::into_inner)
}
