//! The text form of an elevator and its settings: `deadline:read_expire_ms=100,fifo_batch=8`. Parsing checks the text,
//! so an [`ElevatorSpec`] is always valid.

use super::{ELEVATORS, Elevator, ElevatorError, ElevatorKind, Settings, Tunable};
use std::fmt;
use std::str::FromStr;

/// An elevator and its settings. Made from text, or from the [`ElevatorKind`] of another crate.
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
#[derive(Clone)]
pub struct ElevatorSpec {
    kind: ElevatorKind,
    settings: Settings,
}

/// The text form: the tables of an elevator with many tunables are long.
impl fmt::Debug for ElevatorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ElevatorSpec").field(&format_args!("{self}")).finish()
    }
}

impl ElevatorSpec {
    /// An elevator with default settings.
    pub fn new(kind: ElevatorKind) -> Self {
        Self { kind, settings: Settings::new(kind.tunables()) }
    }

    /// Parses `NAME` or `NAME:TUNABLE=VALUE,…`, where `kinds` has the name.
    ///
    /// For programs with elevators of their own: `&[ELEVATORS, &[MINE]].concat()`.
    ///
    /// # Errors
    /// If the name is not in `kinds`, or a setting is invalid.
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

    /// The spec with one tunable set.
    ///
    /// # Errors
    /// Returns the errors of [`ElevatorSpec::set`].
    pub fn with(mut self, name: &str, value: u64) -> Result<Self, ElevatorError> {
        self.set(name, value)?;
        Ok(self)
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name, or the value is out of its range.
    pub fn set(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        self.settings.set(self.kind.name, name, value)
    }

    /// The value of a tunable.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.settings.value(self.kind.name, name)
    }

    /// Each tunable with its value.
    pub fn tunables(&self) -> impl ExactSizeIterator<Item = (&'static Tunable, u64)> {
        self.settings.iter()
    }

    /// Whether both specify the same elevator. Their settings may differ.
    pub fn is_of_kind(&self, other: &Self) -> bool {
        self.kind.name == other.kind.name && std::ptr::fn_addr_eq(self.kind.build, other.kind.build)
    }

    /// Whether it is `none`.
    pub(crate) fn is_none(&self) -> bool {
        self.is_of_kind(&Self::default())
    }

    /// The name of the elevator.
    pub const fn name(&self) -> &'static str {
        self.kind.name
    }

    /// Makes the elevator for a queue of `requests_max` requests.
    pub fn build(&self, requests_max: usize) -> Box<dyn Elevator> {
        let mut elevator = (self.kind.build)(requests_max);
        self.apply(&mut *elevator);
        elevator
    }

    /// Sets `elevator`, which is of this kind, to the values of this spec.
    pub(crate) fn apply(&self, elevator: &mut dyn Elevator) {
        if let Some(settings) = elevator.settings_mut() {
            settings.clone_from(&self.settings);
        }
    }

    fn with_setting(self, setting: &str) -> Result<Self, ElevatorError> {
        let elevator = self.kind.name;
        let no_value = || ElevatorError::NoValue { elevator, setting: setting.to_owned() };
        let (name, text) = setting.split_once('=').ok_or_else(no_value)?;
        match (text.parse(), self.settings.tunables().iter().find(|tunable| tunable.name == name)) {
            (Err(_), Some(Tunable { name, unit, .. })) => {
                Err(ElevatorError::NotANumber { elevator, name, value: text.to_owned(), unit })
            }
            (value, _) => self.with(name, value.unwrap_or_default()),
        }
    }
}

impl Default for ElevatorSpec {
    /// The elevator `none`: first come, first served.
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
    /// The form that `parse` accepts, without settings at their default.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        text.parse::<ElevatorSpec>().unwrap_err().to_string()
    }

    #[test]
    fn text_survives_a_round_trip() {
        for text in ["none", "ascend", "ascend:read_latency=7", "ascend:read_latency=7,write_latency=9"] {
            assert_eq!(text.parse::<ElevatorSpec>().unwrap().to_string(), text);
        }
        assert_eq!("ascend:".parse::<ElevatorSpec>().unwrap().to_string(), "ascend");
    }

    #[test]
    fn settings_reach_the_elevator() {
        let elevator = "ascend:read_latency=7".parse::<ElevatorSpec>().unwrap().build(1);
        assert_eq!(elevator.tunable("read_latency").unwrap(), 7);
        assert_eq!(elevator.tunable("write_latency").unwrap(), 131_072);
    }

    #[test]
    fn errors_name_the_value_and_the_valid_choices() {
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
