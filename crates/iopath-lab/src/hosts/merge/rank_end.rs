//! The facts of each rank at the end that sums of repetitions lack, and those of all ranks together.

use iopath_report::result::{Connections, Report, RunResult, ServedBy, TargetFacts, ThreadUse, VerifyResult};
use serde::{Deserialize, Serialize};

/// The faults that a result names.
const FAULTS_MAX: usize = 20;

/// The facts of a rank at the end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::hosts) struct RankEnd {
    pub(in crate::hosts) failure: Option<String>,
    pub(super) targets: Vec<TargetFacts>,
    pub(super) runs: Vec<RunEnd>,
}

/// The facts of a run that sums of repetitions lack.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RunEnd {
    warnings: Vec<String>,
    verify: Option<VerifyResult>,
    pub(super) served_by: Option<ServedBy>,
    pub(super) threads: Option<ThreadUse>,
    pub(super) connections: Option<Connections>,
}

impl RankEnd {
    /// Of the results of a rank, and of its failure.
    pub(in crate::hosts) fn of(report: Option<&Report>, failure: Option<String>) -> Self {
        let run = |run: &RunResult| RunEnd {
            warnings: run.warnings.clone(),
            verify: run.verify.clone(),
            served_by: run.served_by,
            threads: run.threads,
            connections: run.connections,
        };
        let targets = |report: &Report| report.target.iter().chain(&report.more_targets).cloned().collect();
        Self {
            failure,
            targets: report.map_or_else(Vec::new, targets),
            runs: report.map_or_else(Vec::new, |report| report.runs.iter().map(run).collect()),
        }
    }
}

/// The medium that served all ranks; unknown if they differ.
pub(super) fn served_by(
    own: Option<ServedBy>,
    all: impl Iterator<Item = Option<ServedBy>>,
) -> Option<ServedBy> {
    all.fold(own, |common, one| if one == common { common } else { Some(ServedBy::Unknown) })
}

/// The checked blocks of all ranks; of rank 0 alone if the others did not come to the end.
pub(super) fn verified<'a>(base: &RunResult, ends: impl Iterator<Item = &'a RunEnd>) -> Option<VerifyResult> {
    let mut sum: Option<VerifyResult> = None;
    for one in ends.filter_map(|end| end.verify.as_ref()) {
        let Some(sum) = &mut sum else {
            sum = Some(one.clone());
            continue;
        };
        sum.blocks += one.blocks;
        sum.bytes += one.bytes;
        sum.lost += one.lost;
        sum.stale += one.stale;
        sum.torn += one.torn;
        sum.misdirected += one.misdirected;
        sum.corrupt += one.corrupt;
        sum.unstamped += one.unstamped;
        sum.first.extend(one.first.iter().cloned());
        sum.first.truncate(FAULTS_MAX);
    }
    sum.or_else(|| base.verify.clone())
}

/// The warnings of a run on all ranks, each once, with the ranks that have it. `hosts` has the host of each rank.
pub(super) fn warnings(ends: &[RankEnd], index: usize, hosts: &[String]) -> Vec<String> {
    // Ranks have the same warning with figures of their own.
    let without_figures =
        |text: &str| text.replace(|letter: char| letter.is_ascii_digit() || letter == '.', "");
    let mut warnings: Vec<(String, &String, Vec<usize>)> = Vec::new();
    for (rank, end) in ends.iter().enumerate() {
        for warning in end.runs.get(index).iter().flat_map(|run| &run.warnings) {
            let kind = without_figures(warning);
            match warnings.iter_mut().find(|(known, ..)| *known == kind) {
                Some((.., ranks)) => ranks.push(rank),
                None => warnings.push((kind, warning, vec![rank])),
            }
        }
    }
    let name = |(_, warning, ranks): (String, &String, Vec<usize>)| {
        let (first, more) = (ranks[0], ranks.len() - 1);
        let others = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("rank {first} on host {}{others}: {warning}", hosts[first])
    };
    warnings.into_iter().map(name).collect()
}
