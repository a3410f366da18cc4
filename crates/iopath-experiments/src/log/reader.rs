//! A ring of the library and a reader that drains it at intervals of virtual time. Writes no file.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use iopath_core::log::NoRoom;
use iopath_core::{LogSink, Record, RecordBatch};
use iopath_log::{Producer, RingReader, ring_reader};

/// The records of all queues of a run: the number read, and the number lost because a ring was full.
#[derive(Debug, Clone, Default)]
pub(super) struct Totals {
    counts: Arc<Mutex<(u64, u64)>>,
}

impl Totals {
    pub(super) fn read(&self) -> u64 {
        self.counts().0
    }

    pub(super) fn missed(&self) -> u64 {
        self.counts().1
    }

    fn counts(&self) -> MutexGuard<'_, (u64, u64)> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The sink of a queue: a ring, and a reader that drains it every `interval_ms`.
pub(super) fn timed_reader(ring_records: usize, interval_ms: u64, totals: &Totals) -> TimedReader {
    let (producer, reader) = ring_reader(ring_records);
    let every_ns = interval_ms * 1_000_000;
    TimedReader { producer, reader, every_ns, next_ns: every_ns, last_ns: 0, totals: totals.clone() }
}

/// A ring and its reader. The records determine the time. Before a batch enters the ring, the reader performs all reads
/// that are due at the time of the last record of the batch.
#[derive(Debug)]
pub(super) struct TimedReader {
    producer: Producer,
    reader: RingReader,
    every_ns: u64,
    /// The time of the next read.
    next_ns: u64,
    /// The time of the last record.
    last_ns: u64,
    totals: Totals,
}

impl TimedReader {
    /// Reads the ring if a read is due at the time of the last record of a batch.
    fn advance(&mut self, batch: &RecordBatch) {
        let Some(record) = batch.records().last() else { return };
        let low_mask = (1 << Record::TIME_BITS) - 1;
        let mut now_ns = (self.last_ns & !low_mask) | record.time_low();
        if now_ns < self.last_ns {
            now_ns += 1 << Record::TIME_BITS;
        }
        self.last_ns = now_ns;
        if self.next_ns <= now_ns {
            self.read();
            let passed = (now_ns - self.next_ns) / self.every_ns + 1;
            self.next_ns += passed * self.every_ns;
        }
    }

    fn read(&mut self) {
        let records = self.reader.drain(&mut |_| {});
        self.totals.counts().0 += records as u64;
    }
}

impl LogSink for TimedReader {
    fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.advance(batch);
        self.producer.take(batch)
    }

    fn publish(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
        self.advance(batch);
        self.producer.publish(batch)
    }

    fn reclaim(&mut self, batch: &mut RecordBatch) {
        self.producer.reclaim(batch);
    }
}

impl Drop for TimedReader {
    /// The last read, and the losses of this ring.
    fn drop(&mut self) {
        self.read();
        self.totals.counts().1 += self.reader.missed();
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::Instant;
    use iopath_core::log::{Event, Step, Subject};

    use super::*;

    fn batch(at_ms: u64) -> RecordBatch {
        let mut batch = RecordBatch::new();
        let step = Step::new(Event::Queue, Subject::Bio(0));
        batch.push(Record::new(&step, Instant::from_nanos(at_ms * 1_000_000)));
        batch
    }

    #[test]
    fn a_ring_overflows_between_two_reads_and_has_room_after_them() {
        let totals = Totals::default();
        let mut sink = timed_reader(0, 10, &totals);
        for at_ms in [1, 2] {
            sink.take(&mut batch(at_ms)).unwrap();
        }
        sink.take(&mut batch(9)).unwrap_err();
        sink.take(&mut batch(11)).unwrap();
        drop(sink);
        assert_eq!((totals.read(), totals.missed()), (3, 1));
    }

    #[test]
    fn times_continue_when_the_times_of_the_records_wrap() {
        let totals = Totals::default();
        let mut sink = timed_reader(0, 10, &totals);
        let wrap_ms = (1 << Record::TIME_BITS) / 1_000_000;
        for at_ms in [wrap_ms, wrap_ms + 20, wrap_ms + 40, wrap_ms + 60] {
            sink.take(&mut batch(at_ms)).unwrap();
        }
        drop(sink);
        assert_eq!((totals.read(), totals.missed()), (4, 0));
    }
}
