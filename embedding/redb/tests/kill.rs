//! A child process commits and reports each commit; the test kills it (SIGKILL) at a random moment. The database must
//! have every reported commit, at most one more, and no wrong byte. `ROUNDS` sets the number of rounds.

use iopath_redb::VolumeBackend;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, ReadableTable, TableDefinition};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// Commit `number` sets the keys of its slots to values that name it.
const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("commits");
const SLOTS: u64 = 64;
const VARIABLE: &str = "IOPATH_REDB_CHILD";

#[test]
fn a_killed_program_loses_no_reported_commit() {
    if let Ok(path) = std::env::var(VARIABLE) {
        return commit_until_killed(Path::new(&path));
    }
    let rounds = std::env::var("ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(50);
    let seed =
        std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| rand::rng().random());
    println!("SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.redb");
    let mut reported = 0;
    for round in 0..rounds {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_program_loses_no_reported_commit", "--nocapture"])
            .env(VARIABLE, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let commits = random.random_range(0..30);
        let mut seen = 0;
        // Then between two commits, or in the middle of one.
        let spins = random.random_range(0..300_000);
        while seen < commits {
            let line = lines.next().expect("the child reports until it is killed").unwrap();
            if let Some(number) = line.strip_prefix("commit ") {
                reported = number.parse().unwrap();
                seen += 1;
            }
        }
        (0..spins).for_each(|_| std::hint::spin_loop());
        child.kill().unwrap();
        for line in lines {
            if let Some(number) = line.ok().and_then(|line| line.strip_prefix("commit ")?.parse().ok()) {
                reported = number;
            }
        }
        child.wait().unwrap();
        let found = check(&path);
        assert!(
            found == reported || found == reported + 1,
            "round {round}: commit {reported} was reported, the database has {found}"
        );
        reported = found;
    }
}

/// Checks each pair. Returns the number of the last commit.
fn check(path: &Path) -> u64 {
    let Ok(backend) = VolumeBackend::open(path) else { panic!("the dead program holds no lock") };
    let database = Database::builder().create_with_backend(backend).unwrap();
    let transaction = database.begin_read().unwrap();
    let Ok(table) = transaction.open_table(TABLE) else { return 0 };
    let last = table.get(u64::MAX).unwrap().map_or(0, |last| number_of(last.value()));
    for slot in 0..SLOTS {
        // The last commit that changed this slot.
        let expected = (1..=last).rev().take(SLOTS as usize).find(|number| slots(*number).contains(&slot));
        let found = table.get(slot).unwrap().map(|value| value.value().to_vec());
        if let Some(expected) = expected {
            assert_eq!(found, Some(value(expected, slot)), "slot {slot} after commit {last}");
        }
    }
    last
}

fn commit_until_killed(path: &Path) {
    let backend = VolumeBackend::open(path).unwrap();
    let database = Database::builder().set_cache_size(1 << 20).create_with_backend(backend).unwrap();
    let last = {
        let transaction = database.begin_write().unwrap();
        let table = transaction.open_table(TABLE).unwrap();
        table.get(u64::MAX).unwrap().map_or(0, |last| number_of(last.value()))
    };
    let mut output = std::io::stdout();
    for number in last + 1.. {
        let transaction = database.begin_write().unwrap();
        {
            let mut table = transaction.open_table(TABLE).unwrap();
            for slot in slots(number) {
                table.insert(slot, &value(number, slot)[..]).unwrap();
            }
            table.insert(u64::MAX, &number.to_le_bytes()[..]).unwrap();
        }
        transaction.commit().unwrap();
        // The parent has gone: end.
        if writeln!(output, "commit {number}").and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Every run of `SLOTS` commits changes each slot.
fn slots(number: u64) -> [u64; 3] {
    [number % SLOTS, (number * 7 + 3) % SLOTS, (number * 13 + 11) % SLOTS]
}

fn value(number: u64, slot: u64) -> Vec<u8> {
    let bytes = (number * 31 + slot * 17) % 6_000;
    number.to_le_bytes().into_iter().chain((0..bytes).map(|index| (number + slot + index) as u8)).collect()
}

fn number_of(value: &[u8]) -> u64 {
    u64::from_le_bytes(value[..8].try_into().expect("a value begins with the number of its commit"))
}
