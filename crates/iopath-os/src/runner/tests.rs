//! A runner over memory devices: ownership of buffers, refused jobs, borrowed memory, the log of an idle runner.

use super::*;
use crate::device::{MemoryConfig, MemoryDevice, MemoryDisk};
use crate::pool::{BufferPool, PoolBuf};
use iopath_core::log::{Event, NoRoom};
use iopath_core::{BlockDevice, Io, LogSink, Priority, RecordBatch, Stream, Tag};
use std::sync::Mutex;

fn device(sectors: u64) -> MemoryDevice {
    MemoryDisk::new(&MemoryConfig::of_bytes(sectors * 512)).unwrap().open()
}

fn runner(sectors: u64) -> Runner<MemoryDevice> {
    let config = QueueConfig { bios_max: 4, ..QueueConfig::default() };
    Runner::new(Box::new(device(sectors)), &config)
}

fn extent(block: u64, blocks: u64) -> Extent {
    Extent::from_bytes(block * 4096, blocks * 4096).unwrap()
}

fn job(op: Op, block: u64, buffer: PoolBuf, token: u64) -> Job {
    Job {
        op,
        extent: extent(block, 1),
        buffer: Some(buffer),
        fua: false,
        stream: Stream(0),
        priority: Priority::default(),
        token,
    }
}

#[test]
fn a_completion_returns_token_and_buffer_with_the_data_read() {
    let mut runner = runner(64);
    let pool = BufferPool::new(4, 4096).unwrap();
    for token in 0..4 {
        let mut buffer = pool.take().unwrap();
        buffer.fill(token as u8 + 1);
        runner.queue(job(Op::Write, token, buffer, token)).unwrap();
    }
    assert!(pool.take().is_none(), "the runner owns all buffers");
    runner.wait(1).unwrap();
    while let Some(done) = runner.poll_completion() {
        done.result.unwrap();
    }
    runner.queue(job(Op::Read, 2, pool.take().unwrap(), 9)).unwrap();
    runner.wait(1).unwrap();
    let done = runner.poll_completion().unwrap();
    assert_eq!((done.token, done.extent, runner.in_flight()), (9, extent(2, 1), 0));
    assert!(done.buffer.unwrap().iter().all(|byte| *byte == 3));
}

#[test]
fn a_refusal_returns_the_buffer() {
    let mut runner = runner(64);
    let pool = BufferPool::new(1, 4096).unwrap();
    let refused = runner.queue(job(Op::Read, 8, pool.take().unwrap(), 0)).unwrap_err();
    assert!(matches!(refused.error, SubmitError::OutOfRange { capacity: 64, .. }), "{refused}");
    assert!(refused.buffer.is_some() && runner.in_flight() == 0);
    let small = Job { extent: extent(0, 2), ..job(Op::Read, 0, refused.buffer.unwrap(), 0) };
    let refused = runner.queue(small).unwrap_err();
    assert!(matches!(refused.error, SubmitError::MemoryMismatch { memory_bytes: 4096, .. }), "{refused}");
}

#[test]
fn borrowed_memory_is_written_and_read() {
    let mut runner = runner(64);
    let written: Vec<u8> = (0..8192_u32).map(|index| (index % 251) as u8).collect();
    runner.write(extent(1, 2), &written, true).unwrap();
    let mut read = vec![0; 8192];
    runner.read(extent(1, 2), &mut read).unwrap();
    assert_eq!(read, written);
    assert!(
        matches!(runner.read(extent(1, 1), &mut read), Err(RunError::Refused(_))),
        "length and extent differ"
    );
    runner.command(Op::Flush, Extent::EMPTY).unwrap();
}

#[test]
fn drop_with_jobs_in_flight_releases_their_buffers() {
    let mut runner = runner(64);
    let pool = BufferPool::new(1, 4096).unwrap();
    runner.queue(job(Op::Read, 0, pool.take().unwrap(), 0)).unwrap();
    drop(runner);
    assert!(pool.take().is_some());
}

#[test]
#[should_panic(expected = "the device already has 2 requests in flight")]
fn a_device_with_requests_in_flight_is_refused() {
    let mut device = device(64);
    for bits in [1, 2] {
        let flush = Io::new(Tag::from_bits(bits), Op::Flush, Extent::EMPTY, &[]);
        device.submit(&flush, clock::now()).unwrap();
    }
    // Their completions could match tags of the runner's own requests, and release memory that is in use.
    let _ = Runner::new(Box::new(device), &QueueConfig::default());
}

/// Keeps the records of an idle queue, and discards all others.
#[derive(Debug, Clone, Default)]
struct IdleLog(Arc<Mutex<RecordBatch>>);

impl LogSink for IdleLog {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        batch.clear();
        Ok(())
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        std::mem::swap(batch, &mut self.0.lock().unwrap());
        Ok(())
    }

    fn reclaim(&mut self, batch: &mut RecordBatch) {
        std::mem::swap(batch, &mut self.0.lock().unwrap());
    }
}

impl IdleLog {
    fn count(&self, event: Event) -> usize {
        let batch = self.0.lock().unwrap();
        let steps = batch.records().iter().flat_map(|record| record.parts());
        steps.filter(|step| step.event() == Some(event)).count()
    }
}

#[test]
fn the_log_of_an_idle_runner_has_every_step() {
    let mut runner = runner(64);
    let pool = BufferPool::new(4, 4096).unwrap();
    let log = IdleLog::default();
    runner.start_log(Box::new(log.clone()));
    let seen = || (log.count(Event::Queue), log.count(Event::Complete));
    for token in 0..2 {
        runner.queue(job(Op::Read, 2 * token, pool.take().unwrap(), token)).unwrap();
    }
    runner.wait(2).unwrap();
    assert!(runner.poll_completion().is_some());
    assert_eq!(seen(), (0, 0), "one completion has not been polled");
    assert!(runner.poll_completion().is_some());
    assert_eq!(seen(), (2, 2));

    runner.queue(job(Op::Read, 2, pool.take().unwrap(), 2)).unwrap();
    assert_eq!(seen(), (0, 0), "not idle");
    runner.wait(1).unwrap();
    assert!(runner.poll_completion().is_some());
    assert_eq!(seen(), (3, 3));

    runner.read(extent(0, 1), &mut [0; 4096]).unwrap();
    assert_eq!(seen(), (4, 4), "an I/O on borrowed memory");

    runner.set_elevator(&"deadline".parse().unwrap());
    assert_eq!(log.count(Event::Elevator), 1);
}

#[test]
fn a_bio_that_the_queue_itself_completes_needs_no_wait() {
    let mut runner = runner(64);
    // A disk without a cache gets no flush from the queue, so no watch on it would end.
    runner.queue_segment(Op::Flush, Extent::EMPTY, None, 0).unwrap();
    runner.submit();
    assert_eq!((runner.in_flight(), runner.pump.device().in_flight()), (1, 0));
    assert!(runner.needs_reaping());
    assert!(runner.poll_timeout().is_some_and(|due| due <= clock::now()));
    assert!(runner.poll_completion().is_some() && runner.poll_timeout().is_none());
}

#[test]
fn a_device_with_fewer_requests_than_the_plug_gets_them_at_once() {
    let config = QueueConfig { bios_max: 32, ..QueueConfig::default() };
    let mut runner = Runner::new(Box::new(device(1 << 12)), &config);
    let pool = BufferPool::new(32, 4096).unwrap();
    let queue = |runner: &mut Runner<MemoryDevice>, block| {
        runner.queue(job(Op::Read, block, pool.take().unwrap(), block)).unwrap();
        runner.pump.device().in_flight()
    };
    let in_flight: Vec<u32> = (0..16).map(|number| queue(&mut runner, 2 * number)).collect();
    assert_eq!(in_flight, [0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16]);
    runner.drain().unwrap();
    while runner.poll_completion().is_some() {}
    let adjacent: Vec<u32> = (100..110).map(|block| queue(&mut runner, block)).collect();
    assert_eq!(adjacent, [0; 10], "they become one request");
    runner.submit();
    assert_eq!(runner.pump.device().in_flight(), 1);
}
