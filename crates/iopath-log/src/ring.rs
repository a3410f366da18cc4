//! One queue's ring of record batches: one producer, one consumer, no lock and no waiting. The ring counts records that
//! do not fit. The file and its thread are in `writer.rs`.
//!
//! ```text
//!                      full batches ──▶
//!   Producer  ░░░░░░░▓▓▓▓▓▓▓▓░░░░░░░░░░░░░░░░░░░░  Consumer
//!   a batch            ◀── empty batches
//! ```
//! A queue writes its records into a batch, and exchanges a full batch for an empty one. All batches are allocated with
//! the ring. Both directions are bounded channels of the standard library: arrays, whose `try_` calls take no lock and
//! never wait.
//!
//! While its queue is idle, the producer parks its partly filled batch in a shared slot. The end that needs the batch
//! first takes it from there. Both ends only try the lock of the slot: if it is locked, the other end is using the
//! slot.

mod reader;

pub use reader::{RingReader, ring_reader};

use iopath_core::log::NoRoom;
use iopath_core::{LogSink, RecordBatch};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};

/// A ring of about `records` records, at least two batches.
pub(crate) fn ring(records: usize) -> (Producer, Consumer) {
    let batches = (records / RecordBatch::CAPACITY).max(2);
    let (full, filled) = sync_channel(batches);
    let (release, spare) = sync_channel(batches);
    let reserve = (0..batches).map(|_| RecordBatch::new()).collect();
    let missed = Arc::new(AtomicU64::new(0));
    let slot = Arc::new(Mutex::new(None));
    let producer =
        Producer { full, spare, reserve, sent: 0, slot: Arc::clone(&slot), missed: Arc::clone(&missed) };
    (producer, Consumer { filled, release, received: 0, slot, parked: None, missed, batches })
}

/// A batch of an idle producer.
#[derive(Debug)]
struct Parked {
    /// The number of batches sent before it.
    after: u64,
    batch: RecordBatch,
}

/// The end of a ring that a queue writes to.
#[derive(Debug)]
pub struct Producer {
    full: SyncSender<RecordBatch>,
    spare: Receiver<RecordBatch>,
    /// Empty batches, last in first out. So few batches circulate, and they stay in the CPU caches.
    reserve: Vec<RecordBatch>,
    /// Batches sent so far.
    sent: u64,
    slot: Arc<Mutex<Option<Parked>>>,
    /// Records lost so far. The producer stores it before it closes the channel, so it is exact after [`Found::End`].
    missed: Arc<AtomicU64>,
}

impl LogSink for Producer {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.exchange(batch).inspect_err(|NoRoom| {
            self.missed.fetch_add(batch.lost(), Relaxed);
        })
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let Ok(mut slot) = self.slot.try_lock() else {
            // The consumer is checking the slot, and finds nothing.
            return self.exchange(batch);
        };
        let spare = spare(&self.spare, &mut self.reserve)?;
        *slot = Some(Parked { after: self.sent, batch: std::mem::replace(batch, spare) });
        Ok(())
    }

    fn reclaim(&mut self, batch: &mut RecordBatch) {
        // If the lock is taken, the consumer is taking the batch.
        let parked = self.slot.try_lock().ok().and_then(|mut slot| slot.take());
        if let Some(parked) = parked {
            self.reserve.push(std::mem::replace(batch, parked.batch));
        }
    }
}

impl Producer {
    fn exchange(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        let spare = spare(&self.spare, &mut self.reserve)?;
        let full = std::mem::replace(batch, spare);
        // The channel has room for all batches, so an error means that the consumer has been dropped.
        self.full.try_send(full).map_err(|error| {
            let (TrySendError::Full(full) | TrySendError::Disconnected(full)) = error;
            *batch = full;
            NoRoom
        })?;
        self.sent += 1;
        Ok(())
    }
}

/// An empty batch, from the reserve.
fn spare(returned: &Receiver<RecordBatch>, reserve: &mut Vec<RecordBatch>) -> Result<RecordBatch, NoRoom> {
    reserve.extend(returned.try_iter());
    reserve.pop().ok_or(NoRoom)
}

/// The end of a ring that the log thread reads from.
#[derive(Debug)]
pub(crate) struct Consumer {
    filled: Receiver<RecordBatch>,
    release: SyncSender<RecordBatch>,
    /// Batches received through the channel so far.
    received: u64,
    slot: Arc<Mutex<Option<Parked>>>,
    /// The batch taken from an idle producer. Batches still in the channel precede it.
    parked: Option<Parked>,
    missed: Arc<AtomicU64>,
    batches: usize,
}

/// The result of taking a batch.
#[derive(Debug)]
pub(crate) enum Found {
    Batch(RecordBatch),
    Nothing,
    /// Nothing, and the producer has been dropped.
    End,
}

impl Consumer {
    /// Takes the oldest batch. Return it with [`Consumer::release`].
    pub(crate) fn take(&mut self) -> Found {
        let received = self.received;
        if let Some(parked) = self.parked.take_if(|parked| parked.after == received) {
            return Found::Batch(parked.batch);
        }
        match self.filled.try_recv() {
            Ok(batch) => {
                self.received += 1;
                Found::Batch(batch)
            }
            Err(TryRecvError::Empty) => Found::Nothing,
            Err(TryRecvError::Disconnected) if self.take_parked() => self.take(),
            Err(TryRecvError::Disconnected) => Found::End,
        }
    }

    /// Takes the batch of an idle producer; [`Consumer::take`] returns it after the batches that were sent before it.
    /// Returns whether there was one.
    pub(crate) fn take_parked(&mut self) -> bool {
        let is_new = self.parked.is_none();
        if is_new {
            self.parked = self.slot.try_lock().ok().and_then(|mut slot| slot.take());
        }
        is_new && self.parked.is_some()
    }

    /// Returns a batch to the producer.
    pub(crate) fn release(&self, mut batch: RecordBatch) {
        batch.clear();
        // Fails if the producer was dropped and needs no more memory.
        let _ = self.release.try_send(batch);
    }

    /// The number of batches in the ring.
    pub(crate) const fn batches(&self) -> usize {
        self.batches
    }

    /// Records lost so far: exact after [`Found::End`].
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Relaxed)
    }
}

#[cfg(test)]
mod tests;
