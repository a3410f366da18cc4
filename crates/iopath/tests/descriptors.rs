//! The number of descriptors that a volume opens. The only test of its program, because descriptors belong to the
//! process.

mod support;

use iopath::{AlignedBuf, Volume};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use support::{options, scratch};

const SIZE: u64 = 64 << 10;

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_resize_during_reads_opens_no_further_engines() {
    let Some((_directory, path)) = scratch(SIZE) else { return };
    let volume = Volume::open(&path, &options().write(true)).unwrap();
    let (is_over, ready) = (AtomicBool::new(false), Barrier::new(4));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut buffer = AlignedBuf::new(4096).unwrap();
                volume.read_at(&mut buffer, 0).unwrap();
                ready.wait();
                while !is_over.load(Relaxed) {
                    volume.read_at(&mut buffer, 0).unwrap();
                }
            });
        }
        ready.wait();
        let resize = |rounds: u64| {
            for round in 0..rounds {
                volume.resize(SIZE + round % 2 * 4096).unwrap();
            }
            descriptors()
        };
        // Threads whose reads did not overlap so far may share an engine, so one may still open its own.
        let (before, after) = (resize(100), resize(300));
        is_over.store(true, Relaxed);
        assert!(after < before + 20, "{before} descriptors before, {after} after 300 resizes");
    });
}
