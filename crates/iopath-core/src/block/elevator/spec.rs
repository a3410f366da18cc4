//! An elevator and its settings as chosen by name: `deadline:read_expire_ms=100,fifo_batch=8`. Always a valid
//! choice: what is wrong with a text is found when it is read, not when a queue is made of it.

use super::tunable::{checked_place, place};
use super::{ELEVATORS, Elevator, ElevatorKind, Tunable};
use std::fmt;
use std::str::FromStr;

/// Which elevator, and how it is set. Made from text, or from the [`ElevatorKind`] of a user's own crate.
///
/// ```
/// use iopath_core::elevator::ElevatorSpec;
///
/// let spec: ElevatorSpec = "ascend:read_latency=100".parse()?;
/// assert_eq!((spec.name(), spec.to_string().as_str()), ("ascend", "ascend:read_latency=100"));
/// let wrong = "ascend:read_latency=fast".parse::<ElevatorSpec>().unwrap_err();
/// assert_eq!(wrong.to_string(), "ascend: read_latency=fast is not a whole number of requests");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ElevatorSpec {
    kind: ElevatorKind,
    /// One for each of the elevator's tunables.
    values: Vec<u64>,
}

/// What is wrong with the choice of an elevator or a setting of it.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum ElevatorError {
    /// There is no such elevator.
    #[error("no elevator is called {name:?}; choose one of: {}", listed(known.iter()))]
    UnknownElevator {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<&'static str>,
    },
    /// The elevator has no such tunable.
    #[error("{elevator} has no tunable called {name:?}; {}", known_tunables(known))]
    UnknownTunable {
        /// The elevator.
        elevator: &'static str,
        /// The name asked for.
        name: String,
        /// What it has.
        known: &'static [Tunable],
    },
    /// The tunable cannot be set to that.
    #[error(
        "{elevator}: {}={value} is out of range; set {} to {} {}",
        tunable.name, tunable.range.start(), tunable.range.end(), tunable.unit
    )]
    OutOfRange {
        /// The elevator.
        elevator: &'static str,
        /// The tunable.
        tunable: &'static Tunable,
        /// The value asked for.
        value: u64,
    },
    /// The value is not a number.
    #[error("{elevator}: {name}={value} is not a whole number of {unit}")]
    NotANumber {
        /// The elevator.
        elevator: &'static str,
        /// The tunable.
        name: &'static str,
        /// What stands in place of a number.
        value: String,
        /// What the number would count.
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

impl ElevatorSpec {
    /// An elevator with its settings as they are unless set.
    pub fn new(kind: ElevatorKind) -> Self {
        let values = kind.tunables().iter().map(|tunable| tunable.default).collect();
        Self { kind, values }
    }

    /// Reads `NAME` or `NAME:TUNABLE=VALUE,…`, the name being one of `kinds`.
    ///
    /// For programs with elevators of their own: `&[ELEVATORS, &[MINE]].concat()`.
    pub fn parse_among(text: &str, kinds: &[ElevatorKind]) -> Result<Self, ElevatorError> {
        let (name, settings) = text.split_once(':').unwrap_or((text, ""));
        let unknown = || ElevatorError::UnknownElevator {
            name: name.to_owned(),
            known: kinds.iter().map(|kind| kind.name).collect(),
        };
        let kind = kinds.iter().find(|kind| kind.name == name).ok_or_else(unknown)?;
        settings
            .split(',')
            .filter(|setting| !setting.is_empty())
            .try_fold(Self::new(*kind), Self::with_setting)
    }

    /// The same with a tunable set.
    pub fn with(mut self, name: &str, value: u64) -> Result<Self, ElevatorError> {
        self.set(name, value)?;
        Ok(self)
    }

    /// Sets a tunable.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        let place = checked_place(self.kind.name, self.kind.tunables(), name, value)?;
        self.values[place] = value;
        Ok(())
    }

    /// The value of a tunable.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        Ok(self.values[place(self.kind.name, self.kind.tunables(), name)?])
    }

    /// What can be set, and what it is set to.
    pub fn tunables(&self) -> impl ExactSizeIterator<Item = (&'static Tunable, u64)> {
        self.kind.tunables().iter().zip(self.values.iter().copied())
    }

    /// Whether the other is the same elevator, however set.
    pub fn is_of_kind(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && std::ptr::fn_addr_eq(self.kind.build, other.kind.build)
    }

    pub(crate) fn values(&self) -> &[u64] {
        &self.values
    }

    /// The elevator's name.
    pub const fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Makes the elevator for a queue of `requests_max` requests.
    pub fn build(&self, requests_max: usize) -> Box<dyn Elevator> {
        let mut elevator = (self.kind.build)(requests_max);
        elevator.values_mut().copy_from_slice(&self.values);
        elevator
    }

    fn with_setting(self, setting: &str) -> Result<Self, ElevatorError> {
        let elevator = self.kind.name;
        let no_value = || ElevatorError::NoValue { elevator, setting: setting.to_owned() };
        let (name, text) = setting.split_once('=').ok_or_else(no_value)?;
        match (text.parse(), self.kind.tunables().iter().find(|tunable| tunable.name == name)) {
            (Err(_), Some(Tunable { name, unit, .. })) => {
                Err(ElevatorError::NotANumber { elevator, name, value: text.to_owned(), unit })
            }
            (value, _) => self.with(name, value.unwrap_or_default()),
        }
    }
}

impl Default for ElevatorSpec {
    /// First come, first served.
    fn default() -> Self {
        Self::new(ELEVATORS[0])
    }
}

impl From<ElevatorKind> for ElevatorSpec {
    fn from(kind: ElevatorKind) -> Self {
        Self::new(kind)
    }
}

impl FromStr for ElevatorSpec {
    type Err = ElevatorError;

    fn from_str(text: &str) -> Result<Self, ElevatorError> {
        Self::parse_among(text, ELEVATORS)
    }
}

impl fmt::Display for ElevatorSpec {
    /// As it is read: the name, and what is set otherwise than by default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind.name)?;
        let mut separator = ':';
        for (tunable, value) in self.tunables().filter(|(tunable, value)| *value != tunable.default) {
            write!(f, "{separator}{}={value}", tunable.name)?;
            separator = ',';
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<ElevatorSpec>().unwrap_err().to_string()
    }

    #[test]
    fn a_spec_reads_what_it_writes() {
        for text in ["none", "ascend", "ascend:read_latency=7", "ascend:read_latency=7,write_latency=9"] {
            assert_eq!(text.parse::<ElevatorSpec>().unwrap().to_string(), text);
        }
        assert_eq!("ascend:".parse::<ElevatorSpec>().unwrap().to_string(), "ascend");
    }

    #[test]
    fn what_is_set_reaches_the_elevator() {
        let elevator = "ascend:read_latency=7".parse::<ElevatorSpec>().unwrap().build(1);
        assert_eq!(elevator.tunable("read_latency").unwrap(), 7);
        assert_eq!(elevator.tunable("write_latency").unwrap(), 131_072);
    }

    #[test]
    fn an_error_names_the_value_and_the_way_out() {
        assert!(error("nome").starts_with("no elevator is called \"nome\"; choose one of: none, ascend"));
        assert_eq!(error("none:x=1"), "none has no tunable called \"x\"; it has none");
        let unknown = error("ascend:latency=1");
        assert!(unknown.starts_with("ascend has no tunable called \"latency\"; it has: read_latency, "));
        assert!(error("ascend:read_latency=99999999999").contains("is out of range; set 0 to "));
        let no_value = "ascend: \"read_latency\" has no value; write settings as name=value";
        assert!(error("ascend:read_latency").starts_with(no_value));
        assert!(error("ascend:read_latency=-1").ends_with("=-1 is not a whole number of requests"));
    }
}
