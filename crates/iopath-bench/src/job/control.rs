//! Follows the controls of a job: whether it may start a transfer now, and whether it must end. The settings are in
//! `controls.rs`. Has no clock.

mod accesses;
mod flow;
mod latency_target;
mod rate_min;
mod series;

pub(crate) use accesses::AccessSink;
pub(crate) use flow::{FlowShare, flows};
pub(crate) use latency_target::DepthFound;
pub(crate) use series::SeriesFiles;

use accesses::AccessRecorder;
use latency_target::DepthSearch;
use rate_min::RateWatch;
use series::Recorder;

use iopath_report::numbers::time;
use iopath_report::random::{below, generator};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::controls::PriorityShare;
use crate::path::Transfer;
use crate::thread_settings::IoPriority;
use crate::workload::Workload;

/// Separates this generator from the plan's, which has the same seed.
const PURPOSE: u64 = 0x9210 << 32;

/// The state of the controls of a job.
#[derive(Debug)]
pub(crate) struct Control {
    flow: Option<FlowShare>,
    search: Option<DepthSearch>,
    rate: Option<RateWatch>,
    latency_max_ns: Option<u64>,
    /// The latency above the maximum that ended the job, in nanoseconds.
    slowest_ns: Option<u64>,
    recorder: Option<Recorder>,
    accesses: Option<AccessRecorder>,
    priorities: Vec<PriorityShare>,
    generator: Xoshiro256PlusPlus,
}

/// The observations of the controls of a job.
#[derive(Debug)]
pub(crate) struct Controlled {
    pub(crate) end: ControlEnd,
    /// The series of the job.
    pub(crate) series: Option<SeriesFiles>,
}

/// The reasons of the controls to end a job.
#[derive(Debug, Clone)]
pub(crate) struct ControlEnd {
    /// The depth that keeps the latency target; none of a job without one.
    pub(crate) depth: Option<DepthFound>,
    /// The limit that ended the job, in words.
    pub(crate) ended: Option<String>,
}

impl Control {
    /// The controls of a job of `depth` whose measurement starts at `started_ns`; none if there is nothing to follow.
    pub(crate) fn of(
        workload: &Workload,
        flow: Option<FlowShare>,
        accesses: Option<AccessSink>,
        started_ns: u64,
    ) -> Option<Box<Self>> {
        let (controls, depth) = (&workload.controls, workload.depth_in_flight());
        let control = Self {
            flow,
            search: controls.latency_target.map(|target| DepthSearch::new(target, depth, started_ns)),
            rate: controls.rate_min.map(|rate| RateWatch::new(rate, started_ns)),
            latency_max_ns: controls.latency_max.and_then(|max| u64::try_from(max.as_nanos()).ok()),
            slowest_ns: None,
            recorder: controls
                .series
                .as_ref()
                .filter(|series| series.is_used())
                .map(|series| Recorder::new(series.clone(), controls.thread.priority, started_ns)),
            accesses: accesses.map(|sink| AccessRecorder::new(sink, depth)),
            priorities: controls.priorities.clone(),
            generator: generator(workload.seed, [PURPOSE, 0]),
        };
        let Self { flow, search, rate, latency_max_ns, recorder, accesses, priorities, .. } = &control;
        let is_limited = flow.is_some() || search.is_some() || rate.is_some() || latency_max_ns.is_some();
        let is_recorded = recorder.is_some() || accesses.is_some();
        (is_limited || is_recorded || !priorities.is_empty()).then(|| Box::new(control))
    }

    /// The priority of a transfer, if it has one of its own.
    pub(super) fn priority(&mut self, transfer: Transfer) -> Option<IoPriority> {
        if self.priorities.is_empty() {
            return None;
        }
        let mut left = below(&mut self.generator, 100) as u32;
        let of_transfer = |share: &&PriorityShare| {
            share.direction == transfer.direction && share.bytes.is_none_or(|bytes| bytes == transfer.bytes)
        };
        for share in self.priorities.iter().filter(of_transfer) {
            if left < share.percent {
                return Some(share.priority);
            }
            left -= share.percent;
        }
        None
    }

    /// Whether the latency target permits a transfer besides `in_flight` others.
    pub(super) fn is_below_depth(&self, in_flight: usize) -> bool {
        self.search.as_ref().is_none_or(|search| in_flight < search.depth() as usize)
    }

    /// Whether the share of the job permits a transfer now.
    pub(super) fn permits(&mut self, now_ns: u64) -> bool {
        self.flow.as_mut().is_none_or(|flow| flow.permits(now_ns))
    }

    /// A transfer has started.
    pub(super) fn handle_start(&mut self, slot: u32, transfer: Transfer, now_ns: u64) {
        if let Some(accesses) = &mut self.accesses {
            accesses.begin(slot, transfer, now_ns);
        }
        if let Some(flow) = &mut self.flow {
            flow.handle_start();
        }
    }

    /// A transfer has completed, within the measurement or before it.
    pub(super) fn log_done(&mut self, slot: u32, transfer: Transfer, now_ns: u64) {
        if let Some(accesses) = &mut self.accesses {
            accesses.end(slot, transfer, now_ns);
        }
    }

    /// A flush has completed after `latency_ns`.
    pub(super) fn log_flush(&mut self, latency_ns: u64, now_ns: u64) {
        if let Some(accesses) = &mut self.accesses {
            accesses.flush(latency_ns, now_ns);
        }
    }

    /// A transfer that was submitted at `submitted_ns` has completed. Returns whether the job ends with it.
    pub(super) fn handle_done(
        &mut self,
        transfer: Transfer,
        [due_ns, submitted_ns]: [u64; 2],
        now_ns: u64,
    ) -> bool {
        if let Some(recorder) = &mut self.recorder {
            recorder.handle_done(transfer, [due_ns, submitted_ns], now_ns);
        }
        let found = self.search.as_mut().is_some_and(|search| search.handle_done(submitted_ns, now_ns));
        let below = self.rate.as_mut().is_some_and(|rate| rate.handle_done(transfer, now_ns));
        let latency_ns = now_ns.saturating_sub(due_ns);
        let is_slow = self.latency_max_ns.is_some_and(|max| latency_ns > max);
        if is_slow {
            self.slowest_ns = self.slowest_ns.max(Some(latency_ns));
        }
        found || below || is_slow
    }

    /// The job has ended.
    pub(super) fn leave_flow(&mut self) {
        self.flow = None;
    }

    /// The time at which a job that may not start a transfer can try again.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        self.flow.as_ref()?.poll_timeout()
    }

    /// The observations of a job that has ended.
    pub(super) fn into_result(self, now_ns: u64) -> Controlled {
        let too_slow = self.slowest_ns.zip(self.latency_max_ns).map(|(latency_ns, max_ns)| {
            let [latency, max] = [latency_ns, max_ns].map(time);
            format!("a transfer took {latency}, and the maximum latency is {max}")
        });
        Controlled {
            end: ControlEnd {
                depth: self.search.map(|search| search.found()),
                ended: self.rate.and_then(RateWatch::below).or(too_slow),
            },
            series: self.recorder.map(|recorder| recorder.finish(now_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::controls::Controls;
    use crate::path::Direction;

    #[test]
    fn a_job_ends_with_its_first_transfer_above_the_maximum_latency_and_says_so() {
        let controls = Controls { latency_max: Some(Duration::from_micros(50)), ..Controls::default() };
        let workload = Workload { controls, ..Workload::default() };
        let mut control = Control::of(&workload, None, None, 0).unwrap();
        let read = Transfer { direction: Direction::Read, offset: 0, bytes: 4096 };
        // The latency counts from the time at which the transfer was due.
        assert!(!control.handle_done(read, [100_000, 149_000], 150_000));
        assert!(control.handle_done(read, [100_000, 149_000], 151_000));
        let ended = control.into_result(200_000).end.ended.unwrap();
        assert_eq!(ended, "a transfer took 51.0 µs, and the maximum latency is 50.0 µs");
        assert!(Control::of(&Workload::default(), None, None, 0).is_none());
    }
}
