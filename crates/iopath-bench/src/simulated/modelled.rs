//! Runs jobs once on the volumes of one modelled machine, in virtual time: the event loop from the start of the jobs to
//! their ends. `simulated.rs` makes the volumes of `iopath run`, `machine.rs` those of the experiments.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use iopath_log::SyncLogWriter;
use iopath_model::event_loop::End;
use iopath_model::{Host, VirtualClock};

use super::failed;
use super::jobs::JobSetup;
use super::volumes::Volumes;
use super::watched::{self, JobOf, Watches};
use crate::engine::{CpuSeconds, JobRan, Ran, TICK, TargetRan, Transferred, Worker, done};
use crate::error::BenchError;
use crate::job::control::{AccessSink, flows};
use crate::job::{Begin, Job, Limits};
use crate::progress::Progress;
use crate::signals::Interruption;

/// Virtual time, and the log on its clock.
#[derive(Default)]
pub struct Timeline<'a> {
    /// The clock is never reset, so the times in the log only increase.
    pub(crate) clock: VirtualClock,
    pub(crate) log: Option<&'a SyncLogWriter>,
}

/// The volumes of a modelled machine, and its CPUs.
#[derive(Default)]
pub(super) struct ModelledVolumes {
    pub(super) volumes: Volumes,
    /// The name of each volume.
    pub(super) names: Vec<PathBuf>,
    /// Without a host, CPU work takes no time.
    pub(super) host: Option<Host>,
}

impl ModelledVolumes {
    /// Runs jobs at the same time, once. Their transfers are those of repetition `number`; 0 is a warm-up. All earlier
    /// jobs have ended.
    pub(super) fn run(
        &mut self,
        workers: &[Worker],
        number: u32,
        timeline: &mut Timeline,
        progress: &mut dyn Progress,
    ) -> Result<Ran, BenchError> {
        let Timeline { clock, log } = timeline;
        let Self { volumes, names, host } = self;
        let started = clock.now();
        let started_ns = started.as_nanos();
        let busy_before = host.as_ref().map(Host::busy);
        let before: Vec<_> = volumes.volumes().iter().map(|volume| volume.counters()).collect();
        let mut setups: Vec<Vec<JobSetup>> = names.iter().map(|_| Vec::new()).collect();
        let (mut watches, mut of_volume) = (Watches::default(), Vec::with_capacity(workers.len()));
        let flows = flows(workers.iter().map(|worker| worker.workload.controls.flow.as_ref()));
        for ((stream, worker), flow) in (0..).zip(workers).zip(flows) {
            let Worker { volume, ref workload, start, .. } = *worker;
            let job = JobOf { volume, job: setups[volume].len() as u32 };
            let begin = Begin::of(start, started_ns);
            watches.add(job, worker, begin.measured_ns);
            of_volume.push(job);
            let (depth, block_bytes) = (workload.depth_in_flight(), workload.block_size.bytes());
            let log = log.filter(|_| number > 0 && workload.logs_accesses());
            let sink = log.map(|log| AccessSink { sink: Box::new(log.add_queue()), stream, zero_ns: 0 });
            let numbers = [worker.repetition(number), worker.job];
            let job = Job::new(worker.plan(number), depth, worker.runtime_ns(), started_ns)
                .with_start(start, started_ns)
                .with_flushes([workload.flush_every, workload.flush_data_every])
                .with_latency_from(workload.latency_from)
                .with_limits(Limits::of(workload, numbers, flow, sink, begin));
            setups[volume].push(JobSetup {
                job,
                depth,
                block_bytes,
                flushes: workload.rw.writes() && workload.times_final_flush,
            });
        }
        for (volume, setups) in setups.into_iter().enumerate() {
            volumes.start(volume, setups);
        }
        let mut shown = Instant::now();
        let mut watch = |moved_bytes: &dyn Fn() -> u64, now: iopath_core::Instant| {
            if Interruption::flag().load(Ordering::Relaxed) {
                return ControlFlow::Break(());
            }
            if shown.elapsed() >= TICK {
                shown = Instant::now();
                progress.advance(done(workers, now - started, moved_bytes()));
            }
            ControlFlow::Continue(())
        };
        let ended = watched::run(volumes, &mut watches, clock, &mut watch)
            .map_err(|source| BenchError::Simulation { target: all(names), source })?;
        // A failure ends the run, so jobs of other volumes may have no results.
        for (volume, name) in volumes.volumes_mut().iter_mut().zip(&*names) {
            if volume.has_failed() {
                volume.finish().map_err(|error| failed(name.clone(), error))?;
            }
        }
        let (mut results, mut targets) = (Vec::new(), Vec::new());
        for ((volume, name), before) in volumes.volumes_mut().iter_mut().zip(&*names).zip(before) {
            results.push(volume.finish().map_err(|error| failed(name.clone(), error))?.into_iter());
            targets.push(TargetRan {
                transferred: Transferred {
                    device: Some(volume.counters() - before),
                    ..Transferred::default()
                },
                cache: volume.cache_use(),
                has_own_disk: true,
                ..TargetRan::default()
            });
        }
        // The workers of a volume have the order of its jobs.
        let ran = |worker: &Worker| JobRan {
            part: worker.part,
            target: worker.volume,
            result: results[worker.volume].next().expect("each job has ended"),
            verified: None,
            warnings: Vec::new(),
        };
        Ok(Ran {
            jobs: workers.iter().map(ran).collect(),
            targets,
            steady: watches.outcomes(),
            cpu: host.as_ref().zip(busy_before).map(|(host, before)| CpuSeconds::modelled(host, before)),
            disks: Vec::new(),
            counted_seconds: 0.0,
            course: None,
            is_cut_off: matches!(ended, End::Stopped),
            zero_seconds: None,
        })
    }
}

/// The names of all volumes.
fn all(names: &[PathBuf]) -> PathBuf {
    let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
    names.join(", ").into()
}
