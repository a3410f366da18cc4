//! The values of an elevator's tunables, looked up and range-checked by name. The text form is in `spec.rs`.

use super::{Elevator, ElevatorError, Tunable};
use std::ops::Index;

/// A table of tunables and one value for each. Elevators index the values by constants.
#[derive(Debug, Clone)]
pub struct Settings {
    tunables: &'static [Tunable],
    /// One value for each of `tunables`; the rest is unused.
    values: [u64; Self::MAX],
}

impl Settings {
    /// The maximum number of tunables of an elevator.
    pub const MAX: usize = 8;

    /// The settings of an elevator without tunables.
    pub const NONE: Self = Self { tunables: &[], values: [0; Self::MAX] };

    /// The default values.
    ///
    /// # Panics
    /// If there are more than [`Settings::MAX`] tunables.
    pub const fn new(tunables: &'static [Tunable]) -> Self {
        assert!(tunables.len() <= Self::MAX, "too many tunables");
        let mut values = [0; Self::MAX];
        let mut index = 0;
        while index < tunables.len() {
            values[index] = tunables[index].default;
            index += 1;
        }
        Self { tunables, values }
    }

    /// The tunables, in the order of the values.
    pub const fn tunables(&self) -> &'static [Tunable] {
        self.tunables
    }

    /// The values, in the order of the tunables.
    pub fn values(&self) -> &[u64] {
        &self.values[..self.tunables.len()]
    }

    /// Each tunable with its value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&'static Tunable, u64)> {
        self.tunables.iter().zip(self.values().iter().copied())
    }

    /// The value of a tunable; `elevator` is for the error message.
    pub(super) fn value(&self, elevator: &'static str, name: &str) -> Result<u64, ElevatorError> {
        Ok(self.values[self.position(elevator, name)?])
    }

    /// Sets a tunable; `elevator` is for the error message.
    pub(super) fn set(
        &mut self,
        elevator: &'static str,
        name: &str,
        value: u64,
    ) -> Result<(), ElevatorError> {
        let position = self.position(elevator, name)?;
        let tunable = &self.tunables[position];
        if !tunable.range.contains(&value) {
            return Err(ElevatorError::OutOfRange { elevator, tunable, value });
        }
        self.values[position] = value;
        Ok(())
    }

    fn position(&self, elevator: &'static str, name: &str) -> Result<usize, ElevatorError> {
        let known = self.tunables;
        let unknown = || ElevatorError::UnknownTunable { elevator, name: name.to_owned(), known };
        known.iter().position(|tunable| tunable.name == name).ok_or_else(unknown)
    }
}

impl Index<usize> for Settings {
    type Output = u64;

    #[inline]
    fn index(&self, index: usize) -> &u64 {
        &self.values[index]
    }
}

impl dyn Elevator + '_ {
    /// The value of a tunable.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name.
    pub fn tunable(&self, name: &str) -> Result<u64, ElevatorError> {
        self.settings().value(self.name(), name)
    }

    /// Sets a tunable.
    ///
    /// # Errors
    /// If the elevator has no tunable of that name, or the value is out of its range.
    pub fn set_tunable(&mut self, name: &str, value: u64) -> Result<(), ElevatorError> {
        let elevator = self.name();
        match self.settings_mut() {
            Some(settings) => settings.set(elevator, name, value),
            None => Settings::NONE.clone().set(elevator, name, value),
        }
    }
}
