//! A rotating disk. Sequential reads at several positions determine its zones, the spread of latencies its rotation,
//! and the latency over ranges of different size its seeks. Not for storage without mechanical latency.

use iopath_report::Rw;

use super::candidate::{ASSUMED, Candidate, FITTED, NOT_MEASURED};
use super::draft::Draft;
use super::estimates::Estimates;
use super::search::Variable;
use super::workloads::{Measured, Workloads, width_deviation};

/// The rotation speeds of disks on the market.
const SPEEDS: [f64; 6] = [4200.0, 5400.0, 5900.0, 7200.0, 10_000.0, 15_000.0];

/// A measured speed is replaced by the nearest one on the market up to this distance, as a logarithm.
const SPEED_DISTANCE: f64 = 0.1;

/// The zones of the model.
const ZONES: u32 = 8;

/// The number of surfaces. It affects only the cylinders and the switches between tracks.
const HEADS: f64 = 4.0;

/// The switch to another track, as a share of a turn. The sequential rate includes it.
const SWITCH_TURNS: f64 = 0.12;

/// A range that is larger than the buffer of any disk.
const RANGE_MIN: u64 = 64 << 20;

/// If queued reads are faster by this factor, the disk reorders its queue.
const QUEUE_GAIN: f64 = 1.25;

/// The fixed part of a candidate.
#[derive(Debug, Clone)]
struct Mechanics {
    capacity_bytes: u64,
    request_max_bytes: u64,
    rpm: f64,
    rpm_source: &'static str,
    /// Positions as shares of the capacity, each with its sequential rate in bytes a second.
    rates: Vec<(f64, f64)>,
    queue_depth: f64,
    is_written: bool,
}

/// The candidates of this kind, with and without a write cache. Empty if a workload that they need is missing.
pub(crate) fn candidates(workloads: &Workloads, from: &Estimates) -> Vec<Candidate> {
    let with_cache = from.write.and_then(|_| candidate(workloads, from, "disk, write cache", 4096.0));
    let without = candidate(workloads, from, "disk", 1.0);
    with_cache.into_iter().chain(without).collect()
}

fn candidate(
    workloads: &Workloads,
    from: &Estimates,
    name: &'static str,
    cache_kib: f64,
) -> Option<Candidate> {
    let near = near(workloads)?;
    let latencies = near.samples.iter().map(|sample| sample.ios).sum();
    let (rpm, rpm_source) = rpm(near.median(|sample| sample.width_ns), width_deviation(latencies));
    let turn_ms = 60e3 / rpm;
    let rates = rates(workloads, from.capacity_bytes);
    let single = find(workloads, 1)?.rate();
    let queued = find(workloads, 32)?.rate();
    let above = |measured: &Measured| measured.median(|sample| sample.mean_ns) / 1e6 - turn_ms / 2.0 - 0.3;
    let track_ms = above(near).max(0.2);
    let average_ms = above(find(workloads, 1)?).max(track_ms * 1.5);
    let fastest = rates.iter().map(|rate| rate.1).fold(1e6, f64::max);
    let mechanics = Mechanics {
        capacity_bytes: from.capacity_bytes,
        request_max_bytes: from.request_max_bytes,
        rpm,
        rpm_source,
        rates,
        queue_depth: if queued > QUEUE_GAIN * single { 32.0 } else { 1.0 },
        is_written: from.write.is_some(),
    };
    if mechanics.rates.is_empty() {
        return None;
    }
    let mut variables = vec![
        Variable::new(300.0, 1.0, 20_000.0),
        Variable::new(track_ms, 0.02, 100.0),
        // The average seek as a multiple of the seek to the next track, and the full seek as a multiple of the average
        // seek.
        Variable::new(average_ms / track_ms, 1.01, 100.0),
        Variable::new(1.8, 1.01, 10.0),
        Variable::new(2.0 * fastest / 1e6, 0.1, 1e5),
        Variable::new(100.0, 1.0, 20_000.0),
    ];
    if mechanics.is_written {
        variables.extend([Variable::new(0.5, 0.01, 20.0), Variable::new(cache_kib, 1.0, 1e6)]);
    }
    Some(Candidate { name, variables, draft: Box::new(move |values| draft(&mechanics, values)) })
}

/// Small reads over the smallest range that is larger than any buffer.
fn near(workloads: &Workloads) -> Option<&Measured> {
    let small = workloads.training().filter(|one| {
        let range = &one.planned.range;
        one.planned.rw == Rw::RandRead && one.planned.depth == 1 && range.end - range.start >= RANGE_MIN
    });
    small.min_by_key(|one| one.planned.range.end - one.planned.range.start)
}

/// Small reads of the whole target at a depth.
fn find(workloads: &Workloads, depth: u32) -> Option<&Measured> {
    let small = workloads
        .training()
        .filter(|one| one.planned.rw == Rw::RandRead && one.planned.depth == depth && one.planned.is_whole());
    small.min_by_key(|one| one.planned.block_bytes)
}

/// The speed of a revolution of this time, which has this standard deviation as a fraction, and its source. The
/// nearest speed on the market takes its place if it is within two deviations, at least within [`SPEED_DISTANCE`].
fn rpm(turn_ns: f64, deviation: f64) -> (f64, &'static str) {
    let measured = 60e9 / turn_ns.max(1e6);
    let distance = |sold: f64| (measured / sold).ln().abs();
    let nearest = SPEEDS.into_iter().min_by(|one, other| distance(*one).total_cmp(&distance(*other)));
    let limit = SPEED_DISTANCE.max(2.0 * deviation);
    match nearest.filter(|nearest| distance(*nearest) < limit) {
        Some(nearest) if deviation > SPEED_DISTANCE / 2.0 => (
            nearest,
            "assumed: the nearest speed on the market; too few latencies of near reads determine it",
        ),
        Some(nearest) => (nearest, "measured: the spread of the latencies of near reads is one revolution"),
        None => (
            measured.clamp(60.0, 100_000.0),
            "measured: the spread of the latencies of near reads is one revolution",
        ),
    }
}

fn rates(workloads: &Workloads, capacity_bytes: u64) -> Vec<(f64, f64)> {
    let sequential =
        workloads.training().filter(|one| one.planned.rw == Rw::Read && one.planned.block_bytes >= 1 << 20);
    let rate = |one: &Measured| {
        let middle = one.planned.range.start.midpoint(one.planned.range.end);
        (middle as f64 / capacity_bytes as f64, one.rate() * f64::from(one.planned.block_bytes))
    };
    let mut rates: Vec<_> = sequential.map(rate).collect();
    rates.sort_by(|one, other| one.0.total_cmp(&other.0));
    rates
}

/// The sequential rate at a position: linear between the measured positions, constant outside of them.
fn rate_at(rates: &[(f64, f64)], position: f64) -> f64 {
    let after = rates.partition_point(|rate| rate.0 < position);
    let (Some(before), Some(next)) = (after.checked_sub(1).map(|index| rates[index]), rates.get(after))
    else {
        return rates[after.min(rates.len() - 1)].1;
    };
    before.1 + (next.1 - before.1) * (position - before.0) / (next.0 - before.0)
}

fn draft(from: &Mechanics, values: &[f64]) -> Draft {
    let &[overhead, track, average, full, interface, buffered, ref writes @ ..] = values else {
        unreachable!("a search keeps the number of variables")
    };
    let turn_ms = 60e3 / from.rpm;
    let (settle, cache) = if let &[settle, cache] = writes { (settle, cache) } else { (0.0, 0.0) };
    // A cache smaller than the smallest transfer counts as no cache.
    let cache = if cache < 16.0 { 0.0 } else { cache };
    let write_source = if from.is_written { FITTED } else { NOT_MEASURED };
    let track_turn = turn_ms * (1.0 + SWITCH_TURNS) / 1e3;
    let zone = |zone: u32| {
        let position = (f64::from(zone) + 0.5) / f64::from(ZONES);
        let sectors = (rate_at(&from.rates, position) * track_turn / 512.0).round().clamp(2.0, 1e5);
        let bytes = from.capacity_bytes as f64 / f64::from(ZONES);
        [(bytes / (HEADS * sectors * 512.0)).round().clamp(1.0, 2e6) as u64, sectors as u64]
    };
    let request_kib = (from.request_max_bytes as f64 / 1024.0).clamp(4.0, 65536.0);
    let mut draft = Draft::new("disk")
        .with("rotation_rpm", from.rpm, from.rpm_source)
        .with_count("heads", HEADS, ASSUMED)
        .with("seek_track_ms", track, FITTED)
        .with("seek_average_ms", track * average, FITTED)
        .with("seek_full_ms", track * average * full, FITTED)
        .with("write_settle_ms", settle, write_source)
        .with("head_switch_ms", turn_ms * SWITCH_TURNS, "assumed: the sequential rate includes it")
        .with("cylinder_switch_ms", turn_ms * SWITCH_TURNS, "assumed: the sequential rate includes it")
        .with("command_overhead_us", overhead, FITTED)
        .with("buffered_overhead_us", buffered, FITTED)
        .with("interface_mb_per_s", interface, FITTED)
        .with("buffer_kib", 8192.0, ASSUMED)
        .with_count("buffer_segments", 16.0, ASSUMED)
        .with("readahead_kib", 512.0, ASSUMED)
        .with("write_cache_kib", cache, write_source)
        .with_count("queue_depth", from.queue_depth, "measured: whether queued reads are faster")
        .with("request_max_kib", request_kib, "the largest request of the measured target");
    draft.zones = (0..ZONES).map(zone).collect();
    draft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "the values are the same numbers")]
    fn a_measured_speed_is_rounded_to_one_on_the_market() {
        let of = |turn_ns, deviation| rpm(turn_ns, deviation).0;
        assert_eq!(of(8.5e6, 0.01), 7200.0);
        assert_eq!(of(4.1e6, 0.01), 15_000.0);
        assert_eq!(of(10.2e6, 0.01), 5900.0, "the nearest one, not the first within the distance");
        assert!((of(20e6, 0.01) - 3000.0).abs() < 1.0);
        // Few latencies.
        assert_eq!(of(7.2e6, 0.09), 7200.0);
        assert!(rpm(7.2e6, 0.09).1.starts_with("assumed"));
        assert!((of(7.2e6, 0.01) / 8333.0 - 1.0).abs() < 0.01, "many latencies exclude it");
    }

    #[test]
    fn rates_between_positions_are_linear() {
        let rates = [(0.2, 100.0), (0.6, 60.0)];
        for (position, rate) in [(0.0, 100.0), (0.2, 100.0), (0.4, 80.0), (0.6, 60.0), (1.0, 60.0)] {
            assert!((rate_at(&rates, position) - rate).abs() < 1e-9, "{position}");
        }
    }
}
