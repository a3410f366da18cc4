//! Errors of choosing an elevator or setting one of its tunables. Each names the value and lists what is valid.

use super::Tunable;
use std::fmt;

/// The reason why an elevator or a setting is refused.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ElevatorError {
    /// No elevator has this name.
    #[error("no elevator is called {name:?}; choose one of: {}", listed(known.iter()))]
    UnknownElevator {
        /// The requested name.
        name: String,
        /// The valid names.
        known: Vec<&'static str>,
    },
    /// The elevator has no such tunable.
    #[error("{elevator} has no tunable called {name:?}; {}", known_tunables(known))]
    UnknownTunable {
        /// The elevator.
        elevator: &'static str,
        /// The requested name.
        name: String,
        /// The tunables of the elevator.
        known: &'static [Tunable],
    },
    /// The value is outside the range of the tunable.
    #[error(
        "{elevator}: {}={value} is out of range; set {} to {} {}",
        tunable.name, tunable.range.start(), tunable.range.end(), tunable.unit
    )]
    OutOfRange {
        /// The elevator.
        elevator: &'static str,
        /// The tunable.
        tunable: &'static Tunable,
        /// The requested value.
        value: u64,
    },
    /// The value is not a number.
    #[error("{elevator}: {name}={value} is not a whole number of {unit}")]
    NotANumber {
        /// The elevator.
        elevator: &'static str,
        /// The tunable.
        name: &'static str,
        /// The value as written.
        value: String,
        /// The unit of the tunable.
        unit: &'static str,
    },
    /// A setting has no value.
    #[error("{elevator}: {setting:?} has no value; write settings as name=value, with commas between them")]
    NoValue {
        /// The elevator.
        elevator: &'static str,
        /// The setting as written.
        setting: String,
    },
}

impl fmt::Debug for ElevatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::debug::error("ElevatorError", self, f)
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a &'static str>) -> String {
    names.copied().collect::<Vec<_>>().join(", ")
}

fn known_tunables(known: &[Tunable]) -> String {
    if known.is_empty() {
        return "it has none".to_owned();
    }
    format!("it has: {}", listed(known.iter().map(|tunable| &tunable.name)))
}
