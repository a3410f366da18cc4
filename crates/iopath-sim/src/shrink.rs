//! Makes a failing scenario shorter: removes actions, volumes and faults while it still fails (delta debugging: Zeller
//! and Hildebrandt, 2002).

use std::time::{Duration, Instant};

use crate::coverage::Coverage;
use crate::run::{Failure, run};
use crate::scenario::{Action, Scenario};

/// The time for shortening one scenario.
const TIME_MAX: Duration = Duration::from_secs(20);

/// The shortest failing scenario found, and its failure.
pub(crate) fn shrink(scenario: &Scenario, failure: Failure) -> (Scenario, Failure) {
    let started = Instant::now();
    let mut best = (scenario.clone(), failure);
    let attempt = |candidate: Scenario, best: &mut (Scenario, Failure)| {
        let failed = run(&candidate, &mut Coverage::default()).err();
        failed.map(|failure| *best = (candidate, failure)).is_some()
    };
    loop {
        let before = best.0.actions.len();
        for volume in 0..best.0.volumes.len() {
            for rule in (0..best.0.volumes[volume].faults.len()).rev() {
                let mut candidate = best.0.clone();
                candidate.volumes[volume].faults.remove(rule);
                attempt(candidate, &mut best);
            }
        }
        let mut chunk = best.0.actions.len().div_ceil(2);
        while chunk > 0 && started.elapsed() < TIME_MAX {
            let mut start = 0;
            while start < best.0.actions.len() && started.elapsed() < TIME_MAX {
                let mut candidate = best.0.clone();
                candidate.actions = without(&best.0.actions, start, chunk);
                if !attempt(candidate, &mut best) {
                    start += chunk;
                }
            }
            chunk /= 2;
        }
        if best.0.actions.len() == before || started.elapsed() >= TIME_MAX {
            return best;
        }
    }
}

/// The actions without some of them. The pauses of removed actions are kept, so that the times of the others stay the
/// same.
fn without(actions: &[Action], start: usize, count: usize) -> Vec<Action> {
    let end = (start + count).min(actions.len());
    let mut kept: Vec<Action> = actions[..start].to_vec();
    let removed = actions[start..end].iter().map(|action| action.pause).sum::<Duration>();
    for (index, action) in actions[end..].iter().enumerate() {
        let pause = if index == 0 { action.pause + removed } else { action.pause };
        kept.push(Action { pause, ..action.clone() });
    }
    kept
}
