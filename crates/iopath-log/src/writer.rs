//! Streams the rings of all queues to one file on a thread of its own, so that no I/O waits for the log. The format of
//! blocks is in `format.rs` and `block.rs`, the ring in `ring.rs`.

mod file;
mod options;
mod synchronous;

pub use options::LogOptions;
pub use synchronous::{SyncLogWriter, SyncSink};

use crate::error::LogError;
use crate::format::{LogInfo, Mark, Totals};
use crate::ring::{Consumer, Found, Producer, ring};
use file::LogFile;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The thread sleeps for this time after it has found all rings empty. At a million I/Os (two million records) a
/// second, a ring of the default size fills in 43 ms.
const IDLE: Duration = Duration::from_millis(2);

/// The thread writes a partly filled block after this time. This bounds the loss when the program is killed.
const BLOCK_AGE_MAX: Duration = Duration::from_secs(1);

/// A partly filled block is written after this number of other blocks, so that a reader needs little memory to order
/// the records of all queues by time.
const BLOCKS_BETWEEN_MAX: u64 = 8;

/// A log being written. [`LogWriter::add_queue`] returns the sink of one queue; [`LogWriter::finish`] ends the log.
#[derive(Debug)]
pub struct LogWriter {
    rings: Sender<Consumer>,
    marks: Sender<Mark>,
    ring_records: usize,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Totals, LogError>>>,
}

impl LogWriter {
    /// Creates the file, or truncates it, and starts the thread that writes it.
    ///
    /// # Errors
    /// If the file cannot be created or written, the size limit is too small for any log, the compression level does
    /// not exist, or the thread cannot be started.
    pub fn create(path: &Path, info: &LogInfo, options: &LogOptions) -> Result<Self, LogError> {
        let (marks, marked) = channel();
        let file = LogFile::create(path, info, options, marked)?;
        let (rings, added) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let collector = Collector {
            file,
            queues: Vec::new(),
            queues_added: 0,
            missed_by_ended: 0,
            added,
            stop: stop.clone(),
        };
        let ring_records = options.ring_records.min(LogOptions::RING_RECORDS_MAX);
        let thread = std::thread::Builder::new().name("iopath-log".to_owned());
        let thread = thread.spawn(move || collector.run(ring_records)).map_err(LogError::Thread)?;
        Ok(Self { rings, marks, ring_records, stop, thread: Some(thread) })
    }

    /// Creates a ring for one more queue, for its `start_log`.
    pub fn add_queue(&self) -> Producer {
        let (producer, consumer) = ring(self.ring_records);
        // Fails only if the thread has panicked, which `finish` reports. The ring then fills and counts lost records.
        let _ = self.rings.send(consumer);
        producer
    }

    /// Marks the beginning of repeat `number` of a measurement: steps from `now` on belong to it. Call it before the
    /// first I/O of the repeat is submitted. A log holds 4,096 marks; later ones are ignored.
    pub fn begin_repeat(&self, number: u32, now: iopath_core::Instant) {
        let _ = self.marks.send(Mark { repeat: number, at_ns: now.as_nanos() });
    }

    /// Writes the remaining content of the rings, and the end of the log. End the logs of all queues first: later
    /// records are lost.
    ///
    /// # Errors
    /// If the file could not be written completely.
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
            // A caller that needs the result calls `finish`.
            let _ = self.join();
        }
    }
}

/// One queue as the thread sees it.
#[derive(Debug)]
struct Queue {
    ring: Consumer,
    block: file::Pending,
    /// The number of blocks in the log when this queue added the first record to its block.
    begun_at: u64,
}

/// The state of the thread.
#[derive(Debug)]
struct Collector {
    file: LogFile,
    queues: Vec<Queue>,
    queues_added: u16,
    /// Records lost by queues that have ended their log.
    missed_by_ended: u64,
    added: Receiver<Consumer>,
    stop: Arc<AtomicBool>,
}

impl Collector {
    fn run(mut self, ring_records: usize) -> Result<Totals, LogError> {
        let mut blocks_written = Instant::now();
        while !self.stop.load(Ordering::Acquire) {
            let drained = self.drain();
            if blocks_written.elapsed() >= BLOCK_AGE_MAX {
                self.write_blocks();
                blocks_written = Instant::now();
            }
            if drained < ring_records / 8 {
                std::thread::park_timeout(IDLE);
            }
        }
        self.drain();
        self.write_blocks();
        let missed: u64 = self.queues.iter().map(|queue| queue.ring.missed()).sum();
        self.file.finish(self.missed_by_ended + missed)
    }

    /// Drains the rings and returns the number of records. Drains at most one ring's capacity from each, since a queue
    /// may produce records faster than this thread writes them.
    fn drain(&mut self) -> usize {
        for ring in self.added.try_iter() {
            self.queues.push(Queue { ring, block: file::Pending::new(self.queues_added), begun_at: 0 });
            self.queues_added = self.queues_added.saturating_add(1);
        }
        let Self { file, queues, missed_by_ended, .. } = self;
        let mut drained = 0;
        queues.retain_mut(|queue| {
            let is_open = queue.drain(file, &mut drained);
            if !is_open {
                // `missed` is exact after the end of the ring. The ring is freed with the queue.
                file.write(&mut queue.block, queue.ring.missed());
                *missed_by_ended += queue.ring.missed();
            }
            is_open
        });
        for Queue { ring, block, begun_at } in queues {
            if file.blocks() - *begun_at >= BLOCKS_BETWEEN_MAX {
                file.write(block, ring.missed());
            }
        }
        drained
    }

    fn write_blocks(&mut self) {
        for Queue { ring, block, .. } in &mut self.queues {
            self.file.write(block, ring.missed());
        }
    }
}

impl Queue {
    /// Returns `false` after the last batch.
    fn drain(&mut self, file: &mut LogFile, drained: &mut usize) -> bool {
        let mut took_parked = false;
        for _ in 0..self.ring.batches() {
            match self.ring.take() {
                Found::Batch(batch) => {
                    if self.block.room() < batch.records().len() {
                        file.write(&mut self.block, self.ring.missed());
                    }
                    if self.block.is_empty() {
                        self.begun_at = file.blocks();
                    }
                    self.block.extend(batch.records());
                    *drained += batch.records().len();
                    self.ring.release(batch);
                }
                // Once per call: a queue may become idle after each I/O, and should not contend with this thread each
                // time.
                Found::Nothing if !took_parked && self.ring.take_parked() => took_parked = true,
                Found::Nothing => return true,
                Found::End => return false,
            }
        }
        true
    }
}
