//! One job as a state machine: selects the next transfer, tracks the transfers in flight, ends the job, and records the
//! measurements. Has no thread and no clock: `now` is an argument, so threads or a virtual clock can drive it.
//!
//! ```text
//!             poll_transfer(now) ──▶ (slot, transfer) ──▶ connection or modelled device
//!                    ▲ slot is free                              │
//!             handle_done(slot, now) ◀───────────────────────────┘
//! ```
//!
//! `job/pace.rs` delays transfers: think time and rates. `job/control.rs` limits or ends a job by its own figures or by
//! other jobs. `job/sampled.rs` is the job that measures one latency in many, `job/drive.rs` drives both on a
//! connection.

mod batch;
pub(crate) mod control;
pub(crate) mod drive;
mod pace;
pub(crate) mod pause;
pub(crate) mod sampled;
pub(crate) mod tally;

use batch::Batch;
use pace::Due;
pub(crate) use pace::Pace;
use std::num::NonZeroU64;
use std::time::Duration;

use control::{AccessSink, Control, FlowShare};
use tally::{JobResult, Tally};

use crate::contents::Filler;
use crate::path::{Direction, Transfer};
use crate::plan::Plan;
use crate::thread_settings::IoPriority;
use crate::workload::{LatencyFrom, Workload};

/// The time limit of a job. The end of the plan also ends a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    /// On the clock of `now`, in nanoseconds; `u64::MAX` for none.
    ns: u64,
}

impl Deadline {
    /// `runtime_ns` after the start.
    pub(crate) fn after(started_ns: u64, runtime_ns: Option<u64>) -> Self {
        Self { ns: runtime_ns.map_or(u64::MAX, |runtime_ns| started_ns.saturating_add(runtime_ns)) }
    }

    /// The same limit, later by `ns`.
    fn later(self, ns: u64) -> Self {
        Self { ns: self.ns.saturating_add(ns) }
    }

    #[inline]
    pub(crate) fn is_reached(self, now_ns: u64) -> bool {
        now_ns >= self.ns
    }
}

/// When a job starts, and when its measurement begins.
#[derive(Debug, Clone, Copy, Default)]
pub struct Start {
    /// The time between the start of all jobs and the start of this one.
    pub delay: Duration,
    /// The time between the start of the job and the start of its measurement. The time limit counts from its end.
    pub ramp: Duration,
}

/// The times at which a job begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begin {
    /// The first transfer, on the clock of `now`.
    pub(crate) started_ns: u64,
    /// The measurement.
    pub(crate) measured_ns: u64,
}

impl Begin {
    /// The times of a job that would start at `now_ns` without a delay.
    pub(crate) fn of(Start { delay, ramp }: Start, now_ns: u64) -> Self {
        let after =
            |ns: u64, time: Duration| ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let started_ns = after(now_ns, delay);
        Self { started_ns, measured_ns: after(started_ns, ramp) }
    }
}

/// The conditions of a job's transfers, in addition to a free slot.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) pace: Option<Pace>,
    batch: Option<Batch>,
    filler: Option<Box<Filler>>,
    pub(crate) control: Option<Box<Control>>,
}

impl Limits {
    /// The conditions of a workload for job `job` in a repetition. `flow` is its share, if it has one.
    pub(crate) fn of(
        workload: &Workload,
        [repetition, job]: [u32; 2],
        flow: Option<FlowShare>,
        accesses: Option<AccessSink>,
        begin: Begin,
    ) -> Self {
        Self {
            pace: Pace::of(workload, repetition, job, begin.started_ns),
            batch: Batch::of(workload.batch, workload.depth_in_flight()),
            filler: Filler::of(&workload.contents, workload.seed).filter(|_| workload.verify.is_none()),
            control: Control::of(workload, flow, accesses, begin.measured_ns),
        }
    }
}

/// A transfer in flight.
#[derive(Debug, Clone, Copy)]
struct Slot {
    transfer: Transfer,
    /// The time from which the latency counts.
    counted_ns: u64,
}

/// A job that keeps its depth in flight and measures every latency. A new transfer starts as soon as a slot is free, or
/// later with a [`Pace`].
#[derive(Debug)]
pub(crate) struct Job {
    plan: Plan,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// With a rate: the other start of the transfer in each slot, on the clock of `now`.
    others: Vec<u64>,
    latency_from: LatencyFrom,
    /// The end of the submission of the transfer in each slot; empty if the path does not measure it.
    submitted: Vec<u64>,
    /// The slots of transfers that are queued and not submitted.
    queued: Vec<u32>,
    deadline: Deadline,
    pace: Option<Pace>,
    batch: Option<Batch>,
    filler: Option<Box<Filler>>,
    control: Option<Box<Control>>,
    /// The start of a job with a delay, until it is reached.
    start_ns: Option<u64>,
    /// The start of the measurement, until it is reached; 0 afterwards.
    ramp_end_ns: u64,
    /// Writes between two flushes, and between two flushes of data alone; none without them.
    flush_every: [Option<NonZeroU64>; 2],
    /// Writes up to the next flush, and writes until it; `u64::MAX` for none.
    flush_at: u64,
    writes_left: u64,
    /// Set by the end of the plan, the deadline or [`Job::stop`].
    is_stopped: bool,
    tally: Tally,
}

impl Job {
    /// A job of `depth` transfers in flight that starts now.
    pub(crate) fn new(plan: Plan, depth: u32, runtime_ns: Option<u64>, now_ns: u64) -> Self {
        let idle = Transfer { direction: Direction::Read, offset: 0, bytes: 0 };
        Self {
            plan,
            slots: vec![Slot { transfer: idle, counted_ns: 0 }; depth as usize],
            free: (0..depth).rev().collect(),
            others: Vec::new(),
            latency_from: LatencyFrom::Due,
            submitted: Vec::new(),
            queued: Vec::new(),
            deadline: Deadline::after(now_ns, runtime_ns),
            pace: None,
            batch: None,
            filler: None,
            control: None,
            start_ns: None,
            ramp_end_ns: 0,
            flush_every: [None; 2],
            flush_at: u64::MAX,
            writes_left: u64::MAX,
            is_stopped: false,
            tally: Tally::new(now_ns),
        }
    }

    /// The same job with another start, for a job that would start at `now_ns`.
    pub(crate) fn with_start(self, start: Start, now_ns: u64) -> Self {
        let Start { delay, ramp } = start;
        if delay.is_zero() && ramp.is_zero() {
            return self;
        }
        let Begin { started_ns, measured_ns } = Begin::of(start, now_ns);
        Self {
            deadline: self.deadline.later(measured_ns - now_ns),
            start_ns: (!delay.is_zero()).then_some(started_ns),
            ramp_end_ns: if ramp.is_zero() { 0 } else { measured_ns },
            plan: if ramp.is_zero() { self.plan } else { self.plan.uncounted() },
            tally: Tally::new(measured_ns),
            ..self
        }
    }

    /// The same job with a flush after each number of writes, and one of data alone after each second number.
    pub(crate) fn with_flushes(self, flush_every: [Option<NonZeroU64>; 2]) -> Self {
        let mut job = Self { flush_every, flush_at: 0, ..self };
        job.plan_flush();
        job
    }

    /// Determines the next flush, from the writes up to this one.
    fn plan_flush(&mut self) {
        let done = self.flush_at;
        let left = self.flush_every.iter().flatten().map(|every| every.get() - done % every.get()).min();
        self.flush_at = left.map_or(u64::MAX, |left| done.saturating_add(left));
        self.writes_left = left.unwrap_or(u64::MAX);
    }

    /// Whether the next flush is of data alone. As in fio, a flush with metadata takes its place where both are due.
    pub(crate) fn flushes_data_alone(&self) -> bool {
        self.flush_every[0].is_none_or(|every| !self.flush_at.is_multiple_of(every.get()))
    }

    /// The same job with conditions of its transfers.
    pub(crate) fn with_limits(self, Limits { pace, batch, filler, control }: Limits) -> Self {
        let has_rate = pace.as_ref().is_some_and(Pace::is_rate);
        let others = if has_rate { vec![0; self.slots.len()] } else { Vec::new() };
        Self { others, pace, batch, filler, control, ..self }
    }

    /// The same job with this start of its latencies.
    pub(crate) fn with_latency_from(self, latency_from: LatencyFrom) -> Self {
        Self { latency_from, ..self }
    }

    /// The same job on a path that measures submissions.
    pub(crate) fn with_submissions(self) -> Self {
        let depth = self.slots.len();
        Self { submitted: vec![0; depth], queued: Vec::with_capacity(depth), ..self }
    }

    /// A transfer of [`Job::poll_transfer`] is ready: its submission begins. Called if latencies are from there.
    #[inline]
    pub(crate) fn begin(&mut self, slot: u32, now_ns: u64) {
        self.slots[slot as usize].counted_ns = now_ns;
        if !self.submitted.is_empty() {
            self.queued.push(slot);
        }
    }

    /// Whether the submission of a transfer is to be measured.
    #[inline]
    pub(crate) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// All transfers are submitted.
    pub(crate) fn handle_submitted(&mut self, now_ns: u64) {
        for slot in self.queued.drain(..) {
            self.submitted[slot as usize] = now_ns;
        }
    }

    /// Whether transfers wait for more than a free slot.
    #[inline]
    pub(crate) const fn is_paced(&self) -> bool {
        self.pace.is_some() || self.control.is_some() || self.batch.is_some()
    }

    /// The next transfer to submit and its slot. None while all slots are in flight, before a flush, and until
    /// [`Job::poll_timeout`]. After the end of the plan, the deadline or [`Job::stop`], always none.
    #[inline]
    pub(crate) fn poll_transfer(&mut self, now_ns: u64) -> Option<(u32, Transfer)> {
        self.is_stopped |= self.deadline.is_reached(now_ns);
        if let Some(start_ns) = self.start_ns {
            if now_ns < start_ns && !self.is_stopped {
                return None;
            }
            self.start_ns = None;
        }
        if self.is_paced() && !self.is_stopped && self.writes_left > 0 {
            return self.poll_paced(now_ns);
        }
        if self.is_stopped || self.free.is_empty() || self.writes_left == 0 {
            return None;
        }
        let Some(transfer) = self.plan.next() else {
            self.is_stopped = true;
            return None;
        };
        let slot = self.free.pop()?;
        self.slots[slot as usize] = Slot { transfer, counted_ns: now_ns };
        self.count_write(transfer);
        Some((slot, transfer))
    }

    /// Whether a transfer may have a content or a priority of its own.
    #[inline]
    pub(crate) fn prepares_transfers(&self) -> bool {
        self.filler.is_some() || self.control.is_some()
    }

    /// Makes the content of a write, for a job whose writes have duplicates.
    #[inline]
    pub(crate) fn filler(&mut self, transfer: Transfer) -> Option<&mut Filler> {
        self.filler.as_deref_mut().filter(|_| transfer.direction == Direction::Write)
    }

    /// The priority of a transfer, if it has one of its own. Called once for each transfer.
    #[inline]
    pub(crate) fn priority(&mut self, transfer: Transfer) -> Option<IoPriority> {
        self.control.as_mut()?.priority(transfer)
    }

    #[inline]
    fn count_write(&mut self, transfer: Transfer) {
        if transfer.direction == Direction::Write && self.flush_at != u64::MAX {
            self.writes_left -= 1;
        }
    }

    /// Whether the driver has to flush now. Nothing is in flight then.
    pub(crate) fn needs_flush(&self) -> bool {
        self.writes_left == 0 && self.is_idle() && !self.is_stopped
    }

    /// A flush has completed after `latency_ns`.
    pub(crate) fn handle_flush(&mut self, latency_ns: u64, now_ns: u64) {
        if let Some(control) = &mut self.control {
            control.log_flush(latency_ns, now_ns);
        }
        if let Some(pace) = &mut self.pace {
            pace.handle_flush(latency_ns, now_ns);
        }
        self.plan_flush();
        if self.ramp_end_ns == 0 {
            self.tally.measure_flush(latency_ns);
        }
    }

    /// A transfer has completed: counts it, measures its latency and frees its slot.
    #[inline]
    pub(crate) fn handle_done(&mut self, slot: u32, now_ns: u64) {
        let Slot { transfer, counted_ns } = self.slots[slot as usize];
        if let Some(control) = &mut self.control {
            control.log_done(slot, transfer, now_ns);
        }
        if self.ramp_end_ns == 0 || self.end_ramp(now_ns) {
            self.tally.count(transfer);
            self.tally.measure(transfer.direction, now_ns - counted_ns);
            let other_ns = self.others.get(slot as usize).copied();
            if let Some(other_ns) = other_ns {
                self.tally.measure_other(now_ns - other_ns);
            }
            if let Some(&submitted_ns) = self.submitted.get(slot as usize) {
                let [submission_ns, completion_ns] = [submitted_ns - counted_ns, now_ns - submitted_ns];
                self.tally.measure_parts(transfer.direction, submission_ns, completion_ns);
            }
            if let Some(control) = &mut self.control {
                let begun_ns = other_ns.filter(|_| self.latency_from == LatencyFrom::Due);
                let from_ns = [counted_ns, begun_ns.unwrap_or(counted_ns)];
                self.is_stopped |= control.handle_done(transfer, from_ns, now_ns);
            }
        }
        if let Some(batch) = &mut self.batch {
            batch.handle_done();
        }
        match &mut self.pace {
            Some(pace) => self.free.extend(pace.free(slot, now_ns)),
            None => self.free.push(slot),
        }
    }

    /// The time at which to poll a job with a pace, a delay or a share again, if no transfer completes before.
    pub(crate) fn poll_timeout(&self) -> Option<u64> {
        if self.start_ns.is_some() && !self.is_stopped {
            return self.start_ns;
        }
        if self.is_stopped {
            return None;
        }
        // Flushes and batches wait for transfers in flight.
        let waits_for_completions =
            self.writes_left == 0 || self.batch.as_ref().is_some_and(Batch::is_draining);
        if waits_for_completions && !self.is_idle() {
            return None;
        }
        // A job that is ahead of the others waits for them, even if its own pace permits a transfer.
        let waits_ns = self.control.as_ref().and_then(|control| control.poll_timeout());
        let has_free = !self.free.is_empty() && self.is_below_depth();
        let next_ns = match &self.pace {
            Some(pace) if self.plan.is_complete() => pace.rests_until()?,
            pace => waits_ns.or_else(|| pace.as_ref()?.next(has_free))?,
        };
        Some(next_ns.min(self.deadline.ns))
    }

    /// Whether the search for a depth permits one more transfer in flight.
    fn is_below_depth(&self) -> bool {
        let in_flight = self.slots.len() - self.free.len();
        self.control.as_ref().is_none_or(|control| control.is_below_depth(in_flight))
    }

    /// Whether the measurement has begun at this completion. The plan counts from then on.
    #[cold]
    fn end_ramp(&mut self, now_ns: u64) -> bool {
        if now_ns < self.ramp_end_ns {
            return false;
        }
        self.ramp_end_ns = 0;
        self.plan.count_from_here();
        true
    }

    /// The next transfer of a job with a pace or controls.
    fn poll_paced(&mut self, now_ns: u64) -> Option<(u32, Transfer)> {
        if self.plan.is_complete() {
            // As in fio, the rest after the last transfer is a part of the job.
            let rests_until = self.pace.as_ref().map_or(Some(0), Pace::rests_until);
            self.is_stopped = rests_until.is_some_and(|end_ns| end_ns <= now_ns);
            return None;
        }
        if let Some(pace) = &mut self.pace {
            self.free.extend(pace.rested(now_ns));
        }
        let in_flight = (self.slots.len() - self.free.len()) as u32;
        if self.batch.as_mut().is_some_and(|batch| !batch.permits(in_flight)) {
            return None;
        }
        let &slot = self.free.last()?;
        if !self.is_below_depth() || self.control.as_mut().is_some_and(|control| !control.permits(now_ns)) {
            return None;
        }
        let due = match &mut self.pace {
            Some(pace) => pace.start(now_ns)?,
            None => Due { ns: now_ns, direction: None },
        };
        let Some(transfer) = self.plan.next_in(due.direction) else {
            self.is_stopped = true;
            return None;
        };
        self.free.pop();
        let [counted_ns, other_ns] = match self.latency_from {
            LatencyFrom::Due => [due.ns, now_ns],
            LatencyFrom::Submission => [now_ns, due.ns],
        };
        self.slots[slot as usize] = Slot { transfer, counted_ns };
        if let Some(other) = self.others.get_mut(slot as usize) {
            *other = other_ns;
        }
        if let Some(control) = &mut self.control {
            control.handle_start(slot, transfer, now_ns);
        }
        self.count_write(transfer);
        Some((slot, transfer))
    }

    /// Leaves the group of jobs that share their I/Os: the others then count without it. Called at the end of the job.
    pub(crate) fn leave_flow(&mut self) {
        if let Some(control) = &mut self.control {
            control.leave_flow();
        }
    }

    /// Ends the job: no further transfers. The transfers in flight complete.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// The transfer in a slot, for an error message.
    pub(crate) fn transfer(&self, slot: u32) -> Transfer {
        self.slots[slot as usize].transfer
    }

    /// Whether no transfer is in flight.
    pub(crate) fn is_idle(&self) -> bool {
        let resting = self.pace.as_ref().map_or(0, Pace::resting);
        self.free.len() + resting == self.slots.len()
    }

    /// The completions to wait for before any of them counts, for a job that waits for several.
    #[inline]
    pub(crate) fn completions_wanted(&self) -> usize {
        let in_flight = (self.slots.len() - self.free.len()) as u32;
        self.batch.as_ref().map_or(0, |batch| batch.wanted(in_flight) as usize)
    }

    /// Whether all transfers have been made, as of the last poll.
    pub(crate) fn is_done(&self) -> bool {
        self.is_stopped && self.is_idle()
    }

    /// The measurements so far.
    #[inline]
    pub(crate) fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Bytes moved so far.
    pub(crate) fn moved_bytes(&self) -> u64 {
        self.tally.moved_bytes()
    }

    /// The result of a job with nothing in flight that ended at `ended_ns`.
    pub(crate) fn finish(self, ended_ns: u64) -> JobResult {
        let controlled = self.control.map(|control| Box::new(control.into_result(ended_ns)));
        JobResult { controlled, ..self.tally.finish(ended_ns) }
    }
}

#[cfg(test)]
mod tests;
