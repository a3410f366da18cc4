//! A virtual disk: latency, caps, and a server that takes requests one by one or in batches. The other kind for storage
//! without mechanical latency is in `flash.rs`.

use super::candidate::{ASSUMED, Candidate, FITTED, NOT_MEASURED};
use super::draft::Draft;
use super::estimates::Estimates;
use super::search::Variable;

const KIB: f64 = 1024.0;
const MIB: f64 = KIB * KIB;
const GIB: f64 = KIB * MIB;

/// Above this transfer rate, the transfer time of a request is not part of its latency.
const TRANSFER_MIB_MAX: f64 = 1e5;

/// The depth of a queue of Linux.
const DEPTH_MAX: f64 = 1024.0;

/// The candidates: one reports requests one by one, the other in batches.
pub(crate) fn candidates(from: &Estimates) -> Vec<Candidate> {
    [("cloud", 1.0), ("cloud, batches", DEPTH_MAX)].map(|(name, batch)| candidate(from, name, batch)).into()
}

fn candidate(from: &Estimates, name: &'static str, batch: f64) -> Candidate {
    let from = *from;
    let mut variables = vec![
        // A factor of all latencies.
        Variable::new(1.0, 0.05, 20.0),
        Variable::new(from.iops * 1.1, 1.0, 1e8),
        Variable::new(from.bytes_per_s * 1.1 / MIB, 0.01, 1e6),
        // Overhead of an I/O, in KiB.
        Variable::new(2.0, 0.01, 4096.0),
        Variable::new(from.bytes_per_s / MIB, 1.0, 2.0 * TRANSFER_MIB_MAX),
    ];
    if let Some(write) = from.write {
        variables.extend([
            Variable::new(100.0 * write.latency_ns / from.read.mean, 1.0, 10_000.0),
            Variable::new(100.0 * from.iops / write.iops, 1.0, 10_000.0),
            Variable::new(100.0 * from.bytes_per_s / write.bytes_per_s, 1.0, 10_000.0),
        ]);
    }
    Candidate { name, variables, draft: Box::new(move |values| draft(&from, batch, values)) }
}

fn draft(from: &Estimates, batch: f64, values: &[f64]) -> Draft {
    let &[scale, iops, mib_per_s, overhead_kib, transfer, ref writes @ ..] = values else {
        unreachable!("a search keeps the number of variables")
    };
    let us = |ns: f64| ns * scale / 1e3;
    let max = longest(from);
    let transfer = if transfer > TRANSFER_MIB_MAX { 0.0 } else { transfer };
    let request_kib = (from.request_max_bytes as f64 / KIB).clamp(4.0, 65536.0);
    let shape = "measured: small random reads at depth 1; scale fitted by simulation";
    let cap = |name: &'static str, burst: &'static str, value: f64, draft: Draft| {
        draft.with(name, value, FITTED).with(burst, value, "no burst was fitted: as the sustained rate")
    };
    let draft = Draft::new("cloud")
        .with_exact("capacity_gib", from.capacity_bytes as f64 / GIB, "the size of the measured target")
        .with("latency_min_us", us(from.read.min), shape)
        .with("latency_p50_us", us(from.read.p50.max(from.read.min)), shape)
        .with("latency_p99_us", us(from.read.p99.max(from.read.p50)), shape)
        .with("latency_max_us", us(max), "measured: the value that gives the mean latency of these reads");
    let draft = cap("sustained_iops", "burst_iops", iops, draft);
    let draft = draft.with_count("credits", 0.0, "no burst was fitted");
    let draft = cap("sustained_mib_per_s", "burst_mib_per_s", mib_per_s, draft);
    let mut draft = draft
        .with("credits_mib", 0.0, "no burst was fitted")
        .with("io_unit_kib", request_kib, "assumed: each request counts as one I/O")
        .with("io_overhead_kib", overhead_kib, FITTED)
        .with("transfer_mib_per_s", transfer, FITTED);
    if let &[latency, ios, bytes] = writes {
        let flush = from.write.map_or(0.0, |write| write.flush_ns / 1e3);
        draft = draft
            .with("write_latency_percent", latency, FITTED)
            .with("write_io_percent", ios, FITTED)
            .with("write_byte_percent", bytes, FITTED)
            .with("flush_latency_us", flush, "measured: the median of the flushes");
    } else {
        draft = ["write_latency_percent", "write_io_percent", "write_byte_percent"]
            .into_iter()
            .fold(draft, |draft, name| draft.with(name, 100.0, NOT_MEASURED));
    }
    draft
        .with_count("batch_max", batch, "the better of the two fits with and without batches")
        .with("request_max_kib", request_kib, "the largest request of the measured target")
        .with_count("depth_max", DEPTH_MAX, ASSUMED)
}

/// The longest latency of a distribution that is linear between its quantiles and has the measured mean. Measured
/// latencies above the 99th percentile are rarely uniform, so the measured maximum would make the mean too high.
fn longest(from: &Estimates) -> f64 {
    let (min, p50) = (from.read.min, from.read.p50.max(from.read.min));
    let p99 = from.read.p99.max(p50);
    let below = 0.5 * f64::midpoint(min, p50) + 0.49 * f64::midpoint(p50, p99);
    (2.0 * (from.read.mean - below) / 0.01 - p99).clamp(p99, 1000.0 * p99.max(1.0))
}
