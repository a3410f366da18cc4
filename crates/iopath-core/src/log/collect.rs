//! Collects a queue's records, so that the sink is called once for many, and makes one record of two steps that
//! come together. Holds no more than a batch back, none that is older than [`HELD_MAX_NS`] when the next comes, and
//! none from a sink that looks while the queue is idle.

use super::record::{Event, Record, Step, Subject};
use super::{LogSink, RecordBatch};
use crate::table::Tag;
use crate::time::Instant;

/// A batch that is not full goes to the sink with the first step after this time.
const HELD_MAX_NS: u64 = 1_000_000_000;

/// The log of one queue: records not yet handed over, and whom they go to.
#[derive(Debug)]
pub(crate) struct Log {
    batch: RecordBatch,
    len: usize,
    /// Requests inserted and, for all we know, not dispatched: the records from the first to the second place,
    /// if that is where the batch ends. Dispatched in the same order at the same time they need no other record.
    inserted: usize,
    inserted_end: usize,
    /// Steps within `valid_ns` of this time need no look at the clock's upper bits or the batch's age.
    valid_from_ns: u64,
    valid_ns: u64,
    /// The upper bits of the time as last told: those of every record since.
    time_high: u64,
    /// Records lost and not told of.
    missed: u64,
    /// While the sink has the batch that is not full, what `valid_ns` will be again. That is 0 meanwhile, so that the
    /// next step asks for the batch.
    at_rest: Option<u64>,
    sink: Box<dyn LogSink>,
}

impl Log {
    pub(crate) fn new(sink: Box<dyn LogSink>) -> Self {
        Self {
            batch: RecordBatch::new(),
            len: 0,
            inserted: 0,
            inserted_end: 0,
            valid_from_ns: 0,
            valid_ns: 0,
            // No time has these upper bits: the first record is preceded by one that tells them.
            time_high: u64::MAX,
            missed: 0,
            at_rest: None,
            sink,
        }
    }

    /// Keeps a step. Always inlined, so that what a caller knows of it is packed when compiled, and the step
    /// itself never is in memory: a third of the cost.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn push(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        self.append(Record::new(step, now));
    }

    /// Keeps the `Get` of a request for a bio. If the bio was queued a moment ago, that record now says both.
    #[inline]
    pub(crate) fn push_get(&mut self, tag: Tag, bio: u32, step: impl FnOnce() -> Step, now: Instant) {
        let tag = tag.index() as u32;
        // An empty batch has no last record: the place before its first is beyond its end.
        let last = self.batch.records[..self.len].last_mut();
        if !last.is_some_and(|last| last.became_get(tag, bio, now)) {
            self.push(&step(), now);
        }
    }

    /// Keeps the `Insert` of a request, for [`Log::push_dispatch`] to find.
    #[inline]
    pub(crate) fn push_insert(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        if self.inserted_end != self.len {
            self.inserted = self.len;
        }
        self.append(Record::new(step, now));
        self.inserted_end = self.len;
    }

    /// Keeps the `Dispatch` of a request. If it is the next of those inserted just now, that record now says both.
    #[inline]
    pub(crate) fn push_dispatch(&mut self, tag: Tag, step: impl FnOnce() -> Step, now: Instant) {
        let is_run = self.inserted_end == self.len && self.inserted < self.inserted_end;
        let record = &mut self.batch.records[self.inserted % RecordBatch::CAPACITY];
        if is_run && record.became_dispatch(tag.index() as u32, now) {
            self.inserted += 1;
        } else {
            self.push(&step(), now);
        }
    }

    /// Keeps the change to an elevator of this name.
    pub(crate) fn push_elevator(&mut self, name: &str, now: Instant) {
        self.keep_time(now);
        self.append(Record::elevator(name, now));
    }

    #[inline]
    fn keep_time(&mut self, now: Instant) {
        if now.as_nanos().wrapping_sub(self.valid_from_ns) >= self.valid_ns {
            self.renew(now);
        }
    }

    #[inline]
    fn append(&mut self, record: Record) {
        // The remainder changes nothing, and spares a check.
        let place = self.len % RecordBatch::CAPACITY;
        self.batch.records[place] = record;
        self.len = place + 1;
        if self.len == RecordBatch::CAPACITY {
            self.flush();
        }
    }

    /// Lets the sink have what there is until the next step.
    pub(crate) fn rest(&mut self) {
        if self.len == 0 {
            return;
        }
        self.batch.len = self.len;
        if self.sink.rest(&mut self.batch).is_ok() {
            self.at_rest = Some(std::mem::take(&mut self.valid_ns));
            (self.len, self.inserted, self.inserted_end) = (0, 0, 0);
        }
    }

    /// Takes back what the sink has not used. Whether it was let have anything.
    fn resume(&mut self) -> bool {
        let Some(valid_ns) = self.at_rest.take() else { return false };
        self.sink.resume(&mut self.batch);
        (self.len, self.valid_ns) = (self.batch.len, valid_ns);
        true
    }

    /// Hands over what there is.
    #[cold]
    fn flush(&mut self) {
        if self.len == 0 {
            return;
        }
        self.batch.len = self.len;
        if self.sink.take(&mut self.batch).is_err() {
            self.missed = self.batch.missed + self.batch.lost();
            self.batch.clear();
            // The next step is to tell.
            self.valid_ns = 0;
        }
        (self.len, self.inserted, self.inserted_end) = (0, 0, 0);
    }

    /// Hands over what has been held long enough, and tells what the next record cannot do without.
    #[cold]
    fn renew(&mut self, now: Instant) {
        if self.resume() && now.as_nanos().wrapping_sub(self.valid_from_ns) < self.valid_ns {
            return;
        }
        self.flush();
        let nanos = now.as_nanos();
        let time_high = nanos >> Record::TIME_BITS;
        if self.missed > 0 {
            self.batch.missed = self.missed;
            self.append(Record::missed(self.missed, now));
            self.missed = 0;
        } else if time_high != self.time_high {
            let step = Step::new(Event::Clock, Subject::Queue).with_other(time_high as u32);
            self.append(Record::new(&step, now));
        }
        self.time_high = time_high;
        self.valid_from_ns = nanos;
        // The last there are end where the numbers do.
        let till_next_high = ((time_high + 1) << Record::TIME_BITS).wrapping_sub(nanos);
        self.valid_ns = till_next_high.min(HELD_MAX_NS);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.resume();
        self.flush();
    }
}

#[cfg(test)]
mod tests;
