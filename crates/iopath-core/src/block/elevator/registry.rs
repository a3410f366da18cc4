//! The table of elevators. An elevator with chosen settings is an `ElevatorSpec`.

use super::{Ascend, Closest, Deadline, Elevator, Fair, NoElevator, Tunable, TwoList};

/// An elevator that can be chosen by name. Exhaustive: an elevator of a program is such a value, too.
#[derive(Debug, Clone, Copy)]
pub struct ElevatorKind {
    /// The name on command lines.
    pub name: &'static str,
    /// The order of dispatch and its use, in one line.
    pub about: &'static str,
    /// Makes an elevator with memory for `requests_max` requests; it does not allocate later.
    pub build: fn(requests_max: usize) -> Box<dyn Elevator>,
}

/// The elevators of this crate.
pub static ELEVATORS: &[ElevatorKind] = &[
    ElevatorKind {
        name: "none",
        about: "first come, first served; for devices that support command queueing",
        build: |requests_max| Box::new(NoElevator::new(requests_max)),
    },
    ElevatorKind {
        name: "ascend",
        about: "one-way sweeps in ascending sector order; requests passed too often go first",
        build: |requests_max| Box::new(Ascend::new(requests_max)),
    },
    ElevatorKind {
        name: "two-list",
        about: "one-way sweeps; requests below the head wait for the next sweep",
        build: |requests_max| Box::new(TwoList::new(requests_max)),
    },
    ElevatorKind {
        name: "closest",
        about: "shortest seek first; requests passed too often go first",
        build: |requests_max| Box::new(Closest::new(requests_max)),
    },
    ElevatorKind {
        name: "deadline",
        about: "ascending batches of reads or writes, with expiry times and I/O priorities",
        build: |requests_max| Box::new(Deadline::new(requests_max)),
    },
    ElevatorKind {
        name: "fair",
        about: "weighted fair queueing of streams, so that parallel streams finish together",
        build: |requests_max| Box::new(Fair::new(requests_max)),
    },
];

impl ElevatorKind {
    /// The elevator of this crate with that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        ELEVATORS.iter().find(|kind| kind.name == name)
    }

    /// The tunables of the elevator.
    pub fn tunables(&self) -> &'static [Tunable] {
        (self.build)(1).settings().tunables()
    }
}
