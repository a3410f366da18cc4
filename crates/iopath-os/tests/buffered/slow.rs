//! While the device delays a read, other calls do not wait for the read.

use std::sync::mpsc;
use std::time::Duration;

use iopath_core::Op;
use iopath_os::{Advice, Buffered, MemoryConfig, MemoryDisk};

use super::gated::{Gate, Gated};
use super::rig;

const PAGE: u64 = 4096;

/// A cache, and a gate that holds back the reads of the device.
fn open() -> (&'static Buffered, Gate) {
    let gate = Gate::default();
    // The disk has no write cache, so the queue completes a flush itself.
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    // If a thread hangs, it is not joined and the cache is not dropped.
    let buffered: &'static Buffered =
        Box::leak(Box::new(rig::open(rig::config(1 << 20), Gated::new(disk.open(), &gate), |_| ())));
    gate.close();
    gate.open_except_for_reads();
    (buffered, gate)
}

/// Runs `act` in a thread. The channel receives a message when `act` returns.
fn ends(act: impl FnOnce() + Send + 'static) -> mpsc::Receiver<()> {
    let (ended, ends) = mpsc::channel();
    std::thread::spawn(move || {
        act();
        // Fails if the test has ended.
        let _ = ended.send(());
    });
    ends
}

const SOON: Duration = Duration::from_secs(10);

/// Enough time for another thread to submit its I/O or to wait.
fn pause() {
    std::thread::sleep(Duration::from_millis(50));
}

#[test]
fn a_flush_that_the_queue_completes_does_not_wait_for_a_slow_read_of_another_thread() {
    let (buffered, gate) = open();
    let reader = ends(move || assert_eq!(buffered.read_at(&mut [0; 10], 200 * PAGE).unwrap(), 10));
    pause();
    let flush = ends(move || buffered.flush().unwrap());
    assert!(flush.recv_timeout(SOON).is_ok(), "the flush waits for the read");
    gate.open();
    assert!(reader.recv_timeout(SOON).is_ok(), "the read hangs");
}

#[test]
fn a_writer_that_polls_continues_when_the_direct_write_it_waits_for_completes() {
    let (buffered, _gate) = open();
    buffered.advise(200 * PAGE, PAGE, Advice::WillNeed);
    let direct = buffered.begin_direct(Op::Write, 5 * PAGE, PAGE).unwrap();
    let writer = ends(move || buffered.write_at(&[1; PAGE as usize], 5 * PAGE).unwrap());
    pause();
    drop(direct);
    assert!(writer.recv_timeout(SOON).is_ok(), "the writer waits for the read");
}
