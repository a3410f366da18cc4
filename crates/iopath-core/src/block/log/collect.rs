//! Collects a queue's records, so that the sink is called once for many, and makes one record of steps that come
//! together. Holds no more than a batch back, none that is older than [`HELD_MAX_NS`] when the next comes, and
//! none from a sink that looks while the queue is idle.

use super::record::{Event, Record, Step, Subject};
use super::{LogSink, RecordBatch};
use crate::block::merge::NoMerge;
use crate::block::request::{NONE, Tag};
use crate::time::Instant;

/// A batch that is not full goes to the sink with the first step after this time.
const HELD_MAX_NS: u64 = 1_000_000_000;

/// So many records ahead of those written, their memory is this processor's: see [`Log::own_ahead`].
const AHEAD: usize = 128;

/// No batch ends here.
const NO_RUN: usize = usize::MAX;

/// The log of one queue: records not yet handed over, and whom they go to.
#[derive(Debug)]
pub(crate) struct Log {
    batch: RecordBatch,
    len: usize,
    /// A bio that has been queued and is not told of, or [`NONE`]: most get their request at once.
    queued: u32,
    /// The run: the last records of the batch, up to `run_end`, if that is where the batch ends, of the time `run_at`.
    /// From `inserted` to `got` they are of requests inserted and, for all we know, not dispatched; from there on, of
    /// requests that got their slot with their bio queued, and are not inserted. What happens to these in the same
    /// order at the same time needs no other record. Some between them may be passed ([`Record::may_be_passed`]).
    inserted: usize,
    got: usize,
    run_end: usize,
    run_at: Instant,
    /// Up to this place of the batch, for all we know, the memory is this processor's.
    owned: usize,
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
            queued: NONE,
            inserted: 0,
            got: 0,
            run_end: NO_RUN,
            run_at: Instant::ZERO,
            owned: 0,
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

    /// Keeps a step that does not end the run: see [`Record::may_be_passed`].
    pub(crate) fn push_passed(&mut self, step: &Step, now: Instant) {
        self.keep_time(now);
        let record = Record::new(step, now);
        if self.run_end == self.len { self.append_to_run(record) } else { self.append(record) }
    }

    /// A bio has been queued. What becomes of it is to be told before anything else, by [`Log::push_get`] if it gets
    /// its request.
    #[inline]
    pub(crate) const fn note_queued(&mut self, slot: u32) {
        self.queued = slot;
    }

    /// The bio that has been queued and is not told of, which the caller is to do.
    #[inline]
    pub(crate) fn take_queued(&mut self) -> Option<u32> {
        (self.queued != NONE).then(|| std::mem::replace(&mut self.queued, NONE))
    }

    /// Keeps the `Get` of a request for a bio that was queued just now, if it was, in a record that says both.
    #[inline]
    pub(crate) fn push_get(&mut self, bio: u32, step: &Step, now: Instant) {
        if self.queued != bio {
            return self.push(step, now);
        }
        self.queued = NONE;
        if !self.is_run(now) {
            self.keep_time(now);
            (self.inserted, self.got, self.run_at) = (self.len, self.len, now);
        }
        self.append_to_run(Record::new(step, now).and_queue());
        self.own_ahead();
    }

    /// Writes into memory of records to come. Who took a batch had it in the caches of another processor, and to
    /// get it back takes longer than to fill it. That is waited for where many records come at once, as completions do;
    /// so it is asked for while bios come, one for each, as much as each will need.
    #[inline]
    fn own_ahead(&mut self) {
        let place = self.owned.max(self.len);
        if place < (self.len + AHEAD).min(RecordBatch::CAPACITY) {
            self.batch.records[place] = Record::UNUSED;
            // No two that far apart leave out a line of 64 bytes.
            self.owned = place + 2;
        }
    }

    /// Whether the batch ends in a run of this time, so that the time need not be looked at.
    #[inline]
    fn is_run(&self, now: Instant) -> bool {
        self.run_end == self.len && self.run_at == now
    }

    /// Keeps the `Insert` of a request, for [`Log::push_dispatch`] to find. If it is the next that got its slot just
    /// now, that record now says it, too.
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
            if !record.may_be_passed() {
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

    /// Keeps the `Dispatch` of a request. If it is the next of those inserted just now, that record now says it, too.
    #[inline]
    pub(crate) fn push_dispatch(&mut self, tag: Tag, step: impl FnOnce() -> Step, now: Instant) {
        let is_run = self.is_run(now);
        while is_run && self.inserted < self.got {
            let record = &mut self.batch.records[self.inserted % RecordBatch::CAPACITY];
            if record.became_dispatch(tag.index() as u32) {
                self.inserted += 1;
                return;
            }
            if !record.may_be_passed() {
                break;
            }
            self.inserted += 1;
        }
        self.push(&step(), now);
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

    /// A run ends with its batch.
    #[inline]
    fn append_to_run(&mut self, record: Record) {
        self.run_end = self.len + 1;
        self.append(record);
    }

    /// Lets the sink have what there is until the next step.
    pub(crate) fn rest(&mut self) {
        if self.len == 0 {
            return;
        }
        self.batch.len = self.len;
        if self.sink.rest(&mut self.batch).is_ok() {
            self.at_rest = Some(std::mem::take(&mut self.valid_ns));
            self.begin_batch();
        }
    }

    const fn begin_batch(&mut self) {
        (self.len, self.inserted, self.got, self.run_end, self.owned) = (0, 0, 0, NO_RUN, 0);
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
        self.begin_batch();
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
