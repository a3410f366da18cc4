//! Two engines on one mapped file. Engine A writes metadata to the device. Then a flush of engine B fails, and after
//! that a flush of A succeeds. A scripted device determines the order.

use std::collections::VecDeque;
use std::fmt;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use iopath_core::mapper::{Boundary, FileLayout};
use iopath_core::{BlockDevice, Busy, Completion, Extent, Instant, Io, IoError, Limits, Op, Tag};
use iopath_os::{
    AlignedBuf, FileMap, Mapped, MemoryConfig, MemoryDevice, MemoryDisk, Notifier, RealDevice, Segment,
    WaitError, now,
};

const MIB: u64 = 1 << 20;

/// The first block that an indirect block maps, and a block that the inode maps.
const INDIRECT: u64 = 12 * 4096;
const DIRECT: u64 = 5 * 4096;

/// A disk in memory. Its flushes and forced writes fail and lose all data that is not on the medium, or it calls a
/// function before it flushes.
struct Scripted {
    inner: MemoryDevice,
    loses: Option<MemoryDisk>,
    before_flush: Option<Box<dyn FnMut() + Send>>,
    over: VecDeque<Completion>,
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

impl BlockDevice for Scripted {
    type Memory = Segment;

    fn limits(&self) -> &Limits {
        self.inner.limits()
    }

    fn submit(&mut self, io: &Io<'_, Segment>, now: Instant) -> Result<(), Busy> {
        if let (true, Some(before)) = (io.op == Op::Flush, &mut self.before_flush) {
            before();
        }
        match &self.loses {
            Some(disk) if io.op == Op::Flush || io.fua => {
                disk.lose_unsaved(|_| 0);
                self.over.push_back(Completion { tag: io.tag, result: Err(IoError::Media) });
                Ok(())
            }
            _ => self.inner.submit(io, now),
        }
    }

    fn commit(&mut self, now: Instant) {
        self.inner.commit(now);
    }

    fn poll_completion(&mut self, now: Instant) -> Option<Completion> {
        self.over.pop_front().or_else(|| self.inner.poll_completion(now))
    }
}

// SAFETY: only the inner device accesses memory. Requests that fail here access none.
unsafe impl RealDevice for Scripted {
    fn commit_and_wait(&mut self, completions: u32, timeout: Option<Duration>) -> Result<(), WaitError> {
        if self.over.is_empty() { self.inner.commit_and_wait(completions, timeout) } else { Ok(()) }
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.over.len() as u32
    }

    fn syscalls(&self) -> u64 {
        0
    }

    fn set_notifier(&mut self, notifier: &Notifier) -> std::io::Result<()> {
        self.inner.set_notifier(notifier)
    }
}

type Engine = Mapped<Scripted>;

fn engine(disk: &MemoryDisk, file: &FileMap, loses: bool) -> Engine {
    let loses = loses.then(|| disk.clone());
    let device = Scripted { inner: disk.open(), loses, before_flush: None, over: VecDeque::new() };
    Mapped::new(device, file, Boundary::Once).unwrap()
}

fn segment(memory: &mut AlignedBuf) -> Segment {
    // SAFETY: the test keeps the memory, and does not access it, until the request has completed.
    unsafe { Segment::new(NonNull::from(&mut **memory).cast(), memory.len()) }
}

fn transfer(engine: &mut Engine, op: Op, offset: u64, memory: &mut AlignedBuf, fua: bool) {
    let extent = Extent::from_bytes(offset, memory.len() as u64).unwrap();
    let segments = [segment(memory)];
    let mut io = Io::new(Tag::from_bits(0), op, extent, &segments);
    io.fua = fua;
    engine.submit(&io, now()).unwrap();
}

fn flush(engine: &mut Engine) {
    engine.submit(&Io::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]), now()).unwrap();
}

fn wait(engine: &mut Engine) -> Result<(), IoError> {
    loop {
        engine.commit_and_wait(1, None).unwrap();
        if let Some(done) = engine.poll_completion(now()) {
            return done.result;
        }
    }
}

/// The flush of one engine if a flush or forced write of another engine has lost its metadata, and the other engine has
/// not been polled yet.
fn flush_beside_a_failure(fua: bool, is_dropped: bool) {
    let disk = MemoryConfig { cache_bytes: 4 * MIB, ..MemoryConfig::of_bytes(32 * MIB) };
    let disk = MemoryDisk::new(&disk).unwrap();
    let layout = FileLayout { block_bytes: 4096, size_bytes: 16 * MIB, capacity_bytes: 32 * MIB };
    let file = FileMap::fresh("indirect", &layout).unwrap();
    let mut saver = engine(&disk, &file, false);
    let mut memory = AlignedBuf::new(4096).unwrap();
    memory.fill(7);
    transfer(&mut saver, Op::Write, DIRECT, &mut memory, false);
    wait(&mut saver).unwrap();
    flush(&mut saver);
    wait(&mut saver).unwrap();

    // The commit submits it: between the metadata and the flush of the other engine.
    let mut forced = AlignedBuf::new(4096).unwrap();
    let mut loser = engine(&disk, &file, true);
    if fua {
        transfer(&mut loser, Op::Write, DIRECT, &mut forced, true);
    } else {
        flush(&mut loser);
    }
    let loser = Arc::new(Mutex::new(Some(loser)));
    transfer(&mut saver, Op::Write, INDIRECT, &mut memory, false);
    wait(&mut saver).unwrap();
    let mut plain = disk.open();
    plain.submit(&Io::new(Tag::from_bits(0), Op::Flush, Extent::EMPTY, &[]), now()).unwrap();
    plain.commit_and_wait(1, None).unwrap();
    drop((plain, saver));
    let (other, mut is_first) = (Arc::clone(&loser), true);
    let before_flush = move || {
        if std::mem::replace(&mut is_first, false) {
            other.lock().unwrap().as_mut().unwrap().commit(now());
        }
    };
    let device = Scripted {
        inner: disk.open(),
        loses: None,
        before_flush: Some(Box::new(before_flush)),
        over: VecDeque::new(),
    };
    let mut saver = Mapped::new(device, &file, Boundary::Once).unwrap();
    flush(&mut saver);
    saver.commit(now());
    let done = (0..100).find_map(|_| saver.poll_completion(now()));
    assert_eq!(done, None, "a flush has completed while that of another engine may have lost its metadata");
    if is_dropped {
        loser.lock().unwrap().take();
    } else {
        wait(loser.lock().unwrap().as_mut().unwrap()).unwrap_err();
    }
    assert_eq!(wait(&mut saver), Err(IoError::Media), "the metadata is lost");
    flush(&mut saver);
    wait(&mut saver).unwrap();

    drop(saver);
    disk.crash(|_| 0);
    file.with_mapper(|mapper| mapper.forget_metadata());
    let mut after = engine(&disk, &file, false);
    memory.fill(0);
    transfer(&mut after, Op::Read, INDIRECT, &mut memory, false);
    wait(&mut after).unwrap();
    assert!(memory.iter().all(|byte| *byte == 7), "a flush succeeded and the metadata is not on the medium");
}

#[test]
fn a_flush_waits_for_the_outcome_of_another_engines_flush() {
    flush_beside_a_failure(false, false);
}

#[test]
fn a_flush_waits_for_the_outcome_of_another_engines_forced_write() {
    flush_beside_a_failure(true, false);
}

#[test]
fn a_flush_completes_after_another_engine_was_dropped_with_a_flush_in_flight() {
    flush_beside_a_failure(false, true);
}
