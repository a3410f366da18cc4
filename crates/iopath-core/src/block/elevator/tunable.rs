//! What can be set in an elevator: a table per elevator, values beside it, both found by name. Which of them
//! mean what is each elevator's own; parsing whole specifications is `spec.rs`.

use super::{Elevator, ElevatorError};
use std::fmt;
use std::ops::RangeInclusive;

/// One setting of an elevator. It counts from the next insert, merge or dispatch on.
#[derive(Debug, Clone)]
pub struct Tunable {
    /// As written on command lines.
    pub name: &'static str,
    /// What it counts: `requests`, `ms`, `bytes`, `segments`.
    pub unit: &'static str,
    /// What it is unless set.
    pub default: u64,
    /// What it may be.
    pub range: RangeInclusive<u64>,
    /// What it does, in one line.
    pub about: &'static str,
}

impl fmt::Display for Tunable {
    /// `read_expire_ms=500 ms (1..=600000): …`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, unit, default, range, about } = self;
        write!(f, "{name}={default} {unit} ({}..={}): {about}", range.start(), range.end())
    }
}

/// The values that a table of tunables starts with.
pub const fn defaults<const N: usize>(table: &[Tunable; N]) -> [u64; N] {
    let mut values = [0; N];
    let mut place = 0;
    while place < N {
        values[place] = table[place].default;
        place += 1;
    }
    values
}

impl dyn Elevator + '_ {
    /// The value of a tunable.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        Ok(self.values()[place(self.name(), self.tunables(), name)?])
    }

    /// Sets a tunable.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        let place = checked_place(self.name(), self.tunables(), name, value)?;
        self.values_mut()[place] = value;
        Ok(())
    }
}

/// Where in `table` the tunable of that name is.
pub(super) fn place(
    elevator: &'static str,
    table: &'static [Tunable],
    name: &str,
) -> Result<usize, ElevatorError> {
    let unknown = || ElevatorError::UnknownTunable { elevator, name: name.to_owned(), known: table };
    table.iter().position(|tunable| tunable.name == name).ok_or_else(unknown)
}

/// The same for a value that is to be set.
pub(super) fn checked_place(
    elevator: &'static str,
    table: &'static [Tunable],
    name: &str,
    value: u64,
) -> Result<usize, ElevatorError> {
    let place = place(elevator, table, name)?;
    if table[place].range.contains(&value) {
        Ok(place)
    } else {
        Err(ElevatorError::OutOfRange { elevator, tunable: &table[place], value })
    }
}
