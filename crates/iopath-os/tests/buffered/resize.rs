//! A volume that changes its size while readers use it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use iopath_core::IoError;
use iopath_os::{Buffered, BufferedConfig, BufferedError, MemoryConfig, MemoryDisk, NoMemory};

use super::gated::{Gate, Gated};
use super::rig;

const PAGE: u64 = 4096;
const OLD: u64 = 16 * PAGE;
/// Inside a page and inside a block.
const NEW: u64 = 4 * PAGE + 100;

fn open(disk: &MemoryDisk, gate: &Gate) -> Buffered {
    let config = BufferedConfig { tail: Some(Box::new(disk.tail())), ..rig::config(OLD) };
    rig::open(config, Gated::new(disk.open(), gate), |_| ())
}

fn disk() -> MemoryDisk {
    MemoryDisk::new(&MemoryConfig::of_bytes(OLD)).unwrap()
}

/// The device is already truncated, and the cache does not yet know that the truncation succeeded.
#[test]
fn a_read_during_a_truncation_is_short_and_not_an_error() {
    let disk = disk();
    let buffered = open(&disk, &Gate::default());
    buffered.write_at(&vec![7; OLD as usize], 0).unwrap();
    let read = |offset: u64, bytes: usize| {
        let mut buffer = vec![0; bytes];
        let bytes_read = buffered.read_at(&mut buffer, offset).unwrap();
        assert!(buffer[..bytes_read].iter().all(|byte| *byte == 7), "{bytes_read} bytes from {offset} on");
        bytes_read
    };
    let resized = buffered.resize(NEW, || {
        disk.resize(NEW)?;
        assert_eq!(read(NEW - 50, 50), 50, "before the new end");
        assert_eq!(read(NEW - 50, 5000), 50, "across the new end");
        assert_eq!(read(NEW + PAGE, 10), 0, "after the new end");
        assert_eq!(buffered.borrow(NEW - 50, 5000).unwrap().len(), 50);
        Ok::<(), NoMemory>(())
    });
    resized.unwrap().unwrap();
    assert_eq!((read(0, OLD as usize), buffered.size_bytes()), (NEW as usize, NEW));
}

/// The read is submitted for the whole page, and then a part of the page is truncated.
#[test]
fn a_read_in_flight_across_the_new_end_is_repeated() {
    let (disk, gate) = (disk(), Gate::default());
    let buffered = open(&disk, &gate);
    buffered.write_at(&vec![7; OLD as usize], 0).unwrap();
    buffered.flush().unwrap();
    buffered.advise(0, OLD, iopath_os::Advice::DontNeed);
    // The truncation waits for this page, which is past the new end.
    buffered.write_at(&[8; 100], 10 * PAGE).unwrap();
    gate.close();
    // Enough time for each of these threads to submit its I/O or to wait.
    let pause = || std::thread::sleep(Duration::from_millis(50));
    std::thread::scope(|scope| {
        scope.spawn(|| buffered.write_back().unwrap());
        pause();
        let resizer = scope.spawn(|| {
            let cut = || {
                gate.open_and_fail_a_read();
                pause();
                disk.resize(NEW)
            };
            buffered.resize(NEW, cut).unwrap().unwrap();
        });
        pause();
        let reader = scope.spawn(|| {
            // One page: pages that failed together are read again one by one.
            let mut buffer = [0; 200];
            let bytes_read = buffered.read_at(&mut buffer, NEW - 50).unwrap();
            (bytes_read, buffer[0], buffer[49])
        });
        pause();
        gate.open_except_for_reads();
        resizer.join().unwrap();
        assert_eq!(reader.join().unwrap(), (50, 7, 7));
    });
}

#[test]
fn dirty_pages_dropped_for_a_failed_truncation_fail_every_flush() {
    let disk = disk();
    let buffered = open(&disk, &Gate::default());
    let refuse = || Err("the file system refuses");
    assert!(buffered.resize(NEW, refuse).unwrap().is_err());
    buffered.flush().expect("nothing was dirty");
    buffered.write_at(&[7; 100], 10 * PAGE).unwrap();
    assert!(buffered.resize(NEW, refuse).unwrap().is_err());
    assert_eq!(buffered.size_bytes(), OLD);
    for _ in 0..2 {
        assert!(matches!(buffered.flush(), Err(BufferedError::Io(_))));
    }
    assert!(buffered.accept_loss().is_some());
    buffered.flush().unwrap();
}

#[test]
fn a_reader_never_sees_the_zeroes_of_a_failed_truncation() {
    let disk = disk();
    let buffered = open(&disk, &Gate::default());
    buffered.write_at(&vec![7; OLD as usize], 0).unwrap();
    buffered.flush().unwrap();
    let is_done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_done.load(Relaxed) {
                let mut buffer = [9; 100];
                let bytes_read = buffered.read_at(&mut buffer, NEW + 2000).unwrap();
                assert!(
                    buffer[..bytes_read].iter().all(|byte| *byte == 7),
                    "{bytes_read} bytes, not all of them written"
                );
                let borrowed = buffered.borrow(NEW + 2000, 100).unwrap();
                assert!(borrowed.slices().flatten().all(|byte| *byte == 7), "borrowed");
            }
        });
        for _ in 0..2000 {
            // A reader caches the page that contains the new end.
            let cut = || buffered.read_at(&mut [0; 10], 4 * PAGE).map(drop).and(Err(IoError::Media.into()));
            let resized: Result<Result<(), BufferedError>, _> = buffered.resize(NEW, cut);
            assert!(resized.unwrap().is_err());
        }
        is_done.store(true, Relaxed);
    });
    assert_eq!(buffered.read_at(&mut [0; 100], NEW + 2000).unwrap(), 100);
}

/// Checks only that all readers return, not their data.
#[test]
fn readers_of_truncated_pages_do_not_hang() {
    let (disk, gate) = (disk(), Gate::default());
    let buffered: &'static Buffered = Box::leak(Box::new(open(&disk, &gate)));
    gate.close();
    let (ended, ends) = mpsc::channel();
    for page in 5..9 {
        let ended = ended.clone();
        std::thread::spawn(move || ended.send(buffered.read_at(&mut [0; 100], page * PAGE).unwrap()));
    }
    std::thread::sleep(Duration::from_millis(50));
    buffered.resize(NEW, || disk.resize(NEW)).unwrap().unwrap();
    gate.open();
    for _ in 5..9 {
        assert_eq!(ends.recv_timeout(Duration::from_secs(20)).expect("a reader hangs"), 0);
    }
}
