//! Random transactions against a model, in each journal mode: reopened, with several connections, after power failures.

mod support;

use iopath::testing::Fault;
use iopath::{IoError, Op};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::ErrorCode;
use std::path::Path;
use std::process::Command;
use support::{
    Disks, JOURNAL_MODES, Model, assert_same, connect, content, register, register_files, seed, transaction,
};

#[test]
fn reopened_databases_have_every_committed_row() {
    register_files();
    let mut random = StdRng::seed_from_u64(seed());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    let mut model = Model::new();
    for round in 0..8 {
        // The file keeps its content when the journal mode changes.
        let mode = JOURNAL_MODES[round % JOURNAL_MODES.len()];
        let mut connection = connect("iopath", &path, mode).unwrap();
        assert_same(&content(&connection), &model, &format!("round {round}"));
        for _ in 0..12 {
            transaction(&mut connection, &mut model, &mut random).unwrap();
        }
        if random.random_bool(0.3) {
            connection.execute_batch("vacuum").unwrap();
        }
        assert_same(&content(&connection), &model, &format!("end of round {round}"));
    }
    // SQLite's own VFS reads the same file.
    let connection = rusqlite::Connection::open(&path).unwrap();
    assert_same(&content(&connection), &model, "through the VFS of SQLite");
}

/// Threads with connections of their own increase a counter; no increase is lost, and a reader sees whole transactions.
#[test]
fn connections_of_one_process_share_a_database() {
    const THREADS: i64 = 4;
    const INCREASES: i64 = 50;
    register_files();
    for mode in JOURNAL_MODES {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("data.db");
        let first = connect("iopath", &path, mode).unwrap();
        first
            .execute_batch("create table counters (a int, b int); insert into counters values (0, 0)")
            .unwrap();
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    let connection = rusqlite::Connection::open_with_flags_and_vfs(
                        &path,
                        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE,
                        "iopath",
                    )
                    .unwrap();
                    connection.busy_timeout(std::time::Duration::from_secs(120)).unwrap();
                    connection.execute_batch("pragma synchronous = normal").unwrap();
                    for _ in 0..INCREASES {
                        let change = "begin immediate; update counters set a = a + 1; update counters set b = b + 1; commit";
                        connection.execute_batch(change).unwrap();
                        let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
                        let (a, b) = connection.query_row("select a, b from counters", [], read).unwrap();
                        assert_eq!(a, b);
                    }
                });
            }
        });
        let total: i64 = first.query_row("select a from counters", [], |row| row.get(0)).unwrap();
        assert_eq!(total, THREADS * INCREASES, "{mode}");
    }
}

#[test]
fn another_process_is_refused() {
    register_files();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    let own = connect("iopath", &path, "wal").unwrap();
    // Another open file description stands for another process: the lock belongs to it.
    let other = rusqlite::Connection::open(&path).unwrap();
    let error = other.query_row("select count(*) from pairs", [], |row| row.get::<_, i64>(0)).unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    drop(own);
    other.query_row("select count(*) from pairs", [], |row| row.get::<_, i64>(0)).unwrap();
}

/// The power fails between transactions or within one. Each reported commit is complete, an unreported one is complete
/// or has no effect.
#[test]
fn a_power_failure_loses_no_reported_commit() {
    let seed = seed();
    let mut random = StdRng::seed_from_u64(seed);
    let (mut kept, mut undone) = (0, 0);
    for mode in JOURNAL_MODES {
        let disks = Disks::new(seed);
        let name = format!("disks-{mode}");
        register(&name, disks.clone());
        let path = Path::new("/data.db");
        let mut model = Model::new();
        for round in 0..50 {
            let mut connection = connect(&name, path, mode).unwrap();
            assert_same(&content(&connection), &model, &format!("{mode}, round {round}"));
            for _ in 0..random.random_range(0..6) {
                transaction(&mut connection, &mut model, &mut random).unwrap();
            }
            if random.random_bool(0.5) {
                disks
                    .faults
                    .add(Fault::error(IoError::Media).on(Op::Write).one_in(random.random_range(2..40)));
                disks.faults.add(Fault::error(IoError::Media).on(Op::Flush).one_in(3));
            }
            let mut next = model.clone();
            let is_committed = transaction(&mut connection, &mut next, &mut random).is_ok();
            disks.crash(&mut random);
            drop(connection);
            disks.faults.stop();
            let connection = connect(&name, path, mode).unwrap();
            let found = content(&connection);
            if is_committed || found == next {
                assert_same(&found, &next, &format!("{mode}, round {round}, committed: {is_committed}"));
                (model, kept) = (next, kept + 1);
            } else {
                assert_same(&found, &model, &format!("{mode}, round {round}, committed: {is_committed}"));
                undone += 1;
            }
        }
    }
    assert!(kept > 0 && undone > 0, "both outcomes occur: {kept} kept, {undone} undone");
}

/// Every sync after a failed one fails.
#[test]
fn a_failed_sync_fails_forever() {
    let disks = Disks::new(1);
    register("failing", disks.clone());
    let mut connection = connect("failing", Path::new("/data.db"), "wal").unwrap();
    let mut random = StdRng::seed_from_u64(seed());
    disks.faults.add(Fault::error(IoError::Media).on(Op::Flush).times(1));
    let mut model = Model::new();
    let mut failed = 0;
    for _ in 0..10 {
        failed += i32::from(transaction(&mut connection, &mut model, &mut random).is_err());
    }
    // A transaction in ten is rolled back, and syncs nothing.
    assert!(failed >= 5, "{failed} of 10 transactions failed");
}

/// The shell of SQLite loads the extension. The test needs the program `sqlite3`.
#[test]
fn the_shell_loads_the_extension() {
    let program = std::env::current_exe().unwrap();
    let library = program.parent().unwrap().join("libiopath_vfs.so");
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let script = format!(
        ".load {}\n.open {}\npragma journal_mode = wal;\ncreate table t (a);\ninsert into t values (42);\nselect a from t;\n.vfsname\n",
        library.display(),
        directory.path().join("data.db").display()
    );
    let input = directory.path().join("script");
    std::fs::write(&input, script).unwrap();
    let shell = Command::new("sqlite3").arg("-batch").stdin(std::fs::File::open(&input).unwrap()).output();
    let Ok(output) = shell else { return eprintln!("skipped: no program sqlite3") };
    let text = String::from_utf8_lossy(&output.stdout);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(library.exists(), "{} is not built", library.display());
    assert_eq!(text.lines().take(2).collect::<Vec<_>>(), ["wal", "42"], "{error}");
    assert!(error.is_empty(), "{error}");
}
