//! The kernel's paths on a small file: data is correct, the end and faults are errors, and no transfer in flight is
//! lost.

use std::fs::{self, File};
use std::io;
use std::num::NonZeroU32;
use std::os::unix::fs::FileExt;

use iopath_os::kernel::{self, Direction, Done, Mmap, OneAtATime, Polling, Pread, Slots, Transfer, Uring};
use tempfile::NamedTempFile;

const BLOCK: u32 = 8192;
const FILE_BYTES: u64 = 1 << 20;

fn scratch() -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    let bytes: Vec<u8> = (0..FILE_BYTES / 8).flat_map(u64::to_le_bytes).collect();
    fs::write(file.path(), bytes).unwrap();
    file
}

fn slots(depth: u32) -> Slots {
    Slots::new(depth, BLOCK, |bytes| bytes.fill(0xA5)).unwrap()
}

fn read(offset: u64) -> Transfer {
    Transfer { direction: Direction::Read, offset, bytes: BLOCK }
}

fn write(offset: u64) -> Transfer {
    Transfer { direction: Direction::Write, ..read(offset) }
}

/// The initial contents of the file at an offset.
fn original(offset: u64) -> Vec<u8> {
    (offset / 8..(offset + u64::from(BLOCK)) / 8).flat_map(u64::to_le_bytes).collect()
}

/// Returns nothing, and prints a message, if `io_uring` or direct I/O is not available.
fn uring(file: File, depth: u32) -> Option<Uring> {
    Uring::new(file, slots(depth), 4096)
        .inspect_err(|error| eprintln!("skipped: no io_uring here ({error})"))
        .ok()
}

#[test]
fn a_ring_with_a_thread_of_the_kernel_for_submissions_transfers_the_same_bytes() {
    let scratch = scratch();
    for cpu in [None, Some(0)] {
        let file = kernel::open(scratch.path(), true, false).unwrap();
        let polling = Polling { submissions: true, cpu, ..Polling::default() };
        let mut ring = match Uring::with_polling(file, slots(4), 4096, polling) {
            Ok(ring) => ring,
            Err(error) => return eprintln!("skipped: no polled submissions here ({error})"),
        };
        let mut done = Vec::new();
        // More transfers than slots, so that entries of the queue are used again.
        for round in 0..8 {
            for slot in 0..4 {
                ring.submit(slot, read(u64::from((round + slot) % 4) * u64::from(BLOCK))).unwrap();
            }
            while done.len() < 4 {
                ring.reap(&mut done).unwrap();
            }
            assert!(done.drain(..).all(|done| done.result.is_ok()));
        }
        assert_eq!(ring.buffer(0), original(u64::from(7 % 4_u32) * u64::from(BLOCK)));
    }
}

fn one(done: &mut Vec<Done>) -> io::Result<()> {
    assert_eq!(done.len(), 1, "{done:?}");
    done.remove(0).result
}

#[test]
fn pread_writes_and_reads_back() {
    let scratch = scratch();
    let file = kernel::open(scratch.path(), true, false).unwrap();
    let mut path = OneAtATime::new(Pread::new(file, 1), slots(1));
    let mut done = Vec::new();
    path.submit(0, write(BLOCK.into()));
    path.reap(&mut done);
    one(&mut done).unwrap();
    path.flush().unwrap();
    let written = path.buffer(0).to_vec();
    path.submit(0, read(0));
    path.reap(&mut done);
    one(&mut done).unwrap();
    assert_eq!(path.buffer(0), original(0));
    path.submit(0, read(BLOCK.into()));
    path.reap(&mut done);
    one(&mut done).unwrap();
    assert_eq!(path.buffer(0), written);
    assert_eq!(&fs::read(scratch.path()).unwrap()[BLOCK as usize..2 * BLOCK as usize], written);
}

#[test]
fn pread_reports_an_early_end_and_a_file_not_open_for_writing() {
    let scratch = scratch();
    let mut path =
        OneAtATime::new(Pread::new(kernel::open(scratch.path(), false, false).unwrap(), 1), slots(1));
    let mut done = Vec::new();
    path.submit(0, read(FILE_BYTES - 1));
    path.reap(&mut done);
    assert_eq!(one(&mut done).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    path.submit(0, write(0));
    path.reap(&mut done);
    assert_eq!(one(&mut done).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[test]
fn uring_transfers_all_its_slots_at_once() {
    let scratch = scratch();
    let Some(mut path) = uring(kernel::open(scratch.path(), true, false).unwrap(), 8) else { return };
    let mut done = Vec::new();
    for slot in 0..8 {
        let offset = u64::from(slot * BLOCK);
        path.submit(slot, if slot % 2 == 0 { write(offset) } else { read(offset) }).unwrap();
    }
    while done.len() < 8 {
        path.reap(&mut done).unwrap();
    }
    assert!(done.iter().all(|done| done.result.is_ok()), "{done:?}");
    let bytes = fs::read(scratch.path()).unwrap();
    for slot in 0..8 {
        let offset = slot as usize * BLOCK as usize;
        assert_eq!(path.buffer(slot), &bytes[offset..offset + BLOCK as usize], "slot {slot}");
    }
    assert_eq!(path.buffer(1), original(BLOCK.into()));
}

#[test]
fn uring_submits_its_transfers_in_groups() {
    let file = scratch().reopen().unwrap();
    let Some(mut ring) = uring(file, 16) else { return };
    let submit = |ring: &mut Uring, range: std::ops::Range<u32>| {
        let queued = range.map(|slot| {
            ring.submit(slot, read(0)).unwrap();
            ring.has_queued()
        });
        queued.collect::<Vec<_>>()
    };
    let reap_all = |ring: &mut Uring| {
        let mut done = Vec::new();
        while done.len() < 16 {
            ring.reap(&mut done).unwrap();
        }
    };
    let every = |group: usize| (1..=16).map(|queued| queued % group != 0).collect::<Vec<_>>();
    assert_eq!(submit(&mut ring, 0..16), every(4));
    reap_all(&mut ring);
    for group in [1, 8, 16] {
        ring.set_submit_max(NonZeroU32::new(group as u32).unwrap());
        assert_eq!(submit(&mut ring, 0..16), every(group));
        reap_all(&mut ring);
    }
}

#[test]
fn uring_reports_an_early_end_after_a_retry_at_an_aligned_offset() {
    let scratch = scratch();
    scratch.as_file().set_len(FILE_BYTES - 1000).unwrap();
    let Some(mut path) = uring(kernel::open(scratch.path(), false, false).unwrap(), 1) else { return };
    let mut done = Vec::new();
    path.submit(0, read(FILE_BYTES - u64::from(BLOCK))).unwrap();
    path.reap(&mut done).unwrap();
    assert_eq!(one(&mut done).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    path.reap(&mut done).unwrap();
    assert!(done.is_empty(), "with no transfer in flight, the wait returns at once");
}

#[test]
fn uring_dropped_with_transfers_in_flight_waits_for_them() {
    let scratch = scratch();
    let Some(mut path) = uring(kernel::open(scratch.path(), true, false).unwrap(), 8) else { return };
    for slot in 0..8 {
        path.submit(slot, write(u64::from(slot * BLOCK))).unwrap();
    }
    drop(path);
    let bytes = fs::read(scratch.path()).unwrap();
    for slot in 0..8usize {
        assert_eq!(bytes[slot * BLOCK as usize + 8], 0xA5, "slot {slot} was written");
    }
}

#[test]
#[should_panic(expected = "slot 0 is in flight")]
fn uring_refuses_a_slot_in_flight() {
    let scratch = scratch();
    let Some(mut path) = uring(kernel::open(scratch.path(), false, false).unwrap(), 2) else {
        panic!("slot 0 is in flight: skipped, no io_uring here");
    };
    path.submit(0, read(0)).unwrap();
    path.submit(0, read(0)).unwrap();
}

#[test]
fn mmap_writes_and_reads_back() {
    let scratch = scratch();
    let file = kernel::open(scratch.path(), true, false).unwrap();
    let mut path = OneAtATime::new(Mmap::new(file, FILE_BYTES, true).unwrap(), slots(1));
    let mut done = Vec::new();
    path.submit(0, write(0));
    path.reap(&mut done);
    one(&mut done).unwrap();
    path.flush().unwrap();
    let mut bytes = vec![0; BLOCK as usize];
    scratch.as_file().read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(path.buffer(0), bytes);
    path.submit(0, read(FILE_BYTES - u64::from(BLOCK)));
    path.reap(&mut done);
    one(&mut done).unwrap();
    assert_eq!(path.buffer(0), original(FILE_BYTES - u64::from(BLOCK)));
    path.submit(0, read(FILE_BYTES - 1));
    path.reap(&mut done);
    assert_eq!(one(&mut done).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn mmap_of_a_file_open_for_reading_refuses_writes() {
    let scratch = scratch();
    let file = kernel::open(scratch.path(), false, false).unwrap();
    let mut path = OneAtATime::new(Mmap::new(file, FILE_BYTES, false).unwrap(), slots(1));
    let mut done = Vec::new();
    path.submit(0, write(0));
    path.reap(&mut done);
    assert_eq!(one(&mut done).unwrap_err().raw_os_error(), Some(libc::EBADF));
}

#[test]
fn mmap_of_a_file_that_shrinks_is_an_error_and_does_not_end_the_process() {
    let scratch = scratch();
    let file = kernel::open(scratch.path(), true, false).unwrap();
    let mut path = OneAtATime::new(Mmap::new(file, FILE_BYTES, true).unwrap(), slots(1));
    let mut done = Vec::new();
    path.submit(0, read(FILE_BYTES / 2));
    path.reap(&mut done);
    one(&mut done).unwrap();
    scratch.as_file().set_len(FILE_BYTES / 2).unwrap();
    path.submit(0, read(FILE_BYTES / 2));
    path.reap(&mut done);
    assert_eq!(one(&mut done).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}
