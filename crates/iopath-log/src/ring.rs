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
//!
//! While its queue is idle the producer leaves its batch in a third place, from which either end takes it, whichever
//! comes first. That place has a lock that neither end ever waits for: who finds it taken knows what the other does.

use iopath_core::log::NoRoom;
use iopath_core::{LogSink, RecordBatch};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

/// A ring of about so many records, two batches at least.
pub(crate) fn ring(records: usize) -> (Producer, Consumer) {
    let batches = (records / RecordBatch::CAPACITY).max(2);
    let (full, filled) = sync_channel(batches);
    let (release, spare) = sync_channel(batches);
    let reserve = (0..batches).map(|_| RecordBatch::new()).collect();
    let (missed, at_rest) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let producer = Producer {
        full,
        spare,
        reserve,
        sent: 0,
        at_rest: Arc::clone(&at_rest),
        missed: Arc::clone(&missed),
    };
    (producer, Consumer { filled, release, received: 0, at_rest, rested: None, missed, batches })
}

/// A batch that its producer does not need at the moment.
#[derive(Debug)]
struct Rested {
    /// How many batches were sent before it: it comes after these.
    after: u64,
    batch: RecordBatch,
}

/// The end of a ring that a queue writes to.
#[derive(Debug)]
pub struct Producer {
    full: SyncSender<RecordBatch>,
    spare: Receiver<RecordBatch>,
    /// Empty ones. What came back last is used first, so that as few as will do go round, and those stay in the
    /// caches.
    reserve: Vec<RecordBatch>,
    /// Batches sent so far.
    sent: u64,
    at_rest: Arc<Mutex<Option<Rested>>>,
    /// Records ever missed. Stored before the channel is closed, so exact once that is seen.
    missed: Arc<AtomicU64>,
}

impl LogSink for Producer {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.exchange(batch).inspect_err(|NoRoom| {
            self.missed.fetch_add(batch.lost(), Relaxed);
        })
    }

    fn rest(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let Ok(mut place) = self.at_rest.try_lock() else {
            // The consumer looks at this very moment, and finds nothing.
            return self.exchange(batch);
        };
        let spare = spare(&self.spare, &mut self.reserve)?;
        *place = Some(Rested { after: self.sent, batch: std::mem::replace(batch, spare) });
        Ok(())
    }

    fn resume(&mut self, batch: &mut RecordBatch) {
        // If the consumer looks at this very moment, it takes what it finds.
        let rested = self.at_rest.try_lock().ok().and_then(|mut place| place.take());
        if let Some(rested) = rested {
            self.reserve.push(std::mem::replace(batch, rested.batch));
        }
    }
}

impl Producer {
    fn exchange(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let spare = spare(&self.spare, &mut self.reserve)?;
        let full = std::mem::replace(batch, spare);
        // There is a place for each batch: what comes back found that nobody listens any more.
        self.full.try_send(full).map_err(|error| {
            let (TrySendError::Full(full) | TrySendError::Disconnected(full)) = error;
            *batch = full;
            NoRoom
        })?;
        self.sent += 1;
        Ok(())
    }
}

/// An empty batch. There is a place for each in the reserve.
fn spare(come_back: &Receiver<RecordBatch>, reserve: &mut Vec<RecordBatch>) -> Result<RecordBatch, NoRoom> {
    reserve.extend(come_back.try_iter());
    reserve.pop().ok_or(NoRoom)
}

/// The end of a ring that the log's thread reads from.
#[derive(Debug)]
pub(crate) struct Consumer {
    filled: Receiver<RecordBatch>,
    release: SyncSender<RecordBatch>,
    /// Batches that came through the channel so far.
    received: u64,
    at_rest: Arc<Mutex<Option<Rested>>>,
    /// Taken while its producer was idle, until it is its turn.
    rested: Option<Rested>,
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
    /// Takes out the oldest batch. It is to be given back with [`Consumer::release`].
    pub(crate) fn take(&mut self) -> Found {
        let received = self.received;
        if let Some(rested) = self.rested.take_if(|rested| rested.after == received) {
            return Found::Batch(rested.batch);
        }
        match self.filled.try_recv() {
            Ok(batch) => {
                self.received += 1;
                Found::Batch(batch)
            }
            Err(TryRecvError::Empty) => Found::Nothing,
            Err(TryRecvError::Disconnected) if self.take_rested() => self.take(),
            Err(TryRecvError::Disconnected) => Found::End,
        }
    }

    /// Takes the batch of a producer that is idle at the moment, for [`Consumer::take`] to find in its turn: what
    /// was sent before it may have come meanwhile. Whether there was one.
    pub(crate) fn take_rested(&mut self) -> bool {
        let is_new = self.rested.is_none();
        if is_new {
            self.rested = self.at_rest.try_lock().ok().and_then(|mut place| place.take());
        }
        is_new && self.rested.is_some()
    }

    /// Lets the producer have a batch again.
    pub(crate) fn release(&self, mut batch: RecordBatch) {
        batch.clear();
        // The producer may be gone: then nobody needs the memory.
        let _ = self.release.try_send(batch);
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
