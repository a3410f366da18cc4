//! Results with given figures, for tests.

pub mod openmetrics;

use crate::pattern::Rw;
use crate::result::{Clock, Cpu, Device, FlushResult, Latency, Repeat, RunResult, ServedBy, Spread};
use crate::stats::Summary;

/// A run that storage served: one repetition of a second for each throughput in MB/s. The CPU cost, in seconds per GiB,
/// is that of the process.
pub fn run(path: &str, rw: Rw, block_bytes: u32, io_depth: u32, mbs: &[f64], cost: f64) -> RunResult {
    let repeats: Vec<Repeat> = mbs.iter().map(|mbs| repeat(block_bytes, mbs * 1e6, cost)).collect();
    let spread = |of: fn(&Repeat) -> f64| {
        let summary = Summary::of(&repeats.iter().map(of).collect::<Vec<_>>()).unwrap();
        Spread { mean: summary.mean, stddev: summary.stddev, ci95: summary.ci95 }
    };
    RunResult {
        job: None,
        directions: None,
        flushes: None,
        steady_state: None,
        latency_target: None,
        verify: None,
        closed_loop_ns: None,
        due_ns: None,
        submissions: None,
        block_sizes: None,
        path: path.to_owned(),
        clock: Clock::Real,
        rw: rw.name().to_owned(),
        block_bytes,
        io_depth,
        jobs: 1,
        think_ns: None,
        rate_iops: None,
        workload: None,
        latency_distribution: None,
        model_host: None,
        threads: None,
        targets: Vec::new(),
        targets_end: None,
        hosts: None,
        connections: None,
        warm: false,
        served_by: Some(ServedBy::Storage),
        latency_every: 1,
        bytes: repeats.iter().map(|repeat| repeat.bytes).sum(),
        ios: repeats.iter().map(|repeat| repeat.ios).sum(),
        seconds: mbs.len() as f64,
        bytes_per_second: spread(|repeat| repeat.bytes_per_second),
        iops: spread(|repeat| repeat.iops),
        latency_ns: repeats[0].latency_ns,
        cpu: repeats[0].cpu,
        device: repeats.iter().map(|repeat| repeat.device).sum(),
        cache: None,
        partial: false,
        warnings: Vec::new(),
        repeats,
    }
}

/// The same run with a flush after each write.
pub fn with_flushes(run: RunResult) -> RunResult {
    let flushes = FlushResult { every: 1, count: run.ios, latency_ns: run.latency_ns, distribution: None };
    RunResult { flushes: Some(flushes), ..run }
}

fn repeat(block_bytes: u32, bytes_per_second: f64, cost: f64) -> Repeat {
    let (bytes, iops) = (bytes_per_second as u64, bytes_per_second / f64::from(block_bytes));
    let seconds = cost * bytes as f64 / (1u64 << 30) as f64;
    let ns = (1e9 / iops) as u64;
    Repeat {
        bytes,
        ios: iops.ceil() as u64,
        seconds: 1.0,
        first_ended_seconds: 1.0,
        bytes_per_second,
        iops,
        latency_ns: Latency { min: ns, mean: ns as f64, p50: ns, p90: ns, p99: ns, p999: ns, max: ns },
        directions: None,
        course: None,
        cut_off: false,
        cpu: Some(Cpu {
            user_seconds: seconds / 2.0,
            system_seconds: seconds / 2.0,
            machine_seconds: 0.0,
            seconds_per_gib: cost,
            microseconds_per_io: seconds * 1e6 / iops,
        }),
        device: Some(Device { reads: 1, read_bytes: bytes, ..Device::default() }),
        cache: None,
        cached_before_bytes: Some(0),
        storage_read_bytes: Some(bytes),
        storage_written_bytes: Some(0),
    }
}
