//! Random transactions against a model: reopened, beside Turso's own I/O, after power failures.

mod support;

use iopath::testing::Fault;
use iopath::{IoError, Op};
use iopath_turso::VolumeIo;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use support::{Disks, Model, assert_same, connect, content, seed, texts, transaction};
use turso_core::{IO, UnixIO};

#[test]
fn reopened_databases_have_every_committed_row() {
    let mut random = StdRng::seed_from_u64(seed());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    let own: Arc<dyn IO> = Arc::new(UnixIO::new().unwrap());
    let io: Arc<dyn IO> = Arc::new(VolumeIo::of_files(1 << 20));
    let mut model = Model::new();
    for round in 0..8 {
        // Every fourth time, Turso's own I/O continues the database.
        let io = if round % 4 == 3 { &own } else { &io };
        let (_database, connection) = connect(io, &path).unwrap();
        assert_same(&content(&connection), &model, &format!("round {round}"));
        for _ in 0..20 {
            transaction(&connection, &mut model, &mut random).unwrap();
        }
        if random.random_bool(0.3) {
            connection.execute("pragma wal_checkpoint(truncate)").unwrap();
        }
        assert_same(&content(&connection), &model, &format!("end of round {round}"));
        connection.close().unwrap();
    }
    // SQLite reads the same file. The test needs the program `sqlite3`.
    let sql = "pragma integrity_check; select count(*) from pairs;";
    let Ok(output) = Command::new("sqlite3").arg(&path).arg(sql).output() else {
        return eprintln!("no program sqlite3");
    };
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("ok\n{}\n", model.len()));
}

/// The same statements have the same results as with Turso's own I/O.
#[test]
fn queries_have_the_results_of_own_io() {
    let seed = seed();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let ios: [Arc<dyn IO>; 2] = [Arc::new(UnixIO::new().unwrap()), Arc::new(VolumeIo::of_files(1 << 20))];
    let results = ios.iter().enumerate().map(|(number, io)| {
        let mut random = StdRng::seed_from_u64(seed);
        let (_database, connection) = connect(io, &directory.path().join(number.to_string())).unwrap();
        let mut found = Vec::new();
        let mut model = Model::new();
        connection.execute("create index by_length on pairs (length(value))").ok();
        for _ in 0..40 {
            transaction(&connection, &mut model, &mut random).unwrap();
            for sql in [
                "select cast(count(*) as text) from pairs",
                "select cast(total(key * length(value)) as text) from pairs where key % 3 = 1",
                "select length(value) || ':' || group_concat(key) from pairs group by length(value) order by 1",
                "select a.key || '-' || b.key from pairs a join pairs b on b.key = a.key + 1 order by a.key",
            ] {
                found.push(texts(&connection, sql));
            }
        }
        found
    });
    let results: Vec<_> = results.collect();
    assert!(results[0].iter().any(|texts| texts.len() > 3));
    assert!(results[0] == results[1], "a query has another result than with Turso's own I/O");
}

/// The power fails between transactions or within one. Each reported commit is complete, an unreported one is complete
/// or has no effect.
#[test]
fn a_power_failure_loses_no_reported_commit() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut kept, mut undone) = (0, 0);
    let disks = Disks::new(seed);
    let path = Path::new("/iopath-turso/data.db");
    let mut model = Model::new();
    for round in 0..60 {
        let (database, connection) = connect(&disks.io(), path).unwrap();
        assert_same(&content(&connection), &model, &format!("round {round}"));
        for _ in 0..random.random_range(0..6) {
            transaction(&connection, &mut model, &mut random).unwrap();
        }
        if random.random_bool(0.5) {
            disks.faults.add(Fault::error(IoError::Media).on(Op::Write).one_in(random.random_range(2..40)));
            disks.faults.add(Fault::error(IoError::Media).on(Op::Flush).one_in(3));
        }
        let mut next = model.clone();
        let is_committed = transaction(&connection, &mut next, &mut random).is_ok();
        disks.crash(&mut random);
        drop((connection, database));
        disks.faults.stop();
        let (_database, connection) = connect(&disks.io(), path).unwrap();
        let found = content(&connection);
        if is_committed || found == next {
            assert_same(&found, &next, &format!("round {round}, committed: {is_committed}"));
            (model, kept) = (next, kept + 1);
        } else {
            assert_same(&found, &model, &format!("round {round}, committed: {is_committed}"));
            undone += 1;
        }
    }
    assert!(kept > 0 && undone > 0, "both outcomes occur: {kept} kept, {undone} undone");
}
