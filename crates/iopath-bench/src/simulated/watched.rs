//! Ends jobs before the ends of their plans in virtual time: at a steady state, and at the end of a job that ends all
//! others. Looks at the jobs only at the times of samples, and at the end of each event if a job ends all others. The
//! criterion of a steady state is in `steady_detector.rs`.

use std::ops::ControlFlow;

use iopath_core::Instant;
use iopath_model::VirtualClock;
use iopath_model::event_loop::{self, End, LoopError, Process, earlier};

use super::system::Watch;
use super::volumes::Volumes;
use crate::engine::Worker;
use crate::steady_detector::{Count, Detector, Outcome};

/// A job: its volume, and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JobOf {
    pub(super) volume: usize,
    pub(super) job: u32,
}

/// The reasons to end jobs early.
#[derive(Debug, Default)]
pub(super) struct Watches {
    all: Vec<JobOf>,
    steady: Vec<SteadyJobs>,
    /// Jobs that end all others.
    ending: Vec<JobOf>,
}

/// The jobs of a workload with a criterion.
#[derive(Debug)]
struct SteadyJobs {
    /// The number of the workload.
    part: usize,
    jobs: Vec<JobOf>,
    detector: Detector,
}

impl Watches {
    /// Adds a worker, which is this job. Its measurement starts at `started_ns`.
    pub(super) fn add(&mut self, job: JobOf, worker: &Worker, started_ns: u64) {
        self.all.push(job);
        if worker.ends_all {
            self.ending.push(job);
        }
        if let Some(known) = self.steady.iter_mut().find(|known| known.part == worker.part) {
            known.jobs.push(job);
        } else if let Some(detector) = Detector::of(&worker.workload, started_ns) {
            self.steady.push(SteadyJobs { part: worker.part, jobs: vec![job], detector });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.steady.is_empty() && self.ending.is_empty()
    }

    /// The steady states, each with the number of the workload.
    pub(super) fn outcomes(&self) -> Vec<(usize, Outcome)> {
        self.steady.iter().map(|jobs| (jobs.part, jobs.detector.outcome())).collect()
    }
}

/// Runs the jobs of all volumes to their ends, or until a watch ends them. The jobs have ended in both cases.
pub(super) fn run(
    volumes: &mut Volumes,
    watches: &mut Watches,
    clock: &mut VirtualClock,
    watch: Watch<'_>,
) -> Result<End, LoopError> {
    let ended = if watches.is_empty() {
        volumes.run(clock, watch)?
    } else {
        let mut process = Watched { volumes, watches };
        event_loop::run(&mut process, clock, &mut |process, now| {
            watch(&|| process.volumes.moved_bytes(), now)
        })?
    };
    if matches!(ended, End::Stopped) {
        // The measurements so far are those of jobs that have ended.
        for JobOf { volume, job } in &watches.all {
            volumes.volumes_mut()[*volume].stop(*job);
        }
        volumes.run(clock, &mut |_, _| ControlFlow::Continue(()))?;
    }
    Ok(ended)
}

/// The volumes of a run with watches.
struct Watched<'a> {
    volumes: &'a mut Volumes,
    watches: &'a mut Watches,
}

impl Process for Watched<'_> {
    fn advance(&mut self, now: Instant) {
        let Self { volumes, watches } = self;
        let now_ns = now.as_nanos();
        for SteadyJobs { jobs, detector, .. } in &mut watches.steady {
            if detector.poll_timeout().is_none_or(|due_ns| now_ns < due_ns) {
                continue;
            }
            let mut counts = [Count::default(); 2];
            for JobOf { volume, job } in &*jobs {
                let of_job = volumes.volumes()[*volume].counts(*job);
                counts.iter_mut().zip(of_job).for_each(|(sum, count)| *sum += count);
            }
            if detector.handle_counts(counts, now_ns) {
                for JobOf { volume, job } in &*jobs {
                    volumes.volumes_mut()[*volume].stop(*job);
                }
            }
        }
        volumes.advance(now);
        let has_ended = |one: &JobOf| volumes.volumes()[one.volume].has_ended(one.job);
        if watches.ending.iter().any(has_ended) {
            watches.ending.clear();
            for JobOf { volume, job } in &watches.all {
                volumes.volumes_mut()[*volume].stop(*job);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let samples = self.watches.steady.iter().filter_map(|jobs| jobs.detector.poll_timeout());
        earlier(self.volumes.poll_timeout(), samples.min().map(Instant::from_nanos))
    }

    fn is_done(&self) -> bool {
        self.volumes.is_done()
    }
}
