//! A value of a table: rounded and with its unit for readers, exact for programs.

use crate::numbers::{change, count, digits, mean_size, percent, signed_percent, time, whole_percent};
use crate::size::format_size;

/// A cell of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// The row has no such quantity: an empty cell. A column without another value is not shown.
    Absent,
    /// The quantity is not known: a dash for readers, empty for programs.
    Unknown,
    /// Words.
    Text(String),
    /// A whole number.
    Integer(u64),
    /// A count of things, which may be large.
    Count(u64),
    /// A number in the unit of its column, with three digits.
    Number(f64),
    /// A number in the unit of its column, with two decimals.
    Index(f64),
    /// Bytes per second, shown as MB/s.
    Rate(f64),
    /// A time in nanoseconds.
    Nanoseconds(f64),
    /// A size in bytes.
    Size(u64),
    /// A mean size in bytes.
    MeanSize(f64),
    /// A fraction, shown as a percentage with one decimal.
    Percent(f64),
    /// A fraction, shown as a percentage without decimals.
    WholePercent(f64),
    /// A difference as a fraction, shown as a percentage with its sign.
    Signed(f64),
    /// A difference as a fraction, shown with its sign or as a factor.
    Change(f64),
    /// A value with a mark behind it, for readers.
    Marked(Box<Value>, String),
    /// A value that a terminal colours.
    Toned(Box<Value>, Tone),
}

/// The judgement of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Among the best.
    Good,
    /// The worst.
    Bad,
}

impl Value {
    /// The value with a mark behind it.
    #[must_use]
    pub fn marked(self, mark: impl Into<String>) -> Self {
        Self::Marked(Box::new(self), mark.into())
    }

    /// The value with a judgement, if there is one.
    #[must_use]
    pub fn toned(self, tone: Option<Tone>) -> Self {
        match tone {
            Some(tone) => Self::Toned(Box::new(self), tone),
            None => self,
        }
    }

    /// The value, or that it is not known.
    pub fn known<T>(value: Option<T>, kind: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Unknown, kind)
    }

    /// The value if the row has such a quantity.
    pub fn present<T>(value: Option<T>, kind: impl FnOnce(T) -> Self) -> Self {
        value.map_or(Self::Absent, kind)
    }

    /// The text that a reader sees. `dash` stands for unknown values.
    pub fn shown(&self, dash: &str) -> String {
        match self {
            Self::Absent => String::new(),
            Self::Unknown => dash.to_owned(),
            Self::Text(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Count(number) => count(*number),
            Self::Number(number) => digits(*number),
            Self::Index(number) => format!("{number:.2}"),
            Self::Rate(bytes) => digits(bytes / 1e6),
            Self::Nanoseconds(ns) => time(ns.round() as u64),
            Self::Size(bytes) => format_size(*bytes),
            Self::MeanSize(bytes) => mean_size(*bytes),
            Self::Percent(fraction) => percent(*fraction),
            Self::WholePercent(fraction) => whole_percent(*fraction),
            Self::Signed(fraction) => signed_percent(*fraction),
            Self::Change(fraction) => change(*fraction),
            Self::Marked(value, mark) => value.shown(dash) + mark,
            Self::Toned(value, _) => value.shown(dash),
        }
    }

    /// The text that a program reads, without unit and rounding.
    pub fn exact(&self) -> String {
        match self {
            Self::Absent | Self::Unknown => String::new(),
            Self::Text(text) => text.clone(),
            Self::Integer(number) | Self::Count(number) | Self::Size(number) => number.to_string(),
            Self::Number(number)
            | Self::Index(number)
            | Self::Rate(number)
            | Self::Nanoseconds(number)
            | Self::MeanSize(number)
            | Self::Percent(number)
            | Self::WholePercent(number)
            | Self::Signed(number)
            | Self::Change(number) => number.to_string(),
            Self::Marked(value, _) | Self::Toned(value, _) => value.exact(),
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        Self::Text(text.clone())
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Self {
        Self::Text(is.to_string())
    }
}

impl From<u64> for Value {
    fn from(number: u64) -> Self {
        Self::Integer(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Integer(number.into())
    }
}

impl From<usize> for Value {
    fn from(number: usize) -> Self {
        Self::Integer(number as u64)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

impl<T: Into<Self>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        Self::known(value, Into::into)
    }
}
