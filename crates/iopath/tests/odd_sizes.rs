//! Files whose size is no multiple of a block: every path reads and writes each of their bytes and keeps their size.

use crate::support::{filled, options, scratch_with};
use iopath::{BatchOptions, ErrorKind, IoMode, Options, Request, Unaligned, Volume};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

const SIZES: [usize; 6] = [1, 511, 513, 4095, 4097, 1_000_777];

/// Every path that accepts unaligned I/O.
fn paths() -> [(&'static str, Options); 4] {
    let options = options().write(true).cache_bytes(1 << 20);
    [
        ("direct, bounced", options.clone().unaligned(Unaligned::Bounce)),
        ("raw, bounced", options.clone().mode(IoMode::Raw).unaligned(Unaligned::Bounce)),
        ("direct, cached", options.clone().unaligned(Unaligned::Buffered)),
        ("buffered", options.mode(IoMode::Buffered)),
    ]
}

/// Opens a file of each size on each path. `check` changes the volume and its content alike; the file must have that
/// content at the end.
fn each(check: impl Fn(&str, &Volume, &mut Vec<u8>)) {
    for size in SIZES {
        for (path_name, options) in paths() {
            let mut content = filled(size, size as u64)[..].to_vec();
            let Some((_directory, path)) = scratch_with(&content) else { return };
            let name = format!("{path_name}, {size} bytes");
            let volume = Volume::open(&path, &options).unwrap();
            check(&name, &volume, &mut content);
            volume.close().unwrap();
            let file = std::fs::read(&path).unwrap();
            assert_eq!(file.len(), size, "{name}: the size changed");
            assert!(file == content, "{name}: other bytes in the file");
        }
    }
}

/// The whole file, its last byte, its last block, and ranges that end in the last block or before it.
fn ranges(size: usize) -> Vec<Range<usize>> {
    let last = (size - 1) / 4096 * 4096;
    let (sector, before) = ((size - 1) / 512 * 512, last.saturating_sub(5000));
    vec![
        0..size,
        size - 1..size,
        last..size,
        sector..size,
        before..size,
        before..(before + size).div_ceil(2),
        0..1,
    ]
}

#[test]
fn blocking_calls_read_write_zero_and_discard_the_last_bytes() {
    each(|name, volume, content| {
        let mut rng = ChaCha8Rng::seed_from_u64(content.len() as u64);
        for range in ranges(content.len()) {
            for operation in ["read", "write", "durable write", "zeroes", "discard"] {
                let (offset, bytes) = (range.start as u64, range.len() as u64);
                let part = &mut content[range.clone()];
                match operation {
                    "write" | "durable write" => {
                        rng.fill(part);
                        if operation == "write" {
                            volume.write_at(part, offset)
                        } else {
                            volume.write_durably_at(part, offset)
                        }
                    }
                    "zeroes" => {
                        part.fill(0);
                        volume.write_zeroes(offset, bytes)
                    }
                    "discard" => {
                        part.fill(0);
                        volume.discard(offset, bytes)
                    }
                    _ => Ok(()),
                }
                .unwrap_or_else(|error| panic!("{name}: {operation}: {error}"));
                for range in [range.clone(), 0..content.len()] {
                    let mut read = vec![0xEE; range.len()];
                    volume
                        .read_exact_at(&mut read, range.start as u64)
                        .unwrap_or_else(|error| panic!("{name}: {operation} of {range:?}: {error}"));
                    assert!(read == content[range.clone()], "{name}: {operation} of {range:?}");
                }
            }
        }
    });
}

#[test]
fn a_read_past_the_end_returns_the_rest_except_on_a_raw_volume() {
    each(|name, volume, content| {
        let mut read = vec![0; content.len() + 100];
        match volume.read_at(&mut read, 0) {
            Ok(bytes) => assert!(!name.starts_with("raw") && read[..bytes] == content[..], "{name}: {bytes}"),
            Err(error) => {
                assert!(name.starts_with("raw"), "{name}: {error}");
                assert!(matches!(error.kind(), ErrorKind::PastEnd { .. }), "{name}: {error}");
            }
        }
        let error = volume.write_at(&read, 0).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::PastEnd { .. }), "{name}: {error}");
    });
}

/// A direct batch accepts whole blocks, of which the last may be partial; a raw one whole blocks only.
#[test]
fn a_batch_reads_the_last_bytes() {
    each(|name, volume, content| {
        let block = if volume.stats().is_some() && name.starts_with("buffered") {
            1
        } else {
            volume.facts().block_bytes as usize
        };
        for range in ranges(content.len()) {
            let (start, bytes) = (range.start / block * block, range.end.next_multiple_of(block));
            let length = bytes - start;
            let mut batch = volume.batch(&BatchOptions::new(1, length.max(512))).unwrap();
            let read = Request::read(batch.buffer().unwrap(), start as u64).bytes(length);
            let is_partial = bytes > content.len();
            if let Err(refused) = batch.queue(read) {
                assert!(name.starts_with("raw") && is_partial, "{name}, {range:?}: {refused}");
                continue;
            }
            let done = batch.wait().unwrap().unwrap();
            let read = done.result.unwrap();
            assert_eq!(read, length.min(content.len() - start), "{name}, {range:?}");
            assert!(done.buffer.unwrap()[..read] == content[start..start + read], "{name}, {range:?}");
        }
    });
}

#[test]
fn a_batch_writes_the_last_bytes_through_the_page_cache() {
    each(|name, volume, content| {
        let is_cached = volume.stats().is_some();
        let options = BatchOptions::new(1, content.len().max(512)).buffered(is_cached);
        let mut batch = volume.batch(&options).unwrap();
        for (number, range) in ranges(content.len()).into_iter().enumerate() {
            let mut buffer = batch.buffer().unwrap();
            buffer[..range.len()].fill(number as u8 + 1);
            let write = Request::write(buffer, range.start as u64).bytes(range.len());
            match batch.queue(write) {
                Ok(()) => {
                    batch.wait().unwrap().unwrap().result.unwrap();
                    content[range].fill(number as u8 + 1);
                }
                // A direct batch writes whole blocks in the file; others are for a blocking call.
                Err(refused) => {
                    let is_unaligned = matches!(refused.error.kind(), ErrorKind::Unaligned { .. });
                    assert!(!batch.is_buffered() && is_unaligned, "{name}, {range:?}: {refused}");
                }
            }
        }
        let mut read = vec![0; content.len()];
        volume.read_exact_at(&mut read, 0).unwrap();
        assert!(read == *content, "{name}");
    });
}
