//! Random transactions against a model: after each reopening, after power failures, and after failed flushes.

mod support;

use iopath::source::Extent;
use iopath::testing::{Fault, Faults, MemoryConfig, MemoryDisk};
use iopath::{IoError, IoMode, Op, Options, Unaligned, Volume};
use iopath_redb::VolumeBackend;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use redb::{Database, DatabaseError};
use support::{Model, assert_same, content, seed, transaction};

/// The ways to open a volume that redb accepts.
fn ways() -> [Options; 3] {
    let options = Options::new().write(true);
    let buffered = options.clone().mode(IoMode::Buffered);
    [
        buffered.clone().cache_bytes(1 << 20),
        buffered.cache_bytes(64 << 20),
        options.unaligned(Unaligned::Bounce),
    ]
}

fn open(volume: Volume) -> Result<Database, DatabaseError> {
    Database::builder().set_cache_size(1 << 20).create_with_backend(VolumeBackend::over(volume))
}

#[test]
fn reopened_databases_have_every_committed_pair() {
    let mut random = StdRng::seed_from_u64(seed());
    for options in ways() {
        let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let path = directory.path().join("data.redb");
        let mut model = Model::new();
        for round in 0..6 {
            let volume = Volume::open(&path, &options.clone().create(0).lock(true)).unwrap();
            let database = open(volume).unwrap();
            assert_same(&content(&database).unwrap(), &model, &format!("round {round}"));
            for _ in 0..40 {
                transaction(&database, &mut model, 2_000, &mut random).unwrap();
            }
            assert_same(&content(&database).unwrap(), &model, &format!("end of round {round}"));
        }
    }
}

#[test]
fn a_database_is_open_once() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("data.redb");
    let database = Database::builder().create_with_backend(VolumeBackend::open(&path).unwrap()).unwrap();
    assert!(matches!(VolumeBackend::open(&path), Err(DatabaseError::DatabaseAlreadyOpen)));
    drop(database);
    VolumeBackend::open(&path).unwrap();
}

/// The power fails after a random number of transactions; each sector keeps a random one of its unflushed versions.
#[test]
fn a_power_failure_loses_no_acknowledged_commit() {
    let mut random = StdRng::seed_from_u64(seed());
    for options in ways() {
        let config = MemoryConfig { block_bytes: 4096, cache_bytes: 64 << 20, ..MemoryConfig::of_bytes(0) };
        let disk = MemoryDisk::new(&config).unwrap();
        let mut model = Model::new();
        for round in 0..40 {
            let database = open(Volume::memory(&disk, &options).unwrap()).unwrap();
            assert_same(&content(&database).unwrap(), &model, &format!("round {round}"));
            for _ in 0..random.random_range(0..12) {
                transaction(&database, &mut model, 500, &mut random).unwrap();
            }
            // The transaction in progress at the failure has written, but not committed.
            let unfinished = database.begin_write().unwrap();
            {
                let mut table = unfinished.open_table(support::TABLE).unwrap();
                table.insert(u64::MAX, &vec![7_u8; 300_000][..]).unwrap();
            }
            disk.crash(|versions| random.random_range(0..=versions));
            drop(unfinished);
            drop(database);
        }
    }
}

/// The power fails during a commit: it is complete or has no effect.
#[test]
fn a_power_failure_during_a_commit_leaves_all_or_nothing() {
    let mut random = StdRng::seed_from_u64(seed());
    for options in ways() {
        let config = MemoryConfig { block_bytes: 4096, cache_bytes: 64 << 20, ..MemoryConfig::of_bytes(0) };
        let disk = MemoryDisk::new(&config).unwrap();
        let mut model = Model::new();
        let (mut kept, mut undone) = (0, 0);
        for round in 0..60 {
            let faults = Faults::new(random.random());
            let database = open(Volume::memory(&disk, &options.clone().faults(&faults)).unwrap()).unwrap();
            assert_same(&content(&database).unwrap(), &model, &format!("round {round}"));
            for _ in 0..3 {
                transaction(&database, &mut model, 500, &mut random).unwrap();
            }
            // redb stops at the first error, as when the power fails then.
            faults.add(Fault::error(IoError::Media).on(Op::Write).one_in(random.random_range(2..30)));
            faults.add(Fault::error(IoError::Media).on(Op::Flush).one_in(4));
            let mut next = model.clone();
            let committed = transaction(&database, &mut next, 500, &mut random).is_ok();
            disk.crash(|versions| random.random_range(0..=versions));
            drop(database);
            let database = open(Volume::memory(&disk, &options).unwrap()).unwrap();
            let found = content(&database).unwrap();
            if committed || found == next {
                assert_same(&found, &next, &format!("round {round}, committed: {committed}"));
                (model, kept) = (next, kept + 1);
            } else {
                assert_same(&found, &model, &format!("round {round}, not committed"));
                undone += 1;
            }
        }
        assert!(kept > 0 && undone > 0, "both outcomes occur: {kept} kept, {undone} undone");
    }
}

/// Without a power failure: a commit that redb has reported as failed does not appear after the database is reopened.
#[test]
fn a_failed_commit_does_not_appear_later() {
    let mut random = StdRng::seed_from_u64(seed());
    for options in ways() {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(0)).unwrap();
        let mut model = Model::new();
        let faults = Faults::new(random.random());
        let database = open(Volume::memory(&disk, &options.clone().faults(&faults)).unwrap()).unwrap();
        transaction(&database, &mut model, 500, &mut random).unwrap();
        // Pages of the commit may be written, but not the header, which makes them part of the database.
        let header = Extent::from_bytes(0, 4096).unwrap();
        faults.add(Fault::error(IoError::Media).on(Op::Write).within(header));
        transaction(&database, &mut model.clone(), 500, &mut random).unwrap_err();
        // The device works again while the database is still open.
        faults.stop();
        drop(database);
        let database = open(Volume::memory(&disk, &options).unwrap()).unwrap();
        assert_same(&content(&database).unwrap(), &model, "after the failure");
    }
}
