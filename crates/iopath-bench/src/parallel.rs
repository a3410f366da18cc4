//! Several targets at the same time: the results of each, and how evenly they ended. Does not measure: `engine.rs` does
//! on this machine, `simulated.rs` in virtual time.

use crate::conditions::Repeated;
use crate::engine::Measured;
use crate::rates::{device, latency, spread};
use crate::target::Target;
use iopath_report::result::{Latencies, TargetResult, TargetsEnd};
use iopath_report::stats::fairness::jain;

/// The results of each target; empty unless the target comprises several.
pub(crate) fn targets(target: &Target, measured: &[Repeated]) -> Vec<TargetResult> {
    let of_target = |(index, name): (usize, &String)| {
        let of_repeats: Vec<&Measured> =
            measured.iter().filter_map(|repeat| repeat.measured.targets.get(index)).collect();
        (!of_repeats.is_empty()).then(|| TargetResult {
            target: name.clone(),
            bytes: of_repeats.iter().map(|one| one.bytes()).sum(),
            ios: of_repeats.iter().map(|one| one.ios).sum(),
            seconds: of_repeats.iter().map(|one| one.seconds).sum(),
            bytes_per_second: spread(of_repeats.iter().map(|one| one.bytes() as f64 / one.seconds)),
            iops: spread(of_repeats.iter().map(|one| one.ios as f64 / one.seconds)),
            latency_ns: latency(&of_repeats.iter().map(|one| &one.latency_ns).sum::<Latencies>()),
            connections: of_repeats.iter().map(|one| one.connections).sum(),
            device: of_repeats.iter().map(|one| one.device).sum::<Option<_>>().map(device),
        })
    };
    if target.count() == 1 {
        return Vec::new();
    }
    target.names().iter().enumerate().filter_map(of_target).collect()
}

/// The ends of several targets; none for one.
pub(crate) fn ends(target: &Target, measured: &[Repeated]) -> Option<TargetsEnd> {
    if target.count() == 1 {
        return None;
    }
    let of_repeats: Vec<TargetsEnd> =
        measured.iter().filter_map(|repeat| of_one(&repeat.measured.targets)).collect();
    let count = of_repeats.len() as f64;
    let mean = |of: fn(&TargetsEnd) -> f64| of_repeats.iter().map(of).sum::<f64>() / count;
    (!of_repeats.is_empty()).then(|| TargetsEnd {
        first_done_seconds: mean(|end| end.first_done_seconds),
        last_done_seconds: mean(|end| end.last_done_seconds),
        skew_seconds: mean(|end| end.skew_seconds),
        jain: mean(|end| end.jain),
    })
}

fn of_one(targets: &[Measured]) -> Option<TargetsEnd> {
    let seconds = || targets.iter().map(|target| target.seconds);
    let (first, last) = (seconds().min_by(f64::total_cmp)?, seconds().max_by(f64::total_cmp)?);
    let rates: Vec<f64> = targets.iter().map(|target| target.bytes() as f64 / target.seconds).collect();
    Some(TargetsEnd {
        first_done_seconds: first,
        last_done_seconds: last,
        skew_seconds: last - first,
        jain: jain(&rates),
    })
}
