//! The parameters of models: name, unit, range and default. `document.rs` reads them from a file.

/// A numeric parameter of a model. The unit stands last in the name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Parameter {
    /// The name in the file.
    pub name: &'static str,
    /// The unit of the value.
    pub unit: Unit,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// The value if the file does not set the parameter. A parameter without a default is required.
    pub default: Option<f64>,
    /// Whether the value must be a whole number.
    pub is_whole: bool,
    /// The meaning, in one line.
    pub meaning: &'static str,
}

impl Parameter {
    /// A required number.
    pub(crate) const fn new(
        name: &'static str,
        unit: Unit,
        (min, max): (f64, f64),
        meaning: &'static str,
    ) -> Self {
        let is_whole = matches!(unit, Unit::Count | Unit::Sectors);
        Self { name, unit, min, max, default: None, is_whole, meaning }
    }

    /// The same parameter, but optional with this default.
    pub(crate) const fn or(mut self, default: f64) -> Self {
        self.default = Some(default);
        self
    }
}

/// A parameter of a model whose value is a word from a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// The name in the file.
    pub name: &'static str,
    /// The words; the first is the default.
    pub values: &'static [&'static str],
    /// The meaning, in one line.
    pub meaning: &'static str,
}

/// The unit of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// Nanoseconds.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Bytes.
    Bytes,
    /// 2^10 bytes.
    Kib,
    /// 2^20 bytes.
    Mib,
    /// 2^30 bytes.
    Gib,
    /// 10^6 bytes a second.
    MbPerS,
    /// 2^20 bytes a second.
    MibPerS,
    /// 10^6 bits a second.
    MbitPerS,
    /// I/Os a second.
    Iops,
    /// Revolutions a minute.
    Rpm,
    /// 512 bytes.
    Sectors,
    /// Percent.
    Percent,
    /// A ratio of two figures in the same unit.
    Ratio,
    /// A count.
    Count,
}

impl Unit {
    /// The unit as messages print it; empty for a count and a ratio.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nanoseconds => "ns",
            Self::Microseconds => "µs",
            Self::Milliseconds => "ms",
            Self::Bytes => "bytes",
            Self::Kib => "KiB",
            Self::Mib => "MiB",
            Self::Gib => "GiB",
            Self::MbPerS => "MB/s",
            Self::MibPerS => "MiB/s",
            Self::MbitPerS => "Mbit/s",
            Self::Iops => "I/Os a second",
            Self::Rpm => "revolutions a minute",
            Self::Sectors => "sectors of 512 bytes",
            Self::Percent => "%",
            Self::Ratio | Self::Count => "",
        }
    }

    /// The suffix of parameter names with this unit; empty for a count and a ratio.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::Nanoseconds => "_ns",
            Self::Microseconds => "_us",
            Self::Milliseconds => "_ms",
            Self::Bytes => "_bytes",
            Self::Kib => "_kib",
            Self::Mib => "_mib",
            Self::Gib => "_gib",
            Self::MbPerS => "_mb_per_s",
            Self::MibPerS => "_mib_per_s",
            Self::MbitPerS => "_mbit_per_s",
            Self::Iops => "_iops",
            Self::Rpm => "_rpm",
            Self::Sectors => "_sectors",
            Self::Percent => "_percent",
            Self::Ratio | Self::Count => "",
        }
    }

    /// The number of nanoseconds, bytes or bytes a second in one unit; 1 for all other units.
    pub(crate) const fn factor(self) -> f64 {
        match self {
            Self::Microseconds => 1e3,
            Self::Milliseconds | Self::MbPerS => 1e6,
            Self::Kib => 1024.0,
            Self::Mib | Self::MibPerS => 1_048_576.0,
            Self::Gib => 1_073_741_824.0,
            Self::MbitPerS => 125_000.0,
            _ => 1.0,
        }
    }
}

/// A parameter of a model with its value and the source of that value.
#[derive(Debug, Clone, PartialEq)]
pub struct Setting {
    /// The parameter with the tables that contain it: `seek_average_ms`, `zone.0.cylinders`.
    pub path: String,
    /// Name, unit and range.
    pub parameter: Parameter,
    /// The value, in that unit.
    pub value: f64,
    /// The data sheet or the assumption from which the value comes, if the file names it.
    pub source: Option<String>,
}

/// The values of the parameters of one table.
#[derive(Debug, Clone)]
pub(crate) struct Values(pub(crate) Vec<(&'static Parameter, f64)>);

impl Values {
    /// The value in nanoseconds, bytes or bytes a second; unchanged for other units.
    pub(crate) fn number(&self, name: &str) -> f64 {
        let found = self.0.iter().find(|(parameter, _)| parameter.name == name);
        let (parameter, value) = found.expect("a model reads only parameters of its own table");
        value * parameter.unit.factor()
    }

    /// The result of [`Values::number`], rounded. The ranges of the parameters keep it below 2^53.
    pub(crate) fn amount(&self, name: &str) -> u64 {
        self.number(name).round() as u64
    }
}
