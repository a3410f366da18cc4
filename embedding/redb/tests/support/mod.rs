//! Random transactions on a database of redb, and the same on maps of the standard library.

#![allow(dead_code, reason = "each test program uses a part")]

use anyhow::Result;
use rand::Rng;
use rand::rngs::StdRng;
use redb::{Database, ReadableTable, TableDefinition};
use std::collections::BTreeMap;

/// The table of all tests.
pub const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("pairs");

/// The pairs that the database must contain.
pub type Model = BTreeMap<u64, Vec<u8>>;

/// The seed of a test: the variable `SEED`, or a new one. Printed, so that a failure can be repeated.
pub fn seed() -> u64 {
    let given = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| rand::rng().random());
    println!("SEED={seed}");
    seed
}

/// A transaction of a few random inserts and removals. Changes `model` as the database.
pub fn transaction(database: &Database, model: &mut Model, keys: u64, random: &mut StdRng) -> Result<()> {
    let transaction = database.begin_write()?;
    {
        let mut table = transaction.open_table(TABLE)?;
        for _ in 0..random.random_range(1..40) {
            let key = random.random_range(0..keys);
            if random.random_bool(0.3) {
                let removed = table.remove(key)?.map(|value| value.value().to_vec());
                assert_eq!(removed, model.remove(&key));
            } else {
                let value = value(random);
                table.insert(key, &value[..])?;
                model.insert(key, value);
            }
        }
    }
    transaction.commit()?;
    Ok(())
}

/// Values of a page or more are rare.
fn value(random: &mut StdRng) -> Vec<u8> {
    let bytes = match random.random_range(0..20) {
        0 => random.random_range(4_000..40_000),
        1..=4 => random.random_range(300..2_000),
        _ => random.random_range(0..100),
    };
    let first = random.random::<u8>();
    (0..bytes).map(|index| first.wrapping_add(index as u8)).collect()
}

/// The pairs of the database.
pub fn content(database: &Database) -> Result<Model> {
    let transaction = database.begin_read()?;
    let table = match transaction.open_table(TABLE) {
        Ok(table) => table,
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Model::new()),
        Err(error) => return Err(error.into()),
    };
    let pairs = table.iter()?.map(|pair| {
        let (key, value) = pair?;
        Ok((key.value(), value.value().to_vec()))
    });
    pairs.collect()
}

/// Panics with the first difference, because both maps are too large to print.
pub fn assert_same(found: &Model, expected: &Model, when: &str) {
    if found != expected {
        let differs = |key: &&u64| found.get(key) != expected.get(key);
        let key = found.keys().chain(expected.keys()).find(differs).expect("the maps differ");
        let bytes = |model: &Model| model.get(key).map(Vec::len);
        let (found_bytes, expected_bytes) = (bytes(found), bytes(expected));
        panic!(
            "{when}: key {key} has {found_bytes:?} bytes, expected {expected_bytes:?}, or others of the same number"
        );
    }
}
