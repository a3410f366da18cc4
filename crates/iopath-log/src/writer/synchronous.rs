//! Writes a log on the thread of the queues, so that no record is lost. For runs in virtual time, in which the log
//! delays no I/O, and for steps that come from elsewhere. Real I/O uses `writer.rs`, which never waits for the file.

use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::log::NoRoom;
use iopath_core::{Instant, LogSink, RecordBatch};

use super::BLOCKS_BETWEEN_MAX;
use super::file::{LogFile, Pending};
use super::options::LogOptions;
use crate::block::Block;
use crate::error::LogError;
use crate::format::{LogInfo, Mark, Totals};
use crate::labels::Labels;

/// A log being written. [`SyncLogWriter::add_queue`] returns the sink of one queue; [`SyncLogWriter::finish`] ends the
/// log.
///
/// The bytes of the file depend only on the records and the order of the calls, not on time or threads.
#[derive(Debug)]
pub struct SyncLogWriter {
    shared: Arc<Mutex<Shared>>,
    marks: Sender<Mark>,
}

#[derive(Debug)]
struct Shared {
    /// `None` after the log is finished.
    file: Option<LogFile>,
    /// The block of each queue.
    blocks: Vec<Queue>,
    /// The block that is copied from another log. A log has up to 65,535 queues, so they share it.
    copied: Pending,
}

/// One queue: its block, and the number of blocks in the log when the first record was added to it.
#[derive(Debug)]
struct Queue {
    block: Pending,
    begun_at: u64,
}

/// The log of one queue. Writes the last records when it is dropped.
#[derive(Debug)]
pub struct SyncSink {
    shared: Arc<Mutex<Shared>>,
    queue: usize,
}

impl SyncLogWriter {
    /// Creates the file, or truncates it.
    ///
    /// # Errors
    /// If the file cannot be created or written, the size limit is too small for any log, or the compression level does
    /// not exist.
    pub fn create(path: &Path, info: &LogInfo, options: &LogOptions) -> Result<Self, LogError> {
        let (marks, marked) = channel();
        Ok(Self::of(LogFile::create(path, info, options, marked)?, marks))
    }

    /// Writes the log to `out`, for example to memory.
    ///
    /// # Errors
    /// Returns the errors of [`SyncLogWriter::create`].
    pub fn to(
        out: impl Write + Send + 'static,
        info: &LogInfo,
        options: &LogOptions,
    ) -> Result<Self, LogError> {
        let (marks, marked) = channel();
        Ok(Self::of(LogFile::new(|| Ok(Box::new(out)), "the log".as_ref(), info, options, marked)?, marks))
    }

    fn of(file: LogFile, marks: Sender<Mark>) -> Self {
        Self {
            shared: Arc::new(Mutex::new(Shared {
                file: Some(file),
                blocks: Vec::new(),
                copied: Pending::new(0),
            })),
            marks,
        }
    }

    /// A sink for one more queue, for its `start_log`.
    pub fn add_queue(&self) -> SyncSink {
        let mut shared = lock(&self.shared);
        let queue = shared.blocks.len();
        let number = u16::try_from(queue).unwrap_or(u16::MAX);
        shared.blocks.push(Queue { block: Pending::new(number), begun_at: 0 });
        SyncSink { shared: Arc::clone(&self.shared), queue }
    }

    /// Another sink for the queue with that number, whose sink was dropped.
    pub fn reopen_queue(&self, number: u16) -> SyncSink {
        SyncSink { shared: Arc::clone(&self.shared), queue: number.into() }
    }

    /// Writes labels into the log. They may follow the records that they explain.
    pub fn add_labels(&self, labels: &Labels) {
        if let Some(file) = &mut lock(&self.shared).file {
            file.write_labels(labels);
        }
    }

    /// Writes the records of a block of another log as a block of the queue with its number.
    pub fn copy_block(&self, block: &Block) {
        let mut shared = lock(&self.shared);
        let Shared { file: Some(file), copied, .. } = &mut *shared else { return };
        copied.begin(block.queue(), block.time_ns());
        for (_, record) in block.records() {
            if copied.room() == 0 {
                file.write(copied, 0);
            }
            copied.extend(&[record]);
        }
        file.write(copied, 0);
    }

    /// Writes the partly filled blocks, so that the file has all records that the sinks have taken.
    pub fn write_blocks(&self) {
        let mut shared = lock(&self.shared);
        for queue in 0..shared.blocks.len() {
            shared.write(queue);
        }
    }

    /// Marks the beginning of repeat `number` of a measurement: steps from `now` on belong to it. Call it before the
    /// first I/O of the repeat is submitted. A log holds 4,096 marks; later ones are ignored.
    pub fn begin_repeat(&self, number: u32, now: Instant) {
        let _ = self.marks.send(Mark { repeat: number, at_ns: now.as_nanos() });
    }

    /// Writes the end of the log. End the logs of all queues first: later records are dropped.
    ///
    /// # Errors
    /// If the file could not be written completely.
    pub fn finish(self) -> Result<Totals, LogError> {
        self.finish_with(0)
    }

    /// As [`SyncLogWriter::finish`], of a source that lost `missed` events before they became records.
    ///
    /// # Errors
    /// If the file could not be written completely.
    pub fn finish_with(self, missed: u64) -> Result<Totals, LogError> {
        let file = lock(&self.shared).file.take();
        file.map_or(Ok(Totals::default()), |file| file.finish(missed))
    }
}

impl Shared {
    fn take(&mut self, queue: usize, batch: &RecordBatch) {
        if self.blocks[queue].block.room() < batch.records().len() {
            self.write(queue);
        }
        let blocks = self.file.as_ref().map_or(0, LogFile::blocks);
        let Queue { block, begun_at } = &mut self.blocks[queue];
        if block.is_empty() {
            *begun_at = blocks;
        }
        block.extend(batch.records());
        // A reader orders the records of all queues by time in bounded memory.
        if blocks - *begun_at >= BLOCKS_BETWEEN_MAX {
            self.write(queue);
        }
    }

    fn write(&mut self, queue: usize) {
        let block = &mut self.blocks[queue].block;
        match &mut self.file {
            Some(file) => file.write(block, 0),
            None => block.clear(),
        }
    }
}

impl LogSink for SyncSink {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        lock(&self.shared).take(self.queue, batch);
        batch.clear();
        Ok(())
    }
}

impl Drop for SyncSink {
    fn drop(&mut self) {
        lock(&self.shared).write(self.queue);
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use iopath_core::Record;
    use iopath_core::log::{Event, Step, Subject};

    use super::*;
    use crate::block::RECORDS_MAX;
    use crate::reader::LogReader;

    fn batch(first: u64, count: usize) -> RecordBatch {
        let mut batch = RecordBatch::new();
        for index in 0..count as u64 {
            let step = Step::new(Event::Queue, Subject::Bio((first + index) as u32 & 0xFFFF));
            batch.push(Record::new(&step, Instant::from_nanos(first + index)));
        }
        batch
    }

    /// Writes logs of two queues, each of more than a block, and returns the bytes of the file.
    fn write(batch_records: usize) -> (Totals, Vec<u8>) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let info = LogInfo { clock: "virtual".to_owned(), ..LogInfo::default() };
        let log = SyncLogWriter::create(file.path(), &info, &LogOptions::default()).unwrap();
        let mut sinks = [log.add_queue(), log.add_queue()];
        log.begin_repeat(1, Instant::ZERO);
        let records = RECORDS_MAX + RECORDS_MAX / 2;
        for first in (0..records).step_by(batch_records) {
            for sink in &mut sinks {
                let mut batch = batch(first as u64, batch_records.min(records - first));
                sink.take(&mut batch).unwrap();
                assert!(batch.records().is_empty());
            }
        }
        drop(sinks);
        let totals = log.finish().unwrap();
        (totals, std::fs::read(file.path()).unwrap())
    }

    #[test]
    fn every_record_of_every_queue_is_in_the_file() {
        let (totals, bytes) = write(RecordBatch::CAPACITY);
        let expected = 2 * (RECORDS_MAX + RECORDS_MAX / 2) as u64;
        assert_eq!(totals, Totals { records: expected, missed: 0, over_limit: 0 });
        let mut reader = LogReader::new(bytes.as_slice()).unwrap();
        assert_eq!(reader.info().clock, "virtual");
        let mut times = [Vec::new(), Vec::new()];
        let mut block = Block::default();
        while reader.read_block(&mut block).unwrap() {
            for entry in block.entries() {
                assert_eq!(entry.repeat, 1);
                times[usize::from(entry.queue)].push(entry.time.as_nanos());
            }
        }
        let all: Vec<u64> = (0..expected / 2).collect();
        assert_eq!(times, [all.clone(), all]);
    }

    #[test]
    fn the_same_calls_write_the_same_bytes() {
        assert_eq!(write(1000), write(1000));
    }

    #[test]
    fn the_limit_of_the_file_counts_dropped_records() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let options = LogOptions { limit_bytes: 1024, ..LogOptions::default() };
        let log = SyncLogWriter::create(file.path(), &LogInfo::default(), &options).unwrap();
        let mut sink = log.add_queue();
        for first in 0..40 {
            sink.take(&mut batch(first * 2048, 2048)).unwrap();
        }
        drop(sink);
        let totals = log.finish().unwrap();
        assert_eq!((totals.records + totals.over_limit, totals.missed), (40 * 2048, 0));
        assert!(totals.over_limit > 0 && file.as_file().metadata().unwrap().len() <= 1024);
    }
}
