//! The request queue in front of a device that completes each request immediately: measures the cost of iopath itself.

use std::io;
use std::sync::Arc;

use iopath_core::{Extent, Instant, Limits, Op, Priority, QueueConfig, SECTOR_BYTES, Stream};
use iopath_log::LogWriter;
use iopath_os::{
    BufferPool, CompletedJob, Job, Null, PoolBuf, Runner, SharedQueue, ThreadQueue, system_error,
};

use crate::error::BenchError;
use crate::path::{Capabilities, Connection, Direction, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "null",
    about: "the queue without a device: the cost of iopath itself",
    capabilities: Capabilities {
        needs_target: false,
        direct: false,
        synchronous: false,
        queue: true,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: false,
    },
    open,
};

/// A queue for each job, or one for all if there is an elevator.
#[expect(clippy::unnecessary_wraps, reason = "the signature of every row")]
fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    let elevator = spec.elevator.cloned().unwrap_or_default();
    let capacity = spec.size_bytes.div_ceil(SECTOR_BYTES);
    let depth = spec.device_depth.unwrap_or(QueueConfig::DEVICE_DEPTH);
    let shared = (elevator.name() != "none").then(|| {
        let limits =
            Limits { depth_max: depth, discard_bytes_max: u64::MAX >> 1, ..Limits::with_capacity(capacity) };
        let (bios_max, requests_max) = (QueueConfig::SHARED_BIOS_MAX, QueueConfig::SHARED_BIOS_MAX);
        let config = QueueConfig { bios_max, requests_max, depth, elevator, ..QueueConfig::default() };
        SharedQueue::new(Box::new(Null::new(limits)), &config)
    });
    Ok(Box::new(NullPath { shared, capacity, log: spec.log.cloned() }))
}

struct NullPath {
    /// The queue of all jobs, if there is an elevator.
    shared: Option<SharedQueue<Null>>,
    /// In sectors.
    capacity: u64,
    log: Option<Arc<LogWriter>>,
}

impl NullPath {
    /// A queue for one job.
    fn own(&self, depth: u32) -> Runner<Null> {
        let limits = Limits {
            depth_max: depth,
            discard_bytes_max: u64::MAX >> 1,
            ..Limits::with_capacity(self.capacity)
        };
        let config = QueueConfig { bios_max: depth, requests_max: depth, depth, ..QueueConfig::default() };
        Runner::new(Box::new(Null::new(limits)), &config)
    }
}

impl IoPath for NullPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let JobSpec { depth, block_bytes, .. } = *job;
        let mut queue = match &self.shared {
            Some(shared) => ThreadQueue::Shared(shared.client(depth, QueueConfig::PLUG_REQUESTS)),
            None => ThreadQueue::Own(self.own(depth)),
        };
        // Each queue has one log.
        if let Some(log) = self.log.as_ref().filter(|_| self.shared.is_none() || job.job == 0) {
            queue.start_log(Box::new(log.add_queue()));
        }
        let pool = BufferPool::new(depth, block_bytes as usize)?;
        let idle = std::iter::from_fn(|| pool.take()).collect();
        Ok(Box::new(NullConnection { queue, idle, depth, stream: Stream(job.job) }))
    }
}

/// A queue. The token of a request is its slot.
struct NullConnection {
    queue: ThreadQueue<Null, Null>,
    /// Free buffers, for any slot.
    idle: Vec<PoolBuf>,
    depth: u32,
    stream: Stream,
}

impl Connection for NullConnection {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn begin_batch(&mut self, now: Instant) {
        self.queue.begin_batch(now);
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        let op = match transfer.direction {
            Direction::Read => Op::Read,
            Direction::Write => Op::Write,
            Direction::Trim => Op::Discard,
        };
        let extent = Extent::from_bytes(transfer.offset, u64::from(transfer.bytes));
        let extent = extent.ok_or(io::ErrorKind::InvalidInput)?;
        let job = Job {
            op,
            extent,
            buffer: if op.has_memory() { self.idle.pop() } else { None },
            fua: false,
            stream: self.stream,
            priority: Priority::default(),
            token: slot.into(),
        };
        self.queue.queue(job).map_err(|refused| io::Error::other(refused.error.to_string()))
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        self.queue.wait(1).map_err(|error| error.source)?;
        while let Some(CompletedJob { token, buffer, result, .. }) = self.queue.poll_completion() {
            self.idle.extend(buffer);
            done.push(Done { slot: token as u32, result: result.map_err(system_error) });
        }
        Ok(())
    }

    fn completed_at(&self) -> Option<Instant> {
        self.queue.completed_at()
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
