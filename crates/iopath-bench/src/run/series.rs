//! The repetitions of workloads that run at the same time, measured one by one: of one workload, or of the jobs of a
//! group. Does not run them (`runner.rs`), and does not summarize them (`run.rs`).

use std::time::Duration;

use crate::conditions::Repeated;
use crate::engine::{Measured, Ran};
use crate::error::BenchError;
use crate::host::memory_available_bytes;
use crate::peers::{PeerPart, PeerRepeat, PeerTransfers};
use crate::progress::{Completed, CompletedTarget, Progress};
use crate::runner::{Group, Runner, Session};
use crate::target::Target;
use crate::workload::Workload;

/// The repetitions of a group so far. The caller may measure others in between.
pub struct Series<'a> {
    group: Group<'a>,
    /// The number of the first job among those of a whole job file, from 1: a part of the names of files of series.
    first_job: usize,
    /// One for each workload.
    pub parts: Vec<Part<'a>>,
    /// The repetitions of all workloads together.
    pub all: Vec<Measured>,
    /// Whether a failure has ended the series after a complete repetition.
    pub has_failed: bool,
    /// Whether the parts are jobs of a job file: the end of one may end another before it has measured anything.
    has_jobs: bool,
}

/// One workload, and its repetitions so far.
pub struct Part<'a> {
    /// The workload of the result.
    pub(crate) workload: Workload,
    /// The target of the result, which may comprise others.
    pub target: &'a Target,
    pub(crate) measured: Vec<Repeated>,
    /// Repetitions that ended before the measurement of this workload began.
    pub unmeasured: u32,
    /// The I/O engine of the open path, on a path with a queue.
    pub(crate) engine: Option<&'static str>,
}

impl<'a> Part<'a> {
    /// A part without repetitions.
    pub fn new(workload: Workload, target: &'a Target) -> Self {
        Self { workload, target, measured: Vec::new(), unmeasured: 0, engine: None }
    }
}

impl<'a> Series<'a> {
    /// The series of one workload. Checks that the workload suits the target.
    pub fn new(workload: &Workload, target: &'a Target) -> Result<Self, BenchError> {
        let workload = checked(workload, target)?;
        let group = Group::of(&workload, target);
        Ok(Self { has_jobs: false, ..Self::of_jobs(group, vec![Part::new(workload, target)], 1) })
    }

    /// The series of the jobs of a job file, which the caller has checked. Workers refer to the parts by their numbers.
    pub fn of_jobs(group: Group<'a>, parts: Vec<Part<'a>>, first_job: usize) -> Self {
        Self { group, first_job, parts, all: Vec::new(), has_failed: false, has_jobs: true }
    }

    /// Measures all repetitions. Returns the failure after which the repetitions so far remain the result; none after a
    /// signal.
    ///
    /// # Errors
    /// [`BenchError`]: nothing is measured.
    pub fn run(
        &mut self,
        session: &mut Session,
        progress: &mut dyn Progress,
    ) -> Result<Option<BenchError>, BenchError> {
        let Err(error) = self.turn(self.repetitions(), session, progress) else { return Ok(None) };
        let failure = error.into_failure(!self.is_empty())?;
        self.has_failed = failure.is_some();
        Ok(failure)
    }

    /// Measures `count` more repetitions: opens the paths, warms them up, and closes them at the end.
    ///
    /// # Errors
    /// [`BenchError`]: the repetitions before it are complete. [`BenchError::Interrupted`]: a signal has ended one.
    pub fn turn(
        &mut self,
        count: u32,
        session: &mut Session,
        progress: &mut dyn Progress,
    ) -> Result<(), BenchError> {
        let Self { group, first_job, parts, all, has_jobs, .. } = self;
        let planned = parts[0].workload.repetitions.get();
        let mut runner = Runner::open(group, session)?;
        for (number, part) in parts.iter_mut().enumerate() {
            let mut of_part = group.workers.iter().filter(|worker| worker.part == number);
            part.engine = of_part.find_map(|worker| runner.engine(worker.volume)).or(part.engine);
        }
        runner.warm_up(session, progress)?;
        for _ in 0..count {
            let number = all.len() as u32 + 1;
            let ran = runner.repeat([number, planned], session, progress)?;
            let is_cut_off = ran.is_cut_off;
            if let Some(peers) = session.peers() {
                if let Some(failure) = peers.failure() {
                    return Err(failure);
                }
                if !is_cut_off {
                    peers.repeated(peer_repeat(&ran, parts.len(), number))?;
                }
            }
            // The part of a repetition that a signal has cut off is a result only if there is no other.
            if !is_cut_off || (all.is_empty() && ran.jobs.iter().any(|job| job.result.ios > 0)) {
                let mut ran = ran;
                write_series(&mut ran, *first_job);
                add(parts, &ran, *has_jobs);
                let measured = ran.measured();
                progress.completed(&completed(group, &measured));
                all.push(measured);
            }
            if is_cut_off {
                return Err(BenchError::Interrupted);
            }
        }
        Ok(())
    }

    /// The repetitions to measure.
    pub fn repetitions(&self) -> u32 {
        self.parts[0].workload.repetitions.get()
    }

    /// Removes the part of a repetition that a signal has ended.
    pub fn drop_cut_off(&mut self) {
        self.all.retain(|measured| !measured.is_cut_off);
        for part in &mut self.parts {
            part.measured.retain(|repeated| !repeated.measured.is_cut_off);
        }
    }

    /// Whether nothing was measured yet.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

/// Adds a repetition to the parts. With `has_jobs`, a repetition in which a job measured nothing is a result only if
/// the part has no other.
fn add(parts: &mut [Part], ran: &Ran, has_jobs: bool) {
    for (number, part) in parts.iter_mut().enumerate() {
        let repeated = Repeated { measured: ran.part(number), resident: ran.resident(number) };
        let is_unmeasured = |repeated: &Repeated| has_jobs && repeated.measured.ios == 0;
        part.unmeasured += u32::from(is_unmeasured(&repeated));
        if !part.measured.is_empty() && is_unmeasured(&repeated) {
            continue;
        }
        part.measured.retain(|earlier| !is_unmeasured(earlier));
        part.measured.push(repeated);
    }
}

/// The measurements of a repetition for other processes.
fn peer_repeat(ran: &Ran, parts: usize, number: u32) -> PeerRepeat {
    let zero = ran.zero_seconds.unwrap_or(0.0);
    let part = |part: usize| {
        let measured = ran.part(part);
        let [started, ended] = ran.span_ns(part).map(|ns| zero + Duration::from_nanos(ns).as_secs_f64());
        let directions = measured.directions.as_ref().map(|directions| {
            directions.each_ref().map(|one| PeerTransfers {
                bytes: one.bytes,
                ios: one.ios,
                latency_ns: one.latency_ns.clone(),
            })
        });
        let all =
            PeerTransfers { bytes: measured.bytes(), ios: measured.ios, latency_ns: measured.latency_ns };
        PeerPart { started, ended, all, directions }
    };
    let cpu = ran.cpu.map(|cpu| [cpu.user, cpu.system, cpu.machine_busy.unwrap_or(cpu.user + cpu.system)]);
    PeerRepeat { number, cpu, parts: (0..parts).map(part).collect() }
}

/// Writes the series over time of the jobs. The results remain if a file cannot be written.
fn write_series(ran: &mut Ran, first_job: usize) {
    for (number, job) in (first_job..).zip(&mut ran.jobs) {
        let series = job.result.controlled.as_ref().and_then(|controlled| controlled.series.as_ref());
        let failed = series.and_then(|series| series.write(number).err());
        job.warnings.extend(failed.map(|(target, source)| {
            BenchError::Io { action: "write the series to", target, source }.to_string()
        }));
    }
}

/// The workload with the settings that suit a target. Checks that both fit.
pub fn checked(workload: &Workload, target: &Target) -> Result<Workload, BenchError> {
    workload.check()?;
    let workload = target.with_pages(workload)?;
    for one in target.each() {
        workload.check_size(one.size_bytes())?;
    }
    target.check_path(&workload)?;
    target.check_alignment(&workload)?;
    if target.model().is_none() {
        workload.check_warm(target.size_bytes())?;
        workload.check_on_storage()?;
        workload.check_memory(memory_available_bytes())?;
        return Ok(workload);
    }
    for model in target.each().filter_map(Target::model) {
        workload.check_warm(workload.size_bytes.unwrap_or(model.size_bytes()))?;
        workload.check_on_model(model)?;
    }
    workload.check_memory_on_model(memory_available_bytes())?;
    Ok(workload)
}
/// A repetition for the progress.
fn completed<'m>(group: &Group, measured: &'m Measured) -> Completed<'m> {
    let each = if measured.targets.is_empty() { std::slice::from_ref(measured) } else { &measured.targets };
    let targets = group.volumes.iter().zip(each).map(|(volume, of_target)| CompletedTarget {
        target: volume.target.file().map_or_else(String::new, |file| file.display().to_string()),
        bytes: of_target.bytes(),
        ios: of_target.ios,
    });
    Completed {
        targets: targets.collect(),
        latency_ns: &measured.latency_ns,
        connections: measured.connections,
    }
}
