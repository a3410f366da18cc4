//! Builds the report of a comparison from compared runs and decisions. Does not decide.

use iopath_report::compare::{Comparison, DifferenceFacts, MetricComparison, RunComparison, SCHEMA};

use super::NamedSide;
use super::data::{Run, differences};
use super::verdict::{Compared, Decision, STALL};

/// The comparison of all pairs of runs, workload by workload: in each, the base with each other side.
pub(super) fn report(
    sides: &[NamedSide],
    threshold: f64,
    pairs: &[[Run; 2]],
    compared: &[Vec<Compared>],
    decisions: Vec<Vec<Decision>>,
) -> Comparison {
    let runs: Vec<RunComparison> = pairs
        .iter()
        .zip(compared)
        .zip(decisions)
        .map(|((pair, compared), decided)| of_run(pair, compared, decided))
        .collect();
    Comparison {
        schema: SCHEMA.to_owned(),
        sides: sides.iter().map(|side| side.text.clone()).collect(),
        names: sides.iter().map(|side| side.name.clone()).collect(),
        host: None,
        threshold,
        metric: None,
        vary: Vec::new(),
        live: None,
        regression: runs.iter().any(|run| run.metrics[0].verdict.is_regression()),
        runs,
        unmatched: Default::default(),
        notes: stalls(sides, compared).into_iter().collect(),
    }
}

/// The note about stalls in the primary metrics, which their differences do not contain.
fn stalls(sides: &[NamedSide], compared: &[Vec<Compared>]) -> Option<String> {
    let others = sides.len() - 1;
    let of = |side: usize| {
        // The base is part of each comparison of a workload.
        let (first, index) = (side.saturating_sub(1), usize::from(side > 0));
        compared.iter().skip(first).step_by(others).map(|run| run[0].stalls[index]).sum::<usize>()
    };
    let counts: Vec<String> =
        sides.iter().enumerate().map(|(at, side)| format!("{} in {}", of(at), side.name)).collect();
    (0..sides.len()).any(|side| of(side) > 0).then(|| {
        format!(
            "Stalls: {}. These repetitions took at least {STALL} times as long as the median of their side. The \
             difference does not contain the slowest and the fastest tenth, and at least one each of five or more repetitions.",
            counts.join(", ")
        )
    })
}

fn of_run([a, b]: &[Run; 2], compared: &[Compared], decisions: Vec<Decision>) -> RunComparison {
    let differing = differences(a, b).into_iter();
    RunComparison {
        workload: a.workload(),
        side: compared[0].names[1].clone(),
        differences: differing.map(|one| DifferenceFacts { key: one.key, values: one.values }).collect(),
        repetitions: compared[0].counts,
        metrics: compared.iter().zip(decisions).map(of_metric).collect(),
    }
}

fn of_metric((compared, decision): (&Compared, Decision)) -> MetricComparison {
    let fraction = |log: f64| log.exp_m1();
    MetricComparison {
        metric: compared.metric.name.to_owned(),
        unit: compared.metric.unit.to_owned(),
        means: compared.means.map(|means| means.map(|mean| mean / compared.metric.scale as f64)),
        difference: compared.contrast.map(|contrast| fraction(contrast.log_ratio)),
        ci95: decision.interval.map(|ends| ends.map(fraction)),
        p_value: compared.contrast.and_then(|contrast| contrast.p_value()),
        verdict: decision.verdict,
        more_repetitions: decision.more,
        reason: decision.reason,
    }
}
