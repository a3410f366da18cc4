//! The lines below a table of results about the ends of runs: steady states and latency targets.

use super::{digits, time};
use crate::result::{DepthSearchResult, RunResult, SteadyRepeat, SteadyStateResult, SteadyWindow};

/// A line for each run that ends at its steady state.
pub(super) fn steady(runs: &[RunResult]) -> String {
    let mut lines = String::new();
    for run in runs {
        let Some(SteadyStateResult { metric, repeats, .. }) = &run.steady_state else { continue };
        let name = run.job.as_ref().map_or(&run.path, |job| &job.name);
        let reached: Vec<String> = repeats
            .iter()
            .map(|repeat| match repeat.reached_seconds {
                Some(seconds) => format!("after {} s{}", digits(seconds), steady_rates(repeat, metric)),
                None => "not reached".to_owned(),
            })
            .collect();
        lines.extend(["\nsteady state of ", name, ": ", &reached.join(", ")]);
    }
    if lines.is_empty() { lines } else { format!("\n{lines}") }
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

/// A line for each run that searches for the largest depth that keeps a latency.
pub(super) fn latency_targets(runs: &[RunResult]) -> String {
    let mut lines = String::new();
    for run in runs {
        let Some(target) = &run.latency_target else { continue };
        let name = run.job.as_ref().map_or(&run.path, |job| &job.name);
        let found = |search: &DepthSearchResult| {
            let prefix = if search.complete { "" } else { "at least " };
            match (search.depth, search.iops) {
                (Some(depth), Some(iops)) => format!("{prefix}depth {depth} ({} IOPS)", digits(iops)),
                _ if search.complete => "no depth".to_owned(),
                _ => "not found before the end".to_owned(),
            }
        };
        let searches: Vec<String> = target.searches.iter().map(found).collect();
        let (percent, limit) = (target.percent, time(target.limit_ns));
        let line = format!("{percent}% within {limit}: {}", searches.join(", "));
        lines.extend(["\nlatency target of ", name, ": ", &line]);
    }
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::LatencyTargetResult;
    use crate::table::tests::result;

    #[test]
    fn a_latency_target_has_a_line_with_the_depth_of_each_search() {
        let search = |depth, complete| DepthSearchResult { depth, iops: depth.map(|_| 45_000.0), complete };
        let target = LatencyTargetResult {
            limit_ns: 500_000,
            percent: 99.9,
            window_seconds: 5.0,
            searches: vec![search(Some(12), true), search(Some(64), false), search(None, true)],
        };
        let runs = [RunResult { latency_target: Some(target), ..result() }, result()];
        assert_eq!(
            latency_targets(&runs),
            "\n\nlatency target of kernel-direct: 99.9% within 500 µs: depth 12 (45000 IOPS), at least depth 64 (45000 \
             IOPS), no depth"
        );
    }
}
