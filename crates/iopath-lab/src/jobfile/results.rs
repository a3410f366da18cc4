//! The results of jobs and groups of jobs. Does not measure.

use iopath_report::result::latencies;
use iopath_report::result::{Course, GroupResult, Host, JobFacts, Report, RunResult};

use super::error::JobFileError;
use super::job::Job;
use super::members::{Member, of_all_clones};
use super::places::Place;
use crate::conditions::Repeated;
use crate::engine::{CpuSeconds, Measured, Transferred};
use crate::error::LabError;
use crate::job::tally::JobResult;
use crate::model::ModelTarget;
use crate::options::{ExitWhat, Settings};
use crate::path::IoPath;
use crate::progress::Progress;
use crate::run::{Lab, Series, cpu_sum, device_sum, latency, repeat, spread, summarize_virtual};
use crate::signals::Interruption;
use crate::steady_detector::Outcome;
use crate::storage::Resident;
use crate::target::Target;
use crate::verify::Verified;

/// One repetition of a group.
#[derive(Debug)]
pub(super) struct GroupMeasured {
    measured: Measured,
}

impl GroupMeasured {
    /// `transferred` is of the only target of the group; empty for several.
    pub(super) fn new(
        jobs: &[JobResult],
        cpu: Option<CpuSeconds>,
        transferred: Transferred,
        course: Option<Course>,
        warnings: Vec<String>,
    ) -> Self {
        let Transferred { device, storage, connections } = transferred;
        let measured =
            Measured { course, cpu, device, storage, connections, warnings, ..Measured::of_jobs(jobs) };
        Self { measured }
    }

    /// The same, of a repetition that a signal may have ended.
    pub(super) fn cut_off(mut self, is_cut_off: bool) -> Self {
        self.measured.is_cut_off = is_cut_off;
        self
    }

    /// Whether a signal ended it.
    pub(super) fn is_cut_off(&self) -> bool {
        self.measured.is_cut_off
    }
}

/// Checks that the repetition of a group with this number is a result: one that a signal has ended is a result only if
/// it is the first, and has measured anything.
///
/// # Errors
/// [`LabError::Interrupted`].
pub(super) fn check_cut_off(is_cut_off: bool, number: u32, jobs: &[JobResult]) -> Result<(), LabError> {
    if is_cut_off && (number > 1 || jobs.iter().all(|job| job.ios == 0)) {
        return Err(LabError::Interrupted);
    }
    Ok(())
}

/// The results of a group: those of its complete repetitions.
pub(super) struct GroupRun {
    /// Of each job.
    pub(super) runs: Vec<RunResult>,
    /// The sums; none without a complete repetition.
    pub(super) group: Option<GroupResult>,
    /// The error that ended the group; none for a signal.
    pub(super) failure: Option<String>,
}

impl GroupRun {
    /// A group that ended before its first complete repetition.
    pub(super) fn without_results(error: &JobFileError) -> Self {
        let is_interruption = matches!(error, JobFileError::Lab(LabError::Interrupted));
        Self { runs: Vec::new(), group: None, failure: (!is_interruption).then(|| error.to_string()) }
    }

    /// A warning if a signal or a failure ended group `number` of `count`, and results are missing therefore.
    pub(super) fn end(&self, number: u32, count: usize) -> Option<String> {
        let cause = match &self.failure {
            Some(_) => "failed",
            None if Interruption::is_requested() => "interrupted",
            None => return None,
        };
        let missing = match (self.group.is_some(), (number as usize) < count) {
            (true, true) => "later groups did not run",
            (false, true) => "it has no results, and later groups did not run",
            (false, false) => "it has no results",
            (true, false) => return None,
        };
        Some(format!("{cause} in group {number} of {count}: {missing}"))
    }

    /// Adds the results to a report. Returns whether the report ends with them.
    pub(super) fn add_to(self, report: &mut Report) -> bool {
        let Self { runs, group, failure } = self;
        report.runs.extend(runs);
        report.groups.extend(group);
        report.failure = failure;
        report.failure.is_some() || Interruption::is_requested()
    }
}

/// Ends the series of a group at an error. Returns its text, unless it is that of a signal.
pub(super) fn end_early(series: &mut [JobSeries], error: &LabError) -> Option<String> {
    if matches!(error, LabError::Interrupted) {
        return None;
    }
    for series in series {
        series.series.end_by_failure();
    }
    Some(error.to_string())
}

/// The warning that no later group runs, if a job of this group ends all jobs.
pub(super) fn skips_later_groups(jobs: &[Job], group: &[Vec<Member>]) -> Option<String> {
    let ends = |job: &&Job| job.exit_all && job.exit_what == ExitWhat::All;
    let job = group.iter().map(|members| &jobs[members[0].job]).find(ends)?;
    Some(format!("job {} ended all jobs (exit_what=all): later groups did not run", job.name))
}

/// The repetitions of one job.
pub(super) struct JobSeries<'a> {
    job: &'a Job,
    /// The number of its first clone among those of all jobs, from 1.
    first: usize,
    series: Series<'a>,
    /// Whether the job is the only one of its group: then CPU time and transfers of the group are its own.
    is_alone: bool,
    repetitions: u32,
    /// Repetitions that ended before the measurement of the job began, and the last of them.
    unmeasured: u32,
    last_unmeasured: Option<Repeated>,
}

impl<'a> JobSeries<'a> {
    /// Checks that the members suit their targets.
    pub(super) fn new(
        jobs: &'a [Job],
        members: &[Member],
        target_of: impl Fn(&Place) -> &'a Target,
        is_alone: bool,
    ) -> Result<Self, JobFileError> {
        let (before, job) = (&jobs[..members[0].job], &jobs[members[0].job]);
        let first = 1 + before.iter().map(|job| job.clones() as usize).sum::<usize>();
        let refused = |error| match error {
            LabError::Workload(error) => job.refused(&error),
            other => JobFileError::Lab(other),
        };
        let workload =
            of_all_clones(&members[0].workload, job.clones()).map_err(|error| job.refused(&error))?;
        for member in members {
            Series::new(&member.workload, target_of(&member.place)).map_err(refused)?;
        }
        let repetitions = workload.repetitions.get();
        let target = target_of(&members[0].place);
        let workload = target.with_pages(&workload).map_err(refused)?;
        let series = Series::of_part(&workload, target, is_alone);
        Ok(Self { job, first, series, is_alone, repetitions, unmeasured: 0, last_unmeasured: None })
    }

    /// Reads the range of a member, unmeasured.
    pub(super) fn warm_up(
        &self,
        path: &dyn IoPath,
        member: &Member,
        progress: &mut dyn Progress,
    ) -> Result<(), LabError> {
        self.series.warm_up_of(path, &member.workload, progress)
    }

    /// Adds a repetition: the results of the clones, and those of the group. Writes the series of the clones.
    /// `warnings` are those of this job alone.
    pub(super) fn push(
        &mut self,
        clones: &[JobResult],
        verified: Option<Verified>,
        steady: Option<Outcome>,
        group: &GroupMeasured,
        resident: Option<Resident>,
        mut warnings: Vec<String>,
    ) {
        warnings.extend(self.write_series(clones));
        // A lost connection, and the end by a signal, concern all jobs of the group.
        let (connections, is_cut_off) = (group.measured.connections, group.is_cut_off());
        let of_jobs = Measured::of_jobs(clones);
        let of_job = Measured { verified, steady, connections, warnings, is_cut_off, ..of_jobs };
        if of_job.ios == 0 {
            self.unmeasured += 1;
            self.last_unmeasured = Some(Repeated { measured: of_job, resident });
            return;
        }
        let GroupMeasured { measured: group } = group;
        let measured = if self.is_alone {
            let Measured { cpu, device, storage, ref course, ref warnings, .. } = *group;
            let warnings = warnings.iter().chain(&of_job.warnings).cloned().collect();
            let course = course.clone();
            Measured { course, cpu, device, storage, warnings, ..of_job }
        } else {
            of_job
        };
        self.series.push(Repeated { measured, resident });
    }

    /// Writes the series of the clones. Returns a warning for each file that cannot be written: the results remain.
    fn write_series(&self, clones: &[JobResult]) -> Vec<String> {
        let write = |(number, clone): (usize, &JobResult)| {
            let series = clone.controlled.as_ref()?.series.as_ref()?;
            let (target, source) = series.write(number).err()?;
            Some(LabError::Io { action: "write the series to", target, source }.to_string())
        };
        (self.first..).zip(clones).filter_map(write).collect()
    }

    /// The result of the measured repetitions; of an empty one, if none was measured. In virtual time, there is no lab.
    pub(super) fn result(mut self, lab: Option<&Lab>, group: u32) -> RunResult {
        let target = self.series.target();
        let target = target.model().map(ModelTarget::name).or(target.file());
        let target = target.map(|target| target.display().to_string());
        let Job { settings: Settings { name, .. }, given, .. } = self.job;
        let facts = JobFacts { name: name.clone(), group, target, options: given.clone() };
        if let Some(empty) = self.last_unmeasured.take().filter(|_| self.series.is_empty()) {
            self.series.push(empty);
        }
        let summary = match lab {
            Some(lab) => lab.summarize(&self.series),
            None => summarize_virtual(&self.series),
        };
        let mut result = RunResult { job: Some(facts), ..summary };
        if self.unmeasured > 0 && !result.partial {
            result.warnings.push(format!(
                "job {} ended before its measurement began in {} of {} repetitions: a job with exitall ended the group; \
                 the figures are of the other repetitions, and 0 without any",
                self.job.name, self.unmeasured, self.repetitions
            ));
        }
        result
    }
}

/// The sums of a group over its repetitions.
pub(super) fn group_result(
    number: u32,
    jobs: Vec<String>,
    measured: &[GroupMeasured],
    host: Option<&Host>,
) -> GroupResult {
    let mut latency_ns = latencies();
    let mut repeats = Vec::with_capacity(measured.len());
    for GroupMeasured { measured } in measured {
        latency_ns.add(&measured.latency_ns).expect("all histograms have the same bounds");
        repeats.push(repeat(measured, None, host));
    }
    GroupResult {
        number,
        jobs,
        bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
        ios: repeats.iter().map(|repeat| repeat.ios).sum(),
        seconds: repeats.iter().map(|repeat| repeat.seconds).sum(),
        bytes_per_second: spread(repeats.iter().map(|repeat| repeat.bytes_per_second)),
        iops: spread(repeats.iter().map(|repeat| repeat.iops)),
        latency_ns: latency(&latency_ns),
        cpu: cpu_sum(&repeats),
        device: device_sum(&repeats),
    }
}
