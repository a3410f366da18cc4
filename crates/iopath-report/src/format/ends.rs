//! Lines about the ends of runs and their targets, and about verified data: a line for each run that has them.

use crate::numbers::{digits, time};
use crate::result::{DepthSearchResult, RunResult, SteadyRepeat, SteadyWindow, TargetsEnd};
use crate::size::format_size;

/// How evenly the targets of each run ended.
pub(super) fn of_targets(runs: &[RunResult]) -> impl Iterator<Item = String> {
    runs.iter().filter_map(|run| run.targets_end).map(|end| {
        let TargetsEnd { first_done_seconds, last_done_seconds, skew_seconds, jain } = end;
        let [first, last, skew] = [first_done_seconds, last_done_seconds, skew_seconds].map(digits);
        format!(
            "first done {first} s, last done {last} s, skew {skew} s; Jain's index of the throughputs {jain:.4}"
        )
    })
}

/// The faults of each run that verifies its data.
pub(super) fn verified(runs: &[RunResult]) -> impl Iterator<Item = String> {
    runs.iter().filter_map(|run| {
        let verify = run.verify.as_ref()?;
        let faults = match verify.faults() {
            0 => "no fault".to_owned(),
            _ => format!(
                "{} lost, {} stale, {} torn, {} misdirected, {} corrupt, {} unstamped",
                verify.lost, verify.stale, verify.torn, verify.misdirected, verify.corrupt, verify.unstamped
            ),
        };
        let (name, bytes) = (run.label(), format_size(verify.bytes));
        Some(format!("verified {name}: {} blocks, {bytes}: {faults}", verify.blocks))
    })
}

/// The time at which each repetition was steady.
pub(super) fn steady(runs: &[RunResult]) -> impl Iterator<Item = String> {
    runs.iter().filter_map(|run| {
        let steady = run.steady_state.as_ref()?;
        let reached = |repeat: &SteadyRepeat| match repeat.reached_seconds {
            Some(seconds) => format!("after {} s{}", digits(seconds), steady_rates(repeat, &steady.metric)),
            None => "not reached".to_owned(),
        };
        let reached: Vec<String> = steady.repeats.iter().map(reached).collect();
        Some(format!("steady state of {}: {}", run.label(), reached.join(", ")))
    })
}

/// The means of a steady window.
fn steady_rates(repeat: &SteadyRepeat, metric: &str) -> String {
    let rate = |mean: f64| match metric {
        "iops" => format!("{} IOPS", digits(mean)),
        "lat" => time(mean as u64),
        _ => format!("{} MB/s", digits(mean / 1e6)),
    };
    let of = |name: &str, window: &Option<SteadyWindow>| {
        window.as_ref().map(|window| format!("{name} {}", rate(window.mean)))
    };
    let both: Vec<String> =
        [of("reads", &repeat.read), of("writes", &repeat.write)].into_iter().flatten().collect();
    if both.is_empty() { String::new() } else { format!(" ({})", both.join(", ")) }
}

/// The largest depths that keep a latency.
pub(super) fn latency_targets(runs: &[RunResult]) -> impl Iterator<Item = String> {
    runs.iter().filter_map(|run| {
        let target = run.latency_target.as_ref()?;
        let found = |search: &DepthSearchResult| {
            let prefix = if search.complete { "" } else { "at least " };
            match (search.depth, search.iops) {
                (Some(depth), Some(iops)) => format!("{prefix}depth {depth} ({} IOPS)", digits(iops)),
                _ if search.complete => "no depth".to_owned(),
                _ => "not found before the end".to_owned(),
            }
        };
        let searches: Vec<String> = target.searches.iter().map(found).collect();
        let (name, percent, limit) = (run.label(), target.percent, time(target.limit_ns));
        Some(format!("latency target of {name}: {percent}% within {limit}: {}", searches.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::run;
    use crate::pattern::Rw;
    use crate::result::LatencyTargetResult;

    #[test]
    fn a_latency_target_has_a_line_with_the_depth_of_each_search() {
        let search = |depth, complete| DepthSearchResult { depth, iops: depth.map(|_| 45_000.0), complete };
        let target = LatencyTargetResult {
            limit_ns: 500_000,
            percent: 99.9,
            window_seconds: 5.0,
            searches: vec![search(Some(12), true), search(Some(64), false), search(None, true)],
        };
        let other = run("kernel-direct", Rw::Read, 4096, 1, &[1.0], 0.5);
        let runs = [RunResult { latency_target: Some(target), ..other.clone() }, other];
        assert_eq!(
            latency_targets(&runs).collect::<Vec<_>>(),
            [
                "latency target of kernel-direct: 99.9% within 500 µs: depth 12 (45000 IOPS), at least depth 64 \
              (45000 IOPS), no depth"
            ]
        );
    }
}
