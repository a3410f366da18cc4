//! A child process commits and reports each commit; the test kills it (SIGKILL) at a random moment. SQLite then finds
//! the database intact, with every reported commit and at most one more. `ROUNDS` sets the number of rounds.

mod support;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use rusqlite::{Connection, OpenFlags, params};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use support::{JOURNAL_MODES, register_files, seed};

const NAME: &str = "a_killed_program_loses_no_reported_commit";
/// The path of the database, and the journal mode, for the child.
const PATH: &str = "IOPATH_SQLITE_CHILD";
const MODE: &str = "IOPATH_SQLITE_MODE";
/// Each commit replaces the value of a few slots by one that names it.
const SLOTS: i64 = 64;

#[test]
fn a_killed_program_loses_no_reported_commit() {
    if let (Ok(path), Ok(mode)) = (std::env::var(PATH), std::env::var(MODE)) {
        return commit_until_killed(Path::new(&path), &mode);
    }
    register_files();
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(60);
    let mut random = StdRng::seed_from_u64(seed());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    let mut reported = 0;
    for round in 0..rounds {
        let mode = JOURNAL_MODES[random.random_range(0..JOURNAL_MODES.len())];
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(PATH, &path)
            .env(MODE, mode)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let commits = random.random_range(0..20);
        let mut seen = 0;
        while seen < commits {
            let line = lines.next().expect("the child reports until it is killed").unwrap();
            if let Some(number) = line.strip_prefix("commit ") {
                reported = number.parse().unwrap();
                seen += 1;
            }
        }
        // Then between two commits, or in the middle of one.
        (0..random.random_range(0..300_000)).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        for line in lines {
            if let Some(number) = line.ok().and_then(|line| line.strip_prefix("commit ")?.parse().ok()) {
                reported = number;
            }
        }
        child.wait().unwrap();
        let found = check(&path, round % 2 == 0);
        assert!(
            found == reported || found == reported + 1,
            "round {round}, {mode}: commit {reported} was reported, the database has {found}"
        );
        reported = found;
    }
}

/// Checks each row, through the VFS or through SQLite's own, which recovers what the VFS wrote. Returns the number of
/// the last commit.
fn check(path: &Path, is_own: bool) -> i64 {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = if is_own {
        Connection::open_with_flags_and_vfs(path, flags, "iopath").unwrap()
    } else {
        Connection::open_with_flags(path, flags).unwrap()
    };
    let result: String = connection.query_row("pragma integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(result, "ok");
    let Ok(last) = connection.query_row("select coalesce(max(number), 0) from commits", [], |row| row.get(0))
    else {
        return 0;
    };
    for slot in 0..SLOTS {
        let expected = (1..=last).rev().take(SLOTS as usize).find(|number| slots(*number).contains(&slot));
        let Some(expected) = expected else { continue };
        let row = connection.query_row("select number, value from slots where slot = ?", [slot], |row| {
            Ok((row.get::<_, i64>(0)?, row.get::<_, Vec<u8>>(1)?))
        });
        assert!(row.unwrap() == (expected, value(expected, slot)), "slot {slot} after commit {last}");
    }
    last
}

fn commit_until_killed(path: &Path, mode: &str) {
    register_files();
    let mut connection = support::connect("iopath", path, mode).unwrap();
    connection
        .execute_batch(
            "create table if not exists commits (number integer primary key);
             create table if not exists slots (slot integer primary key, number int, value blob);",
        )
        .unwrap();
    let last: i64 =
        connection.query_row("select coalesce(max(number), 0) from commits", [], |row| row.get(0)).unwrap();
    let mut output = std::io::stdout();
    for number in last + 1.. {
        let transaction = connection.transaction().unwrap();
        for slot in slots(number) {
            let row = params![slot, number, value(number, slot)];
            transaction.execute("insert or replace into slots values (?, ?, ?)", row).unwrap();
        }
        transaction.execute("insert into commits values (?)", [number]).unwrap();
        transaction.execute("delete from commits where number < ?", [number]).unwrap();
        transaction.commit().unwrap();
        // The parent has gone: end.
        if writeln!(output, "commit {number}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Every run of `SLOTS` commits changes each slot.
fn slots(number: i64) -> [i64; 3] {
    [number % SLOTS, (number * 7 + 3) % SLOTS, (number * 13 + 11) % SLOTS]
}

fn value(number: i64, slot: i64) -> Vec<u8> {
    let bytes = (number * 31 + slot * 17) % 6_000;
    (0..bytes).map(|index| (number + slot + index) as u8).collect()
}
