//! The speed of models in virtual time: requests per second on one processor. Runs
//! `crates/iopath-lab/benches/simulated.rs` and compares its figures.

use anyhow::Result;

use super::figures::Goal;
use super::lines::{self, Rounds};
use super::report::Figure;
use super::samples::Samples;

/// The name for `--only`.
pub(super) const NAME: &str = "models";

/// Requests a second that `MQSim` simulates on its own scenarios. It models flash in more detail than ours, and no
/// block layer.
const MQSIM: f64 = 33_000.0;

/// The requests a second to reach, by the name of the case.
const GOALS: &[(&str, f64)] = &[
    ("disk, deadline", 3e6),
    ("disk, deadline, log", 3e6),
    ("flash, deadline", 5e6),
    ("replay, flash, reads, none", 3e6),
    ("replay, flash, reads, deadline", 3e6),
    ("replay, flash, 30% writes, none", 3e6),
    ("replay, flash, 30% writes, deadline", 3e6),
];

pub(super) fn measure(rounds: u32) -> Result<Vec<Figure>> {
    Ok(figures(&lines::collect(NAME, rounds.div_ceil(2), || lines::run("iopath-lab", "simulated", &[]))?))
}

/// Each case against the published figure of a simulator, and against its goal if it has one.
fn figures(rates: &Rounds) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (case, rate) in rates {
        let figure = |peer, peer_value, goal| Figure {
            name: format!("model, {case}"),
            unit: "requests/s",
            peer,
            value: rate.clone(),
            peer_value: Samples::constant(peer_value),
            goal,
            others: None,
        };
        figures.push(figure("MQSim, published", MQSIM, Goal::Free));
        if let Some((_, wanted)) = GOALS.iter().find(|(name, _)| name == case) {
            figures.push(figure("the goal", *wanted, Goal::AtLeast(1.0)));
        }
    }
    figures
}

#[cfg(test)]
mod tests {
    use super::super::report::Verdict;
    use super::*;

    #[test]
    fn the_goal_is_a_figure_of_its_own() {
        let rates = lines::once("disk, deadline, log\t1500000\ncloud, none\t6e6\n");
        let shown: Vec<_> =
            figures(&rates).iter().map(|figure| (figure.name.clone(), figure.verdict())).collect();
        let (cloud, disk) = ("model, cloud, none".to_owned(), "model, disk, deadline, log".to_owned());
        assert_eq!(shown, [(cloud, Verdict::Free), (disk.clone(), Verdict::Free), (disk, Verdict::Missed)]);
    }
}
