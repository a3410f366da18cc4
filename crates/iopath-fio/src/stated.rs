//! What the options of a job state in the terms of a result, for comparisons with the JSON of fio. Does not run jobs.

use super::job::Job;
use super::members::Rates;
use super::{At, apply, base_of, keys, members};
use iopath_bench::options::{Amount, Given, IoEngine};
use iopath_bench::workload::Workload;

/// The quantities of a job that a result states.
#[derive(Debug)]
pub struct Stated {
    /// The size of a transfer in bytes.
    pub block_bytes: u64,
    /// The order of its transfers, with a rate if it has one. Keys that iopath does not have together are left out.
    pub workload: Workload,
    /// The transfers in flight.
    pub depth: u64,
    /// The limit of the rate.
    pub rate: StatedRate,
    /// The first byte and the end; none if one of them depends on the file.
    pub range: Option<[u64; 2]>,
}

/// The limit of the transfers per second of all directions together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum StatedRate {
    /// No limit.
    Unlimited,
    /// Transfers per second.
    Iops(f64),
    /// Limits that iopath does not have together.
    Unknown,
}

impl Job {
    /// The job of these options, and the options that iopath does not have or whose values it does not have. An option
    /// that has no value is set to 1.
    pub fn of_options<'a>(options: &[(&'a str, &'a str)]) -> (Self, Vec<(&'a str, &'a str)>) {
        let valued = |value: &'a str| Some(value).filter(|value| !value.is_empty());
        let last = options.iter().rfind(|(key, _)| *key == "kb_base");
        let base = base_of(last.and_then(|(_, value)| valued(value)));
        let mut job = Self::new(String::new(), At { file: "".into(), line: 0 });
        let mut others = options.to_vec();
        others.retain(|(key, value)| {
            apply(&mut job, keys::find(key).as_ref(), &Given::in_job_file(valued(value), base)).is_err()
        });
        (job, others)
    }

    /// The quantities that the job states.
    pub fn stated(&self) -> Stated {
        let is_synchronous = matches!(self.engine, IoEngine::Synchronous | IoEngine::Mapped);
        let mean = |direction: usize| self.sizes[direction].mean();
        let first = usize::from(!self.workload.rw.reads());
        let rates = members::rates(self);
        let own = &self.workload;
        let workload = Workload {
            shape: self.shape(self.zones().unwrap_or(None)),
            rate: rates.as_ref().ok().and_then(|rates| rates.first),
            flush_every: self.fsync_every.or(self.fdatasync_every).filter(|_| own.rw.writes()),
            flush_all: self.fsync_every.is_some(),
            flush_data_every: self.fdatasync_every.filter(|_| own.rw.writes() && self.fsync_every.is_some()),
            times_final_flush: self.end_fsync || self.fsync_on_close,
            covers: !self.is_independent,
            ..own.clone()
        };
        let rate = match rates {
            // The transfers of the other direction have no rate.
            Ok(Rates { only: Some(_), .. } | Rates { first: None, .. }) => StatedRate::Unlimited,
            Ok(Rates { first: Some(rate), of_writes, .. }) => {
                StatedRate::Iops(rate.iops(mean(first)) + of_writes.map_or(0.0, |rate| rate.iops(mean(1))))
            }
            Err(_) => StatedRate::Unknown,
        };
        Stated {
            block_bytes: self.block_bytes(),
            workload,
            depth: if is_synchronous { 1 } else { self.workload.depth.get().into() },
            rate,
            range: match (self.offset, self.size) {
                (Amount::Bytes(start), Some(Amount::Bytes(size))) => {
                    start.checked_add(size).map(|end| [start, end])
                }
                _ => None,
            },
        }
    }
}
