//! The list of I/O schedulers (elevators) and their settings, as text and as JSON of schema `iopath.elevators/1`.

use iopath_core::elevator::ELEVATORS;
use serde::Serialize;

/// The name and version of the schema.
pub const SCHEMA: &str = "iopath.elevators/1";

/// The list: the complete output of `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ElevatorList {
    /// [`SCHEMA`].
    pub schema: String,
    /// Each elevator.
    pub elevators: Vec<ElevatorFacts>,
}

/// An elevator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ElevatorFacts {
    /// The name on command lines.
    pub name: String,
    /// The order of dispatch and its use.
    pub about: String,
    /// Its settings.
    pub settings: Vec<SettingFacts>,
}

/// A setting of an elevator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SettingFacts {
    /// The name on command lines.
    pub name: String,
    /// The unit of the values.
    pub unit: String,
    /// The default value.
    pub default: u64,
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
    /// The effect.
    pub about: String,
}

impl ElevatorList {
    /// All elevators.
    pub fn all() -> Self {
        let elevators = ELEVATORS.iter().map(|kind| ElevatorFacts {
            name: kind.name.to_owned(),
            about: kind.about.to_owned(),
            settings: kind
                .tunables()
                .iter()
                .map(|tunable| SettingFacts {
                    name: tunable.name.to_owned(),
                    unit: tunable.unit.to_owned(),
                    default: tunable.default,
                    min: *tunable.range.start(),
                    max: *tunable.range.end(),
                    about: tunable.about.to_owned(),
                })
                .collect(),
        });
        Self { schema: SCHEMA.to_owned(), elevators: elevators.collect() }
    }

    /// The list as indented JSON, with a newline at the end.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("JSON can represent all fields") + "\n"
    }
}
