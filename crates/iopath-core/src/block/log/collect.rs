//! Collects the records of a queue into batches for the sink, and combines steps at the same time into one record. At
//! most one batch is pending. A record goes to the sink with the first step after [`PENDING_MAX_NS`] at the latest, and
//! while the queue is idle if the sink supports that.

use super::record::{Event, Record, Step, Subject};
use super::{LogSink, RecordBatch};
use crate::block::merge::NoMerge;
use crate::block::request::{NONE, Tag};
use crate::time::Instant;

/// A batch that is not full goes to the sink with the first step after this time.
///
/// The reader of a log sorts the records of all queues by time in bounded memory. So the records of a slow queue must
/// not reach the file much later than records of a fast queue with the same time.
const PENDING_MAX_NS: u64 = 50_000_000;

/// The number of records ahead whose memory is prefetched for writing: see [`Log::prefetch_ahead`].
const AHEAD: usize = 128;

/// A position at which no batch ends.
const NO_RUN: usize = usize::MAX;

/// The log of one queue: the pending records and the sink.
#[derive(Debug)]
pub(crate) struct Log {
    batch: RecordBatch,
    len: usize,
    /// A bio whose `Queue` is pending, or [`NONE`]: most bios get their request at once.
    queued: u32,
    /// The *run*: the last records before `run_end`, all with the time `run_at`. Steps are added to its records only
    /// while `run_end` is the end of the batch. Records from `inserted` to `got` belong to requests that were inserted
    /// and not yet dispatched. Records from `got` on belong to requests that have a slot and were not yet inserted. The
    /// next step of such a request is added to its record if the step has the same time and the requests keep their
    /// order. All other records of the run are of the kind [`Record::may_be_skipped`].
    inserted: usize,
    got: usize,
    run_end: usize,
    run_at: Instant,
    /// The end of the batch, if its last record is the `Get` of a request whose `Plug` is pending: if the plug holds
    /// only this request until it is emptied, the record includes `Plug` and `Unplug`. Any other position: nothing is
    /// pending.
    plugged: usize,
    /// The position in the batch up to which memory was prefetched for writing.
    prefetched: usize,
    /// Steps within `valid_ns` of this time need no check of the upper bits of the time and of the age of the batch.
    valid_from_ns: u64,
    valid_ns: u64,
    /// The upper bits of the time, as recorded last.
    time_high: u64,
    /// Records lost and not yet recorded as missing.
    missed: u64,
    /// The saved `valid_ns` while the batch is published. `valid_ns` is 0 then, so that the next step reclaims the
    /// batch.
    published: Option<u64>,
    sink: Box<dyn LogSink>,
}

impl Log {
    pub(crate) fn new(sink: Box<dyn LogSink>) -> Self {
        Self {
            batch: RecordBatch::new(),
            len: 0,
            queued: NONE,
            inserted: 0,
            got: 0,
            run_end: NO_RUN,
            run_at: Instant::ZERO,
            plugged: NO_RUN,
            prefetched: 0,
            valid_from_ns: 0,
            valid_ns: 0,
            // No time has these upper bits, so a `Clock` precedes the first record.
            time_high: u64::MAX,
            missed: 0,
            published: None,
            sink,
        }
    }

    /// Records a step. Always inlined, so that constants of the caller are encoded at compile time and the step is
    /// never stored in memory.
    #[expect(clippy::inline_always, reason = "measured")]
    #[inline(always)]
    pub(crate) fn push(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        self.append(Record::new(step, now));
    }

    /// Records a step that is already encoded for this time.
    #[inline]
    pub(crate) fn push_record(&mut self, record: Record, now: Instant) {
        self.keep_time(now);
        self.append(record);
    }

    /// Records the `Plug` of request `tag`, or postpones it until the next step.
    #[inline]
    pub(crate) fn push_plug(&mut self, tag: Tag, step: impl FnOnce() -> Step, now: Instant) {
        let last = self.len.wrapping_sub(1) % RecordBatch::CAPACITY;
        if self.is_run(now) && self.len > 0 && self.batch.records[last].is_got(tag.index() as u32) {
            self.plugged = self.len;
        } else {
            self.push_skippable(&step(), now);
        }
    }

    /// Records that the plug was emptied of `requests` requests. Added to the record of the `Get` if the plug held only
    /// that request.
    #[inline]
    pub(crate) fn push_unplug(&mut self, requests: u32, now: Instant) {
        if requests == 1 && self.plugged == self.len && self.is_run(now) {
            self.plugged = NO_RUN;
            self.batch.records[(self.len - 1) % RecordBatch::CAPACITY].became_alone();
        } else {
            self.push_skippable(&Step::new(Event::Unplug, Subject::Queue).with_other(requests), now);
        }
    }

    /// Records a `Plug` that is pending. Call this before any other step.
    #[inline]
    fn record_plug(&mut self) {
        if self.plugged == self.len {
            self.push_pending_plug();
        }
    }

    #[cold]
    fn push_pending_plug(&mut self) {
        self.plugged = NO_RUN;
        let got = self.batch.records[(self.len - 1) % RecordBatch::CAPACITY];
        self.append_to_run(got.plug());
    }

    /// Records a step that does not end the run: see [`Record::may_be_skipped`].
    fn push_skippable(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        let record = Record::new(step, now);
        if self.run_end == self.len { self.append_to_run(record) } else { self.append(record) }
    }

    /// A bio was queued. The caller must record its next step before any other, by [`Log::push_get`] if it gets a
    /// request.
    #[inline]
    pub(crate) const fn note_queued(&mut self, slot: u32) {
        self.queued = slot;
    }

    /// The bio whose `Queue` is pending; the caller records it.
    #[inline]
    pub(crate) fn take_queued(&mut self) -> Option<u32> {
        (self.queued != NONE).then(|| std::mem::replace(&mut self.queued, NONE))
    }

    /// Records the `Get` of a request for `bio`, combined with the `Queue` of the bio if that is pending.
    #[inline]
    pub(crate) fn push_get(&mut self, bio: u32, step: &Step, now: Instant) {
        if self.queued != bio {
            return self.push(step, now);
        }
        self.queued = NONE;
        self.record_plug();
        if !self.is_run(now) {
            self.keep_time(now);
            (self.inserted, self.got, self.run_at) = (self.len, self.len, now);
        }
        self.append_to_run(Record::new(step, now).and_queue());
        self.prefetch_ahead();
    }

    /// Prefetches the memory of later records for writing. The reader of a batch leaves the memory in the cache of
    /// another processor, and the transfer back takes longer than filling the batch. Completions record many steps at
    /// once and would wait for that transfer. So each bio prefetches as many cache lines as it will need.
    #[inline]
    fn prefetch_ahead(&mut self) {
        let position = self.prefetched.max(self.len);
        if position < (self.len + AHEAD).min(RecordBatch::CAPACITY) {
            self.batch.records[position] = Record::UNUSED;
            // Every line of 64 bytes has one of every second record.
            self.prefetched = position + 2;
        }
    }

    /// Whether the batch ends in a run of this time; then the time needs no check.
    #[inline]
    fn is_run(&self, now: Instant) -> bool {
        self.run_end == self.len && self.run_at == now
    }

    /// Records the `Insert` of a request, for [`Log::push_dispatch`] to find. Added to the record of the `Get` if the
    /// request is the next of the run.
    #[inline]
    pub(crate) fn push_insert(
        &mut self,
        tag: Tag,
        reason: NoMerge,
        step: impl FnOnce() -> Step,
        now: Instant,
    ) {
        let is_run = self.is_run(now);
        while is_run && self.got < self.len {
            let record = &mut self.batch.records[self.got % RecordBatch::CAPACITY];
            if record.became_insert(tag.index() as u32, reason) {
                self.got += 1;
                return;
            }
            if !record.may_be_skipped() {
                break;
            }
            self.got += 1;
        }
        self.push_insert_alone(&step(), now);
    }

    fn push_insert_alone(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        if !self.is_run(now) || self.got != self.len {
            (self.inserted, self.run_at) = (self.len, now);
        }
        self.append_to_run(Record::new(step, now));
        self.got = self.len;
    }

    /// Records the `Dispatch` of a request. Added to the record of the `Insert` if the request is the next of the run.
    #[inline]
    pub(crate) fn push_dispatch(&mut self, tag: Tag, step: impl FnOnce() -> Step, now: Instant) {
        let is_run = self.is_run(now);
        while is_run && self.inserted < self.got {
            let record = &mut self.batch.records[self.inserted % RecordBatch::CAPACITY];
            if record.became_dispatch(tag.index() as u32) {
                self.inserted += 1;
                return;
            }
            if !record.may_be_skipped() {
                break;
            }
            self.inserted += 1;
        }
        self.push(&step(), now);
    }

    /// Records a new elevator.
    pub(crate) fn push_elevator(&mut self, name: &str, now: Instant) {
        self.keep_time(now);
        self.append(Record::elevator(name, now));
    }

    #[inline]
    fn keep_time(&mut self, now: Instant) {
        self.record_plug();
        if now.as_nanos().wrapping_sub(self.valid_from_ns) >= self.valid_ns {
            self.renew(now);
        }
    }

    #[inline]
    fn append(&mut self, record: Record) {
        // The remainder never changes the value, and removes a bounds check.
        let position = self.len % RecordBatch::CAPACITY;
        self.batch.records[position] = record;
        self.len = position + 1;
        if self.len == RecordBatch::CAPACITY {
            self.flush();
        }
    }

    /// Appends a record that extends the run. A run ends with its batch.
    #[inline]
    fn append_to_run(&mut self, record: Record) {
        self.run_end = self.len + 1;
        self.append(record);
    }

    /// Publishes the pending records in the sink until the next step.
    pub(crate) fn publish(&mut self) {
        self.record_plug();
        if self.len == 0 {
            return;
        }
        self.batch.len = self.len;
        if self.sink.publish(&mut self.batch).is_ok() {
            self.published = Some(std::mem::take(&mut self.valid_ns));
            self.begin_batch();
        }
    }

    /// Passes the records so far to the sink.
    pub(crate) fn flush_pending(&mut self) {
        self.reclaim();
        self.record_plug();
        self.flush();
    }

    const fn begin_batch(&mut self) {
        (self.len, self.inserted, self.got, self.prefetched) = (0, 0, 0, 0);
        (self.run_end, self.plugged) = (NO_RUN, NO_RUN);
    }

    /// Takes the published batch back from the sink; it is empty if it was read. Returns whether a batch was published.
    fn reclaim(&mut self) -> bool {
        let Some(valid_ns) = self.published.take() else { return false };
        self.sink.reclaim(&mut self.batch);
        (self.len, self.valid_ns) = (self.batch.len, valid_ns);
        true
    }

    /// Passes the pending records to the sink.
    #[cold]
    fn flush(&mut self) {
        if self.len == 0 {
            return;
        }
        self.batch.len = self.len;
        if self.sink.take(&mut self.batch).is_err() {
            self.missed = self.batch.missed + self.batch.lost();
            self.batch.clear();
            // The next step records the loss.
            self.valid_ns = 0;
        }
        self.begin_batch();
    }

    /// Passes records that are old enough to the sink, and records the upper bits of the time or a loss if needed.
    #[cold]
    fn renew(&mut self, now: Instant) {
        if self.reclaim() && now.as_nanos().wrapping_sub(self.valid_from_ns) < self.valid_ns {
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
        // Wraps to the correct distance for the last upper bits.
        let till_next_high = ((time_high + 1) << Record::TIME_BITS).wrapping_sub(nanos);
        self.valid_ns = till_next_high.min(PENDING_MAX_NS);
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.flush_pending();
    }
}

#[cfg(test)]
mod tests;
