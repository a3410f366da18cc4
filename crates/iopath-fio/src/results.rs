//! The results of jobs and groups of jobs. Does not measure.

use super::error::JobFileError;
use super::job::Job;
use super::members::Member;
use iopath_bench::engine::Measured;
use iopath_bench::error::BenchError;
use iopath_bench::options::ExitWhat;
use iopath_bench::run::{Lab, Part, Series, cpu_sum, device_sum, disk_uses, latency, repeat, spread};
use iopath_bench::signals::Interruption;
use iopath_report::result::{GroupResult, Host, JobFacts, Latencies, Repeat, Report, RunResult};

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
        let is_interruption = matches!(error, JobFileError::Bench(BenchError::Interrupted));
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

/// The warning that no later group runs, if a job of this group ends all jobs.
pub(super) fn skips_later_groups(jobs: &[Job], group: &[Vec<Member>]) -> Option<String> {
    let ends = |job: &&Job| job.exit_all && job.exit_what == ExitWhat::All;
    let job = group.iter().map(|members| &jobs[members[0].job]).find(ends)?;
    Some(format!("job {} ended all jobs (exit_what=all): later groups did not run", job.name))
}

/// The result of a job, which is a part of the series of its group.
pub(super) fn job_result(job: &Job, group: u32, lab: &Lab, series: &Series, part: usize) -> RunResult {
    let Part { target, unmeasured, .. } = series.parts[part];
    let target = target.name().map(|target| target.display().to_string());
    let output = job.output.clone();
    let facts = JobFacts { name: job.name.clone(), group, target, options: job.options(), output };
    let mut result = RunResult { job: Some(facts), ..lab.summarize_part(series, part) };
    if unmeasured > 0 && !result.partial {
        result.warnings.push(format!(
            "job {} ended before its measurement began in {unmeasured} of {} repetitions: a job with exitall ended the group; \
             the figures are of the other repetitions, and 0 without any",
            job.name,
            series.repetitions()
        ));
    }
    result
}

/// The sums of a group over its repetitions.
pub(super) fn group_result(
    number: u32,
    jobs: Vec<String>,
    measured: &[Measured],
    host: Option<&Host>,
) -> GroupResult {
    let repeats: Vec<Repeat> = measured.iter().map(|measured| repeat(measured, None, host)).collect();
    GroupResult {
        number,
        jobs,
        bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
        ios: repeats.iter().map(|repeat| repeat.ios).sum(),
        seconds: repeats.iter().map(|repeat| repeat.seconds).sum(),
        bytes_per_second: spread(repeats.iter().map(|repeat| repeat.bytes_per_second)),
        iops: spread(repeats.iter().map(|repeat| repeat.iops)),
        latency_ns: latency(&measured.iter().map(|measured| &measured.latency_ns).sum::<Latencies>()),
        cpu: cpu_sum(&repeats),
        device: device_sum(&repeats),
        disks: disk_uses(measured),
    }
}
