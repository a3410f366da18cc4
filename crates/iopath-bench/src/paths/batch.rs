//! Jobs as batches of one volume, for `iopath-direct` and `iopath-raw`. Each job has its own batch.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use iopath::{
    BatchOptions, Completion, Error, ErrorKind, IoMode, LocalBatch, Options, PoolBuf, Request, Stream, Volume,
};
use iopath_log::LogWriter;
use iopath_os::kernel::Stamp;
use iopath_os::system_error;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::error::BenchError;
use crate::export::RemoteTarget;
use crate::path::{Connection, Direction, Done, IoPath, JobSpec, OpenSpec, Transfer};
use crate::stripe_name::StripeName;
use crate::sync_writes::SyncWrites;

/// Opens a target as a volume for batches.
pub(super) fn open(spec: &OpenSpec, mode: IoMode) -> Result<Box<dyn IoPath>, BenchError> {
    // The lab has already checked and claimed the target.
    let options = Options::new().mode(mode).write(spec.writes).claim(false).engine(spec.engine);
    let mut options = options.elevator(spec.elevator_text()).depth(spec.depth);
    if let Some(requests) = spec.device_depth {
        options = options.device_depth(requests);
    }
    let volume = open_volume(spec.file(), spec.remote, &options)?;
    let (target, is_durable) = (spec.file().to_owned(), spec.sync != SyncWrites::None);
    Ok(Box::new(VolumePath { volume, target, is_durable, log: spec.log.cloned() }))
}

/// Opens a file, a device, a stripe or an export.
pub(super) fn open_volume(
    target: &Path,
    remote: Option<&RemoteTarget>,
    options: &Options,
) -> Result<Volume, BenchError> {
    if let Some(remote) = remote {
        return Ok(remote.volume(options)?);
    }
    Ok(match StripeName::find(target)? {
        Some(StripeName { chunk_bytes, members }) => Volume::open_stripe(&members, chunk_bytes, options)?,
        None => Volume::open(target, options)?,
    })
}

struct VolumePath {
    volume: Volume,
    target: PathBuf,
    is_durable: bool,
    log: Option<Arc<LogWriter>>,
}

impl IoPath for VolumePath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let options = BatchOptions::new(job.depth, job.block_bytes as usize).stream(Stream(job.job));
        let mut batch = self.volume.local_batch(&options)?;
        // Each queue has one log. With an elevator, all jobs share one queue, except those with a completion
        // descriptor.
        let has_queue = job.job == 0 || job.waits || self.volume.elevator().name() == "none";
        if let Some(log) = self.log.as_ref().filter(|_| has_queue) {
            batch.start_log(Box::new(log.add_queue()));
        }
        let completions = job.waits.then(|| batch.completion_fd()).transpose();
        let completions = completions.map_err(BenchError::io("wait for", &self.target))?;
        let mut buffers: Vec<Option<PoolBuf>> = std::iter::from_fn(|| batch.buffer()).map(Some).collect();
        for (index, buffer) in buffers.iter_mut().flatten().enumerate() {
            job.contents.fill(job.seed ^ (index as u64).rotate_left(32), buffer);
        }
        let stamp = if job.makes_unique() { Stamp::default() } else { Stamp::off() };
        let fallback = self.volume.facts().fallback.as_ref().map(ToString::to_string);
        Ok(Box::new(BatchConnection {
            batch,
            buffers,
            stamp,
            depth: job.depth,
            is_durable: self.is_durable,
            fallback,
            completions,
        }))
    }

    fn volume(&self) -> Option<&Volume> {
        Some(&self.volume)
    }

    fn engine(&self) -> Option<&'static str> {
        Some(self.volume.facts().engine)
    }
}

/// A batch. The token of a request is its slot.
struct BatchConnection {
    batch: LocalBatch,
    /// The buffer of each slot that is not in flight.
    buffers: Vec<Option<PoolBuf>>,
    stamp: Stamp,
    depth: u32,
    /// Whether a write completes when its bytes are on the medium.
    is_durable: bool,
    fallback: Option<String>,
    /// Readable after a completion, for a caller that waits with a time limit.
    completions: Option<OwnedFd>,
}

impl BatchConnection {
    fn complete(&mut self, completion: Completion, done: &mut Vec<Done>) {
        let Completion { token, buffer, result, .. } = completion;
        // A trim has no buffer.
        if buffer.is_some() {
            self.buffers[token as usize] = buffer;
        }
        done.push(Done { slot: token as u32, result: result.map(drop).map_err(io_error) });
    }
}

impl Connection for BatchConnection {
    fn depth(&self) -> u32 {
        self.depth
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        let buffer = self.buffers.get_mut(slot as usize).and_then(Option::take);
        let mut buffer = buffer.expect("a free slot has its buffer");
        let Transfer { direction, offset, bytes } = transfer;
        if direction == Direction::Write {
            self.stamp.put(&mut buffer, offset);
        }
        let request = match direction {
            Direction::Read => Request::read(buffer, offset),
            Direction::Write => Request::write(buffer, offset).durable(self.is_durable),
            Direction::Trim => {
                self.buffers[slot as usize] = Some(buffer);
                let request = Request::discard(offset, bytes.into()).token(u64::from(slot));
                return self.batch.queue(request).map_err(|refused| io_error(refused.error));
            }
        };
        let queued = self.batch.queue(request.bytes(bytes as usize).token(u64::from(slot)));
        queued.map_err(|refused| io_error(refused.error))
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        let mut next = self.batch.wait().map_err(io_error)?;
        while let Some(completion) = next {
            self.complete(completion, done);
            next = self.batch.next_completed();
        }
        Ok(())
    }

    fn reap_within(&mut self, done: &mut Vec<Done>, wait: Duration) -> io::Result<()> {
        self.batch.submit();
        let before = done.len();
        for is_last in [false, true] {
            while let Some(completion) = self.batch.poll() {
                self.complete(completion, done);
            }
            let Some(completions) = self.completions.as_ref().filter(|_| done.len() == before && !is_last)
            else {
                break;
            };
            let limit = self.batch.next_timeout().map_or(wait, |limit| limit.min(wait));
            let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
            match poll(&mut [PollFd::new(completions, PollFlags::IN)], Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn buffer(&mut self, slot: u32) -> Option<&mut [u8]> {
        self.buffers.get_mut(slot as usize)?.as_deref_mut()
    }

    fn flush(&mut self) -> io::Result<()> {
        self.batch.queue(Request::flush()).map_err(|refused| io_error(refused.error))?;
        let done = self.batch.wait().map_err(io_error)?.expect("the flush is in flight");
        done.result.map(drop).map_err(io_error)
    }

    fn warnings(&self) -> Vec<String> {
        self.fallback.iter().cloned().collect()
    }
}

/// The system's error if there is one, to keep its errno.
pub(super) fn io_error(error: Error) -> io::Error {
    match error.kind() {
        ErrorKind::Io(source) => system_error(source),
        ErrorKind::Wait => io::Error::from_raw_os_error(error.errno()),
        _ => io::Error::other(error),
    }
}
