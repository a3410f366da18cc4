//! The end of a file that is not a whole number of blocks: its last bytes bypass the queue.

use std::time::Duration;

use iopath_os::{Advice, Buffered, BufferedConfig, MemoryConfig, MemoryDisk};

use super::gated::{Gate, Gated};
use super::rig;

const PAGE: u64 = 4096;
const SIZE: u64 = 8 * PAGE + 100;

fn open(disk: &MemoryDisk, gate: &Gate) -> Buffered {
    let config = BufferedConfig { tail: Some(Box::new(disk.tail())), ..rig::config(SIZE) };
    rig::open(config, Gated::new(disk.open(), gate), |_| ())
}

/// Three write-backs of page 7 are requested at once; the second extends into the last bytes of the volume.
#[test]
fn the_device_has_the_last_write_of_a_page_next_to_the_end() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
    let gate = Gate::default();
    let buffered = &open(&disk, &gate);
    gate.close();
    std::thread::scope(|scope| {
        for (byte, bytes) in [(1, PAGE + 100), (2, PAGE + 100), (3, PAGE)] {
            buffered.write_at(&vec![byte; bytes as usize], 7 * PAGE).unwrap();
            scope.spawn(|| buffered.write_back().unwrap());
            // Enough time for the other thread to submit its write-back or to wait for an earlier one.
            std::thread::sleep(Duration::from_millis(50));
        }
        gate.open();
    });
    buffered.flush().unwrap();
    assert_eq!(buffered.stats().cache.dirty, 0);
    buffered.advise(0, SIZE, Advice::DontNeed);
    let mut bytes = vec![0; PAGE as usize + 100];
    buffered.read_at(&mut bytes, 7 * PAGE).unwrap();
    assert!(bytes[..PAGE as usize].iter().all(|byte| *byte == 3), "the device has older bytes of page 7");
    assert!(bytes[PAGE as usize..].iter().all(|byte| *byte == 2), "the device has older bytes at the end");
}
