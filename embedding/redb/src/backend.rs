//! A `StorageBackend` of redb that stores the database in a volume. `tests/suite.rs` also compiles this file inside
//! redb, in place of redb's own backend, so it uses only the crates `iopath` and `redb`.

use iopath::{Error, IoMode, OpenError, Options, Readahead, Volume};
use redb::{DatabaseError, StorageBackend};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

/// The memory of the page cache below redb's own cache. It holds what redb has written since the last commit, and what
/// was read ahead of a scan; redb's cache holds the pages in use.
const CACHE_BYTES: u64 = 64 << 20;

/// A database of redb in a volume.
#[derive(Debug)]
pub struct VolumeBackend {
    /// `None` after a failure: redb ends all transactions at the first error.
    volume: RwLock<Option<Volume>>,
}

impl VolumeBackend {
    /// The options of a database file: through a page cache of 64 MiB, writable, locked against other programs. Reads
    /// and writes of redb are whole pages, except for its header of 320 bytes, but their memory is not aligned.
    pub fn options() -> Options {
        Options::new()
            .mode(IoMode::Buffered)
            .cache_bytes(CACHE_BYTES)
            .readahead(Readahead::Auto)
            .write(true)
            .lock(true)
    }

    /// Opens or creates a database file.
    ///
    /// # Errors
    /// `DatabaseAlreadyOpen` if the file is locked, or the error of the system.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DatabaseError> {
        Volume::open(path, &Self::options().create(0)).map(Self::over).map_err(refused)
    }

    /// Stores the database in a file that is open for reading and writing.
    ///
    /// # Errors
    /// `DatabaseAlreadyOpen` if the file is locked, or the error of the system.
    pub fn new(file: File) -> Result<Self, DatabaseError> {
        Volume::from_file(file, &Self::options()).map(Self::over).map_err(refused)
    }

    /// Stores the database in a volume of any kind and options. A volume that requires alignment is not suitable.
    pub fn over(volume: Volume) -> Self {
        Self { volume: RwLock::new(Some(volume)) }
    }

    fn run<T>(&self, operation: impl FnOnce(&Volume) -> Result<T, Error>) -> Result<T, io::Error> {
        let volume = self.volume.read().unwrap_or_else(PoisonError::into_inner);
        let result = operation(volume.as_ref().ok_or(io::ErrorKind::NotConnected)?);
        drop(volume);
        result.map_err(|error| {
            self.stop();
            error.into()
        })
    }

    /// Ends write-back after a failure: redb reports the commit as failed, and its pages must not reach the file later.
    fn stop(&self) {
        let volume = self.volume.write().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_shared)) = volume.map(Volume::abandon) {
            // The program has another handle of the volume, and decides about its pages.
        }
    }
}

impl StorageBackend for VolumeBackend {
    fn len(&self) -> Result<u64, io::Error> {
        self.run(|volume| Ok(volume.size_bytes()))
    }

    fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>, io::Error> {
        let mut bytes = vec![0; len];
        self.run(|volume| volume.read_exact_at(&mut bytes, offset))?;
        Ok(bytes)
    }

    fn set_len(&self, len: u64) -> Result<(), io::Error> {
        self.run(|volume| volume.resize(len))
    }

    /// A flush is also a barrier: `eventual` asks for less.
    fn sync_data(&self, _eventual: bool) -> Result<(), io::Error> {
        self.run(Volume::flush)
    }

    fn write(&self, offset: u64, data: &[u8]) -> Result<(), io::Error> {
        self.run(|volume| volume.write_at(data, offset))
    }
}

fn refused(error: OpenError) -> DatabaseError {
    let error = io::Error::from(error);
    match error.kind() {
        io::ErrorKind::ResourceBusy => DatabaseError::DatabaseAlreadyOpen,
        _ => error.into(),
    }
}
