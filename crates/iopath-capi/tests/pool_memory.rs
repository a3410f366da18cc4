//! A buffer pool in memory of the program: a mapping that the test makes, in batches of several volumes. It is here
//! because the crate `iopath` has no `unsafe`, also in its tests.

#![allow(unsafe_code, reason = "makes the mapping")]

use iopath::{BatchOptions, BufferPool, Completion, IoMode, Options, PoolBuf, Request, Volume};
use std::ffi::c_void;
use std::ptr::NonNull;

const PAGE: usize = 4096;
const FRAMES: u32 = 64;

/// A mapping, as a database makes it. Drop unmaps it.
struct Mapping(NonNull<u8>, usize);

// SAFETY: a mapping belongs to no thread, and this type gives no access to its bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize, sharing: i32) -> Self {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, sharing | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED, "{}", std::io::Error::last_os_error());
        Self(NonNull::new(start.cast()).unwrap(), bytes)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pool drops its owner after the last access.
        let result = unsafe { libc::munmap(self.0.as_ptr().cast::<c_void>(), self.1) };
        assert_eq!(result, 0);
    }
}

fn pool(sharing: i32) -> BufferPool {
    let mapping = Mapping::new(FRAMES as usize * PAGE, sharing);
    // SAFETY: the mapping is zeroed, holds the frames, and only the pool has it.
    unsafe { BufferPool::of_memory(mapping.0, FRAMES, PAGE, mapping) }.unwrap()
}

/// The lines of registered buffers of all rings of this process. `None` if the kernel shows none.
fn registered() -> Option<Vec<String>> {
    let directory = std::fs::read_dir("/proc/self/fdinfo").ok()?;
    let texts = directory.flatten().filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
    let rings: Vec<String> = texts.filter(|text| text.contains("UserBufs:")).collect();
    (!rings.is_empty()).then(|| rings.iter().flat_map(|text| text.lines().map(str::to_owned)).collect())
}

/// Writes and reads all frames in two batches of each path over one pool.
#[test]
fn batches_read_and_write_the_memory_of_the_program_by_registered_buffers() {
    let directory = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    for (number, mode) in [IoMode::Direct, IoMode::Buffered].into_iter().enumerate() {
        for sharing in [libc::MAP_PRIVATE, libc::MAP_SHARED] {
            let path = directory.path().join(format!("{number}-{sharing}"));
            let options = Options::new().write(true).create(u64::from(FRAMES) * PAGE as u64).mode(mode);
            let volume = match Volume::open(&path, &options) {
                Ok(volume) => volume,
                Err(error) => return eprintln!("skipped: {error}"),
            };
            let pool = pool(sharing);
            let options = BatchOptions::new(8, PAGE).pool(&pool);
            let mut batch = volume.batch(&options).unwrap();
            // Kept, so that each write has another frame.
            let mut written = Vec::new();
            let mut keep = |done: Completion| {
                assert_eq!(done.result.unwrap(), PAGE);
                written.extend(done.buffer);
            };
            for block in 0..u64::from(FRAMES) {
                let mut frame = pool.take().unwrap();
                assert_eq!(u64::from(frame.number()), block);
                frame.fill(block as u8 + 1);
                if batch.in_flight() == 8 {
                    keep(batch.wait().unwrap().unwrap());
                }
                batch.queue(Request::write(frame, block * PAGE as u64)).unwrap();
            }
            while let Some(done) = batch.wait().unwrap() {
                keep(done);
            }
            written.sort_by_key(PoolBuf::number);
            assert_eq!(written.len(), FRAMES as usize);
            let first = written.first().map(|frame| format!("{:#x}/", frame.as_ptr().addr())).unwrap();
            drop(written);
            let is_ring = mode == IoMode::Direct && volume.facts().engine == "uring";
            if let Some(lines) = registered().filter(|_| is_ring) {
                assert!(lines.iter().any(|line| line.contains(&first)), "{first} is not in {lines:?}");
            }
            drop(batch);
            let mut batch = volume.batch(&options).unwrap();
            for block in 0..u64::from(FRAMES) {
                let frame = pool.take().unwrap();
                batch.queue(Request::read(frame, block * PAGE as u64).token(block)).unwrap();
                let done = batch.wait().unwrap().unwrap();
                let frame = done.buffer.unwrap();
                assert!(frame.iter().all(|&byte| byte == done.token as u8 + 1), "block {}", done.token);
            }
        }
    }
}
