//! A live comparison: executes commands alternately until the verdicts are clear or a limit is reached. Each command is
//! compared with the first. The execution of one command is in `live/command.rs` and `live/process.rs`, the looks at
//! the data in `looks.rs`, the order of the commands of a round in `campaign.rs`.

mod command;
mod process;

pub(super) use command::Commands;

use iopath_report::compare::Verdict;
use iopath_report::compare::{Comparison, LiveFacts, Stopped};

use super::NamedSide;
use super::data::Run;
use super::error::CompareError;
use super::looks::Looks;
use super::matching::join;
use super::report::report;
use super::verdict::{Compared, Decision, Design, compare, decide};
use crate::campaign::round;

/// Executes the commands of a live comparison.
pub(super) trait Executor {
    /// The runs of one execution of a command, by its number from 0.
    fn execute(&mut self, side: usize) -> Result<Vec<Run>, End>;

    /// A limit that is reached before the next round, after `rounds` rounds.
    fn limit(&mut self, rounds: u32) -> Option<Stopped>;
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
    pub(super) sides: Vec<NamedSide>,
    pub(super) threshold: f64,
    pub(super) metric: Option<&'a str>,
    pub(super) rounds_max: u32,
    pub(super) seed: u64,
}

/// The state of the last look.
struct Look {
    pairs: Vec<[Run; 2]>,
    compared: Vec<Vec<Compared>>,
    decisions: Vec<Vec<Decision>>,
}

impl Look {
    fn at(done: &[Vec<Vec<Run>>], plan: &Plan, alpha: f64) -> Result<Self, CompareError> {
        let (mut pairs, mut compared) = (Vec::new(), Vec::new());
        for sides in by_position(done)? {
            let [base, others @ ..] = &sides[..] else { continue };
            for (other, side) in others.iter().zip(&plan.sides[1..]) {
                let names = [plan.sides[0].name.as_str(), side.name.as_str()];
                compared.push(compare([base, other], names, plan.metric, Design::Paired)?);
                pairs.push([base.clone(), other.clone()]);
            }
        }
        // All comparisons are one family: Holm's correction covers the commands as well as the workloads.
        let decisions = decide(&compared, plan.threshold.ln_1p(), alpha);
        Ok(Self { pairs, compared, decisions })
    }

    fn is_clear(&self) -> bool {
        self.decisions.iter().all(|run| run[0].verdict != Verdict::Inconclusive)
    }
}

/// Runs rounds until the end. Returns the comparison of all complete rounds, if there are any, and the error of a
/// command.
pub(super) fn run(
    plan: &Plan,
    executor: &mut impl Executor,
    mut on_round: impl FnMut(u32),
) -> (Option<Comparison>, Option<CompareError>) {
    let mut looks = Looks::new(plan.rounds_max);
    let (mut done, mut last) = (Vec::new(), None);
    let (stopped, mut error) = loop {
        let rounds = done.len() as u32;
        if rounds == plan.rounds_max {
            break (Stopped::Repetitions, None);
        }
        if let Some(limit) = executor.limit(rounds) {
            break (limit, None);
        }
        on_round(rounds + 1);
        match execute_round(executor, &round(plan.seed, rounds, plan.sides.len())) {
            Ok(round) => done.push(round),
            Err(End::Interrupted) => break (Stopped::Interrupted, None),
            Err(End::Failed(error)) => break (Stopped::Failed, Some(error)),
        }
        if let Some(alpha) = looks.due(rounds + 1) {
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
        // Rounds after the last look have a look of their own.
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
        let report = report(&plan.sides, plan.threshold, &look.pairs, &look.compared, look.decisions);
        Comparison { live: Some(live), ..report }
    });
    (comparison, error)
}

/// The runs of each command.
fn execute_round(executor: &mut impl Executor, order: &[usize]) -> Result<Vec<Vec<Run>>, End> {
    let mut round = vec![Vec::new(); order.len()];
    for side in order {
        round[*side] = executor.execute(*side)?;
    }
    Ok(round)
}

/// The n-th runs of all executions: for each position, one of each command. The commands state what is compared, so the
/// conditions may differ.
fn by_position(done: &[Vec<Vec<Run>>]) -> Result<Vec<Vec<Run>>, CompareError> {
    let counts = || done.iter().flatten().map(Vec::len);
    let (fewest, most) = (counts().min().unwrap_or(0), counts().max().unwrap_or(0));
    if fewest != most {
        return Err(CompareError::Selection(format!(
            "the executions measured different numbers of workloads: {fewest} and {most}"
        )));
    }
    let joined = |side: usize, position: usize| {
        let executions: Vec<&Run> = done.iter().map(|round| &round[side][position]).collect();
        join(&executions)
    };
    let sides = done.first().map_or(0, Vec::len);
    Ok((0..fewest).map(|position| (0..sides).map(|side| joined(side, position)).collect()).collect())
}

#[cfg(test)]
mod tests;
