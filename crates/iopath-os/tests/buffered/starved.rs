//! Threads that lack a frame while another polls the device.

use std::sync::mpsc;
use std::time::Duration;

use iopath_core::cache::CacheConfig;
use iopath_core::{IoError, Op};
use iopath_os::{Buffered, BufferedConfig, BufferedError, Fault, Faults, Faulty, MemoryConfig, MemoryDisk};

use super::gated::{Gate, Gated};
use super::rig;

const PAGE: u64 = 4096;
const FRAMES: u32 = 16;

fn open(faults: &Faults, gate: &Gate) -> Buffered {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
    let config = rig::config(1 << 20);
    let config = BufferedConfig { cache: CacheConfig { frames: FRAMES, ..config.cache }, ..config };
    rig::open(config, Faulty::new(Box::new(Gated::new(disk.open(), gate)), faults), |_| ())
}

/// A reader polls the device for the page that takes the last frame. Afterwards no I/O is in flight. The other reader
/// has slept meanwhile, and must detect itself that write-back fails.
#[test]
fn a_starved_reader_gets_its_error_after_the_polling_thread_left() {
    let (faults, gate) = (Faults::new(1), Gate::default());
    let buffered = open(&faults, &gate);
    faults.add(Fault::error(IoError::Media).on(Op::Write));
    // As many pages as may be dirty; one of the two other frames is borrowed.
    for page in 1..u64::from(FRAMES) - 1 {
        buffered.write_at(&[1; PAGE as usize], page * PAGE).unwrap();
    }
    assert!(buffered.write_back().is_err());
    std::mem::forget(buffered.borrow(200 * PAGE, 1).unwrap());
    let (sender, receiver) = mpsc::channel();
    gate.close();
    // If a thread hangs, it is not joined and the cache is not dropped.
    let buffered: &'static Buffered = Box::leak(Box::new(buffered));
    std::thread::spawn(|| std::mem::forget(buffered.borrow(0, 1).unwrap()));
    std::thread::sleep(Duration::from_millis(50));
    std::thread::spawn(move || sender.send(buffered.borrow(100 * PAGE, 1).map(drop)));
    std::thread::sleep(Duration::from_millis(50));
    gate.open();
    let error = receiver.recv_timeout(Duration::from_secs(20)).expect("the reader hangs").unwrap_err();
    assert!(matches!(error, BufferedError::Unwritable { .. }), "{error}");
}
