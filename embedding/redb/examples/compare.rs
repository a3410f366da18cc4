//! Measures redb over its own file backend and over volumes of iopath: `cargo run --release --example compare --
//! DIRECTORY [REPETITIONS] [ROW]...`. Prints a table.

#[path = "../../compare.rs"]
mod compare;

use compare::{Content, Meter, Row, Side};
use iopath::{Context, IoMode, Options, Unaligned, Volume};
use iopath_redb::VolumeBackend;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, ReadableTable, ReadableTableMetadata, TableDefinition};
use std::path::Path;
use std::sync::LazyLock;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("pairs");
const PAIRS: u64 = 300_000;
const VALUE_BYTES: usize = 400;
/// redb's own cache. The database is larger, so that the storage is measured.
const CACHE_BYTES: usize = 32 << 20;

const SIDES: &[Side] = &["file", "buffered"];

const ROWS: &[Row] = &[
    Row { name: "insert, 200 commits of one pair", on: Content::Loaded, run: commits },
    Row { name: "insert, 100,000 pairs in one commit", on: Content::Empty, run: bulk },
    Row { name: "update, 10 commits of 1,000 random pairs", on: Content::Loaded, run: update },
    Row { name: "cold scan of 300,000 pairs", on: Content::ReadOnly, run: scan },
    Row { name: "cold, 5,000 random reads", on: Content::ReadOnly, run: cold_reads },
    Row { name: "warm, 100,000 random reads", on: Content::ReadOnly, run: warm_reads },
    Row { name: "warm scan of 300,000 pairs", on: Content::ReadOnly, run: warm_scan },
    Row { name: "open, read a pair, close: 100 times", on: Content::ReadOnly, run: reopen },
];

fn main() {
    compare::main(SIDES, ROWS, load);
}

fn open(path: &Path, side: Side) -> Database {
    let mut builder = Database::builder();
    builder.set_cache_size(CACHE_BYTES);
    let options = Options::new().write(true).create(0).lock(true);
    let backend = |options: &Options| VolumeBackend::over(Volume::open(path, options).unwrap());
    match side {
        "file" => builder.create(path).unwrap(),
        "bounced" => builder.create_with_backend(backend(&options.unaligned(Unaligned::Bounce))).unwrap(),
        _ => {
            // The whole database fits, as in the kernel's page cache, and stays there while it is closed.
            static CONTEXT: LazyLock<Context> = LazyLock::new(|| {
                let context = Context::new(512 << 20);
                context.keep_closed(1);
                context
            });
            let options = options.mode(IoMode::Buffered).cache_bytes(512 << 20).context(&CONTEXT);
            builder.create_with_backend(backend(&options)).unwrap()
        }
    }
}

fn insert(database: &Database, keys: impl Iterator<Item = u64>) {
    let transaction = database.begin_write().unwrap();
    {
        let mut table = transaction.open_table(TABLE).unwrap();
        for key in keys {
            table.insert(key, &[key as u8; VALUE_BYTES][..]).unwrap();
        }
    }
    transaction.commit().unwrap();
}

fn load(path: &Path) {
    insert(&open(path, "file"), 0..PAIRS);
}

fn random_keys() -> impl Iterator<Item = u64> {
    let mut random = StdRng::seed_from_u64(1);
    std::iter::from_fn(move || Some(random.random_range(0..PAIRS)))
}

fn commits(meter: &mut Meter, path: &Path, side: Side) {
    let database = open(path, side);
    read_all(&database);
    meter.start();
    for key in random_keys().take(200) {
        insert(&database, std::iter::once(PAIRS + key));
    }
}

fn bulk(_: &mut Meter, path: &Path, side: Side) {
    insert(&open(path, side), random_keys().take(100_000));
}

fn update(meter: &mut Meter, path: &Path, side: Side) {
    let database = open(path, side);
    read_all(&database);
    meter.start();
    let mut keys = random_keys();
    for _ in 0..10 {
        insert(&database, keys.by_ref().take(1_000));
    }
}

fn read_all(database: &Database) {
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    let sum: usize = table.iter().unwrap().map(|pair| pair.unwrap().1.value().len()).sum();
    assert_eq!(sum as u64, table.len().unwrap() * VALUE_BYTES as u64);
}

fn read(database: &Database, count: usize) {
    let table = database.begin_read().unwrap().open_table(TABLE).unwrap();
    for key in random_keys().take(count) {
        assert_eq!(table.get(key).unwrap().unwrap().value()[0], key as u8);
    }
}

fn scan(_: &mut Meter, path: &Path, side: Side) {
    read_all(&open(path, side));
}

fn cold_reads(_: &mut Meter, path: &Path, side: Side) {
    read(&open(path, side), 5_000);
}

fn warm_reads(meter: &mut Meter, path: &Path, side: Side) {
    let database = open(path, side);
    read_all(&database);
    meter.start();
    read(&database, 100_000);
}

fn warm_scan(meter: &mut Meter, path: &Path, side: Side) {
    let database = open(path, side);
    read_all(&database);
    meter.start();
    read_all(&database);
}

fn reopen(_: &mut Meter, path: &Path, side: Side) {
    for _ in 0..100 {
        read(&open(path, side), 1);
    }
}
