//! Ends the jobs of a workload when it is steady, on this machine. `steady_detector.rs` detects the state, `steady.rs`
//! has the criterion.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::{TICK, Worker};
use crate::job::drive::{Clock, Moved};
use crate::steady_detector::{Count, Detector, Outcome};

/// The share of an interval that a sample may be late by.
const LATE: u32 = 8;

/// The detectors of the workloads that run at the same time.
pub(super) struct Watches {
    watches: Vec<Watch>,
    tick: Duration,
}

struct Watch {
    /// The number of the workload.
    part: usize,
    /// Its workers.
    workers: Vec<usize>,
    detector: Detector,
}

impl Watches {
    /// The detectors of workers that start at `now_ns`; none for workloads without a criterion.
    pub(super) fn new(workers: &[Worker], now_ns: u64) -> Self {
        let mut watches: Vec<Watch> = Vec::new();
        let mut tick = TICK;
        for (number, worker) in workers.iter().enumerate() {
            if let Some(watch) = watches.iter_mut().find(|watch| watch.part == worker.part) {
                watch.workers.push(number);
                continue;
            }
            let before = worker.start.delay + worker.start.ramp;
            let started_ns = now_ns.saturating_add(u64::try_from(before.as_nanos()).unwrap_or(u64::MAX));
            let Some(detector) = Detector::of(&worker.workload, started_ns) else { continue };
            tick = worker.workload.steady_state.map_or(tick, |steady| tick.min(steady.interval / LATE));
            watches.push(Watch { part: worker.part, workers: vec![number], detector });
        }
        Self { watches, tick: tick.max(Duration::from_millis(1)) }
    }

    /// The interval of polls.
    pub(super) fn tick(&self) -> Duration {
        self.tick
    }

    /// Takes the samples that are due, and stops the jobs of workloads that are steady.
    pub(super) fn poll(&mut self, moved: &[Moved], stop: &[AtomicBool], clock: Clock) {
        for Watch { workers, detector, .. } in &mut self.watches {
            let now_ns = clock.now_ns();
            if detector.poll_timeout().is_none_or(|due_ns| now_ns < due_ns) {
                continue;
            }
            let mut counts = [Count::default(); 2];
            for number in &*workers {
                counts.iter_mut().zip(moved[*number].counts()).for_each(|(sum, count)| *sum += count);
            }
            if detector.handle_counts(counts, now_ns) {
                for number in &*workers {
                    stop[*number].store(true, Ordering::Relaxed);
                }
            }
        }
    }

    /// The result of each workload with a criterion.
    pub(super) fn outcomes(&self) -> Vec<(usize, Outcome)> {
        self.watches.iter().map(|watch| (watch.part, watch.detector.outcome())).collect()
    }
}
