//! The VFS: opens files, finds those that are open already, and passes each call to its file.

use crate::open_file::OpenFile;
use crate::shm::Held;
use crate::store::{Opening, Role, Store};
use sqlite_plugin::flags::{AccessFlags, CreateMode, LockLevel, OpenKind, OpenMode, OpenOpts, ShmLockMode};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{Pragma, PragmaErr, Vfs, VfsHandle, VfsResult};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// `sqlite-plugin` passes paths of at most this many bytes, without the final zero.
const PATH_BYTES_MAX: usize = 511;

/// A page of the cache is the unit of write-back. It is a multiple of the blocks of all common devices.
const SECTOR_BYTES: i32 = 4096;

/// A VFS over a [`Store`].
pub struct IopathVfs {
    store: Box<dyn Store>,
    open: Mutex<HashMap<(u64, u64), Weak<OpenFile>>>,
    /// Databases whose connections asked for `PRAGMA synchronous = EXTRA`: the removal of their journals is synced.
    extra_sync: Mutex<HashSet<PathBuf>>,
    connections: AtomicU64,
}

/// A file that a connection has open.
pub struct Handle {
    content: Content,
    connection: u64,
    level: LockLevel,
    shm: Held,
    is_readonly: bool,
}

enum Content {
    Shared(Arc<OpenFile>),
    /// Temporary files die with the process and need no volume.
    Temporary(File),
}

impl VfsHandle for Handle {
    fn readonly(&self) -> bool {
        self.is_readonly
    }

    fn in_memory(&self) -> bool {
        false
    }
}

impl Handle {
    fn shared(&self) -> VfsResult<&Arc<OpenFile>> {
        match &self.content {
            Content::Shared(file) => Ok(file),
            Content::Temporary(_) => Err(vars::SQLITE_IOERR),
        }
    }
}

impl IopathVfs {
    /// A VFS over these files.
    pub fn new(store: impl Store + 'static) -> Self {
        Self {
            store: Box::new(store),
            open: Mutex::default(),
            extra_sync: Mutex::default(),
            connections: AtomicU64::new(0),
        }
    }

    fn files(&self) -> MutexGuard<'_, HashMap<(u64, u64), Weak<OpenFile>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn extra_sync(&self) -> MutexGuard<'_, HashSet<PathBuf>> {
        self.extra_sync.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn open_shared(&self, path: &Path, opening: Opening) -> VfsResult<Arc<OpenFile>> {
        // Locked during the opening, so that two connections never open two volumes.
        let mut files = self.files();
        let id = self.store.id(path);
        if let Some(file) = id.and_then(|id| files.get(&id)).and_then(Weak::upgrade) {
            return if opening.create_new { Err(vars::SQLITE_CANTOPEN) } else { Ok(file) };
        }
        let (volume, is_writable) = self.store.open(path, opening)?;
        let created = self.store.id(path).ok_or(vars::SQLITE_CANTOPEN)?;
        let file = Arc::new(OpenFile::new(volume, path.to_owned(), is_writable, id.is_none()));
        files.retain(|_, file| file.strong_count() > 0);
        files.insert(created, Arc::downgrade(&file));
        Ok(file)
    }

    fn handle(&self, content: Content, is_readonly: bool) -> Handle {
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        Handle { content, connection, level: LockLevel::Unlocked, shm: Held::default(), is_readonly }
    }

    /// Whether SQLite requires that the removal of this file is durable. The plugin does not pass the flag: SQLite sets
    /// it for the journal of a transaction over several databases, and with `synchronous = EXTRA`.
    fn must_sync_removal(&self, path: &Path) -> bool {
        let name = path.to_string_lossy();
        let is_super_journal = path.file_name().is_some_and(|name| name.to_string_lossy().contains("-mj"));
        let database = name.strip_suffix("-journal").map(PathBuf::from);
        is_super_journal || database.is_some_and(|database| self.extra_sync().contains(&database))
    }
}

/// The path. SQLite's is UTF-8; a name that is not was changed by the plugin.
fn path_of(name: &str) -> VfsResult<&Path> {
    if name.contains('\u{FFFD}') { Err(vars::SQLITE_CANTOPEN) } else { Ok(Path::new(name)) }
}

impl Vfs for IopathVfs {
    type Handle = Handle;

    fn canonical_path<'a>(&self, path: Cow<'a, str>) -> VfsResult<Cow<'a, str>> {
        let full = self.store.full_path(path_of(&path)?)?;
        let full = full.into_os_string().into_string().map_err(|_| vars::SQLITE_CANTOPEN)?;
        if full.len() > PATH_BYTES_MAX { Err(vars::SQLITE_CANTOPEN) } else { Ok(full.into()) }
    }

    fn open(&self, path: Option<&str>, opts: OpenOpts) -> VfsResult<Handle> {
        let role = match opts.kind() {
            OpenKind::MainDb => Role::Database,
            OpenKind::Wal => Role::Wal,
            OpenKind::MainJournal | OpenKind::SuperJournal => Role::Journal,
            _ => return self.open_temporary(),
        };
        let Some(path) = path.filter(|_| !opts.delete_on_close()) else { return self.open_temporary() };
        let (create, create_new) = match opts.mode() {
            OpenMode::ReadOnly => (false, false),
            OpenMode::ReadWrite { create } => (create != CreateMode::None, create == CreateMode::MustCreate),
        };
        let file = self.open_shared(path_of(path)?, Opening { role, create, create_new })?;
        let is_readonly = opts.mode().is_readonly() || !file.is_writable;
        Ok(self.handle(Content::Shared(file), is_readonly))
    }

    fn delete(&self, path: &str) -> VfsResult<()> {
        let path = path_of(path)?;
        self.store.delete(path)?;
        if self.must_sync_removal(path) { self.store.sync_directory_of(path) } else { Ok(()) }
    }

    /// As in SQLite's own VFS, an empty file does not exist: it is no journal.
    fn access(&self, path: &str, flags: AccessFlags) -> VfsResult<bool> {
        let path = path_of(path)?;
        Ok(match flags {
            // SQLite asks for a journal and a WAL before each read transaction: one system call if there is none.
            AccessFlags::Exists => self.store.id(path).is_some_and(|id| {
                let open = self.files().get(&id).and_then(Weak::upgrade).map(|file| file.len());
                open.or_else(|| self.store.len(path)).is_some_and(|bytes| bytes > 0)
            }),
            AccessFlags::Read => self.store.may_access(path, false),
            AccessFlags::ReadWrite => self.store.may_access(path, true),
        })
    }

    fn file_size(&self, handle: &mut Handle) -> VfsResult<usize> {
        let bytes = match &handle.content {
            Content::Shared(file) => file.len(),
            Content::Temporary(file) => file.metadata().map_err(|_| vars::SQLITE_IOERR_FSTAT)?.len(),
        };
        Ok(bytes as usize)
    }

    fn truncate(&self, handle: &mut Handle, size: usize) -> VfsResult<()> {
        match &handle.content {
            Content::Shared(file) => file.truncate(size as u64),
            Content::Temporary(file) => file.set_len(size as u64).map_err(|_| vars::SQLITE_IOERR_TRUNCATE),
        }
    }

    fn write(&self, handle: &mut Handle, offset: usize, data: &[u8]) -> VfsResult<usize> {
        match &handle.content {
            Content::Shared(file) => file.write(data, offset as u64)?,
            Content::Temporary(file) => {
                file.write_all_at(data, offset as u64).map_err(|_| vars::SQLITE_IOERR_WRITE)?;
            }
        }
        Ok(data.len())
    }

    fn read(&self, handle: &mut Handle, offset: usize, data: &mut [u8]) -> VfsResult<usize> {
        match &handle.content {
            Content::Shared(file) => file.read(data, offset as u64),
            Content::Temporary(file) => read_file(file, offset as u64, data),
        }
    }

    fn lock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        match &handle.content {
            Content::Shared(file) => file.locks().raise(handle.connection, &mut handle.level, level),
            Content::Temporary(_) => Ok(()),
        }
    }

    fn unlock(&self, handle: &mut Handle, level: LockLevel) -> VfsResult<()> {
        if let Content::Shared(file) = &handle.content {
            file.locks().lower(handle.connection, &mut handle.level, level);
        }
        Ok(())
    }

    fn check_reserved_lock(&self, handle: &mut Handle) -> VfsResult<bool> {
        Ok(match &handle.content {
            Content::Shared(file) => file.locks().is_reserved(),
            Content::Temporary(_) => false,
        })
    }

    fn sync(&self, handle: &mut Handle) -> VfsResult<()> {
        match &handle.content {
            Content::Shared(file) => file.sync(&*self.store),
            Content::Temporary(_) => Ok(()),
        }
    }

    fn close(&self, mut handle: Handle) -> VfsResult<()> {
        if let Content::Shared(file) = &handle.content {
            file.shm().unmap(&mut handle.shm);
            file.locks().lower(handle.connection, &mut handle.level, LockLevel::Unlocked);
        }
        // Under the lock, so that no other connection opens the file while its last pages are written.
        let _files = self.files();
        drop(handle);
        Ok(())
    }

    fn pragma(&self, handle: &mut Handle, pragma: Pragma<'_>) -> Result<Option<String>, PragmaErr> {
        if let (true, Some(value), Ok(file)) =
            (pragma.name.eq_ignore_ascii_case("synchronous"), pragma.arg, handle.shared())
        {
            let is_extra = value.eq_ignore_ascii_case("extra") || value == "3";
            if is_extra {
                self.extra_sync().insert(file.path.clone());
            }
        }
        // SQLite executes it.
        Err(PragmaErr::NotFound)
    }

    fn sector_size(&self, _handle: &mut Handle) -> VfsResult<i32> {
        Ok(SECTOR_BYTES)
    }

    /// The write-back of a changed page rewrites the unchanged bytes of its blocks in place, with the same values, as
    /// the kernel's page cache does: a power failure leaves them as they were. Nothing else is promised.
    fn device_characteristics(&self, _handle: &mut Handle) -> VfsResult<i32> {
        Ok(vars::SQLITE_IOCAP_POWERSAFE_OVERWRITE)
    }

    fn shm_map(
        &self,
        handle: &mut Handle,
        region_idx: usize,
        region_size: usize,
        extend: bool,
    ) -> VfsResult<Option<NonNull<u8>>> {
        let file = Arc::clone(handle.shared()?);
        Ok(file.shm().map(&mut handle.shm, region_idx, region_size, extend))
    }

    fn shm_lock(&self, handle: &mut Handle, offset: u32, count: u32, mode: ShmLockMode) -> VfsResult<()> {
        let file = Arc::clone(handle.shared()?);
        file.shm().lock(&mut handle.shm, offset, count, mode)
    }

    fn shm_barrier(&self, _handle: &mut Handle) {
        fence(Ordering::SeqCst);
    }

    fn shm_unmap(&self, handle: &mut Handle, _delete: bool) -> VfsResult<()> {
        let file = Arc::clone(handle.shared()?);
        file.shm().unmap(&mut handle.shm);
        Ok(())
    }
}

impl IopathVfs {
    fn open_temporary(&self) -> VfsResult<Handle> {
        let file = tempfile::tempfile().map_err(|_| vars::SQLITE_CANTOPEN)?;
        Ok(self.handle(Content::Temporary(file), false))
    }
}

/// Fewer bytes only at the end.
fn read_file(file: &File, offset: u64, buffer: &mut [u8]) -> VfsResult<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(bytes) => done += bytes,
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return Err(vars::SQLITE_IOERR_READ),
        }
    }
    Ok(done)
}
