//! A live comparison: executes two commands alternately until the verdict is clear or a limit is reached. The execution
//! of one command is in `live/command.rs` and `live/process.rs`, the looks at the data in `looks.rs`, the order of the
//! commands of a pair in `campaign.rs`.

mod command;
mod process;

pub(super) use command::Commands;

use iopath_report::compare::Verdict;
use iopath_report::compare::{Comparison, LiveFacts, Stopped};

use super::data::Run;
use super::error::CompareError;
use super::looks::Looks;
use super::matching::join;
use super::report::report;
use super::verdict::{Compared, Decision, Design, compare, decide};
use crate::campaign::pair;

/// Executes the commands of a live comparison.
pub(super) trait Executor {
    /// The runs of one execution of A (0) or B (1).
    fn execute(&mut self, side: usize) -> Result<Vec<Run>, End>;

    /// A limit that is reached before the next pair, after `pairs` pairs.
    fn limit(&mut self, pairs: u32) -> Option<Stopped>;
}

/// The early end of an execution.
#[derive(Debug)]
pub(super) enum End {
    /// A signal.
    Interrupted,
    /// The command failed, or its output cannot be read.
    Failed(CompareError),
}

impl From<CompareError> for End {
    fn from(error: CompareError) -> Self {
        Self::Failed(error)
    }
}

/// The conditions of a live comparison.
#[derive(Debug, Clone)]
pub(super) struct Plan<'a> {
    pub(super) sides: [String; 2],
    pub(super) threshold: f64,
    pub(super) metric: Option<&'a str>,
    pub(super) pairs_max: u32,
    pub(super) seed: u64,
}

/// The state of the last look.
struct Look {
    pairs: Vec<[Run; 2]>,
    compared: Vec<Vec<Compared>>,
    decisions: Vec<Vec<Decision>>,
}

impl Look {
    fn at(done: &[[Vec<Run>; 2]], plan: &Plan, alpha: f64) -> Result<Self, CompareError> {
        let pairs = by_position(done)?;
        let of = |pair: &[Run; 2]| compare([&pair[0], &pair[1]], plan.metric, Design::Paired);
        let compared: Vec<_> = pairs.iter().map(of).collect::<Result<_, _>>()?;
        let decisions = decide(&compared, plan.threshold.ln_1p(), alpha);
        Ok(Self { pairs, compared, decisions })
    }

    fn is_clear(&self) -> bool {
        self.decisions.iter().all(|run| run[0].verdict != Verdict::Inconclusive)
    }
}

/// Runs pairs until the end. Returns the comparison of all complete pairs, if there are any, and the error of a
/// command.
pub(super) fn run(
    plan: &Plan,
    executor: &mut impl Executor,
    mut on_pair: impl FnMut(u32),
) -> (Option<Comparison>, Option<CompareError>) {
    let mut looks = Looks::new(plan.pairs_max);
    let (mut done, mut last) = (Vec::new(), None);
    let (stopped, mut error) = loop {
        let pairs = done.len() as u32;
        if pairs == plan.pairs_max {
            break (Stopped::Repetitions, None);
        }
        if let Some(limit) = executor.limit(pairs) {
            break (limit, None);
        }
        on_pair(pairs + 1);
        match execute_pair(executor, pair(plan.seed, pairs)) {
            Ok(pair) => done.push(pair),
            Err(End::Interrupted) => break (Stopped::Interrupted, None),
            Err(End::Failed(error)) => break (Stopped::Failed, Some(error)),
        }
        if let Some(alpha) = looks.due(pairs + 1) {
            match Look::at(&done, plan, alpha) {
                Ok(look) if look.is_clear() => {
                    last = Some(look);
                    break (Stopped::Clear, None);
                }
                Ok(look) => last = Some(look),
                Err(error) => break (Stopped::Failed, Some(error)),
            }
        }
    };
    let seen = last.as_ref().map_or(0, |look: &Look| look.compared[0][0].counts[0]);
    if error.is_none() || !done.is_empty() {
        // Pairs after the last look have a look of their own.
        if seen < done.len() {
            match Look::at(&done, plan, looks.last()) {
                Ok(look) => last = Some(look),
                Err(problem) => error = error.or(Some(problem)),
            }
        }
    }
    let comparison = last.map(|look| {
        let partial = matches!(stopped, Stopped::Interrupted | Stopped::Failed);
        let pairs = done.len() as u32;
        let live = LiveFacts { pairs, looks: looks.count, stopped, partial, seed: plan.seed };
        let report = report(plan.sides.clone(), plan.threshold, &look.pairs, &look.compared, look.decisions);
        Comparison { live: Some(live), ..report }
    });
    (comparison, error)
}

fn execute_pair(executor: &mut impl Executor, order: [usize; 2]) -> Result<[Vec<Run>; 2], End> {
    let mut pair = [Vec::new(), Vec::new()];
    for side in order {
        pair[side] = executor.execute(side)?;
    }
    Ok(pair)
}

/// The n-th runs of all executions. The commands state what is compared, so the conditions may differ.
fn by_position(done: &[[Vec<Run>; 2]]) -> Result<Vec<[Run; 2]>, CompareError> {
    let counts = || done.iter().flatten().map(Vec::len);
    let (fewest, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if fewest != most {
        return Err(CompareError::Selection(format!(
            "the executions measured different numbers of workloads: {fewest} and {most}"
        )));
    }
    let joined = |side: usize, position: usize| {
        let executions: Vec<&Run> = done.iter().map(|pair| &pair[side][position]).collect();
        join(&executions)
    };
    Ok((0..fewest).map(|position| [joined(0, position), joined(1, position)]).collect())
}

#[cfg(test)]
mod tests;
