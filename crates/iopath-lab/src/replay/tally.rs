//! Counts what was replayed on one target, and makes its part of the report.

use std::collections::BTreeMap;

use iopath::Error;
use iopath_bench::run::latency;
use iopath_core::Op;
use iopath_log::op_name;
use iopath_report::replay::{
    LATENESS_MAX, Lateness, ReplayError, ReplayTiming, ReplayedDevice, ReplayedOperation,
};
use iopath_report::result::{Latencies, Latency, TargetFacts};

use super::feed::Arrival;
use super::scan::{OPS, index_of};

const SECOND_NS: f64 = 1e9;

/// The figures of one target.
#[derive(Debug, Default)]
pub(super) struct Tally {
    ops: [OfOp; OPS.len()],
    lateness: Latencies,
    submitted: u64,
    /// The times at which the first and the last I/O were due.
    due_ns: Option<[u64; 2]>,
    /// The recorded times of the first and the last I/O.
    recorded_ns: Option<[u64; 2]>,
    /// Failures by operation and error number: how many, and the message of the first.
    errors: BTreeMap<(usize, i32), (u64, String)>,
    widened: u64,
    /// The time of the last completion.
    pub(super) ended_ns: u64,
    pub(super) depth_waits: u64,
    pub(super) trace_waits: u64,
    /// Whether an interruption came before the end of the trace.
    pub(super) is_stopped: bool,
}

#[derive(Debug, Default)]
struct OfOp {
    ios: u64,
    bytes: u64,
    failed: u64,
    recorded: Latencies,
    replayed: Latencies,
    /// The replayed latencies of the I/Os with a recorded one.
    compared: Latencies,
}

impl OfOp {
    /// The replayed latencies: if some I/Os have a recorded latency, those of the same I/Os.
    fn comparable(&self) -> Option<&Latencies> {
        let all = if self.recorded.is_empty() { &self.replayed } else { &self.compared };
        (!all.is_empty()).then_some(all)
    }
}

fn extend(range: &mut Option<[u64; 2]>, at_ns: u64) {
    let [first, last] = range.get_or_insert([at_ns; 2]);
    (*first, *last) = ((*first).min(at_ns), (*last).max(at_ns));
}

impl Tally {
    /// An I/O that was due at `due_ns` is submitted.
    pub(super) fn submitted(&mut self, arrival: &Arrival, due_ns: u64, now_ns: u64) {
        self.submitted += 1;
        self.widened += u64::from(arrival.place.is_widened);
        self.lateness.record(now_ns.saturating_sub(due_ns), 1);
        extend(&mut self.due_ns, due_ns);
        extend(&mut self.recorded_ns, arrival.at_ns);
    }

    pub(super) fn completed(&mut self, op: Op, bytes: u64, latency_ns: u64, recorded_ns: Option<u64>) {
        let of = &mut self.ops[index_of(op)];
        of.ios += 1;
        of.bytes += bytes;
        of.replayed.record(latency_ns, 1);
        if let Some(recorded_ns) = recorded_ns {
            of.recorded.record(recorded_ns, 1);
            of.compared.record(latency_ns, 1);
        }
    }

    pub(super) fn failed(&mut self, op: Op, error: &Error) {
        let op = index_of(op);
        self.ops[op].failed += 1;
        self.errors.entry((op, error.errno())).or_insert_with(|| (0, error.to_string())).0 += 1;
    }

    /// How late I/Os were; none if they had no times.
    fn lateness(&self, timing: ReplayTiming) -> Option<Lateness> {
        let [first, last] = self.due_ns.filter(|_| timing != ReplayTiming::Asap)?;
        let Latency { p50, p99, max, .. } = latency(&self.lateness);
        let mean_gap = (last - first) as f64 / self.submitted.saturating_sub(1).max(1) as f64;
        // A single I/O has no gap to keep.
        let kept_up = self.submitted < 2 || p99 as f64 <= LATENESS_MAX * mean_gap;
        Some(Lateness { p50, p99, max, mean_gap, kept_up })
    }

    /// The part of the report. `planned`: the I/Os of the trace.
    pub(super) fn report(
        &self,
        device: &str,
        target: TargetFacts,
        engine: &str,
        planned: u64,
        timing: ReplayTiming,
    ) -> ReplayedDevice {
        let operation = |(op, of): (&Op, &OfOp)| ReplayedOperation {
            op: op_name(*op).to_owned(),
            ios: of.ios,
            bytes: of.bytes,
            failed: of.failed,
            recorded_ns: (!of.recorded.is_empty()).then(|| latency(&of.recorded)),
            replayed_ns: of.comparable().map(latency),
        };
        let operations: Vec<ReplayedOperation> =
            OPS.iter().zip(&self.ops).filter(|(_, of)| of.ios + of.failed > 0).map(operation).collect();
        let errors = self.errors.iter().map(|((op, errno), (count, first))| ReplayError {
            op: op_name(OPS[*op]).to_owned(),
            error: std::io::Error::from_raw_os_error(*errno).to_string(),
            count: *count,
            first: first.clone(),
        });
        let sum = |of: fn(&ReplayedOperation) -> u64| operations.iter().map(of).sum::<u64>();
        let seconds = self.ended_ns as f64 / SECOND_NS;
        let per_second = |number: u64| if seconds > 0.0 { number as f64 / seconds } else { 0.0 };
        let transferred =
            OPS.iter().zip(&self.ops).filter(|(op, _)| op.has_memory()).map(|(_, of)| of.bytes).sum();
        ReplayedDevice {
            device: device.to_owned(),
            target,
            engine: engine.to_owned(),
            planned,
            ios: sum(|op| op.ios),
            bytes: sum(|op| op.bytes),
            failed: sum(|op| op.failed),
            iops: per_second(sum(|op| op.ios)),
            bytes_per_second: per_second(transferred),
            seconds,
            recorded_seconds: self.recorded_ns.map_or(0.0, |[first, last]| (last - first) as f64 / SECOND_NS),
            lateness_ns: self.lateness(timing),
            errors: errors.collect(),
            widened: self.widened,
            depth_waits: self.depth_waits,
            trace_waits: self.trace_waits,
            operations,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::placement::Placed;
    use super::*;
    use crate::recorded_times::Link;

    fn submitted(tally: &mut Tally, at_ns: u64, late_ns: u64) {
        let place = Placed { offset: 0, bytes: 4096, is_widened: false };
        let link = Link { after: 0, think_ns: at_ns };
        let arrival =
            Arrival { at_ns, link, op: Op::Read, is_fua: false, place, stream: 0, recorded_ns: None };
        tally.submitted(&arrival, at_ns, at_ns + late_ns);
    }

    #[test]
    fn latencies_are_compared_for_the_same_ios() {
        let mut tally = Tally::default();
        tally.completed(Op::Read, 4096, 100, Some(50));
        tally.completed(Op::Read, 4096, 900, None);
        tally.completed(Op::Write, 4096, 900, None);
        let of = |op| tally.ops[index_of(op)].comparable().map(|latencies| latency(latencies).max);
        assert_eq!((of(Op::Read), of(Op::Write), of(Op::Flush)), (Some(100), Some(900), None));
    }

    #[test]
    fn a_replay_keeps_up_if_its_p99_is_within_5_percent_of_the_mean_gap() {
        for (late_ns, kept_up) in [(0, true), (50, true), (51, false)] {
            let mut tally = Tally::default();
            (0..10).for_each(|number| submitted(&mut tally, number * 1000, late_ns));
            let lateness = tally.lateness(ReplayTiming::Recorded).unwrap();
            assert_eq!((lateness.p99, lateness.mean_gap as u64, lateness.kept_up), (late_ns, 1000, kept_up));
            assert_eq!(tally.lateness(ReplayTiming::Asap), None);
        }
        let mut single = Tally::default();
        submitted(&mut single, 0, 500);
        assert!(single.lateness(ReplayTiming::Recorded).unwrap().kept_up);
    }
}
