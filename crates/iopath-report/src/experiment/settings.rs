//! The parameters of an experiment: names, units, ranges, defaults, and other values by `--set NAME=VALUE`. Does not
//! know the meaning of a parameter.

use std::fmt;

use thiserror::Error;

use crate::size::parse_size;

/// A parameter of an experiment's setup or model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// The name for `--set`. If it ends in its unit (`readahead_kib`), the name without the unit is accepted too.
    pub name: &'static str,
    /// The unit; empty for a choice.
    pub unit: &'static str,
    /// The default, and the values that it accepts.
    pub kind: ParameterKind,
    /// The source of the default; `calibrated on ROW` if it was chosen so that this row of the report fits, `fitted: …`
    /// if it was chosen with others so that a table fits.
    pub source: &'static str,
}

/// The values of a parameter.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ParameterKind {
    /// A whole number.
    Count {
        /// The default.
        default: u64,
        /// The least and the largest value.
        range: (u64, u64),
    },
    /// A number.
    Number {
        /// The default.
        default: f64,
        /// The least and the largest value.
        range: (f64, f64),
    },
    /// One of these names. The first is the default.
    Choice(&'static [&'static str]),
}

/// A value that a parameter cannot have, or a parameter that does not exist. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParameterError {
    /// The text has not the form NAME=VALUE.
    #[error("`{0}` is not a setting; write NAME=VALUE")]
    Form(String),
    /// No parameter has the name.
    #[error("the experiment has no parameter `{name}`; it has: {}", known.join(", "))]
    Unknown {
        /// The name.
        name: String,
        /// The names of the parameters.
        known: Vec<&'static str>,
    },
    /// The value is not one of the parameter's values.
    #[error("parameter {name} cannot be `{value}`; it is {values}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// The value.
        value: String,
        /// The valid values with their unit.
        values: String,
    },
    /// The parameter is set more than once.
    #[error("parameter {0} is set twice")]
    Twice(&'static str),
    /// Parameters belong to one experiment, and the selection has another number.
    #[error("parameters belong to one experiment, and {0} are selected; name one")]
    Several(usize),
}

/// Units that are multiples of a byte. A value in one of them may have a suffix: `128`, `128k`, `1m`.
const SIZES: [(&str, u64); 4] = [("bytes", 1), ("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30)];

/// Ends of names that are units.
const UNIT_ENDS: [&str; 10] =
    ["_bytes", "_kib", "_mib", "_gib", "_ns", "_us", "_ms", "_s", "_mb_per_s", "_percent"];

impl Parameter {
    /// A whole number.
    pub const fn count(
        name: &'static str,
        unit: &'static str,
        default: u64,
        range: (u64, u64),
        source: &'static str,
    ) -> Self {
        Self { name, unit, kind: ParameterKind::Count { default, range }, source }
    }

    /// A number.
    pub const fn number(
        name: &'static str,
        unit: &'static str,
        default: f64,
        range: (f64, f64),
        source: &'static str,
    ) -> Self {
        Self { name, unit, kind: ParameterKind::Number { default, range }, source }
    }

    /// One of several names. The first is the default.
    pub const fn choice(name: &'static str, of: &'static [&'static str], source: &'static str) -> Self {
        Self { name, unit: "", kind: ParameterKind::Choice(of), source }
    }

    /// Whether the default was chosen so that a published figure fits.
    pub fn is_calibrated(&self) -> bool {
        self.source.starts_with("calibrated on ")
    }

    /// Whether the default was chosen with others so that a whole table of published figures fits.
    pub fn is_fitted(&self) -> bool {
        self.source.starts_with("fitted: ")
    }

    /// Whether the default is in the range.
    pub fn is_consistent(&self) -> bool {
        match self.kind {
            ParameterKind::Count { default, range: (least, most) } => (least..=most).contains(&default),
            ParameterKind::Number { default, range: (least, most) } => (least..=most).contains(&default),
            ParameterKind::Choice(of) => !of.is_empty(),
        }
    }

    fn has_name(&self, name: &str) -> bool {
        let short = UNIT_ENDS.iter().find_map(|end| self.name.strip_suffix(end));
        self.name == name || short == Some(name)
    }

    fn default(&self) -> Value {
        match self.kind {
            ParameterKind::Count { default, .. } => Value::Count(default),
            ParameterKind::Number { default, .. } => Value::Number(default),
            ParameterKind::Choice(of) => Value::Choice(of[0]),
        }
    }

    fn parse(&self, text: &str) -> Result<Value, ParameterError> {
        let parsed = match self.kind {
            ParameterKind::Count { range: (least, most), .. } => {
                self.parse_count(text).filter(|value| (least..=most).contains(value)).map(Value::Count)
            }
            ParameterKind::Number { range: (least, most), .. } => {
                let number = text.parse::<f64>().ok();
                number.filter(|value| (least..=most).contains(value)).map(Value::Number)
            }
            ParameterKind::Choice(of) => {
                of.iter().find(|name| **name == text).map(|name| Value::Choice(name))
            }
        };
        let (name, value) = (self.name, text.to_owned());
        parsed.ok_or_else(|| ParameterError::Value { name, value, values: self.values() })
    }

    fn parse_count(&self, text: &str) -> Option<u64> {
        if let Ok(number) = text.parse() {
            return Some(number);
        }
        let (_, unit_bytes) = SIZES.iter().find(|(unit, _)| *unit == self.unit)?;
        let bytes = parse_size(text).ok()?;
        bytes.is_multiple_of(*unit_bytes).then(|| bytes / unit_bytes)
    }

    /// The valid values, in words.
    pub fn values(&self) -> String {
        let unit = if self.unit.is_empty() { String::new() } else { format!(" {}", self.unit) };
        match self.kind {
            ParameterKind::Count { range: (least, most), .. } => {
                format!("a whole number from {least} to {most}{unit}")
            }
            ParameterKind::Number { range: (least, most), .. } => {
                format!("a number from {least} to {most}{unit}")
            }
            ParameterKind::Choice(of) => format!("one of: {}", of.join(", ")),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Value {
    Count(u64),
    Number(f64),
    Choice(&'static str),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(f, "{count}"),
            Self::Number(number) => write!(f, "{number}"),
            Self::Choice(name) => f.write_str(name),
        }
    }
}

/// The values of an experiment's parameters.
#[derive(Debug, Clone)]
pub struct Settings {
    parameters: &'static [Parameter],
    values: Vec<Value>,
    set: Vec<bool>,
}

impl Settings {
    /// The defaults, with other values for some parameters as `NAME=VALUE`.
    ///
    /// # Errors
    /// [`ParameterError`]: the name is unknown, or the value is not valid.
    pub fn new(parameters: &'static [Parameter], overrides: &[String]) -> Result<Self, ParameterError> {
        let mut settings = Self {
            parameters,
            values: parameters.iter().map(Parameter::default).collect(),
            set: vec![false; parameters.len()],
        };
        for text in overrides {
            let (name, value) = text.split_once('=').ok_or_else(|| ParameterError::Form(text.clone()))?;
            let index = parameters.iter().position(|parameter| parameter.has_name(name.trim()));
            let index = index.ok_or_else(|| ParameterError::Unknown {
                name: name.trim().to_owned(),
                known: parameters.iter().map(|parameter| parameter.name).collect(),
            })?;
            if settings.set[index] {
                return Err(ParameterError::Twice(parameters[index].name));
            }
            settings.values[index] = parameters[index].parse(value.trim())?;
            settings.set[index] = true;
        }
        Ok(settings)
    }

    /// The value of a whole number.
    ///
    /// # Panics
    /// If the experiment has no such parameter.
    pub fn count(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Count(count) => count,
            other => panic!("parameter {name} is not a whole number: {other}"),
        }
    }

    /// The value of a number or a whole number.
    ///
    /// # Panics
    /// If the experiment has no such parameter.
    pub fn number(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Count(count) => count as f64,
            Value::Number(number) => number,
            Value::Choice(_) => panic!("parameter {name} is not a number"),
        }
    }

    /// The value of a choice.
    ///
    /// # Panics
    /// If the experiment has no such parameter.
    pub fn choice(&self, name: &str) -> &'static str {
        match self.value(name) {
            Value::Choice(choice) => choice,
            other => panic!("parameter {name} is not a choice: {other}"),
        }
    }

    /// Whether `--set` has changed the parameter.
    ///
    /// # Panics
    /// If the experiment has no such parameter.
    pub fn is_set(&self, name: &str) -> bool {
        self.set[self.index(name)]
    }

    /// Whether `--set` has changed any parameter: the report then has the rows of that setting.
    pub fn is_any_set(&self) -> bool {
        self.set.contains(&true)
    }

    /// All parameters, in the order of the experiment.
    pub fn parameters(&self) -> &'static [Parameter] {
        self.parameters
    }

    /// Each parameter with its value as text, and whether it was set.
    pub fn all(&self) -> impl Iterator<Item = (&'static Parameter, String, bool)> {
        let values = self.values.iter().zip(&self.set);
        self.parameters
            .iter()
            .zip(values)
            .map(|(parameter, (value, set))| (parameter, value.to_string(), *set))
    }

    fn index(&self, name: &str) -> usize {
        let index = self.parameters.iter().position(|parameter| parameter.name == name);
        index.unwrap_or_else(|| panic!("the experiment has no parameter {name}"))
    }

    fn value(&self, name: &str) -> Value {
        self.values[self.index(name)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    static PARAMETERS: &[Parameter] = &[
        Parameter::count("readahead_kib", "KiB", 128, (0, 65_536), "published"),
        Parameter::number("latency_ms", "ms", 0.5, (0.0, 10.0), "assumed"),
        Parameter::choice("queue", &["unpatched", "patched"], "published"),
    ];

    fn settings(overrides: &[&str]) -> Result<Settings, ParameterError> {
        let overrides: Vec<String> = overrides.iter().map(|text| (*text).to_owned()).collect();
        Settings::new(PARAMETERS, &overrides)
    }

    #[test]
    fn unset_parameters_have_their_defaults() {
        let defaults = settings(&[]).unwrap();
        assert_eq!((defaults.count("readahead_kib"), defaults.choice("queue")), (128, "unpatched"));
        assert!((defaults.number("latency_ms") - 0.5).abs() < 1e-9);
        assert!(!defaults.is_any_set());
    }

    #[test]
    fn a_value_may_have_a_suffix_and_a_name_may_omit_its_unit() {
        for text in ["readahead_kib=512", "readahead_kib=512k", "readahead=512", "readahead = 512KiB"] {
            let set = settings(&[text]).unwrap();
            assert_eq!(set.count("readahead_kib"), 512, "{text}");
            assert!(set.is_set("readahead_kib") && set.is_any_set() && !set.is_set("queue"));
        }
        assert_eq!(settings(&["readahead=2m"]).unwrap().count("readahead_kib"), 2048);
        assert_eq!(settings(&["queue=patched"]).unwrap().choice("queue"), "patched");
    }

    #[test]
    fn a_bad_value_is_refused_with_parameter_range_and_unit() {
        for (text, expected) in [
            ("readahead_kib=65537", "from 0 to 65536 KiB"),
            ("readahead_kib=-1", "from 0 to 65536 KiB"),
            ("readahead_kib=1.5", "from 0 to 65536 KiB"),
            ("readahead_kib=513b", "from 0 to 65536 KiB"),
            ("readahead_kib=99999999999999999999999", "from 0 to 65536 KiB"),
            ("latency_ms=11", "from 0 to 10 ms"),
            ("latency_ms=NaN", "from 0 to 10 ms"),
            ("latency_ms=inf", "from 0 to 10 ms"),
            ("latency_ms=", "from 0 to 10 ms"),
            ("queue=fixed", "one of: unpatched, patched"),
        ] {
            let message = settings(&[text]).unwrap_err().to_string();
            let (name, value) = text.split_once('=').unwrap();
            assert!(message.contains(name) && message.contains(&format!("`{value}`")), "{message}");
            assert!(message.ends_with(expected), "{message}");
        }
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        let unknown = settings(&["depth=1"]).unwrap_err().to_string();
        assert!(
            unknown.contains("`depth`") && unknown.contains("readahead_kib, latency_ms, queue"),
            "{unknown}"
        );
        let twice = settings(&["readahead=1", "readahead_kib=2"]).unwrap_err();
        assert_eq!(twice, ParameterError::Twice("readahead_kib"));
        assert!(matches!(settings(&["readahead"]), Err(ParameterError::Form(_))));
    }
}
