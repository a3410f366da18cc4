//! The simulator: whole systems in virtual time, from a seed. A run has several volumes on all paths (direct, buffered,
//! mapped, striped), on modelled disks with every fault and with power failures, and it changes elevators and settings
//! while I/O is in flight. The simulator compares every byte with a model, and checks the rules of the path after each
//! event.
//!
//! It drives the state machines of `iopath-core`. It does not run the threads and rings of `iopath-os`:
//! `cargo xtask torture` and `cargo xtask explore` do.
//!
//! ```text
//!   seed ─▶ Scenario ─▶ run ── events in virtual time ──▶ Counts, Coverage
//!              ▲          └── a violated rule ──▶ Failure ─▶ shrink ─▶ a shorter Scenario
//!              └──────────────────────────────────────────────┘
//! ```

mod arena;
mod contents;
mod coverage;
mod device;
mod disk;
mod elevator;
mod faults;
mod map;
mod random;
mod run;
mod scenario;
mod seeds;
mod shrink;
mod space;
mod trace;
mod volume;
mod watchdog;

use std::fmt;

pub use coverage::Coverage;
pub use run::{Counts, Failure};
pub use scenario::Draw;
use scenario::Scenario;
pub use seeds::{Ended, Seeds};

/// A failing run, made shorter.
#[derive(Debug)]
pub struct Report {
    seed: u64,
    draw: Draw,
    actions: usize,
    failure: Failure,
    shortest: Scenario,
    shortest_failure: Failure,
}

/// Runs the scenario of a seed.
///
/// # Errors
/// If a rule is violated.
pub fn run_seed(seed: u64, draw: Draw, coverage: &mut Coverage) -> Result<Counts, Failure> {
    run::run(&Scenario::draw(seed, draw), coverage)
}

/// Makes the failing scenario of a seed shorter.
pub fn shrink(seed: u64, draw: Draw, failure: Failure) -> Report {
    let scenario = Scenario::draw(seed, draw);
    let actions = scenario.actions.len();
    let (shortest, shortest_failure) = shrink::shrink(&scenario, failure.clone());
    Report { seed, draw, actions, failure, shortest, shortest_failure }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {} fails at event {}: {}", self.seed, self.failure.step, self.failure.message)?;
        let draw = match self.draw {
            Draw::All => "",
            Draw::First => " --first-features",
            Draw::Second => " --second-features",
            Draw::Third => " --third-features",
            Draw::Fourth => " --fourth-features",
        };
        writeln!(f, "again: cargo xtask sim --seed {}{draw}", self.seed)?;
        writeln!(f, "\n{} of {} actions fail as well:", self.shortest.actions.len(), self.actions)?;
        for volume in &self.shortest.volumes {
            writeln!(f, "  {volume:?}")?;
        }
        for action in &self.shortest.actions {
            writeln!(f, "  {action:?}")?;
        }
        writeln!(f, "\n{}", self.shortest_failure.message)?;
        writeln!(f, "the last events:")?;
        self.shortest_failure.excerpt.iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}
