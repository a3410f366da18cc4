//! One queue's ring of record batches: one producer, one consumer, no lock and no waiting. What finds no room is
//! counted. Knows neither files nor threads.
//!
//! ```text
//!                      full batches ──▶
//!   Producer  ░░░░░░░▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░░░░░  Consumer
//!   a batch            ◀── empty batches
//! ```
//! A queue writes its records into a batch of its own, and exchanges that for an empty one when it is full: there
//! are only so many, all of them made when the ring is. Both ways are channels of the standard library, used only
//! by their `try_` calls: a bounded one is an array, in which these take no lock and never wait.

use iopath_core::log::NoRoom;
use iopath_core::{LogSink, RecordBatch};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};

/// A ring of about so many records, two batches at least.
pub(crate) fn ring(records: usize) -> (Producer, Consumer) {
    let batches = (records / RecordBatch::CAPACITY).max(2);
    let (full, filled) = sync_channel(batches);
    let (give_back, spare) = sync_channel(batches);
    for _ in 0..batches {
        give_back.try_send(RecordBatch::new()).expect("the channel was made for as many");
    }
    let missed = Arc::new(AtomicU64::new(0));
    let producer = Producer { full, spare, missed: missed.clone() };
    (producer, Consumer { filled, give_back, missed, batches })
}

/// The end of a ring that a queue writes to.
#[derive(Debug)]
pub struct Producer {
    full: SyncSender<RecordBatch>,
    spare: Receiver<RecordBatch>,
    /// Records ever missed. Stored before the channel is closed, so exact once that is seen.
    missed: Arc<AtomicU64>,
}

impl LogSink for Producer {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.exchange(batch).inspect_err(|NoRoom| {
            self.missed.fetch_add(batch.lost(), Relaxed);
        })
    }
}

impl Producer {
    fn exchange(&self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let spare = self.spare.try_recv().map_err(|_| NoRoom)?;
        let full = std::mem::replace(batch, spare);
        // There is a place for each batch: what comes back found that nobody listens any more.
        self.full.try_send(full).map_err(|error| {
            let (TrySendError::Full(full) | TrySendError::Disconnected(full)) = error;
            *batch = full;
            NoRoom
        })
    }
}

/// The end of a ring that the log's thread reads from.
#[derive(Debug)]
pub(crate) struct Consumer {
    filled: Receiver<RecordBatch>,
    give_back: SyncSender<RecordBatch>,
    missed: Arc<AtomicU64>,
    batches: usize,
}

/// What a consumer found.
#[derive(Debug)]
pub(crate) enum Found {
    Batch(RecordBatch),
    Nothing,
    /// Nothing, and the producer is gone.
    End,
}

impl Consumer {
    /// Takes out the oldest batch. It is to be given back with [`Consumer::give_back`].
    pub(crate) fn take(&self) -> Found {
        match self.filled.try_recv() {
            Ok(batch) => Found::Batch(batch),
            Err(TryRecvError::Empty) => Found::Nothing,
            Err(TryRecvError::Disconnected) => Found::End,
        }
    }

    /// Lets the producer have a batch again.
    pub(crate) fn give_back(&self, mut batch: RecordBatch) {
        batch.clear();
        // The producer may be gone: then nobody needs the memory.
        let _ = self.give_back.try_send(batch);
    }

    /// How many batches there are.
    pub(crate) const fn batches(&self) -> usize {
        self.batches
    }

    /// How many records have found no room: exact once the end has been found.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
