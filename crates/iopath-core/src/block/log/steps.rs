//! The log of a queue that is not a [`RequestQueue`](crate::RequestQueue), such as a queue of the kernel: the caller
//! passes each step. Batches and the upper bits of the time are in `collect.rs`.

use super::LogSink;
use super::collect::Log;
use super::record::{Record, Step};
use crate::time::Instant;

/// Records the steps of one queue. Times never decrease. Numbers of bios and requests are below [`Record::NO_TAG`].
#[derive(Debug)]
pub struct StepLog {
    log: Log,
}

impl StepLog {
    /// A log of steps into a sink.
    pub fn new(sink: Box<dyn LogSink>) -> Self {
        Self { log: Log::new(sink) }
    }

    /// Records a step.
    #[inline]
    pub fn record(&mut self, step: &Step, now: Instant) {
        self.log.push(step, now);
    }

    /// Records the `Dispatch` of a request that was not inserted into an elevator: its `Insert` is at the same time.
    #[inline]
    pub fn record_direct(&mut self, dispatch: &Step, now: Instant) {
        self.log.push_record(Record::new(dispatch, now).and_insert(), now);
    }

    /// Records the `Dispatch` of a request for the bio `other` whose `Queue`, `Get` and `Insert` are at the same time.
    #[inline]
    pub fn record_at_once(&mut self, dispatch: &Step, now: Instant) {
        self.log.push_record(Record::new(dispatch, now).and_all_before(), now);
    }

    /// Records that `count` steps are missing here: the bios and requests in flight are unknown from now on.
    pub fn record_missed(&mut self, count: u64, now: Instant) {
        self.log.push_record(Record::missed(count, now), now);
    }

    /// Passes the pending records to the sink.
    pub fn flush(&mut self) {
        self.log.flush_pending();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Event, NoRoom, RecordBatch, Subject};
    use super::*;
    use std::sync::{Arc, Mutex};

    #[derive(Debug, Clone, Default)]
    struct Kept(Arc<Mutex<Vec<Record>>>);

    impl LogSink for Kept {
        fn take(&mut self, batch: &mut RecordBatch) -> Result<(), NoRoom> {
            self.0.lock().unwrap().extend(batch.records());
            batch.clear();
            Ok(())
        }
    }

    #[test]
    fn a_dispatch_includes_the_steps_at_its_time() {
        let kept = Kept::default();
        let mut log = StepLog::new(Box::new(kept.clone()));
        let now = Instant::from_nanos(1 << 41);
        let dispatch = Step::new(Event::Dispatch, Subject::Request(5));
        log.record_direct(&dispatch, now);
        log.record_at_once(&dispatch.with_other(3), now);
        log.record_missed(7, now);
        log.flush();
        let records = kept.0.lock().unwrap();
        let events: Vec<_> = records.iter().flat_map(|record| record.parts()).map(Record::event).collect();
        let expected = [
            Event::Clock,
            Event::Insert,
            Event::Dispatch,
            Event::Queue,
            Event::Get,
            Event::Insert,
            Event::Dispatch,
            Event::Missed,
        ];
        assert_eq!(events, expected.map(Some));
    }
}
