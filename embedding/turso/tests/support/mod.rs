//! A table of Turso with a model, over files, and over disks in memory whose power can fail.

#![allow(dead_code, reason = "each test program uses a part")]

use iopath::testing::{Faults, MemoryConfig, MemoryDisk};
use iopath::{IoMode, OpenError, Options, Volume};
use iopath_turso::VolumeIo;
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use turso_core::{ConnectOpts, Connection, Database, IO, OpenFlags, Result, SqliteDialect};

/// The rows that the table must have: the value as hexadecimal digits.
pub type Model = BTreeMap<i64, String>;

/// The seed of a test: the variable `SEED`, or a new one. Printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    println!("SEED={seed}");
    seed
}

/// Opens or creates a database with the table `pairs`. The database ends with the last of the two.
pub fn connect(io: &Arc<dyn IO>, path: &Path) -> Result<(Arc<Database>, Arc<Connection>)> {
    let path = path.to_str().expect("the tests have paths of UTF-8");
    let database = Database::open_file(Arc::clone(io), path, Arc::new(SqliteDialect))?;
    let connection = database.connect(ConnectOpts::new())?;
    connection.execute("create table if not exists pairs (key integer primary key, value blob)")?;
    Ok((database, connection))
}

/// A transaction of a few random changes, at times rolled back. Changes `model` as the table, also if the commit fails.
pub fn transaction(connection: &Arc<Connection>, model: &mut Model, random: &mut StdRng) -> Result<()> {
    let is_rolled_back = random.random_bool(0.1);
    let mut next = model.clone();
    connection.execute("begin")?;
    let changed = changes(connection, &mut next, random);
    if changed.is_err() || is_rolled_back {
        let ended = connection.execute("rollback");
        return changed.and(ended);
    }
    // Also if the commit fails: it may be complete.
    *model = next;
    connection.execute("commit")
}

fn changes(connection: &Arc<Connection>, model: &mut Model, random: &mut StdRng) -> Result<()> {
    for _ in 0..random.random_range(1..20) {
        let key = random.random_range(0..200);
        if random.random_bool(0.3) {
            connection.execute(format!("delete from pairs where key = {key}"))?;
            model.remove(&key);
        } else {
            let bytes = *[10, 200, 3_000, 20_000].choose(random).expect("there are sizes");
            let value = format!("{:02X}", random.random::<u8>()).repeat(bytes);
            connection.execute(format!("insert or replace into pairs values ({key}, x'{value}')"))?;
            model.insert(key, value);
        }
    }
    Ok(())
}

/// The rows of the table, after Turso has checked the database.
pub fn content(connection: &Arc<Connection>) -> Model {
    assert_eq!(texts(connection, "pragma integrity_check"), ["ok"]);
    let mut model = Model::new();
    let mut statement = connection.prepare("select key, hex(value) from pairs").unwrap();
    let row = statement.run_with_row_callback(|row| {
        model.insert(row.get::<i64>(0)?, row.get::<String>(1)?);
        Ok(())
    });
    row.unwrap();
    model
}

/// The first column of a query.
pub fn texts(connection: &Arc<Connection>, sql: &str) -> Vec<String> {
    let mut texts = Vec::new();
    let mut statement = connection.prepare(sql).unwrap();
    let row = statement.run_with_row_callback(|row| {
        texts.push(row.get::<String>(0)?);
        Ok(())
    });
    row.unwrap();
    texts
}

/// Panics with the first difference, because both maps are too large to print.
pub fn assert_same(found: &Model, expected: &Model, when: &str) {
    if found != expected {
        let differs = |key: &&i64| found.get(key) != expected.get(key);
        let key = found.keys().chain(expected.keys()).find(differs).expect("the maps differ");
        let digits = |model: &Model| model.get(key).map(String::len);
        let (found, expected) = (digits(found), digits(expected));
        panic!("{when}: key {key} has {found:?} digits, expected {expected:?}, or others of the same number");
    }
}

/// Disks in memory, one for each path. The names are durable at once; the power can fail.
#[derive(Clone)]
pub struct Disks {
    disks: Arc<Mutex<HashMap<PathBuf, MemoryDisk>>>,
    pub faults: Faults,
}

impl Disks {
    pub fn new(seed: u64) -> Self {
        Self { disks: Arc::default(), faults: Faults::new(seed) }
    }

    /// Each sector keeps a random one of its unsaved versions.
    pub fn crash(&self, random: &mut StdRng) {
        for disk in self.disks.lock().unwrap_or_else(PoisonError::into_inner).values() {
            disk.crash(|versions| random.random_range(0..=versions));
        }
    }

    /// The I/O of a process: it ends with the power.
    pub fn io(&self) -> Arc<dyn IO> {
        let disks = self.clone();
        Arc::new(VolumeIo::new(move |path, flags| disks.open(path, flags)))
    }

    fn open(&self, path: &Path, flags: OpenFlags) -> Result<Volume, OpenError> {
        let mut disks = self.disks.lock().unwrap_or_else(PoisonError::into_inner);
        if !disks.contains_key(path) {
            if !flags.contains(OpenFlags::Create) {
                let options = Options::new();
                return Volume::open("/nonexistent/file", &options);
            }
            let config =
                MemoryConfig { block_bytes: 4096, cache_bytes: 16 << 20, ..MemoryConfig::of_bytes(0) };
            disks.insert(path.to_owned(), MemoryDisk::new(&config)?);
        }
        let options = Options::new().mode(IoMode::Buffered).cache_bytes(256 << 10).extend(true);
        Volume::memory(&disks[path], &options.faults(&self.faults))
    }
}
