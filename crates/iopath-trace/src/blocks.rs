//! Collects records of all queues into blocks, in bounded memory.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::log::NoRoom;
use iopath_core::{Instant, LogSink, Record, RecordBatch};
use iopath_log::{Block, BlockBuilder};

/// When all queues together have this number of records, all their blocks end. So the blocks of a queue that is seldom
/// used do not come much later than blocks of others with the same times.
const RECORDS_MAX: usize = 1 << 16;

/// The blocks of all queues.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    open: Vec<BlockBuilder>,
    /// Records in open blocks.
    waiting: usize,
    ready: VecDeque<BlockBuilder>,
    /// Records of all blocks that were taken.
    records: u64,
}

impl Blocks {
    /// Adds a record of a queue with its time.
    #[inline]
    pub(crate) fn push_at(&mut self, queue: u16, record: Record, now: Instant) {
        self.open(queue).push_at(record, now);
        self.waiting += 1;
        self.limit();
    }

    /// Adds the next records of the log of a queue.
    fn extend(&mut self, queue: u16, records: &[Record]) {
        for record in records {
            self.open(queue).push(*record);
        }
        self.waiting += records.len();
        self.limit();
    }

    /// The open block of a queue, with room for a record.
    #[inline]
    fn open(&mut self, queue: u16) -> &mut BlockBuilder {
        let index = usize::from(queue);
        if self.open.get(index).is_none_or(BlockBuilder::is_full) {
            self.begin(index);
        }
        &mut self.open[index]
    }

    #[cold]
    fn begin(&mut self, index: usize) {
        while self.open.len() <= index {
            let queue = self.open.len() as u16;
            self.open.push(BlockBuilder::new(queue));
        }
        if self.open[index].is_full() {
            self.end(index);
        }
    }

    fn end(&mut self, index: usize) {
        if !self.open[index].is_empty() {
            let full = self.open[index].take();
            self.waiting = self.waiting.saturating_sub(full.len());
            self.ready.push_back(full);
        }
    }

    #[inline]
    fn limit(&mut self) {
        if self.waiting >= RECORDS_MAX {
            self.end_all();
        }
    }

    /// Ends all blocks: they are ready, in the order of queues.
    pub(crate) fn end_all(&mut self) {
        for index in 0..self.open.len() {
            self.end(index);
        }
        self.waiting = 0;
    }

    /// Moves the next block that is ready to `block`.
    pub(crate) fn take(&mut self, block: &mut Block) -> bool {
        let Some(mut ready) = self.ready.pop_front() else { return false };
        let records = ready.len() as u64;
        ready.move_to(block, self.records);
        self.records += records;
        true
    }
}

/// Blocks that several logs write to.
#[derive(Debug, Clone, Default)]
pub(crate) struct SharedBlocks(Arc<Mutex<Blocks>>);

impl SharedBlocks {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Blocks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sink of a queue.
    pub(crate) fn sink(&self, queue: u16) -> Box<dyn LogSink> {
        Box::new(Sink { queue, blocks: self.clone() })
    }
}

#[derive(Debug)]
struct Sink {
    queue: u16,
    blocks: SharedBlocks,
}

impl LogSink for Sink {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.blocks.lock().extend(self.queue, batch.records());
        batch.clear();
        Ok(())
    }
}
