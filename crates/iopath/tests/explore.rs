//! Volumes under a scheduler that controls their threads, like the test `explore` of `iopath-os`: range locks of
//! bounced writes, shards, and direct I/O with a page cache. Empty in normal builds.
#![cfg(iopath_explore)]

use std::time::Duration;

use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{AlignedBuf, Options, Unaligned, Volume};
use iopath_os::sync::{Exploration, pick, thread};

const BYTES: usize = 1 << 16;

fn volume(options: Options) -> Volume {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(BYTES as u64)).unwrap();
    Volume::memory(&disk, &options.write(true)).unwrap()
}

/// Runs `act` on `count` concurrent threads, each with its number.
fn on_threads(count: u8, volume: &Volume, act: impl Fn(&Volume, u8) + Copy + Send + 'static) {
    let spawn = |number| {
        let volume = volume.clone();
        thread::Builder::new().name(format!("actor-{number}")).spawn(move || act(&volume, number)).unwrap()
    };
    let threads: Vec<_> = (0..count).map(spawn).collect();
    for thread in threads {
        thread.join().unwrap();
    }
}

#[test]
fn bounced_writes_to_neighbouring_bytes_are_all_kept() {
    let name = "bounced_writes_to_neighbouring_bytes_are_all_kept";
    Exploration::new(name).within(Duration::ZERO).run(|| {
        let volume = volume(Options::new().unaligned(Unaligned::Bounce));
        on_threads(3, &volume, |volume, number| {
            for round in 0..2 {
                // The last bytes of one page and the first of the next.
                let offset = 4000 + 100 * u64::from(number) + 4096 * pick(2);
                volume.write_at(&[10 * (number + 1) + round; 100], offset).unwrap();
                let mut seen = [0; 100];
                volume.read_at(&mut seen, offset).unwrap();
                assert_eq!(seen, [10 * (number + 1) + round; 100]);
            }
        });
    });
}

#[test]
fn direct_io_with_a_cache_completes_and_reads_written_bytes() {
    let name = "direct_io_with_a_cache_completes_and_reads_written_bytes";
    Exploration::new(name).within(Duration::from_secs(1)).run(|| {
        let volume = volume(Options::new().direct(false).cache_bytes(16 << 12));
        on_threads(3, &volume, |volume, number| {
            let mut bytes = AlignedBuf::new(4096).unwrap();
            for round in 0..2 {
                // Each thread has a page of its own, written by direct or buffered I/O.
                let (offset, byte) = (u64::from(number) << 12, 10 * (number + 1) + round);
                bytes.fill(byte);
                if pick(2) == 0 {
                    volume.write_at(&bytes, offset).unwrap();
                } else {
                    volume.direct().write_at(&bytes, offset).unwrap();
                }
                match pick(3) {
                    0 => volume.flush().unwrap(),
                    1 => drop(volume.read_at(&mut bytes, offset).unwrap()),
                    _ => drop(volume.direct().read_at(&mut bytes, offset).unwrap()),
                }
                assert!(bytes.iter().all(|seen| *seen == byte));
            }
        });
        volume.flush().unwrap();
    });
}

#[test]
fn zeroes_do_not_undo_a_resize() {
    let name = "zeroes_do_not_undo_a_resize";
    Exploration::new(name).within(Duration::from_secs(1)).run(|| {
        let volume = volume(Options::new().direct(false).extend(true).cache_bytes(16 << 12));
        on_threads(2, &volume, |volume, number| {
            if number == 0 {
                volume.resize(4096).unwrap();
            } else {
                // The bytes before the first block, blocks, and the bytes after the last one. Refused past the end.
                let _ = volume.write_zeroes(5000, 3000);
            }
        });
        assert_eq!(volume.size_bytes(), 4096);
    });
}
