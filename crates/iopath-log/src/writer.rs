//! Streams the rings of all queues to one file, on a thread of its own, so that no I/O waits for the log.
//! Frames and blocks: `format.rs`, `block.rs`. The ring: `ring.rs`.

mod file;

use crate::error::LogError;
use crate::format::{LogInfo, Totals};
use crate::ring::{Consumer, Found, Producer, ring};
use file::LogFile;
#[cfg(doc)]
use iopath_core::RecordBatch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long the thread rests when it has seen the rings empty: a ring of the usual size fills in 43 ms at a
/// million I/Os (two million records) a second.
const REST: Duration = Duration::from_millis(2);

/// A block that is not full is written after this time, so that a log of a program that was killed lacks no
/// more than that.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// How a log is written.
#[derive(Debug, Clone)]
pub struct LogOptions {
    /// Records in the ring of each queue, a multiple of [`RecordBatch::CAPACITY`] and at least twice that. More than
    /// [`LogOptions::RING_RECORDS_MAX`] are taken for that many.
    pub ring_records: usize,
    /// The file grows to this many bytes at most; what comes later is counted, not kept.
    pub limit_bytes: u64,
    /// How hard zstd tries, 1 to 19. Above 3 it may not keep up with a million I/Os a second.
    pub level: i32,
}

impl LogOptions {
    /// The longest ring, whose memory is taken when the queue is added: 384 MiB.
    pub const RING_RECORDS_MAX: usize = 1 << 24;
}

impl Default for LogOptions {
    /// A ring of 2 MiB (87,381 records), a file of up to 4 GiB, level 1.
    fn default() -> Self {
        Self { ring_records: 87_381, limit_bytes: 4 << 30, level: 1 }
    }
}

/// A log being written. Give each queue one [`Producer`]; end with [`LogWriter::finish`].
#[derive(Debug)]
pub struct LogWriter {
    rings: Sender<Consumer>,
    ring_records: usize,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Totals, LogError>>>,
}

impl LogWriter {
    /// Creates the file, or empties it, and starts the thread that writes it.
    ///
    /// # Errors
    /// If the file cannot be created or written on, the limit is too small for any log, the level does not
    /// exist, or there is no thread to be had.
    pub fn create(path: &Path, info: &LogInfo, options: &LogOptions) -> Result<Self, LogError> {
        let file = LogFile::create(path, info, options)?;
        let (rings, added) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let collector = Collector {
            file,
            queues: Vec::new(),
            queues_added: 0,
            missed_by_gone: 0,
            added,
            stop: stop.clone(),
        };
        let ring_records = options.ring_records.min(LogOptions::RING_RECORDS_MAX);
        let thread = std::thread::Builder::new().name("iopath-log".to_owned());
        let thread = thread.spawn(move || collector.run(ring_records)).map_err(LogError::Thread)?;
        Ok(Self { rings, ring_records, stop, thread: Some(thread) })
    }

    /// A ring for one more queue, to be given to its `start_log`.
    pub fn add_queue(&self) -> Producer {
        let (producer, consumer) = ring(self.ring_records);
        // Only a thread that panicked does not listen: `finish` tells. Until then the ring fills and counts.
        let _ = self.rings.send(consumer);
        producer
    }

    /// Writes what the rings hold, and the end of the log. Queues are to end their logs before; what they
    /// tell afterwards is lost.
    ///
    /// # Errors
    /// If the file could not be written to its end.
    pub fn finish(mut self) -> Result<Totals, LogError> {
        self.join().unwrap_or(Ok(Totals::default()))
    }

    fn join(&mut self) -> Option<Result<Totals, LogError>> {
        let thread = self.thread.take()?;
        self.stop.store(true, Ordering::Release);
        thread.thread().unpark();
        Some(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            // Who cares how it ended calls `finish`.
            let _ = self.join();
        }
    }
}

/// One queue as the thread sees it.
#[derive(Debug)]
struct Queue {
    ring: Consumer,
    block: file::Pending,
}

/// What runs on the thread.
#[derive(Debug)]
struct Collector {
    file: LogFile,
    queues: Vec<Queue>,
    queues_added: u16,
    /// Records missed by queues that have ended their log.
    missed_by_gone: u64,
    added: Receiver<Consumer>,
    stop: Arc<AtomicBool>,
}

impl Collector {
    fn run(mut self, ring_records: usize) -> Result<Totals, LogError> {
        let mut blocks_written = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            let taken = self.drain();
            if blocks_written.elapsed() >= BLOCK_AGE_MAX {
                self.write_blocks();
                blocks_written = Instant::now();
            }
            if taken < ring_records / 8 {
                std::thread::park_timeout(REST);
            }
        }
        self.drain();
        self.write_blocks();
        let missed: u64 = self.queues.iter().map(|queue| queue.ring.missed()).sum();
        self.file.finish(self.missed_by_gone + missed)
    }

    /// Takes what the rings hold: of each no more than it holds at once, since a queue may be telling faster
    /// than this writes. How many records.
    fn drain(&mut self) -> usize {
        for ring in self.added.try_iter() {
            self.queues.push(Queue { ring, block: file::Pending::new(self.queues_added) });
            self.queues_added = self.queues_added.saturating_add(1);
        }
        let Self { file, queues, missed_by_gone, .. } = self;
        let mut taken = 0;
        queues.retain_mut(|queue| {
            let is_open = queue.drain(file, &mut taken);
            if !is_open {
                // Exact now that the end has been seen. The ring's memory goes with the queue.
                file.write(&mut queue.block, queue.ring.missed());
                *missed_by_gone += queue.ring.missed();
            }
            is_open
        });
        taken
    }

    fn write_blocks(&mut self) {
        for Queue { ring, block } in &mut self.queues {
            self.file.write(block, ring.missed());
        }
    }
}

impl Queue {
    /// `false` when this was the last of it.
    fn drain(&mut self, file: &mut LogFile, taken: &mut usize) -> bool {
        let mut looked_at_rest = false;
        for _ in 0..self.ring.batches() {
            match self.ring.take() {
                Found::Batch(batch) => {
                    if self.block.room() < batch.records().len() {
                        file.write(&mut self.block, self.ring.missed());
                    }
                    self.block.extend(batch.records());
                    *taken += batch.records().len();
                    self.ring.release(batch);
                }
                // Once each time: a queue may be idle after each I/O, and is not to meet this thread there every time.
                Found::Nothing if !looked_at_rest && self.ring.take_rested() => looked_at_rest = true,
                Found::Nothing => return true,
                Found::End => return false,
            }
        }
        true
    }
}
