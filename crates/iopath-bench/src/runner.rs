//! Runs jobs on volumes at the same time, repetition after repetition: a workload on one target or on several, or a
//! group of jobs of a job file. On storage of this machine, the jobs are threads (`engine.rs`); on models, they run in
//! virtual time (`simulated.rs`). Does not combine the repetitions: see `run/series.rs`.

use std::ptr;
use std::sync::Arc;

use crate::controls::Controls;
use crate::engine::{self, OpenVolume, Ran, Worker, all_verified, distinct, read_back};
use crate::error::BenchError;
use crate::host::memory_available_bytes;
use crate::path::{IoPath, OpenSpec};
use crate::peers::Peers;
use crate::progress::{Progress, Stage};
use crate::request_log::{RequestLog, Writer};
use crate::simulated::{Simulation, Timeline};
use crate::storage::Resident;
use crate::target::Target;
use crate::verify::record::Record;
use crate::workload::{DeviceDepth, End, Jobs, Workload};
use iopath_report::Rw;

/// A target, and the path that jobs share. The path is that of the jobs.
#[derive(Debug, Clone, Copy)]
pub struct Volume<'a> {
    /// The target of its jobs.
    pub target: &'a Target,
    /// The expected content, if jobs of several groups verify it. Without one, each repetition has a record of its own:
    /// other workloads may write to the range in between.
    pub record: Option<&'a Record>,
}

/// Jobs that run at the same time. All volumes are on models, or none.
#[derive(Debug, Default)]
pub struct Group<'a> {
    /// The volumes, which the jobs refer to by number.
    pub volumes: Vec<Volume<'a>>,
    /// One for each volume at least.
    pub workers: Vec<Worker>,
    /// The seed of models.
    pub seed: u64,
}

/// The log and the clock of groups that run one after another.
#[derive(Default)]
pub struct Session<'a> {
    log: Option<&'a RequestLog>,
    timeline: Timeline<'a>,
    /// The repetitions of all groups so far.
    repetitions: u32,
    peers: Option<&'a dyn Peers>,
}

impl<'a> Session<'a> {
    /// A session whose groups write to a log.
    pub fn new(log: Option<&'a RequestLog>) -> Self {
        let of_models = match log.map(|log| &log.writer) {
            Some(Writer::Virtual(log)) => Some(log),
            _ => None,
        };
        let timeline = Timeline { log: of_models, ..Timeline::default() };
        Self { log, timeline, repetitions: 0, peers: None }
    }

    /// The same session, at the same time as other processes.
    #[must_use]
    pub fn with_peers(self, peers: Option<&'a dyn Peers>) -> Self {
        Self { peers, ..self }
    }

    /// The other processes.
    pub(crate) fn peers(&self) -> Option<&'a dyn Peers> {
        self.peers
    }

    fn begin_repeat(&mut self) {
        self.repetitions += 1;
        match self.log.map(|log| &log.writer) {
            Some(Writer::Real(log)) => log.begin_repeat(self.repetitions, iopath_os::now()),
            Some(Writer::Virtual(log)) => log.begin_repeat(self.repetitions, self.timeline.clock.now()),
            None => {}
        }
    }
}

/// A group with open paths.
pub(crate) struct Runner<'a, 'b> {
    group: &'b Group<'a>,
    back_end: BackEnd<'a>,
}

enum BackEnd<'a> {
    /// The path of each volume.
    Storage(Vec<Box<dyn IoPath>>),
    Models(Simulation<'a>),
}

impl<'a, 'b> Runner<'a, 'b> {
    /// Opens the path of each volume. An open path serves any number of repetitions.
    pub(crate) fn open(group: &'b Group<'a>, session: &Session) -> Result<Self, BenchError> {
        let Group { volumes, workers, seed } = group;
        let models: Vec<_> = volumes.iter().filter_map(|volume| volume.target.model()).collect();
        assert!(models.is_empty() || models.len() == volumes.len(), "virtual time has no real devices");
        let back_end = if models.is_empty() {
            let paths = (0..volumes.len()).map(|number| group.open_path(number, session));
            BackEnd::Storage(paths.collect::<Result<_, BenchError>>()?)
        } else {
            BackEnd::Models(Simulation::new(&models, workers, *seed, &session.timeline))
        };
        Ok(Self { group, back_end })
    }

    /// The I/O engine of the path of a volume, if it has a queue of iopath.
    pub(crate) fn engine(&self, volume: usize) -> Option<&'static str> {
        match &self.back_end {
            BackEnd::Storage(paths) => paths[volume].engine(),
            BackEnd::Models(_) => None,
        }
    }

    /// Runs the warm workloads, one after another, unmeasured.
    pub(crate) fn warm_up(
        &mut self,
        session: &mut Session,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        for worker in self.group.workers.iter().filter(|worker| worker.workload.warm && worker.job == 0) {
            progress.stage(&Stage::WarmUp);
            let &Worker { volume, end_bytes, .. } = worker;
            let target = self.group.volumes[volume].target;
            let warm_up = Arc::new(warm_up(&worker.workload, target));
            let workers = |volume| Worker::of(&warm_up, volume, end_bytes).collect::<Vec<_>>();
            match &mut self.back_end {
                BackEnd::Storage(paths) => {
                    let open = OpenVolume { path: &*paths[volume], target, record: None };
                    engine::measure(&[open], &workers(0), 0, None, None, progress)?.complete()?;
                }
                BackEnd::Models(simulation) => {
                    simulation.warm_up(&workers(volume), &mut session.timeline, progress)?;
                }
            }
        }
        Ok(())
    }

    /// Measures repetition `number` of `count`. It is cold unless the workload is warm.
    pub(crate) fn repeat(
        &mut self,
        [number, count]: [u32; 2],
        session: &mut Session,
        progress: &mut dyn Progress,
    ) -> Result<Ran, BenchError> {
        let stage = Stage::Repeat { number, count };
        let Group { volumes, workers, .. } = self.group;
        let paths = match &mut self.back_end {
            BackEnd::Storage(paths) => paths,
            BackEnd::Models(simulation) => {
                simulation.reset(number, &session.timeline);
                session.begin_repeat();
                progress.stage(&stage);
                return simulation.measure(workers, number, &mut session.timeline, progress);
            }
        };
        session.begin_repeat();
        let resident = self.group.drop_caches(paths, progress)?;
        let records = (0..volumes.len()).map(|number| self.group.own_record(number));
        let records = records.collect::<Result<Vec<_>, BenchError>>()?;
        let mut open = Vec::with_capacity(volumes.len());
        for ((Volume { target, record }, path), own) in volumes.iter().zip(&*paths).zip(&records) {
            open.push(OpenVolume { path: &**path, target, record: record.or(own.as_ref()) });
        }
        // The drop of the cache is a stage of its own.
        progress.stage(&stage);
        let accesses = match session.log.map(|log| &log.writer) {
            Some(Writer::Real(log)) => Some(&**log),
            _ => None,
        };
        let mut ran = engine::measure(&open, workers, number, accesses, session.peers, progress)?;
        for (target, resident) in ran.targets.iter_mut().zip(resident) {
            target.resident = resident;
        }
        if !ran.is_cut_off {
            self.group.read_back(&open, &mut ran, progress)?;
        }
        for (worker, job) in workers.iter().zip(&mut ran.jobs) {
            let target = volumes[worker.volume].target.file().unwrap_or("target".as_ref());
            let dumps = job.verified.iter().flat_map(|verified| &verified.dumps);
            // The results remain without the files.
            let failed = dumps
                .map(|dump| dump.write("".as_ref(), target, worker.workload.overwrite))
                .find_map(Result::err);
            job.warnings.extend(failed.map(|(target, source)| {
                BenchError::Io { action: "write a block with a fault to", target, source }.to_string()
            }));
        }
        Ok(ran)
    }
}

impl<'a> Group<'a> {
    /// The jobs of one workload on a target, and on those that it comprises.
    pub(crate) fn of(workload: &Workload, target: &'a Target) -> Self {
        Self {
            volumes: target.each().map(|target| Volume { target, record: None }).collect(),
            workers: Worker::on_each(workload, target.each().map(Target::size_bytes)),
            seed: workload.seed,
        }
    }

    fn on_volume(&self, volume: usize) -> impl Iterator<Item = &Worker> + Clone {
        self.workers.iter().filter(move |worker| worker.volume == volume)
    }

    fn open_path(&self, number: usize, session: &Session) -> Result<Box<dyn IoPath>, BenchError> {
        let on_volume = || self.on_volume(number).map(|worker| &worker.workload);
        let workload = on_volume().next().expect("each volume has a worker");
        let target = self.volumes[number].target;
        (workload.path.open)(&OpenSpec {
            target: target.file(),
            remote: target.remote(),
            depth: on_volume().map(|workload| workload.depth_in_flight()).max().unwrap_or(1),
            writes: on_volume().any(|workload| workload.rw.writes()),
            sync: workload.sync,
            size_bytes: target.size_bytes(),
            elevator: workload.elevator.as_ref(),
            device_depth: workload.device_depth.map(DeviceDepth::get),
            engine: workload.engine.unwrap_or_default(),
            hint: workload.hint(),
            pass: workload.pass(target.size_bytes()),
            polling: workload.polling,
            cache: &workload.cache,
            log: match session.log.map(|log| &log.writer) {
                Some(Writer::Real(log)) => Some(log),
                _ => None,
            },
        })
    }

    /// Whether a workload keeps the caches of a target filled.
    fn is_warm(&self, target: &Target) -> bool {
        let is_on_target = |worker: &Worker| ptr::eq(self.volumes[worker.volume].target, target);
        self.workers.iter().any(|worker| worker.workload.stays_cached() && is_on_target(worker))
    }

    /// Empties the caches of each path and target, unless a warm workload uses it. Returns the bytes that are still in
    /// page caches of each target; none if they stay there on purpose.
    fn drop_caches(
        &self,
        paths: &[Box<dyn IoPath>],
        progress: &mut dyn Progress,
    ) -> Result<Vec<Option<Resident>>, BenchError> {
        for (number, path) in paths.iter().enumerate() {
            if !self.on_volume(number).any(|worker| worker.workload.stays_cached()) {
                path.drop_cache()?;
            }
        }
        let dropped =
            |target: &Target| if self.is_warm(target) { Ok(None) } else { drop_cached(target, progress) };
        distinct(self.volumes.iter().map(|volume| volume.target)).into_iter().map(dropped).collect()
    }

    /// The record of one repetition, for a volume without a common one that a workload verifies.
    fn own_record(&self, number: usize) -> Result<Option<Record>, BenchError> {
        let Volume { target, record } = self.volumes[number];
        let verifies = |worker: &&Worker| worker.workload.verify.is_some() && record.is_none();
        let worker = self.on_volume(number).find(verifies);
        Ok(worker.map(|worker| Record::of(&worker.workload, target.size_bytes())).transpose()?)
    }

    /// Reads the blocks back that the jobs have written, one target after another.
    fn read_back(
        &self,
        volumes: &[OpenVolume],
        ran: &mut Ran,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        for number in 0..ran.targets.len() {
            let is_on_target = |index: &usize| ran.jobs[*index].target == number;
            let on_target = || (0..self.workers.len()).filter(is_on_target);
            let Some(index) = on_target().find(|index| self.workers[*index].reads_back()) else { continue };
            let Worker { workload, volume, .. } = &self.workers[index];
            let OpenVolume { path, target, record } = volumes[*volume];
            let so_far = all_verified(on_target().map(|index| ran.jobs[index].verified.as_ref()));
            let (Some(settings), Some(record)) = (workload.verify, record) else { continue };
            let is_ended = settings.fatal && so_far.is_some_and(|verified| verified.faults() > 0);
            if is_ended || !record.has_written() {
                continue;
            }
            if !workload.warm {
                path.drop_cache()?;
                drop_cached(target, progress)?;
            }
            progress.stage(&Stage::Verify);
            let after = read_back(path, workload, target, record)?;
            let verified = &mut ran.jobs[index].verified;
            *verified = all_verified([verified.as_ref(), Some(&after)]);
        }
        Ok(())
    }
}

/// The unmeasured run before a warm measurement. It reads the range once into the page cache. On a path without a page
/// cache, or if the range exceeds memory, it runs the workload itself, to fill the caches of the device.
fn warm_up(workload: &Workload, target: &Target) -> Workload {
    let is_in_memory = memory_available_bytes().is_none_or(|available| target.size_bytes() < available);
    // Limits of latency and rate would end it early, and its series are no figures.
    let controls = Controls { thread: workload.controls.thread.clone(), ..Controls::default() };
    let workload = Workload { controls, ..workload.clone() };
    if !workload.path.capabilities.is_cached() || !is_in_memory {
        return workload;
    }
    Workload { rw: Rw::Read, jobs: Jobs::constant(1), end: End::Pass, ..workload }
}

fn drop_cached(target: &Target, progress: &mut dyn Progress) -> Result<Option<Resident>, BenchError> {
    if target.file().is_some() {
        progress.stage(&Stage::DropCache);
    }
    target.drop_cached()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn no_limit_of_the_measurement_ends_its_warm_up() {
        let controls = Controls { latency_max: Some(Duration::from_nanos(1)), ..Controls::default() };
        let workload = Workload { controls, warm: true, ..Workload::default() };
        assert_eq!(warm_up(&workload, &Target::none(1 << 20)).controls, Controls::default());
    }
}
