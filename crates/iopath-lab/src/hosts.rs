//! One workload on several hosts at the same time: the ranks of an MPI program. They refuse each other if they differ
//! (`hello.rs`), start and end together (`team.rs`), compare their clocks (`clock.rs`), and rank 0 merges the results
//! (`merge.rs`). Does not know MPI: the program implements [`Communicator`] with it, and tests with threads.

mod clock;
mod communicator;
mod hello;
mod merge;
mod plan;
mod slower;
mod team;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod threads;
mod wire;

pub use communicator::{Communicator, Lane, Tag};
pub use hello::{Hello, Names};
pub use plan::{Plan, Stop};
pub use team::{Outcome, Team};
