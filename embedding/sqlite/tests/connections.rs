//! Connections of one process to one database: the same steps have the same results as with SQLite's VFS `unix`.

mod support;

use iopath::{IoMode, Options, Volume};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use support::{JOURNAL_MODES, connect, register_files, seed};

/// A database with a few connections, in one VFS.
struct Side {
    vfs: &'static str,
    path: PathBuf,
    connections: Vec<Option<Connection>>,
}

/// A step of one connection.
#[derive(Debug, Clone)]
enum Step {
    Execute(String),
    /// The values of the first column.
    Read(String),
    Close,
    /// Through a symbolic link if set.
    Open(bool),
}

impl Side {
    fn new(vfs: &'static str, directory: &Path, mode: &str, connections: usize) -> Self {
        let directory = directory.join(vfs);
        std::fs::create_dir(&directory).unwrap();
        let path = directory.join("data.db");
        drop(connect(vfs, &path, mode).unwrap());
        std::os::unix::fs::symlink(&path, link(&path)).unwrap();
        Self { vfs, path, connections: (0..connections).map(|_| None).collect() }
    }

    /// The outcome as text, to compare.
    fn run(&mut self, number: usize, step: &Step) -> String {
        let result = self.try_run(number, step);
        match result {
            Ok(values) => format!("{values:?}"),
            Err(rusqlite::Error::SqliteFailure(error, _)) => format!("error {}", error.extended_code),
            Err(error) => error.to_string(),
        }
    }

    fn try_run(&mut self, number: usize, step: &Step) -> rusqlite::Result<Vec<String>> {
        let connection = &mut self.connections[number];
        match (step, connection) {
            (Step::Open(is_link), connection) => {
                if connection.is_none() {
                    let path = if *is_link { link(&self.path) } else { self.path.clone() };
                    let opened = Connection::open_with_flags_and_vfs(
                        path,
                        OpenFlags::SQLITE_OPEN_READ_WRITE,
                        self.vfs,
                    )?;
                    // No handler: a lock that is held is an outcome.
                    opened.busy_timeout(std::time::Duration::ZERO)?;
                    opened.execute_batch("pragma cache_size = 10")?;
                    *connection = Some(opened);
                }
                Ok(Vec::new())
            }
            (Step::Close, connection) => {
                *connection = None;
                Ok(Vec::new())
            }
            (_, None) => Ok(vec!["closed".to_owned()]),
            (Step::Execute(sql), Some(connection)) => connection.execute_batch(sql).map(|()| Vec::new()),
            (Step::Read(sql), Some(connection)) => {
                let mut statement = connection.prepare(sql)?;
                let values = statement.query_map([], |row| row.get::<_, rusqlite::types::Value>(0))?;
                values.map(|value| value.map(|value| format!("{value:?}"))).collect()
            }
        }
    }
}

fn link(path: &Path) -> PathBuf {
    path.with_extension("link")
}

/// Runs the steps on both sides. Returns the outcomes.
fn compare(mode: &str, connections: usize, steps: impl IntoIterator<Item = (usize, Step)>) -> Vec<String> {
    register_files();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let mut sides = ["unix", "iopath"].map(|vfs| Side::new(vfs, directory.path(), mode, connections));
    let mut outcomes = Vec::new();
    for (index, (number, step)) in steps.into_iter().enumerate() {
        let [unix, iopath] = sides.each_mut().map(|side| side.run(number, &step));
        assert_eq!(
            unix, iopath,
            "{mode}, step {index}: {step:?} of connection {number}, after {outcomes:#?}"
        );
        outcomes.push(format!("{number} {step:?}: {iopath}"));
    }
    outcomes
}

fn execute(sql: &str) -> Step {
    Step::Execute(sql.to_owned())
}

fn read(sql: &str) -> Step {
    Step::Read(sql.to_owned())
}

/// One connection writes, the other reads: before, within and after the transaction, also one larger than the cache of
/// SQLite.
#[test]
fn a_reader_beside_a_writer_sees_what_it_sees_with_unix() {
    let (writer, reader) = (0, 1);
    for mode in JOURNAL_MODES {
        let count = || (reader, read("select count(*) from pairs"));
        let steps = vec![
            (writer, Step::Open(false)),
            (reader, Step::Open(true)),
            (writer, execute("begin immediate; insert into pairs values (1, zeroblob(100))")),
            count(),
            (reader, execute("insert into pairs values (2, x'')")),
            (writer, execute("commit")),
            count(),
            // A reader in a transaction: with a journal, the writer waits for it.
            (reader, execute("begin")),
            count(),
            (writer, execute("insert into pairs values (3, zeroblob(5000))")),
            count(),
            (reader, execute("commit")),
            count(),
            (writer, execute("insert or replace into pairs values (3, zeroblob(5000))")),
            // Pages of the transaction are in the files before its commit.
            (
                writer,
                execute(
                    "begin; with recursive n (i) as (values (100) union all select i + 1 from n where i < 400)
                     insert into pairs select i, zeroblob(3000) from n",
                ),
            ),
            count(),
            (writer, execute("rollback")),
            count(),
            (writer, Step::Close),
            (reader, execute("insert into pairs values (9, x'')")),
            count(),
            (reader, read("pragma integrity_check")),
        ];
        let outcomes = compare(mode, 2, steps);
        assert!(outcomes.last().unwrap().ends_with("[\"Text(\\\"ok\\\")\"]"), "{outcomes:#?}");
        let busy = outcomes.iter().filter(|outcome| outcome.contains("error 5")).count();
        assert!(busy > 0, "a second writer is refused: {outcomes:#?}");
    }
}

#[test]
fn random_steps_of_several_connections_have_the_results_of_unix() {
    const CONNECTIONS: usize = 3;
    let seed = seed();
    for (index, mode) in JOURNAL_MODES.iter().enumerate() {
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(index as u64));
        let opened = (0..CONNECTIONS).map(|number| (number, Step::Open(number == 1)));
        let steps: Vec<_> = opened
            .chain((0..600).map(|_| (random.random_range(0..CONNECTIONS), step(&mut random))))
            .collect();
        let outcomes = compare(mode, CONNECTIONS, steps);
        let (errors, others): (Vec<_>, Vec<_>) =
            outcomes.iter().partition(|outcome| outcome.contains(": error"));
        assert!(
            errors.len() > 20 && others.len() > 200,
            "{mode}: {} errors of {}",
            errors.len(),
            outcomes.len()
        );
    }
}

fn step(random: &mut StdRng) -> Step {
    let key = random.random_range(0..60);
    match random.random_range(0..24) {
        0..3 => execute("begin"),
        3 => execute("begin immediate"),
        4 => execute("begin exclusive"),
        5..9 => execute("commit"),
        9..11 => execute("rollback"),
        11..15 => {
            let bytes = random.random_range(0..9_000);
            execute(&format!("insert or replace into pairs values ({key}, zeroblob({bytes}))"))
        }
        15 => execute(&format!("update pairs set value = zeroblob({key} * 50) where key > {key}")),
        16 => execute(&format!("delete from pairs where key < {key}")),
        17..20 => read("select sum(key * 7 + length(value)) from pairs"),
        20 => read("select count(*) from pairs"),
        21 => {
            let modes = ["passive", "full", "restart", "truncate"];
            read(&format!("pragma wal_checkpoint({})", modes.choose(random).unwrap()))
        }
        22 => {
            let others =
                ["vacuum", "pragma cache_spill = 4", "savepoint one", "release one", "pragma optimize"];
            execute(others.choose(random).unwrap())
        }
        _ if random.random_bool(0.5) => Step::Close,
        _ => Step::Open(random.random()),
    }
}

/// The program itself writes to the file through another page cache.
#[test]
fn a_database_with_another_page_cache_in_this_process_is_busy() {
    register_files();
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    drop(connect("iopath", &path, "delete").unwrap());
    let other = Volume::open(&path, &Options::new().mode(IoMode::Buffered).write(true)).unwrap();
    let error = connect("iopath", &path, "delete").unwrap_err();
    assert_eq!(error.sqlite_error_code(), Some(ErrorCode::DatabaseBusy), "{error}");
    drop(other);
    connect("iopath", &path, "delete").unwrap();
}
