//! The description of one tunable. Values are in `settings.rs`; each elevator defines its own tunables.

use std::fmt;
use std::ops::RangeInclusive;

/// One tunable of an elevator. A new value applies from the next insert, merge or dispatch on. Exhaustive: an elevator
/// of a program has a table of such values.
#[derive(Debug, Clone)]
pub struct Tunable {
    /// The name on command lines.
    pub name: &'static str,
    /// The unit of the value: `requests`, `ms`, `bytes`, `segments`.
    pub unit: &'static str,
    /// The default value.
    pub default: u64,
    /// The valid values.
    pub range: RangeInclusive<u64>,
    /// The effect, in one line.
    pub about: &'static str,
}

impl fmt::Display for Tunable {
    /// `read_expire_ms=500 ms (1..=600000): …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, default, range, about } = self;
        write!(f, "{name}={default} {unit} ({}..={}): {about}", range.start(), range.end())
    }
}
