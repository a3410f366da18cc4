//! iopath's buffered path: one volume with a page cache, shared by all jobs like the kernel's page cache. A job has one
//! transfer in flight.

use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use iopath::stats::BufferedStats;
use iopath::{AlignedBuf, IoMode, Options, Volume};
use iopath_log::LogWriter;
use iopath_os::kernel::Stamp;

use super::batch::{io_error, open_volume};
use crate::error::BenchError;
use crate::export::RemoteTarget;
use crate::path::{Capabilities, Connection, Direction, Done, IoPath, JobSpec, OpenSpec, PathRow, Transfer};
use crate::sync_writes::SyncWrites;

/// The row of the table.
pub static ROW: PathRow = PathRow {
    name: "iopath-buffered",
    about: "a volume with its own page cache, readahead and write-back in user space",
    capabilities: Capabilities {
        needs_target: true,
        direct: false,
        synchronous: true,
        queue: true,
        cache: true,
        priorities: false,
        polls: false,
        durable_writes: true,
        stripes: true,
    },
    open,
};

fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, BenchError> {
    let cache = spec.cache;
    // The lab has already checked and claimed the target.
    let options = Options::new().mode(IoMode::Buffered).write(spec.writes).claim(false).engine(spec.engine);
    // Two workloads, or the two sides of a comparison, may have one target open together.
    let mut options = options
        .second_cache(true)
        .elevator(spec.elevator_text())
        .cache_bytes(cache.cache_bytes())
        .page_bytes(cache.page_bytes())
        .readahead(cache.readahead());
    if let Some(requests) = spec.device_depth {
        options = options.device_depth(requests);
    }
    let path = BufferedPath {
        target: spec.file().to_owned(),
        remote: spec.remote.cloned(),
        options,
        is_durable: spec.sync != SyncWrites::None,
        touch_bytes: cache.borrow.then_some(cache.page_bytes() as usize),
        log: spec.log.cloned(),
        opened: Mutex::default(),
    };
    path.volume()?;
    Ok(Box::new(path))
}

struct BufferedPath {
    target: PathBuf,
    remote: Option<RemoteTarget>,
    options: Options,
    /// Set if reads borrow pages: the stride of the bytes that the job reads, one byte per page.
    touch_bytes: Option<usize>,
    /// Whether a write completes when its bytes are on the medium.
    is_durable: bool,
    log: Option<Arc<LogWriter>>,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    volume: Option<Volume>,
    /// Whether a job has connected, so that the cache may hold pages.
    is_used: bool,
}

impl BufferedPath {
    fn lock(&self) -> std::sync::MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self) -> Result<Volume, BenchError> {
        let mut opened = self.lock();
        if let Some(volume) = &opened.volume {
            return Ok(volume.clone());
        }
        let volume = open_volume(&self.target, self.remote.as_ref(), &self.options)?;
        if let Some(log) = &self.log {
            volume.start_log(Box::new(log.add_queue())).expect("the volume has a page cache");
        }
        *opened = Opened { volume: Some(volume.clone()), is_used: false };
        Ok(volume)
    }
}

impl IoPath for BufferedPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, BenchError> {
        let volume = self.volume()?;
        self.lock().is_used = true;
        let mut buffer = AlignedBuf::new(job.block_bytes as usize)?;
        job.contents.fill(job.seed, &mut buffer);
        let touch_bytes = self.touch_bytes;
        Ok(Box::new(BufferedConnection {
            volume,
            buffer,
            stamp: if job.makes_unique() { Stamp::default() } else { Stamp::off() },
            is_durable: self.is_durable,
            touch_bytes,
            pending: None,
        }))
    }

    /// Opens the volume again, with an empty cache and readahead in its initial state.
    fn drop_cache(&self) -> Result<(), BenchError> {
        {
            let mut opened = self.lock();
            if opened.is_used {
                // Close the volume first: two caches may not fit in memory.
                opened.volume = None;
            }
        }
        self.volume().map(drop)
    }

    fn engine(&self) -> Option<&'static str> {
        self.lock().volume.as_ref().map(|volume| volume.facts().engine)
    }

    fn cache_stats(&self) -> Option<BufferedStats> {
        self.lock().volume.as_ref().and_then(Volume::stats)
    }
}

/// The buffer of a job and the shared volume.
struct BufferedConnection {
    volume: Volume,
    buffer: AlignedBuf,
    stamp: Stamp,
    is_durable: bool,
    touch_bytes: Option<usize>,
    pending: Option<(u32, Transfer)>,
}

impl BufferedConnection {
    fn run(&mut self, transfer: Transfer) -> io::Result<()> {
        let Transfer { direction, offset, bytes } = transfer;
        let bytes = bytes as usize;
        let moved = match (direction, self.touch_bytes) {
            (Direction::Trim, _) => self.volume.discard(offset, bytes as u64).map(|()| bytes),
            (Direction::Read, None) => self.volume.read_at(&mut self.buffer[..bytes], offset),
            (Direction::Read, Some(every)) => self.borrow(offset, bytes, every),
            (Direction::Write, _) => {
                self.stamp.put(&mut self.buffer[..bytes], offset);
                let content = &self.buffer[..bytes];
                let written = if self.is_durable {
                    self.volume.write_durably_at(content, offset)
                } else {
                    self.volume.write_at(content, offset)
                };
                written.map(|()| bytes)
            }
        };
        match moved.map_err(io_error)? {
            moved if moved == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Borrows a range, reads one byte of each page, and releases it.
    fn borrow(&self, offset: u64, bytes: usize, every: usize) -> Result<usize, iopath::Error> {
        let borrowed = self.volume.borrow(offset, bytes);
        // Read in place: moving the guard out of the result costs as much as the borrow.
        if let Ok(guard) = &borrowed {
            for slice in guard.slices() {
                slice.iter().step_by(every).for_each(|byte| {
                    black_box(*byte);
                });
            }
            return Ok(guard.len());
        }
        borrowed.map(|guard| guard.len())
    }
}

impl Connection for BufferedConnection {
    fn depth(&self) -> u32 {
        1
    }

    fn submit(&mut self, slot: u32, transfer: Transfer) -> io::Result<()> {
        self.pending = Some((slot, transfer));
        Ok(())
    }

    fn reap(&mut self, done: &mut Vec<Done>) -> io::Result<()> {
        if let Some((slot, transfer)) = self.pending.take() {
            let result = self.run(transfer);
            done.push(Done { slot, result });
        }
        Ok(())
    }

    fn run_each(
        &mut self,
        transfers: &[Transfer],
        _done: &mut Vec<Done>,
    ) -> Result<(), (Transfer, io::Error)> {
        for &transfer in transfers {
            self.run(transfer).map_err(|error| (transfer, error))?;
        }
        Ok(())
    }

    fn buffer(&mut self, _slot: u32) -> Option<&mut [u8]> {
        self.touch_bytes.is_none().then_some(&mut self.buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.volume.flush().map_err(io_error)
    }

    fn warnings(&self) -> Vec<String> {
        self.volume.facts().fallback.iter().map(ToString::to_string).collect()
    }
}
