//! A child process commits and reports each commit; the test kills it (SIGKILL) at a random moment. The database must
//! have every reported commit, at most one more, and no wrong value. `ROUNDS` sets the number of rounds.

mod support;

use iopath_turso::VolumeIo;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Model, connect, content, seed};
use turso_core::{IO, LimboError, UnixIO};

const NAME: &str = "a_killed_program_loses_no_reported_commit";
/// The path of the database, for the child.
const PATH: &str = "IOPATH_TURSO_CHILD";
/// Each commit replaces the value of a few slots by one that names it.
const SLOTS: i64 = 64;
/// A lock that is held longer is a failure.
const HANG: Duration = Duration::from_secs(60);

#[test]
fn a_killed_program_loses_no_reported_commit() {
    if let Ok(path) = std::env::var(PATH) {
        return commit_until_killed(Path::new(&path));
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(40);
    let mut random = StdRng::seed_from_u64(seed());
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.db");
    let mut reported = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(PATH, &path)
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
        // Every second time, Turso's own I/O recovers what the volumes wrote.
        let io: Arc<dyn IO> = if round % 2 == 0 {
            Arc::new(VolumeIo::of_files(1 << 20))
        } else {
            Arc::new(UnixIO::new().unwrap())
        };
        let found = check(&io, &path);
        assert!(
            found == reported || found == reported + 1,
            "round {round}: commit {reported} was reported, the database has {found}"
        );
        reported = found;
    }
}

/// Checks each row. Returns the number of the last commit, in the row with the key `SLOTS`.
fn check(io: &Arc<dyn IO>, path: &Path) -> i64 {
    // The kernel closes the files of the ring of a killed process, with their locks, a moment after its end. A volume
    // waits for that; Turso's own I/O does not.
    let start = Instant::now();
    let (_database, connection) = loop {
        match connect(io, path) {
            Err(LimboError::LockingError(_)) if start.elapsed() < HANG => std::thread::yield_now(),
            connected => break connected.unwrap(),
        }
    };
    let rows = content(&connection);
    let last = last(&rows);
    for slot in 0..SLOTS {
        let expected = (1..=last).rev().take(SLOTS as usize).find(|number| slots(*number).contains(&slot));
        let Some(expected) = expected else { continue };
        assert!(rows.get(&slot) == Some(&value(expected, slot)), "slot {slot} after commit {last}");
    }
    last
}

fn last(rows: &Model) -> i64 {
    rows.get(&SLOTS).map_or(0, |digits| i64::from_str_radix(digits, 16).unwrap())
}

fn commit_until_killed(path: &Path) {
    let io: Arc<dyn IO> = Arc::new(VolumeIo::of_files(1 << 20));
    let (_database, connection) = connect(&io, path).unwrap();
    let last = last(&content(&connection));
    let mut output = std::io::stdout();
    for number in last + 1.. {
        connection.execute("begin").unwrap();
        for slot in slots(number) {
            let value = value(number, slot);
            connection.execute(format!("insert or replace into pairs values ({slot}, x'{value}')")).unwrap();
        }
        connection
            .execute(format!("insert or replace into pairs values ({SLOTS}, x'{number:016X}')"))
            .unwrap();
        connection.execute("commit").unwrap();
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

/// A value that names its commit, as hexadecimal digits.
fn value(number: i64, slot: i64) -> String {
    let bytes = (number * 31 + slot * 17) % 6_000;
    (0..bytes).map(|index| format!("{:02X}", (number + slot + index) as u8)).collect()
}
