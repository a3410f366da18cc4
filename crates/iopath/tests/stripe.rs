//! A volume of several files. The engine is that of `IOPATH_TEST_ENGINE`.

use crate::support::{KIB, filled, keeps_order, options, scratch};
use iopath::{AlignedBuf, BatchOptions, ErrorKind, IoError, IoMode, OpenError, Request, Volume};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

const CHUNK: u64 = 64 << 10;

/// Paths of members on a filesystem with direct I/O; `None`, with a line on stderr, if there is none.
fn members(count: usize) -> Option<(tempfile::TempDir, Vec<PathBuf>)> {
    let (directory, _) = scratch(4096)?;
    let paths = (0..count).map(|member| directory.path().join(format!("member-{member}"))).collect();
    Some((directory, paths))
}

#[test]
fn written_bytes_are_read_back_also_after_reopening() {
    let Some((_directory, paths)) = members(3) else { return };
    let volume = Volume::open_stripe(&paths, CHUNK, &options().create(10 * CHUNK)).unwrap();
    assert_eq!(volume.size_bytes(), 12 * CHUNK, "four chunks on each of three members");
    let written = filled(12 * CHUNK as usize, 1);
    volume.write_at(&written, 0).unwrap();
    volume.write_durably_at(&written[4 * KIB..8 * KIB], 4096).unwrap();
    volume.flush().unwrap();
    drop(volume);
    for (number, chunk) in written.chunks(CHUNK as usize).enumerate() {
        let file = std::fs::File::open(&paths[number % 3]).unwrap();
        let mut there = vec![0; CHUNK as usize];
        file.read_exact_at(&mut there, (number / 3) as u64 * CHUNK).unwrap();
        assert!(there == chunk, "chunk {number}");
    }
    let volume = Volume::open_stripe(&paths, CHUNK, &options()).unwrap();
    let mut read = AlignedBuf::new(written.len()).unwrap();
    assert_eq!(volume.read_at(&mut read, 0).unwrap(), written.len());
    assert!(read[..] == written[..]);
    assert_eq!(
        volume.read_at(&mut read, 11 * CHUNK).unwrap(),
        CHUNK as usize,
        "ends at the end of the volume"
    );
    let named = volume.facts().path.display().to_string();
    assert!(named.contains("member-0,") && named.ends_with("member-2"), "{named}");
}

#[test]
fn the_size_is_whole_chunks_of_the_smallest_member() {
    // A chunk of one block: the partial block at the end of a member is none.
    for (sizes, chunk, chunks) in [
        ([1_000_777, 1_000_777], 512, 1_000_777 / 512),
        ([1_000_777, 2_000_001], 4096, 1_000_777 / 4096),
        ([1 << 20, 513 + 4096], 4096, 1),
    ] {
        let Some((_directory, paths)) = members(2) else { return };
        for (path, bytes) in paths.iter().zip(sizes) {
            std::fs::write(path, vec![7; bytes]).unwrap();
        }
        let volume = match Volume::open_stripe(&paths, chunk, &options().write(true)) {
            // The disk has larger blocks.
            Err(OpenError::Stripe(_)) if chunk == 512 => continue,
            volume => volume.unwrap(),
        };
        assert_eq!(volume.size_bytes(), 2 * chunk * chunks);
        let (first, bytes) = (2 * chunk * (chunks - 1), 2 * chunk as usize);
        let written = filled(bytes, 1);
        volume.write_at(&written, first).unwrap();
        let mut read = AlignedBuf::new(bytes).unwrap();
        assert_eq!(volume.read_at(&mut read, first).unwrap(), bytes);
        assert!(read[..] == written[..]);
        volume.close().unwrap();
        for (path, bytes) in paths.iter().zip(sizes) {
            assert_eq!(std::fs::metadata(path).unwrap().len(), bytes as u64, "a member became longer");
        }
    }
}

#[test]
fn a_batch_keeps_order_where_ranges_overlap_on_several_members() {
    let Some((_directory, paths)) = members(2) else { return };
    // Chunks are smaller than an I/O: most I/Os have parts on both members.
    let volume =
        Volume::open_stripe(&paths, 8 << 10, &options().create(1 << 20).elevator("deadline")).unwrap();
    for seed in 0..2 {
        keeps_order(&volume, seed, |_, _| ());
    }
}

#[test]
fn threads_read_and_write_concurrently() {
    let Some((_directory, paths)) = members(2) else { return };
    let volume = &Volume::open_stripe(&paths, CHUNK, &options().create(4 << 20)).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            scope.spawn(move || {
                for round in 0..20 {
                    let written = filled(192 * KIB, thread * 100 + round);
                    volume.write_at(&written, thread << 20).unwrap();
                    let mut read = AlignedBuf::new(192 * KIB).unwrap();
                    volume.read_at(&mut read, thread << 20).unwrap();
                    assert!(read[..] == written[..], "thread {thread}, round {round}");
                }
            });
        }
    });
}

#[test]
fn a_failed_member_fails_only_the_io_that_touches_it() {
    let Some((_directory, paths)) = members(3) else { return };
    let volume = Volume::open_stripe(&paths, CHUNK, &options().create(6 * CHUNK)).unwrap();
    std::fs::OpenOptions::new().write(true).open(&paths[1]).unwrap().set_len(0).unwrap();
    let mut batch = volume.batch(&BatchOptions::new(6, CHUNK as usize)).unwrap();
    for chunk in 0..6 {
        let buffer = batch.buffer().unwrap();
        batch.queue(Request::read(buffer, chunk * CHUNK).bytes(CHUNK as usize).token(chunk)).unwrap();
    }
    let mut failed = Vec::new();
    while let Some(done) = batch.wait().unwrap() {
        match done.result {
            Ok(bytes) => assert_eq!(bytes as u64, CHUNK),
            Err(error) => {
                assert!(error.kind() == ErrorKind::Io(IoError::EndOfDevice), "{error}");
                failed.push(done.token);
            }
        }
    }
    failed.sort_unstable();
    assert_eq!(failed, [1, 4]);
    let whole = volume.read_at(&mut AlignedBuf::new(6 * CHUNK as usize).unwrap(), 0).unwrap_err();
    assert!(whole.kind() == ErrorKind::Io(IoError::EndOfDevice), "{whole}");
}

#[test]
fn invalid_members_are_refused_by_name() {
    let Some((directory, paths)) = members(2) else { return };
    Volume::open_stripe(&paths, CHUNK, &options().create(4 * CHUNK)).unwrap();
    let refused =
        |paths: &[PathBuf], chunk| Volume::open_stripe(paths, chunk, &options()).unwrap_err().to_string();
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(&paths[0], &link).unwrap();
    let twice = refused(&[paths[0].clone(), paths[1].clone(), link], CHUNK);
    assert!(twice.contains("member-0 is a member of the stripe twice"), "{twice}");
    let unaligned = refused(&paths, 1000);
    assert!(unaligned.starts_with("a chunk of 1000 bytes is not a multiple of a sector"), "{unaligned}");
    let no_chunk = refused(&paths, 0);
    assert!(no_chunk.contains("a chunk of 0 sectors"), "{no_chunk}");
    let large = refused(&paths, 1 << 30);
    assert!(large.contains("member 0 has 256 sectors"), "{large}");
    assert!(refused(&[], CHUNK).contains("at least one member"));
    let missing = Volume::open_stripe(&[directory.path().join("missing")], CHUNK, &options());
    assert!(matches!(missing, Err(OpenError::Target(_))), "{missing:?}");
}

#[test]
fn a_page_cache_over_several_members_is_coherent_with_them() {
    let Some((_directory, paths)) = members(3) else { return };
    let size = 24 * CHUNK;
    let cached = options().mode(IoMode::Buffered).cache_bytes(1 << 20);
    let volume = Volume::open_stripe(&paths, CHUNK, &cached.clone().create(size)).unwrap();
    let written = filled(size as usize, 8);
    for (piece, bytes) in written.chunks(20_000).enumerate() {
        volume.write_at(bytes, piece as u64 * 20_000).unwrap();
    }
    volume.flush().unwrap();
    // Reads of more bytes than fit in the cache, by threads that wait for the same misses.
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (volume, written) = (&volume, &written);
            scope.spawn(move || {
                let mut read = vec![0; 12_345];
                for start in (thread * 50_000..written.len() - read.len()).step_by(read.len()) {
                    assert_eq!(volume.read_at(&mut read, start as u64).unwrap(), read.len());
                    assert!(read == written[start..start + read.len()], "thread {thread} at {start}");
                }
            });
        }
    });
    drop(volume);
    let volume = Volume::open_stripe(&paths, CHUNK, &options()).unwrap();
    let mut read = AlignedBuf::new(written.len()).unwrap();
    volume.read_at(&mut read, 0).unwrap();
    assert!(read[..] == written[..], "by direct I/O");
}
