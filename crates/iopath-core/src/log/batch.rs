//! Collects a queue's records, so that the sink is called once for many. Holds no more than a batch back.

use super::LogSink;
use super::record::{Event, Record, Step, Subject};
use crate::time::Instant;

/// Records handed over at once: their 48 words fit a processor's store buffer, so that the I/O goes on while
/// the ring's cache lines come from the core that last read them. With 64 it waits for them.
const BATCH_RECORDS: usize = 16;

/// The log of one queue: records not yet handed over, and whom they go to.
#[derive(Debug)]
pub(crate) struct Log {
    batch: [Record; BATCH_RECORDS],
    len: usize,
    /// The upper bits of the time as last told: those of every record in `batch`.
    time_high: u64,
    sink: Box<dyn LogSink>,
}

impl Log {
    pub(crate) fn new(sink: Box<dyn LogSink>) -> Self {
        // No time has these upper bits: the first record is preceded by one that tells them.
        let time_high = u64::MAX;
        Self { batch: [Record::EMPTY; BATCH_RECORDS], len: 0, time_high, sink }
    }

    /// Keeps a step. Always inlined, so that what a caller knows of it is packed when compiled, and the step
    /// itself never is in memory: a third of the cost.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn push(&mut self, step: &Step, now: Instant) {
        if now.as_nanos() >> Record::TIME_BITS != self.time_high {
            self.tell_time(now);
        }
        self.append(Record::new(step, now));
    }

    #[inline]
    fn append(&mut self, record: Record) {
        // The mask changes nothing, and spares a check.
        self.batch[self.len % BATCH_RECORDS] = record;
        self.len += 1;
        if self.len == BATCH_RECORDS {
            self.flush();
        }
    }

    /// Hands over what there is.
    #[cold]
    pub(crate) fn flush(&mut self) {
        let records = &self.batch[..self.len];
        if let Some(first) = records.first() {
            let nanos = self.time_high << Record::TIME_BITS | first.time_low();
            self.sink.take(records, Instant::from_nanos(nanos));
            self.len = 0;
        }
    }

    #[cold]
    fn tell_time(&mut self, now: Instant) {
        self.flush();
        self.time_high = now.as_nanos() >> Record::TIME_BITS;
        let step = Step::new(Event::Clock, Subject::Queue).with_other(self.time_high as u32);
        self.append(Record::new(&step, now));
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<(Instant, Record)>>>);

    impl LogSink for Kept {
        fn take(&mut self, records: &[Record], first: Instant) {
            self.0.lock().unwrap().extend(records.iter().map(|record| (first, *record)));
        }
    }

    fn events(kept: &Kept) -> Vec<Event> {
        kept.0.lock().unwrap().iter().map(|(_, record)| record.event().unwrap()).collect()
    }

    #[test]
    fn the_upper_bits_of_the_time_are_told_once_and_when_they_change() {
        let kept = Kept::default();
        let mut log = Log::new(Box::new(kept.clone()));
        let step = Step::new(Event::Queue, Subject::Bio(0));
        log.push(&step, Instant::from_nanos(5));
        log.push(&step, Instant::from_nanos(6));
        log.push(&step, Instant::from_nanos(3 << Record::TIME_BITS));
        drop(log);
        assert_eq!(events(&kept), [Event::Clock, Event::Queue, Event::Queue, Event::Clock, Event::Queue]);
        assert_eq!(kept.0.lock().unwrap()[3].1.other(), 3);
    }

    #[test]
    fn a_full_batch_goes_at_once_and_the_rest_at_the_end() {
        let kept = Kept::default();
        let mut log = Log::new(Box::new(kept.clone()));
        let steps = 2 * BATCH_RECORDS as u64;
        for nanos in 1..=steps {
            log.push(&Step::new(Event::Dispatch, Subject::Request(1)), Instant::from_nanos(nanos));
            // One more than the steps: the time's upper bits come first.
            let handed_over = (nanos as usize + 1) / BATCH_RECORDS * BATCH_RECORDS;
            assert_eq!(kept.0.lock().unwrap().len(), handed_over);
        }
        drop(log);
        let kept = kept.0.lock().unwrap();
        assert_eq!(kept.len() as u64, steps + 1);
        assert_eq!(kept[0].0, Instant::from_nanos(1));
        let second = kept[BATCH_RECORDS];
        assert_eq!(second.0.as_nanos(), second.1.time_low(), "a batch's time is its first record's");
    }
}
