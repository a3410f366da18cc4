//! The end of a file that is not a whole number of blocks: its last bytes bypass the queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use iopath_core::IoError;
use iopath_os::{Advice, Buffered, BufferedConfig, MemoryConfig, MemoryDisk, Tail};

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

/// Refuses writes while the flag is set.
#[derive(Debug)]
struct Refusing<T> {
    inner: T,
    is_full: Arc<AtomicBool>,
}

impl<T: Tail> Tail for Refusing<T> {
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, IoError> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(IoError::NoSpace);
        }
        self.inner.write_at(bytes, offset)
    }
}

#[test]
fn a_refused_append_is_cut_before_a_write_of_the_last_page_can_begin() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(SIZE)).unwrap();
    let is_full = Arc::new(AtomicBool::new(true));
    let tail = Refusing { inner: disk.tail(), is_full: Arc::clone(&is_full) };
    let config = BufferedConfig {
        tail: Some(Box::new(tail)),
        plain_file: Some(Arc::new(tempfile::tempfile().unwrap())),
        ..rig::config(SIZE)
    };
    let buffered = &rig::open(config, disk.open(), |_| ());
    let last = vec![1; (SIZE - 8 * PAGE) as usize];
    buffered.write_at(&last, 8 * PAGE).unwrap();
    std::thread::scope(|scope| {
        let cut = |offset, written| {
            assert_eq!((offset, written), (SIZE, 0));
            is_full.store(false, Ordering::Relaxed);
            let write_back = scope.spawn(|| buffered.write_back().unwrap());
            // Enough time for the other thread to write the page, if it may.
            std::thread::sleep(Duration::from_millis(50));
            assert!(!write_back.is_finished(), "the last page is written while the file is cut");
        };
        assert_eq!(buffered.append(&[2; 50], SIZE, cut).unwrap(), 0);
    });
    assert_eq!((buffered.size_bytes(), buffered.stats().cache.dirty), (SIZE, 0));
    let mut bytes = vec![0; 200];
    assert_eq!(buffered.read_at(&mut bytes, 8 * PAGE).unwrap(), last.len());
    assert_eq!(bytes[..last.len()], last);
}
