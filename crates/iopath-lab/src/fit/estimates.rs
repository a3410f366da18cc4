//! Direct estimates from the training figures. A kind of model computes the start point of its search from them.

use iopath_report::Rw;

use super::workloads::{Measured, Workloads};

/// The latency of small reads with one in flight, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    pub(crate) min: f64,
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) mean: f64,
}

/// Facts and first estimates.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Estimates {
    pub(crate) capacity_bytes: u64,
    /// The largest request of the device.
    pub(crate) request_max_bytes: u64,
    pub(crate) read: Latency,
    /// The highest rates of reads.
    pub(crate) iops: f64,
    pub(crate) bytes_per_s: f64,
    /// None if writes were not measured.
    pub(crate) write: Option<Writes>,
}

/// The first estimates of writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Writes {
    /// The mean latency of small writes with one in flight.
    pub(crate) latency_ns: f64,
    pub(crate) iops: f64,
    /// The highest rates of sequential writes and of random writes.
    pub(crate) bytes_per_s: f64,
    pub(crate) random_bytes_per_s: f64,
    /// The time of a flush; 0 if it is too short to measure.
    pub(crate) flush_ns: f64,
}

/// A shorter flush cannot be distinguished from the end of a run.
const FLUSH_NS_MIN: f64 = 300_000.0;

impl Estimates {
    /// Estimates from workloads; none without the workload of small reads.
    pub(crate) fn of(workloads: &Workloads, capacity_bytes: u64, request_max_bytes: u64) -> Option<Self> {
        let small = find(workloads, Rw::RandRead)?;
        let read = Latency {
            min: small.median(|sample| sample.min_ns),
            p50: small.median(|sample| sample.p50_ns),
            p99: small.median(|sample| sample.p99_ns),
            mean: small.median(|sample| sample.mean_ns),
        };
        let highest = |wanted: &dyn Fn(Rw) -> bool, of: &dyn Fn(&Measured) -> f64| {
            workloads.training().filter(|one| wanted(one.planned.rw)).map(of).fold(0.0, f64::max)
        };
        let bytes = |one: &Measured| one.rate() * f64::from(one.planned.block_bytes);
        let reads = |rw: Rw| !rw.writes();
        let writes = |rw: Rw| !rw.reads();
        // Small writes may end in a buffer before they reach the medium.
        let large = |rw: Rw| {
            let runs = workloads.training().filter(|one| one.planned.rw == rw);
            runs.max_by_key(|one| one.planned.block_bytes).map_or(1.0, bytes)
        };
        let write = find(workloads, Rw::RandWrite).map(|small| {
            let flushes: Vec<f64> = workloads
                .training()
                .filter(|one| writes(one.planned.rw))
                .map(|one| one.flush_seconds() * 1e9)
                .collect();
            let flush_ns = super::evidence::median(&flushes);
            Writes {
                latency_ns: small.median(|sample| sample.mean_ns),
                iops: highest(&writes, &Measured::rate),
                bytes_per_s: large(Rw::Write),
                random_bytes_per_s: large(Rw::RandWrite),
                flush_ns: if flush_ns < FLUSH_NS_MIN { 0.0 } else { flush_ns },
            }
        });
        Some(Self {
            capacity_bytes,
            request_max_bytes,
            read,
            iops: highest(&|rw| rw == Rw::RandRead, &Measured::rate),
            bytes_per_s: highest(&reads, &bytes),
            write,
        })
    }
}

/// The workload of small transfers with one in flight, on the largest range.
fn find(workloads: &Workloads, rw: Rw) -> Option<&Measured> {
    let small = workloads.training().filter(|one| one.planned.rw == rw && one.planned.depth == 1);
    small.min_by_key(|one| {
        (one.planned.block_bytes, u64::MAX - (one.planned.range.end - one.planned.range.start))
    })
}
