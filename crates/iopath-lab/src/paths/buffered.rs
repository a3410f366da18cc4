//! iopath's buffered path as a row of the table: one volume with a page cache of its own, shared by all jobs as the
//! kernel's is. Each job waits for each of its transfers.

use std::hint::black_box;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use iopath::{AlignedBuf, BufferedStats, Engine, IoMode, Options, Volume};
use iopath_log::LogWriter;
use iopath_os::kernel::Stamp;

use super::volume::io_error;
use crate::error::LabError;
use crate::path::{Connection, Direction, Done, IoPath, JobSpec, OpenSpec, Transfer};
use crate::random;

/// Opens a target with a page cache of iopath's own in front.
pub(crate) fn open(spec: &OpenSpec) -> Result<Box<dyn IoPath>, LabError> {
    let engine = spec.engine.map_or(Ok(Engine::Auto), str::parse)?;
    let cache = spec.cache;
    // The place has checked and claimed what is written to.
    let options = Options::new().mode(IoMode::Buffered).write(spec.writes).claim(false).engine(engine);
    let options = options
        .elevator(spec.elevator.unwrap_or("none"))
        .cache_bytes(cache.cache_bytes())
        .page_bytes(cache.page_bytes())
        .readahead(cache.readahead());
    let path = BufferedPath {
        target: spec.file().to_owned(),
        options,
        touch_bytes: cache.borrow.then_some(cache.page_bytes() as usize),
        log: spec.log.cloned(),
        opened: Mutex::default(),
    };
    path.volume()?;
    Ok(Box::new(path))
}

struct BufferedPath {
    target: PathBuf,
    options: Options,
    /// Set where reads borrow: one byte of so many is looked at.
    touch_bytes: Option<usize>,
    log: Option<Arc<LogWriter>>,
    opened: Mutex<Opened>,
}

#[derive(Default)]
struct Opened {
    volume: Option<Volume>,
    /// Whether anything can be cached.
    is_used: bool,
}

impl BufferedPath {
    fn lock(&self) -> std::sync::MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn volume(&self) -> Result<Volume, LabError> {
        let mut opened = self.lock();
        if let Some(volume) = &opened.volume {
            return Ok(volume.clone());
        }
        let volume = Volume::open(&self.target, &self.options)?;
        if let Some(log) = &self.log {
            volume.start_log(Box::new(log.add_queue()));
        }
        *opened = Opened { volume: Some(volume.clone()), is_used: false };
        Ok(volume)
    }
}

impl IoPath for BufferedPath {
    fn connect(&self, job: &JobSpec) -> Result<Box<dyn Connection>, LabError> {
        let volume = self.volume()?;
        self.lock().is_used = true;
        let mut buffer = AlignedBuf::new(job.block_bytes as usize)?;
        random::fill(job.seed, &mut buffer);
        let touch_bytes = self.touch_bytes;
        Ok(Box::new(BufferedConnection {
            volume,
            buffer,
            stamp: Stamp::default(),
            touch_bytes,
            pending: None,
        }))
    }

    /// Opens anew: what is cached and what readahead has learnt are gone.
    fn forget(&self) -> Result<(), LabError> {
        {
            let mut opened = self.lock();
            if opened.is_used {
                // Before the next is opened: two caches may be more than there is memory.
                opened.volume = None;
            }
        }
        self.volume().map(drop)
    }

    fn cache_stats(&self) -> Option<BufferedStats> {
        self.lock().volume.as_ref().and_then(Volume::stats)
    }
}

/// A job's buffer, and the volume of all.
struct BufferedConnection {
    volume: Volume,
    buffer: AlignedBuf,
    stamp: Stamp,
    touch_bytes: Option<usize>,
    pending: Option<(u32, Transfer)>,
}

impl BufferedConnection {
    fn run(&mut self, transfer: Transfer) -> io::Result<()> {
        let Transfer { direction, offset, bytes } = transfer;
        let bytes = bytes as usize;
        let moved = match (direction, self.touch_bytes) {
            (Direction::Read, None) => self.volume.read_at(&mut self.buffer[..bytes], offset),
            (Direction::Read, Some(every)) => self.borrow(offset, bytes, every),
            (Direction::Write, _) => {
                self.stamp.put(&mut self.buffer[..bytes], offset);
                self.volume.write_at(&self.buffer[..bytes], offset).map(|()| bytes)
            }
        };
        match moved.map_err(io_error)? {
            moved if moved == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// Looks at the first byte of each page that is lent, and gives it back.
    fn borrow(&self, offset: u64, bytes: usize, every: usize) -> Result<usize, iopath::Error> {
        let lent = self.volume.borrow(offset, bytes);
        // Looked at where it is: to move it would take as long as to borrow it.
        if let Ok(lent) = &lent {
            for slice in lent.slices() {
                slice.iter().step_by(every).for_each(|byte| {
                    black_box(*byte);
                });
            }
            return Ok(lent.len());
        }
        lent.map(|lent| lent.len())
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

    fn flush(&mut self) -> io::Result<()> {
        self.volume.flush().map_err(io_error)
    }

    fn warnings(&self) -> Vec<String> {
        self.volume.facts().fallback.iter().map(ToString::to_string).collect()
    }
}
