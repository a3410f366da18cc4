//! The reading end of a ring for a program that processes the records itself. `writer.rs` reads rings for a file.

use iopath_core::Record;

use super::{Consumer, Found, Producer, ring};

/// A ring of about `records` records (at least two batches), and its reader. The queue loses and counts the records
/// that do not fit.
///
/// ```
/// use iopath_core::{Bio, Extent, Instant, LengthOnly, Limits, QueueConfig, RequestQueue, Sector};
///
/// let (producer, mut reader) = iopath_log::ring_reader(87_381);
/// let mut queue = RequestQueue::new(Limits::with_capacity(1 << 20), &QueueConfig::default());
/// queue.start_log(Box::new(producer));
/// let extent = Extent::new(Sector(2048), 8).expect("within the address space");
/// queue.submit_bio(Bio::read(extent, LengthOnly::new(4096), 1), Instant::from_nanos(100))?;
/// queue.end_log();
///
/// let mut records = Vec::new();
/// reader.drain(&mut |batch| records.extend_from_slice(batch));
/// assert!(!records.is_empty() && reader.missed() == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn ring_reader(records: usize) -> (Producer, RingReader) {
    let (producer, ring) = ring(records);
    (producer, RingReader { ring })
}

/// Reads a ring.
#[derive(Debug)]
pub struct RingReader {
    ring: Consumer,
}

impl RingReader {
    /// Passes the batches in the ring to `each`, the oldest first. Returns the number of records.
    pub fn drain(&mut self, each: &mut dyn FnMut(&[Record])) -> usize {
        let mut drained = 0;
        let mut took_parked = false;
        loop {
            match self.ring.take() {
                Found::Batch(batch) => {
                    each(batch.records());
                    drained += batch.records().len();
                    self.ring.release(batch);
                }
                Found::Nothing if !took_parked && self.ring.take_parked() => took_parked = true,
                Found::Nothing | Found::End => return drained,
            }
        }
    }

    /// Records that the queue has lost so far.
    pub fn missed(&self) -> u64 {
        self.ring.missed()
    }
}

#[cfg(test)]
mod tests {
    use iopath_core::log::{Event, Step, Subject};
    use iopath_core::{Instant, LogSink, RecordBatch};

    use super::*;

    fn batch(numbers: std::ops::Range<u64>) -> RecordBatch {
        let mut batch = RecordBatch::new();
        for number in numbers {
            let step = Step::new(Event::Queue, Subject::Bio(0));
            batch.push(Record::new(&step, Instant::from_nanos(number)));
        }
        batch
    }

    #[test]
    fn a_drain_returns_all_records_in_order_and_makes_room() {
        let (mut producer, mut reader) = ring_reader(0);
        producer.take(&mut batch(0..3)).unwrap();
        producer.publish(&mut batch(3..4)).unwrap();
        producer.take(&mut batch(4..6)).unwrap_err();
        let mut times = Vec::new();
        let mut note = |records: &[Record]| times.extend(records.iter().map(|record| record.time_low()));
        assert_eq!(reader.drain(&mut note), 4);
        assert_eq!((times, reader.missed()), (vec![0, 1, 2, 3], 2));
        producer.take(&mut batch(4..6)).unwrap();
        assert_eq!((reader.drain(&mut |_| {}), reader.drain(&mut |_| {})), (2, 0));
    }
}
