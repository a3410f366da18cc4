//! A scratch file, and a batch of overlapping I/O with its expected results.

#![allow(dead_code, reason = "each test file uses its own part")]

use iopath::{AlignedBuf, Batch, BatchOptions, Completion, Engine, OpenError, Options, Request, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;

pub(crate) const KIB: usize = 1024;

/// A scratch file on a filesystem with direct I/O; `None`, with a line on stderr, if there is none.
pub(crate) fn scratch(bytes: u64) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    scratch_made(&options().create(bytes), |_| ())
}

/// A scratch file with this content.
pub(crate) fn scratch_with(contents: &[u8]) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    scratch_made(&options(), |path| std::fs::write(path, contents).unwrap())
}

fn scratch_made(
    options: &Options,
    make: impl FnOnce(&std::path::Path),
) -> Option<(tempfile::TempDir, std::path::PathBuf)> {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = directory.path().join("volume");
    make(&path);
    match Volume::open(&path, options) {
        Ok(_) => Some((directory, path)),
        Err(OpenError::Direct(error)) => {
            eprintln!("skipped: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub(crate) fn options() -> Options {
    let engine = std::env::var("IOPATH_TEST_ENGINE").unwrap_or_else(|_| "auto".to_owned());
    Options::new().engine(engine.parse::<Engine>().unwrap())
}

pub(crate) fn filled(bytes: usize, seed: u64) -> AlignedBuf {
    let mut buffer = AlignedBuf::new(bytes).unwrap();
    ChaCha8Rng::seed_from_u64(seed).fill(&mut buffer[..]);
    buffer
}

/// Queues random overlapping reads and writes in one batch, and calls `disturb` before each. Checks that each read
/// returns the writes queued before it. Overwrites the first MiB of the volume.
pub(crate) fn keeps_order(volume: &Volume, seed: u64, mut disturb: impl FnMut(&mut Batch, u64)) {
    let mut batch = volume.batch(&BatchOptions::new(16, 16 * KIB)).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    // The content of each 4 KiB block after all queued requests, and the expected result of each read.
    let mut blocks = [0_u8; 64];
    volume.write_at(&AlignedBuf::new(256 * KIB).unwrap(), 0).unwrap();
    let mut expected = BTreeMap::new();
    for token in 0..2000 {
        disturb(&mut batch, token);
        let mut buffer = loop {
            match batch.buffer() {
                Some(buffer) => break buffer,
                None => check(&batch.wait().unwrap().expect("some are in flight"), &mut expected),
            }
        };
        let count = rng.random_range(1..=4);
        let first = rng.random_range(0..=64 - count);
        let (offset, bytes) = (first as u64 * 4096, count * 4096);
        if rng.random_bool(0.5) {
            buffer[..bytes].fill(token as u8);
            blocks[first..first + count].fill(token as u8);
            batch.queue(Request::write(buffer, offset).bytes(bytes).token(token)).unwrap();
        } else {
            expected.insert(token, blocks[first..first + count].to_vec());
            batch.queue(Request::read(buffer, offset).bytes(bytes).token(token)).unwrap();
        }
    }
    while let Some(done) = batch.wait().unwrap() {
        check(&done, &mut expected);
    }
    assert!(expected.is_empty(), "seed {seed}: reads without a completion: {expected:?}");
    assert_eq!(batch.in_flight(), 0, "seed {seed}");
}

fn check(done: &Completion, expected: &mut BTreeMap<u64, Vec<u8>>) {
    let bytes = *done.result.as_ref().unwrap();
    let Some(blocks) = expected.remove(&done.token) else { return };
    let buffer = done.buffer.as_ref().unwrap();
    assert_eq!(bytes, blocks.len() * 4096);
    for (block, expected) in blocks.iter().enumerate() {
        let read = &buffer[block * 4096..(block + 1) * 4096];
        assert!(
            read.iter().all(|byte| byte == expected),
            "read {} block {block} is not {expected}",
            done.token
        );
    }
}
