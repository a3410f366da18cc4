//! A solid-state disk: dies behind channels, a write buffer and garbage collection. The other kind for storage without
//! mechanical latency is in `cloud.rs`.

use super::candidate::{ASSUMED, Candidate, FITTED, NOT_MEASURED};
use super::draft::Draft;
use super::estimates::{Estimates, Writes};
use super::search::Variable;

const KIB: f64 = 1024.0;
const GIB: f64 = KIB * KIB * KIB;

/// Flash of three bits a cell: pages, planes and blocks of that kind.
const PAGE_KIB: f64 = 16.0;
const PLANES: f64 = 2.0;
const CHANNELS: f64 = 8.0;

/// The start point of the search: dies on each channel, and the share of the latency in which a die reads.
const DIES: f64 = 6.0;
const DIE_SHARE: f64 = 0.7;

/// The candidate of this kind.
pub(crate) fn candidate(from: &Estimates) -> Candidate {
    let from = *from;
    let writes = from.write.unwrap_or(Writes {
        latency_ns: from.read.mean,
        iops: from.iops,
        bytes_per_s: from.bytes_per_s,
        random_bytes_per_s: from.bytes_per_s,
        flush_ns: 0.0,
    });
    let command_ns = 0.95e9 / from.iops.max(writes.iops);
    let mut variables = vec![
        // The time of a small read, in µs, and the share of it in which a die reads.
        Variable::new(0.95 * from.read.mean / 1e3, 0.02, 1e6),
        Variable::new(DIE_SHARE, 0.02, 0.98),
        Variable::new(command_ns, 1.0, 1e9),
        Variable::new(from.bytes_per_s / 1e6, 1.0, 1e6),
        Variable::new(from.bytes_per_s / 1e6 / 4.0, 1.0, 1e5),
        Variable::new(DIES, 1.0, 64.0).whole(),
    ];
    let write_variables = [
        // The rate of all dies together, in MB/s.
        Variable::new(writes.bytes_per_s / 1e6, 0.1, 1e6),
        Variable::new(((writes.latency_ns - command_ns) / 1e3).max(0.1), 0.01, 1e6),
        Variable::new(8192.0, PAGE_KIB * PLANES, 4e6),
        Variable::new(spare_percent(&writes), 1.0, 1000.0),
    ];
    if from.write.is_some() {
        variables.extend(write_variables);
    }
    let fixed = write_variables.map(|variable| variable.start);
    let is_written = from.write.is_some();
    let draft = move |values: &[f64]| draft(&from, values, is_written, fixed);
    Candidate { name: "flash", variables, draft: Box::new(draft) }
}

/// A first estimate of `spare_percent` from the cost of random writes.
fn spare_percent(writes: &Writes) -> f64 {
    let amplification = (writes.bytes_per_s / writes.random_bytes_per_s.max(1.0)).max(1.01);
    (50.0 / (amplification - 1.0)).clamp(2.0, 500.0)
}

fn draft(from: &Estimates, values: &[f64], is_written: bool, fixed: [f64; 4]) -> Draft {
    let &[small_read, die_share, command, interface, channel, dies, ref writes @ ..] = values else {
        unreachable!("a search keeps the number of variables")
    };
    let &[write_rate, write_latency, buffer, spare] = writes else {
        return draft(from, &[values, &fixed].concat(), is_written, fixed);
    };
    let program_us = CHANNELS * dies.round() * PAGE_KIB * PLANES * KIB / write_rate;
    let write_source = if is_written { FITTED } else { NOT_MEASURED };
    let request_kib = (from.request_max_bytes as f64 / KIB).clamp(4.0, 65536.0);
    Draft::new("flash")
        .with_exact(
            "capacity_gib",
            (from.capacity_bytes as f64 / GIB).max(0.01),
            "the size of the measured target",
        )
        .with("spare_percent", spare, write_source)
        .with("fill_percent", 100.0, "assumed: all of the measured range holds data")
        .with_count("channels", CHANNELS, ASSUMED)
        .with_count("dies_per_channel", dies, FITTED)
        .with_count("planes", PLANES, ASSUMED)
        .with("page_kib", PAGE_KIB, ASSUMED)
        .with_count("pages_per_block", 576.0, ASSUMED)
        .with("read_us", small_read * die_share, FITTED)
        .with("program_us", program_us, write_source)
        .with("erase_ms", 10.0, ASSUMED)
        .with("channel_mb_per_s", channel, FITTED)
        .with("interface_mb_per_s", interface, FITTED)
        .with_count("command_ns", command, FITTED)
        .with("read_latency_us", small_read * (1.0 - die_share), FITTED)
        .with("write_latency_us", write_latency, write_source)
        .with("write_buffer_kib", buffer, write_source)
        .with_count("buffer_is_volatile", 0.0, "assumed: a flush is too short to measure")
        .with("request_max_kib", request_kib, "the largest request of the measured target")
        .with_count("depth_max", 1024.0, ASSUMED)
}
