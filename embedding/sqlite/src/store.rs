//! Where the files of databases are: in the filesystem, or, for tests, on disks in memory.

use iopath::{Context, IoMode, OpenError, Options, Volume};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::VfsResult;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The variable with the memory of the page cache of each database, in bytes.
const CACHE_VARIABLE: &str = "IOPATH_VFS_CACHE_BYTES";
const CACHE_BYTES: u64 = 64 << 20;

/// Journals are written in order and synced at each commit: they need no more.
const JOURNAL_CACHE_BYTES: u64 = 1 << 20;

/// The purpose of a file, as far as the VFS distinguishes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A database: locked against other processes.
    Database,
    /// A rollback journal, or the journal of a transaction over several databases.
    Journal,
    /// A write-ahead log.
    Wal,
}

/// How to open a file.
#[derive(Debug, Clone, Copy)]
pub struct Opening {
    /// Its purpose.
    pub role: Role,
    /// Create it if it is missing.
    pub create: bool,
    /// Fail if it exists.
    pub create_new: bool,
}

/// The files of databases, by path.
pub trait Store: Send + Sync {
    /// Opens a file for reading and writing, or for reading if its permissions allow no more. Returns whether it is
    /// writable.
    ///
    /// # Errors
    /// A code of SQLite.
    fn open(&self, path: &Path, opening: Opening) -> VfsResult<(Volume, bool)>;

    /// The identity of a file, the same for all paths that lead to it. `None` if there is no such file.
    fn id(&self, path: &Path) -> Option<(u64, u64)>;

    /// The length of a file that is not open, or `None` if there is no such file.
    fn len(&self, path: &Path) -> Option<u64>;

    /// Whether a file may be read, and, if `write` is set, written.
    fn may_access(&self, path: &Path, write: bool) -> bool;

    /// Removes a file.
    ///
    /// # Errors
    /// A code of SQLite.
    fn delete(&self, path: &Path) -> VfsResult<()>;

    /// Makes the creation and removal of a file durable.
    ///
    /// # Errors
    /// A code of SQLite.
    fn sync_directory_of(&self, path: &Path) -> VfsResult<()>;

    /// The full path of a file, with symbolic links resolved.
    ///
    /// # Errors
    /// A code of SQLite.
    fn full_path(&self, path: &Path) -> VfsResult<PathBuf>;
}

/// The page caches of the process have as much memory together as this many databases alone.
const DATABASES: u64 = 4;

/// The number of databases whose pages stay in memory after their last connection is closed.
const KEPT_DATABASES: usize = 16;

/// The files of the system.
#[derive(Debug)]
pub struct Files {
    cache_bytes: u64,
    /// Opening a file is cheap in a context: SQLite opens a journal for each transaction.
    context: Context,
}

impl Default for Files {
    fn default() -> Self {
        Self::with_cache(CACHE_BYTES)
    }
}

impl Files {
    /// The page cache of each database, and of its WAL, has at most 64 MiB, or as many bytes as
    /// `IOPATH_VFS_CACHE_BYTES` states.
    pub fn from_env() -> Self {
        let given = std::env::var(CACHE_VARIABLE).ok().and_then(|bytes| bytes.parse().ok());
        Self::with_cache(given.unwrap_or(CACHE_BYTES))
    }

    /// The page cache of each database, and of its WAL, has at most this size.
    pub fn with_cache(bytes: u64) -> Self {
        let context = Context::new(bytes.saturating_mul(DATABASES));
        // Databases are locked: no other program that uses SQLite writes to one that is open.
        context.keep_closed(KEPT_DATABASES);
        Self { cache_bytes: bytes, context }
    }

    fn options(&self, path: &Path, role: Role) -> Options {
        let options = Options::new().mode(IoMode::Buffered).context(&self.context);
        match role {
            Role::Database => options.cache_bytes(self.cache_bytes).lock(true).file_mode(0o644),
            // Has the pages of commits since the last checkpoint, and those that a transaction larger than SQLite's own
            // cache reads back.
            Role::Wal => options.cache_bytes(self.cache_bytes).file_mode(mode_of_database(path)),
            Role::Journal => options.cache_bytes(JOURNAL_CACHE_BYTES).file_mode(mode_of_database(path)),
        }
    }
}

impl Store for Files {
    fn open(&self, path: &Path, opening: Opening) -> VfsResult<(Volume, bool)> {
        let options = self.options(path, opening.role);
        let writable = match opening {
            Opening { create_new: true, .. } => options.clone().create_new(0),
            Opening { create: true, .. } => options.clone().create(0),
            _ => options.clone(),
        };
        match Volume::open(path, &writable.extend(true)) {
            Ok(volume) => return Ok((volume, true)),
            Err(error) if !is_denied(&error) || opening.create_new => return Err(code_of(&error)),
            Err(_) => {}
        }
        Volume::open(path, &options).map(|volume| (volume, false)).map_err(|error| code_of(&error))
    }

    fn id(&self, path: &Path) -> Option<(u64, u64)> {
        fs::metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
    }

    fn len(&self, path: &Path) -> Option<u64> {
        fs::metadata(path).ok().map(|metadata| metadata.len())
    }

    fn may_access(&self, path: &Path, write: bool) -> bool {
        let access = if write { rustix::fs::Access::WRITE_OK } else { rustix::fs::Access::empty() };
        rustix::fs::access(path, rustix::fs::Access::READ_OK | access).is_ok()
    }

    fn delete(&self, path: &Path) -> VfsResult<()> {
        fs::remove_file(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => vars::SQLITE_IOERR_DELETE_NOENT,
            _ => vars::SQLITE_IOERR_DELETE,
        })
    }

    fn sync_directory_of(&self, path: &Path) -> VfsResult<()> {
        let directory = path.parent().unwrap_or(Path::new("/"));
        File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|_| vars::SQLITE_IOERR_DIR_FSYNC)
    }

    fn full_path(&self, path: &Path) -> VfsResult<PathBuf> {
        if let Ok(full) = fs::canonicalize(path) {
            return Ok(full);
        }
        let full = std::path::absolute(path).map_err(|_| vars::SQLITE_CANTOPEN)?;
        let (Some(directory), Some(name)) = (full.parent(), full.file_name()) else {
            return Err(vars::SQLITE_CANTOPEN);
        };
        Ok(fs::canonicalize(directory).map_or_else(|_| full.clone(), |directory| directory.join(name)))
    }
}

/// Journals and WALs have the permissions of their database.
fn mode_of_database(path: &Path) -> u32 {
    let name = path.to_string_lossy();
    let database = name.strip_suffix("-journal").or_else(|| name.strip_suffix("-wal"));
    let metadata = database.and_then(|database| fs::metadata(database).ok());
    metadata.map_or(0o644, |metadata| metadata.mode() & 0o777)
}

fn is_denied(error: &OpenError) -> bool {
    use rustix::io::Errno;
    let refused = [Errno::ACCESS, Errno::PERM, Errno::ROFS].map(Errno::raw_os_error);
    refused.contains(&error.errno())
}

fn code_of(error: &OpenError) -> i32 {
    match error {
        // Another process has locked the file, or another page cache of this process writes to it.
        OpenError::Refused(_) | OpenError::SecondCache(_) => vars::SQLITE_BUSY,
        OpenError::Memory(_) => vars::SQLITE_NOMEM,
        _ => vars::SQLITE_CANTOPEN,
    }
}
