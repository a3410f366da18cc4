//! Completes each transfer immediately, without a queue, a device and memory: measures the cost of the lab itself,
//! which the figures of all other paths include. Path `null` adds the queue of iopath.

use std::io;

use crate::error::BenchError;
use crate::path::{Capabilities, Connection, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};

/// The row of the table.
pub(crate) static ROW: PathRow = PathRow {
    name: "noop",
    about: "no queue and no device: the cost of the lab itself",
    capabilities: Capabilities {
        needs_target: false,
        direct: false,
        synchronous: false,
        queue: false,
        cache: false,
        priorities: false,
        polls: false,
        durable_writes: false,
        stripes: false,
    },
    open,
};

#[expect(clippy::unnecessary_wraps, reason = "the signature of every row")]
fn open(_spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    Ok(Box::new(NoopPath))
}

struct NoopPath;

impl IoPath for NoopPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        Ok(Box::new(NoopConnection { depth: job.depth, submitted: Vec::with_capacity(job.depth as usize) }))
    }
}

/// The slots whose transfers the next reap completes.
struct NoopConnection {
    depth: u32,
    submitted: Vec<u32>,
}

impl Connection for NoopConnection {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn submit(&mut self, slot: u32, _transfer: Transfer) -> io::Result<()> {
        self.submitted.push(slot);
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        done.extend(self.submitted.drain(..).map(|slot| Done { slot, result: Ok(()) }));
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
