//! Measures SQLite over its VFS `unix` and over volumes of iopath: `cargo run --release --example compare -- DIRECTORY
//! [REPETITIONS] [ROW]...`. Prints a table.

#[path = "../../compare.rs"]
mod compare;

use compare::{Content, Meter, Row, Side};
use iopath_vfs::{Files, IopathVfs};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::{Connection, OpenFlags};
use sqlite_plugin::vfs::{RegisterOpts, register_static};
use std::path::Path;
use std::sync::Once;

const ROWS_LOADED: i64 = 200_000;
const VALUE_BYTES: usize = 400;

const SIDES: &[Side] = &["unix", "iopath"];

const ROWS: &[Row] = &[
    Row { name: "insert, 200 commits of one row, WAL", on: Content::Loaded, run: commits_wal },
    Row { name: "insert, 100 commits of one row, journal", on: Content::Loaded, run: commits_delete },
    Row { name: "insert, 100,000 rows in one commit, WAL", on: Content::Empty, run: bulk_wal },
    Row { name: "insert, 100,000 rows in one commit, journal", on: Content::Empty, run: bulk_delete },
    Row { name: "update, 10 commits of 1,000 random rows, WAL", on: Content::Loaded, run: update_wal },
    Row { name: "update, 10 commits of 1,000 random rows, journal", on: Content::Loaded, run: update_delete },
    Row { name: "cold scan of 200,000 rows", on: Content::ReadOnly, run: scan },
    Row { name: "cold, 5,000 random reads", on: Content::ReadOnly, run: cold_reads },
    Row { name: "warm, 100,000 random reads", on: Content::ReadOnly, run: warm_reads },
    Row { name: "warm scan of 200,000 rows", on: Content::ReadOnly, run: warm_scan },
    Row { name: "open, read a row, close: 500 times", on: Content::ReadOnly, run: reopen },
];

fn main() {
    compare::main(SIDES, ROWS, load);
}

fn open(path: &Path, side: Side) -> Connection {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // The whole database fits, as in the kernel's page cache.
        let vfs = IopathVfs::new(Files::with_cache(256 << 20));
        assert!(register_static(c"iopath".to_owned(), vfs, RegisterOpts { make_default: false }).is_ok());
    });
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, side).unwrap();
    connection
        .execute_batch("pragma synchronous = full; create table if not exists pairs (key integer primary key, value blob)")
        .unwrap();
    connection
}

fn open_with(path: &Path, side: Side, journal_mode: &str) -> Connection {
    let connection = open(path, side);
    let mode: String =
        connection.query_row(&format!("pragma journal_mode = {journal_mode}"), [], |row| row.get(0)).unwrap();
    assert_eq!(mode, journal_mode);
    connection
}

fn insert(connection: &mut Connection, keys: impl Iterator<Item = i64>) {
    let transaction = connection.transaction().unwrap();
    {
        let mut statement = transaction.prepare_cached("insert or replace into pairs values (?, ?)").unwrap();
        for key in keys {
            statement.execute((key, &[key as u8; VALUE_BYTES][..])).unwrap();
        }
    }
    transaction.commit().unwrap();
}

fn load(path: &Path) {
    insert(&mut open(path, "unix"), 0..ROWS_LOADED);
}

fn random_keys() -> impl Iterator<Item = i64> {
    let mut random = StdRng::seed_from_u64(1);
    std::iter::from_fn(move || Some(random.random_range(0..ROWS_LOADED)))
}

fn commits(meter: &mut Meter, mut connection: Connection, count: usize) {
    read_all(&connection);
    meter.start();
    for key in random_keys().take(count) {
        insert(&mut connection, std::iter::once(ROWS_LOADED + key));
    }
}

fn commits_wal(meter: &mut Meter, path: &Path, side: Side) {
    commits(meter, open_with(path, side, "wal"), 200);
}

fn commits_delete(meter: &mut Meter, path: &Path, side: Side) {
    commits(meter, open_with(path, side, "delete"), 100);
}

fn bulk_wal(_: &mut Meter, path: &Path, side: Side) {
    insert(&mut open_with(path, side, "wal"), random_keys().take(100_000));
}

fn bulk_delete(_: &mut Meter, path: &Path, side: Side) {
    insert(&mut open_with(path, side, "delete"), random_keys().take(100_000));
}

fn update(meter: &mut Meter, mut connection: Connection) {
    read_all(&connection);
    meter.start();
    let mut keys = random_keys();
    for _ in 0..10 {
        insert(&mut connection, keys.by_ref().take(1_000));
    }
}

fn update_wal(meter: &mut Meter, path: &Path, side: Side) {
    update(meter, open_with(path, side, "wal"));
}

fn update_delete(meter: &mut Meter, path: &Path, side: Side) {
    update(meter, open_with(path, side, "delete"));
}

fn read_all(connection: &Connection) {
    let bytes: i64 =
        connection.query_row("select sum(length(value)) from pairs", [], |row| row.get(0)).unwrap();
    assert_eq!(bytes, ROWS_LOADED * VALUE_BYTES as i64);
}

fn read(connection: &Connection, count: usize) {
    let mut statement = connection.prepare_cached("select value from pairs where key = ?").unwrap();
    for key in random_keys().take(count) {
        let value: Vec<u8> = statement.query_row([key], |row| row.get(0)).unwrap();
        assert_eq!(value[0], key as u8);
    }
}

fn scan(_: &mut Meter, path: &Path, side: Side) {
    read_all(&open(path, side));
}

fn cold_reads(_: &mut Meter, path: &Path, side: Side) {
    read(&open(path, side), 5_000);
}

fn warm_reads(meter: &mut Meter, path: &Path, side: Side) {
    let connection = open(path, side);
    read_all(&connection);
    meter.start();
    read(&connection, 100_000);
}

fn warm_scan(meter: &mut Meter, path: &Path, side: Side) {
    let connection = open(path, side);
    read_all(&connection);
    meter.start();
    read_all(&connection);
}

fn reopen(_: &mut Meter, path: &Path, side: Side) {
    for _ in 0..500 {
        read(&open(path, side), 1);
    }
}
