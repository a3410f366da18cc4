//! Registers the VFS over files, or over disks in memory whose power can fail, and a table with a model.

#![allow(dead_code, reason = "each test program uses a part")]

use iopath::testing::{Faults, MemoryConfig, MemoryDisk};
use iopath::{IoMode, Options, Volume};
use iopath_vfs::{Files, IopathVfs, Opening, Role, Store};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rusqlite::{Connection, OpenFlags, params};
use sqlite_plugin::vars;
use sqlite_plugin::vfs::{RegisterOpts, VfsResult, register_static};
use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once};

/// The rows that the table must have.
pub type Model = BTreeMap<i64, Vec<u8>>;

/// The journal modes of SQLite that write a file.
pub const JOURNAL_MODES: [&str; 4] = ["delete", "truncate", "persist", "wal"];

/// The seed of a test: the variable `SEED`, or a new one. Printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    println!("SEED={seed}");
    seed
}

/// Registers the VFS `iopath` over the files of the system, once.
pub fn register_files() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| register("iopath", Files::default()));
}

/// Registers a VFS.
pub fn register(name: &str, store: impl Store + 'static) {
    let name = CString::new(name).unwrap();
    let options = RegisterOpts { make_default: false };
    assert!(register_static(name, IopathVfs::new(store), options).is_ok(), "SQLite refuses the VFS");
}

/// Opens or creates a database through the VFS with that name.
pub fn connect(vfs: &str, path: &Path, journal_mode: &str) -> rusqlite::Result<Connection> {
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, vfs)?;
    let mode: String =
        connection.query_row(&format!("pragma journal_mode = {journal_mode}"), [], |row| row.get(0))?;
    assert_eq!(mode, journal_mode);
    connection.execute_batch(
        "pragma synchronous = extra; pragma cache_size = 20;
         create table if not exists pairs (key integer primary key, value blob);
         create index if not exists by_length on pairs (length(value));",
    )?;
    Ok(connection)
}

/// A transaction of a few random changes, at times rolled back. Changes `model` as the table, also if the commit fails.
pub fn transaction(
    connection: &mut Connection,
    model: &mut Model,
    random: &mut StdRng,
) -> rusqlite::Result<()> {
    let is_rolled_back = random.random_bool(0.1);
    let mut next = model.clone();
    let transaction = connection.transaction()?;
    for _ in 0..random.random_range(1..20) {
        let key = random.random_range(0..400);
        if random.random_bool(0.3) {
            transaction.execute("delete from pairs where key = ?", [key])?;
            next.remove(&key);
        } else {
            let bytes = *[10, 200, 3_000, 20_000].choose(random).expect("there are sizes");
            let first = random.random::<u8>();
            let value: Vec<u8> = (0..bytes).map(|index| first.wrapping_add(index as u8)).collect();
            transaction.execute("insert or replace into pairs values (?, ?)", params![key, value])?;
            next.insert(key, value);
        }
    }
    if is_rolled_back {
        return transaction.rollback();
    }
    // Also if the commit fails: it may be complete.
    *model = next;
    transaction.commit()
}

/// The rows of the table, after SQLite has checked the database.
pub fn content(connection: &Connection) -> Model {
    let result: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(result, "ok");
    let mut statement = connection.prepare("select key, value from pairs").unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
    rows.collect::<rusqlite::Result<_>>().unwrap()
}

/// Panics with the first difference, because both maps are too large to print.
pub fn assert_same(found: &Model, expected: &Model, when: &str) {
    if found != expected {
        let differs = |key: &&i64| found.get(key) != expected.get(key);
        let key = found.keys().chain(expected.keys()).find(differs).expect("the maps differ");
        let bytes = |model: &Model| model.get(key).map(Vec::len);
        let (found_bytes, expected_bytes) = (bytes(found), bytes(expected));
        panic!(
            "{when}: key {key} has {found_bytes:?} bytes, expected {expected_bytes:?}, or others of the same number"
        );
    }
}

/// Files on disks in memory, with a directory. The power can fail.
#[derive(Clone)]
pub struct Disks {
    directory: Arc<Mutex<Directory>>,
    /// Faults of all disks.
    pub faults: Faults,
}

#[derive(Default)]
struct Directory {
    disks: Vec<MemoryDisk>,
    /// The number of the disk of each file.
    names: HashMap<PathBuf, usize>,
    /// The names as last synced.
    durable: HashMap<PathBuf, usize>,
}

impl Disks {
    pub fn new(seed: u64) -> Self {
        Self { directory: Arc::default(), faults: Faults::new(seed) }
    }

    fn directory(&self) -> MutexGuard<'_, Directory> {
        self.directory.lock().unwrap()
    }

    /// The power fails: each sector keeps a random one of its unsaved versions, and each unsynced change of the
    /// directory is lost or kept.
    pub fn crash(&self, random: &mut StdRng) {
        let mut directory = self.directory();
        for disk in &directory.disks {
            disk.crash(|versions| random.random_range(0..=versions));
        }
        let Directory { names, durable, .. } = &mut *directory;
        let all: Vec<PathBuf> = names.keys().chain(durable.keys()).cloned().collect();
        for path in all {
            let from = if random.random_bool(0.5) { &*names } else { &*durable };
            match from.get(&path).copied() {
                Some(disk) => durable.insert(path, disk),
                None => durable.remove(&path),
            };
        }
        *names = durable.clone();
    }
}

impl Store for Disks {
    fn open(&self, path: &Path, opening: Opening) -> VfsResult<(Volume, bool)> {
        let mut directory = self.directory();
        let known = directory.names.get(path).copied();
        let number = match known {
            Some(_) if opening.create_new => return Err(vars::SQLITE_CANTOPEN),
            Some(number) => number,
            None if !opening.create => return Err(vars::SQLITE_CANTOPEN),
            None => {
                let config =
                    MemoryConfig { block_bytes: 4096, cache_bytes: 16 << 20, ..MemoryConfig::of_bytes(0) };
                directory.disks.push(MemoryDisk::new(&config).map_err(|_| vars::SQLITE_NOMEM)?);
                let number = directory.disks.len() - 1;
                directory.names.insert(path.to_owned(), number);
                number
            }
        };
        let cache_bytes = if opening.role == Role::Database { 256 << 10 } else { 64 << 10 };
        let options = Options::new().mode(IoMode::Buffered).cache_bytes(cache_bytes).extend(true);
        let volume = Volume::memory(&directory.disks[number], &options.faults(&self.faults));
        volume.map(|volume| (volume, true)).map_err(|_| vars::SQLITE_CANTOPEN)
    }

    fn id(&self, path: &Path) -> Option<(u64, u64)> {
        self.directory().names.get(path).map(|&number| (0, number as u64))
    }

    fn len(&self, path: &Path) -> Option<u64> {
        let directory = self.directory();
        directory.names.get(path).map(|&number| directory.disks[number].size_bytes())
    }

    fn may_access(&self, path: &Path, _write: bool) -> bool {
        self.directory().names.contains_key(path)
    }

    fn delete(&self, path: &Path) -> VfsResult<()> {
        let removed = self.directory().names.remove(path);
        removed.map(|_| ()).ok_or(vars::SQLITE_IOERR_DELETE_NOENT)
    }

    fn sync_directory_of(&self, _path: &Path) -> VfsResult<()> {
        let mut directory = self.directory();
        directory.durable = directory.names.clone();
        Ok(())
    }

    fn full_path(&self, path: &Path) -> VfsResult<PathBuf> {
        Ok(path.to_owned())
    }
}
