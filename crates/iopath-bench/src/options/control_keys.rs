//! The values of the keys of a job file that control a job. `keys.rs` sets them, `controls.rs` makes controls of them.

use std::num::NonZeroU64;
use std::time::Duration;

use crate::thread_settings::IoClass;

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
pub const fn class_of(number: u64) -> Option<IoClass> {
    match number {
        0 => Some(IoClass::None),
        1 => Some(IoClass::RealTime),
        2 => Some(IoClass::BestEffort),
        3 => Some(IoClass::Idle),
        _ => None,
    }
}

/// The values of keys that control a job.
#[expect(clippy::struct_excessive_bools, reason = "keys, independent of each other")]
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
    /// `write_hist_log`.
    pub histogram_log: Option<LogName>,
    /// `log_hist_msec`.
    pub histogram_interval: Duration,
    /// `log_hist_coarseness`.
    pub histogram_coarseness: u32,
    /// `log_avg_msec`.
    pub log_average: Duration,
    /// `per_job_logs=0`.
    pub joins_logs: bool,
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
}
