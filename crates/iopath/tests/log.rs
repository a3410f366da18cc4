//! The request log of volumes and batches: it records, or its start is refused with a reason.

use crate::support::{options, scratch};
use iopath::log::{LogSink, RecordBatch};
use iopath::mapped::{FileLayout, FileMap};
use iopath::source::Extent;
use iopath::testing::{MemoryConfig, MemoryDisk};
use iopath::{
    AlignedBuf, Batch, BatchOptions, ErrorKind, IoMode, Op, Options, Request, Unaligned, Volume, elevator,
    log,
};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Counts batches of records.
#[derive(Debug, Default, Clone)]
struct Counter(Arc<AtomicU64>);

impl LogSink for Counter {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        *batch = RecordBatch::default();
        self.0.fetch_add(1, Relaxed);
        Ok(())
    }

    /// A queue that becomes idle passes its records on, so that short tests see them.
    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.take(batch)
    }
}

fn each_mode(mut check: impl FnMut(&str, &Volume)) {
    let modes = [
        ("direct", options().write(true)),
        ("raw", options().write(true).mode(IoMode::Raw)),
        ("direct, deadline", options().write(true).elevator("deadline")),
        ("buffered", options().write(true).direct(false).cache_bytes(64 * 4096)),
    ];
    for (name, options) in modes {
        if let Some((directory, path)) = scratch(1 << 16) {
            check(&format!("{name}, a file"), &Volume::open(&path, &options).unwrap());
            let other = directory.path().join("other");
            std::fs::copy(&path, &other).unwrap();
            check(
                &format!("{name}, stripe"),
                &Volume::open_stripe(&[&path, &other], 4096, &options).unwrap(),
            );
        }
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 17)).unwrap();
        check(&format!("{name}, memory"), &Volume::memory(&disk, &options).unwrap());
        let layout = FileLayout { block_bytes: 4096, size_bytes: 1 << 16, capacity_bytes: 1 << 17 };
        let file = FileMap::fresh("extent", &layout).unwrap();
        check(&format!("{name}, mapped"), &Volume::memory_mapped(&disk, &file, &options).unwrap());
    }
}

#[test]
fn a_volume_logs_or_refuses_with_the_reason() {
    each_mode(|name, volume| {
        let records = Counter::default();
        match volume.start_log(Box::new(records.clone())) {
            Ok(()) => {
                volume.write_at(&AlignedBuf::new(8192).unwrap(), 0).unwrap();
                volume.flush().unwrap();
                assert!(records.0.load(Relaxed) > 0, "{name}: nothing was recorded");
            }
            Err(error) => {
                assert!(volume.elevator().name() == "none" && volume.stats().is_none(), "{name}: {error}");
                assert_eq!((error.kind(), error.errno()), (ErrorKind::NoSingleQueue, 95), "{name}");
                for remedy in ["Batch::start_log", "Options::elevator", "IoMode::Buffered"] {
                    assert!(error.to_string().contains(remedy), "{name}: {error}");
                }
            }
        }
    });
}

#[test]
fn a_log_of_a_shared_queue_has_the_io_of_all_threads_and_batches() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
    volume.set_elevator(&"ascend".parse().unwrap());
    let records = Counter::default();
    volume.start_log(Box::new(records.clone())).unwrap();
    let of_thread = std::thread::scope(|scope| {
        scope.spawn(|| volume.write_at(&AlignedBuf::new(4096).unwrap(), 0).unwrap()).join().unwrap();
        records.0.load(Relaxed)
    });
    assert!(of_thread > 0, "nothing was recorded");
    let mut batch = volume.batch(&BatchOptions::new(1, 4096)).unwrap();
    batch.queue(Request::read(batch.buffer().unwrap(), 0)).unwrap();
    batch.wait().unwrap().unwrap().result.unwrap();
    assert!(records.0.load(Relaxed) > of_thread, "the read of the batch was not recorded");
}

#[test]
fn a_batch_logs_on_every_volume() {
    each_mode(|name, volume| {
        let records = Counter::default();
        let mut batch = volume.batch(&BatchOptions::new(2, 4096)).unwrap();
        batch.start_log(Box::new(records.clone()));
        batch.queue(Request::write(batch.buffer().unwrap(), 0)).unwrap();
        if batch.is_buffered() {
            // The write is in the cache.
            batch.queue(Request::flush()).unwrap();
        }
        while let Some(done) = batch.wait().unwrap() {
            done.result.unwrap();
        }
        drop(batch);
        assert!(records.0.load(Relaxed) > 0, "{name}: nothing was recorded");
    });
}

/// Writes a block `count` times, one after another, and returns the records of each write.
fn records_of_writes(batch: &mut Batch, records: &Counter, count: u32) -> Vec<u64> {
    (0..count)
        .map(|_| {
            let before = records.0.load(Relaxed);
            batch.queue(Request::write(batch.buffer().unwrap(), 0)).unwrap();
            batch.wait().unwrap().unwrap().result.unwrap();
            records.0.load(Relaxed) - before
        })
        .collect()
}

#[test]
fn the_log_of_a_batch_follows_it_to_the_queue_of_its_descriptor() {
    for row in elevator::ELEVATORS {
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
        let volume = Volume::memory(&disk, &Options::new().write(true).elevator(row.name)).unwrap();
        // The second batch replaces the log of a shared queue. Each has its own log with its own queue.
        let counters = [Counter::default(), Counter::default()];
        let mut batches = counters.each_ref().map(|records| {
            let mut batch = volume.batch(&BatchOptions::new(1, 4096)).unwrap();
            batch.start_log(Box::new(records.clone()));
            batch
        });
        for (batch, records) in batches.iter_mut().zip(&counters) {
            let _descriptor = batch.completion_fd().unwrap();
            let of_writes = records_of_writes(batch, records, 2);
            assert!(of_writes.iter().all(|records| *records > 0), "{}: {of_writes:?}", row.name);
        }
        // The same after I/O on the shared queue.
        let records = Counter::default();
        let mut batch = volume.batch(&BatchOptions::new(1, 4096)).unwrap();
        batch.start_log(Box::new(records.clone()));
        assert!(records_of_writes(&mut batch, &records, 1)[0] > 0, "{}: before", row.name);
        let _descriptor = batch.completion_fd().unwrap();
        assert!(records_of_writes(&mut batch, &records, 1)[0] > 0, "{}: after", row.name);
        // The shared queue has no log of it any more.
        let before = records.0.load(Relaxed);
        volume.write_at(&AlignedBuf::new(4096).unwrap(), 0).unwrap();
        assert_eq!(records.0.load(Relaxed), before, "{}: of another thread", row.name);
    }
}

#[test]
fn the_log_of_a_batch_survives_a_change_of_the_elevator() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new().write(true)).unwrap();
    let records = Counter::default();
    let mut batch = volume.batch(&BatchOptions::new(1, 4096)).unwrap();
    batch.start_log(Box::new(records.clone()));
    for elevator in ["none", "deadline", "none", "ascend"] {
        volume.set_elevator(&elevator.parse().unwrap());
        assert!(records_of_writes(&mut batch, &records, 1)[0] > 0, "{elevator}");
    }
    // A log of the shared queue that replaced this one stays when the batch leaves.
    let others = Counter::default();
    volume.start_log(Box::new(others.clone())).unwrap();
    let _descriptor = batch.completion_fd().unwrap();
    volume.write_at(&AlignedBuf::new(4096).unwrap(), 0).unwrap();
    assert!(others.0.load(Relaxed) > 0, "the log of the volume ended");
    assert!(records_of_writes(&mut batch, &records, 1)[0] > 0);
}

#[test]
fn options_without_a_cache_have_no_queue_of_the_volume() {
    let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 16)).unwrap();
    let volume = Volume::memory(&disk, &Options::new()).unwrap();
    assert!(volume.stats().is_none());
    assert!(volume.start_log(Box::new(Counter::default())).is_err());
}

/// Keeps the extents of the requests that the device got.
#[derive(Debug, Default, Clone)]
struct Dispatched(Arc<Mutex<Vec<(Op, Extent)>>>);

impl LogSink for Dispatched {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        let steps =
            batch.records().iter().flat_map(|record| record.parts()).filter_map(|part| part.step().ok());
        let dispatched = steps.filter(|step| step.event == log::Event::Dispatch);
        self.0.lock().unwrap().extend(dispatched.map(|step| (step.op, step.extent)));
        *batch = RecordBatch::default();
        Ok(())
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), log::NoRoom> {
        self.take(batch)
    }
}

/// Rule 4: the device transfers the bytes of the caller, no more and no fewer, from and to the memory of the caller.
/// The log has no other request into which a copy could have been made, and a copy is counted.
#[test]
fn the_log_proves_that_a_direct_read_or_write_copies_nothing() {
    let modes = [
        ("direct", options().write(true)),
        ("raw", options().write(true).mode(IoMode::Raw)),
        ("elevator", options().write(true).elevator("deadline")),
        ("bounce", options().write(true).unaligned(Unaligned::Bounce)),
    ];
    for (name, options) in modes {
        let Some((_directory, path)) = scratch(1 << 20) else { return };
        let disk = MemoryDisk::new(&MemoryConfig::of_bytes(1 << 20)).unwrap();
        for volume in [Volume::open(&path, &options).unwrap(), Volume::memory(&disk, &options).unwrap()] {
            let log = Dispatched::default();
            let mut batch = volume.batch_of::<AlignedBuf>(&BatchOptions::new(1, 0)).unwrap();
            batch.start_log(Box::new(log.clone()));
            for (op, block, blocks) in
                [(Op::Write, 3, 2), (Op::Read, 3, 2), (Op::Read, 0, 16), (Op::Write, 9, 1)]
            {
                let buffer = AlignedBuf::new(blocks * 4096).unwrap();
                let (address, offset) = (buffer.as_ptr(), block * 4096);
                let request = match op {
                    Op::Read => Request::read_into(buffer, offset),
                    _ => Request::write_from(buffer, offset),
                };
                batch.queue(request).unwrap();
                let done = batch.wait().unwrap().unwrap();
                assert_eq!(done.result.unwrap(), blocks * 4096, "{name}");
                assert_eq!(done.buffer.unwrap().as_ptr(), address, "{name}: the memory of the caller");
                let extent = Extent::from_bytes(offset, blocks as u64 * 4096).unwrap();
                let dispatched = std::mem::take(&mut *log.0.lock().unwrap());
                assert_eq!(dispatched, [(op, extent)], "{name}");
            }
            assert_eq!(batch.bounced(), 0, "{name}");
            if name == "bounce" {
                // A copy is visible: the device transfers whole blocks for 100 bytes of the caller.
                batch.queue(Request::read_into(AlignedBuf::new(100).unwrap(), 50).bytes(100)).unwrap();
                assert_eq!(batch.wait().unwrap().unwrap().result.unwrap(), 100);
                let block = Extent::from_bytes(0, u64::from(volume.facts().block_bytes)).unwrap();
                assert_eq!(*log.0.lock().unwrap(), [(Op::Read, block)]);
                assert_eq!(batch.bounced(), 1);
            }
        }
    }
}
