//! The controls of a job from the values of its keys.

use std::num::NonZeroU64;
use std::path::PathBuf;

use super::error::JobFileError;
use super::job::Job;
use iopath_bench::controls::{Controls, Flow, LatencyTarget, PriorityShare, RateMin, Series};
use iopath_bench::options::{LogName, class_of};
use iopath_bench::path::Direction;
use iopath_bench::thread_settings::IoPriority;

/// All transfers, in a million.
const ALL: u32 = 1_000_000;

/// The controls of a clone of a job.
pub(super) fn controls(job: &Job, overwrite: bool) -> Result<Controls, JobFileError> {
    let keys = &job.controls;
    // A limit of a direction without transfers is none.
    let nonzero = |[reads, writes]: [Option<u64>; 2]| {
        let limit = |value: Option<u64>, is_used| value.filter(|_| is_used).and_then(NonZeroU64::new);
        [limit(reads, job.workload.rw.reads()), limit(writes, job.workload.rw.writes())]
    };
    let (bytes, ios) = (nonzero(keys.rate_min), nonzero(keys.rate_iops_min));
    let has_least = bytes.iter().chain(&ios).any(Option::is_some);
    let cycle = keys.rate_cycle.unwrap_or(RateMin::CYCLE);
    let named = |log: &Option<LogName>| {
        log.as_ref().map(|log| match log {
            LogName::OfJob => PathBuf::from(&job.name),
            LogName::Given(name) => PathBuf::from(name),
        })
    };
    let series = Series {
        throughput: named(&keys.throughput_log),
        latency: named(&keys.latency_log),
        iops: named(&keys.iops_log),
        histograms: named(&keys.histogram_log),
        histogram_interval: keys.histogram_interval,
        coarseness: keys.histogram_coarseness,
        average: keys.log_average,
        // `join_series` has the files of all jobs.
        joined: keys.joins_logs.then_some(false),
        has_offset: keys.log_offset,
        has_priority: keys.log_priority,
        overwrite,
    };
    Ok(Controls {
        flow: keys.flow.map(|weight| Flow { group: keys.flow_id, weight, sleep: keys.flow_sleep }),
        latency_target: latency(job)?,
        rate_min: has_least.then_some(RateMin { bytes, ios, cycle }),
        series: series.is_used().then_some(series),
        priorities: priorities(job)?,
        ..job.workload.controls.clone()
    })
}

/// The priorities of single transfers.
fn priorities(job: &Job) -> Result<Vec<PriorityShare>, JobFileError> {
    let keys = &job.controls;
    let has_split = keys.priority_split.iter().any(|split| !split.is_empty());
    if has_split && keys.priority_percent.iter().any(Option::is_some) {
        return Err(
            job.problem("cmdprio_percentage and cmdprio_bssplit exclude each other; remove one of them")
        );
    }
    let mut shares = Vec::new();
    for (index, direction) in [Direction::Read, Direction::Write].into_iter().enumerate() {
        let of_all = keys.priority_percent[index].map(|percent| (None, percent as u32, [None; 3]));
        let split = keys.priority_split[index].iter();
        let of_sizes = split.map(|one| (Some(one.bytes), one.percent, [one.class, one.level, one.hint]));
        for (bytes, percent, [class, level, hint]) in of_all.into_iter().chain(of_sizes) {
            // As in fio, the highest class is the default.
            let class = class_of(class.or(keys.priority_class[index]).unwrap_or(1)).unwrap_or_default();
            let level = level.or(keys.priority_level[index]).unwrap_or(0) as u8;
            let hint = hint.or(keys.priority_hint[index]).unwrap_or(0) as u16;
            let priority = IoPriority { class, level, hint };
            if percent > 0 {
                shares.push(PriorityShare { direction, bytes, percent, priority });
            }
        }
    }
    Ok(shares)
}

fn latency(job: &Job) -> Result<Option<LatencyTarget>, JobFileError> {
    let keys = &job.controls;
    let Some(limit) = keys.latency_target.filter(|limit| !limit.is_zero()) else { return Ok(None) };
    if keys.latency_window.is_zero() {
        return Err(job.problem("latency_target needs the time at each depth; add latency_window"));
    }
    if !job.workload.think.is_zero() {
        return Err(job
            .problem("latency_target varies the depth, and thinktime pauses a job with fewer in flight; remove one of them"));
    }
    Ok(Some(LatencyTarget {
        limit,
        window: keys.latency_window,
        per_million: keys.latency_share.unwrap_or(ALL),
        continues: keys.latency_run,
    }))
}
