//! The keys of a job file for the controls of a job, and the controls that they make together. `keys.rs` sets them.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use super::error::JobFileError;
use super::job::Job;
use crate::controls::{Controls, Flow, LatencyTarget, PriorityShare, RateMin, Series};
use crate::path::Direction;
use crate::thread_settings::{IoClass, IoPriority, ThreadSettings};

/// All transfers, in a million.
const ALL: u32 = 1_000_000;

/// The jobs that end with a job with `exitall`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExitWhat {
    /// The jobs of its group.
    #[default]
    Group,
    /// All jobs, also those of later groups.
    All,
}

/// The start of the names of files with series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogName {
    /// The name of the job.
    OfJob,
    /// This name.
    Given(String),
}

/// An entry of `cmdprio_bssplit`. Unset values are those of the keys for all sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriorityOfSize {
    /// The size of the transfers in bytes.
    pub bytes: u32,
    /// Their share in percent.
    pub percent: u32,
    /// The class, as a number.
    pub class: Option<u64>,
    /// The level.
    pub level: Option<u64>,
    /// The hint.
    pub hint: Option<u64>,
}

/// The class of a number of `ioprio_set(2)`.
pub(super) const fn class(number: u64) -> Option<IoClass> {
    match number {
        0 => Some(IoClass::None),
        1 => Some(IoClass::RealTime),
        2 => Some(IoClass::BestEffort),
        3 => Some(IoClass::Idle),
        _ => None,
    }
}

/// The values of keys that control a job.
#[derive(Debug, Clone, Default)]
pub struct ControlKeys {
    /// `flow`.
    pub flow: Option<NonZeroU64>,
    /// `flow_id`.
    pub flow_id: u64,
    /// `flow_sleep`.
    pub flow_sleep: Duration,
    /// `latency_target`.
    pub latency_target: Option<Duration>,
    /// `latency_window`.
    pub latency_window: Duration,
    /// `latency_percentile`, in transfers of a million; unset is all.
    pub latency_share: Option<u32>,
    /// `latency_run`.
    pub latency_run: bool,
    /// `rate_min`, for reads and writes.
    pub rate_min: [Option<u64>; 2],
    /// `rate_iops_min`, for reads and writes.
    pub rate_iops_min: [Option<u64>; 2],
    /// `rate_cycle`.
    pub rate_cycle: Option<Duration>,
    /// `write_bw_log`.
    pub throughput_log: Option<LogName>,
    /// `write_lat_log`.
    pub latency_log: Option<LogName>,
    /// `write_iops_log`.
    pub iops_log: Option<LogName>,
    /// `log_avg_msec`.
    pub log_average: Duration,
    /// `log_offset`.
    pub log_offset: bool,
    /// `log_prio`.
    pub log_priority: bool,
    /// `cmdprio_percentage`, for reads and writes.
    pub priority_percent: [Option<u64>; 2],
    /// `cmdprio_class`, for reads and writes.
    pub priority_class: [Option<u64>; 2],
    /// `cmdprio`, for reads and writes.
    pub priority_level: [Option<u64>; 2],
    /// `cmdprio_hint`, for reads and writes.
    pub priority_hint: [Option<u64>; 2],
    /// `cmdprio_bssplit`, for reads and writes.
    pub priority_split: [Vec<PriorityOfSize>; 2],
    /// The settings of the thread.
    pub thread: ThreadSettings,
}

impl ControlKeys {
    /// The controls of a job.
    pub(super) fn controls(&self, job: &Job) -> Result<Controls, JobFileError> {
        // A limit of a direction without transfers is none.
        let nonzero = |[reads, writes]: [Option<u64>; 2]| {
            let limit = |value: Option<u64>, is_used| value.filter(|_| is_used).and_then(NonZeroU64::new);
            [limit(reads, job.rw.reads()), limit(writes, job.rw.writes())]
        };
        let (bytes, ios) = (nonzero(self.rate_min), nonzero(self.rate_iops_min));
        let has_least = bytes.iter().chain(&ios).any(Option::is_some);
        let cycle = self.rate_cycle.unwrap_or(RateMin::CYCLE);
        let named = |log: &Option<LogName>| {
            log.as_ref().map(|log| match log {
                LogName::OfJob => PathBuf::from(&job.name),
                LogName::Given(name) => PathBuf::from(name),
            })
        };
        let series = Series {
            throughput: named(&self.throughput_log),
            latency: named(&self.latency_log),
            iops: named(&self.iops_log),
            average: self.log_average,
            has_offset: self.log_offset,
            has_priority: self.log_priority,
        };
        Ok(Controls {
            flow: self.flow.map(|weight| Flow { group: self.flow_id, weight, sleep: self.flow_sleep }),
            latency_target: self.latency(job)?,
            rate_min: has_least.then_some(RateMin { bytes, ios, cycle }),
            series: series.is_used().then_some(series),
            priorities: self.priorities(job)?,
            thread: self.thread.clone(),
        })
    }

    /// The priorities of single transfers.
    fn priorities(&self, job: &Job) -> Result<Vec<PriorityShare>, JobFileError> {
        let has_split = self.priority_split.iter().any(|split| !split.is_empty());
        if has_split && self.priority_percent.iter().any(Option::is_some) {
            return Err(
                job.problem("cmdprio_percentage and cmdprio_bssplit exclude each other; remove one of them")
            );
        }
        let mut shares = Vec::new();
        for (index, direction) in [Direction::Read, Direction::Write].into_iter().enumerate() {
            let of_all = self.priority_percent[index].map(|percent| (None, percent as u32, [None; 3]));
            let split = self.priority_split[index].iter();
            let of_sizes = split.map(|one| (Some(one.bytes), one.percent, [one.class, one.level, one.hint]));
            for (bytes, percent, [class, level, hint]) in of_all.into_iter().chain(of_sizes) {
                // As of fio, the highest class is the default.
                let class =
                    self::class(class.or(self.priority_class[index]).unwrap_or(1)).unwrap_or_default();
                let level = level.or(self.priority_level[index]).unwrap_or(0) as u8;
                let hint = hint.or(self.priority_hint[index]).unwrap_or(0) as u16;
                let priority = IoPriority { class, level, hint };
                if percent > 0 {
                    shares.push(PriorityShare { direction, bytes, percent, priority });
                }
            }
        }
        Ok(shares)
    }

    fn latency(&self, job: &Job) -> Result<Option<LatencyTarget>, JobFileError> {
        let Some(limit) = self.latency_target.filter(|limit| !limit.is_zero()) else { return Ok(None) };
        if self.latency_window.is_zero() {
            return Err(job.problem("latency_target needs the time at each depth; add latency_window"));
        }
        if !job.think.is_zero() {
            return Err(job.problem(
                "latency_target varies the depth, and thinktime has a depth of 1; remove one of them",
            ));
        }
        Ok(Some(LatencyTarget {
            limit,
            window: self.latency_window,
            per_million: self.latency_share.unwrap_or(ALL),
            continues: self.latency_run,
        }))
    }
}
