//! The table of keys of fio's job files: how iopath treats each, and how it applies its value. docs/jobfiles.md shows
//! the table; a test compares both. The keys that iopath refuses are in `keys/refused.rs`.

mod accepted;
mod controls;
mod refused;

use super::given::{Given, Refused};
use super::job::Job;

/// How far iopath implements a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// As fio does.
    Yes,
    /// Some values only, or with a difference that the table states.
    Partly,
    /// Accepted: the key selects what iopath does anyway, or does not concern a measurement here.
    NoEffect,
    /// Refused; ignored with a warning if the caller is lenient.
    No,
}

impl Support {
    /// All values.
    pub const ALL: [Self; 4] = [Self::Yes, Self::Partly, Self::NoEffect, Self::No];

    /// The word of the table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Yes => "yes",
            Self::Partly => "partly",
            Self::NoEffect => "no effect",
            Self::No => "no",
        }
    }
}

/// A key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The name, and its aliases after it.
    pub names: &'static [&'static str],
    /// How far iopath implements it.
    pub support: Support,
    /// Its equivalent here, or the reason that there is none.
    pub mapping: &'static str,
    /// Whether iopath accepts the value 0 of a key that it refuses: it switches the function off.
    has_off: bool,
    apply: fn(&mut Job, &Given) -> Result<(), Refused>,
}

impl Key {
    /// Sets the value in a job.
    pub(super) fn apply(&self, job: &mut Job, given: &Given) -> Result<(), Refused> {
        match self.support {
            Support::No if self.has_off && given.flag() == Ok(false) => Ok(()),
            Support::No => Err(Refused::Key(self.mapping)),
            _ => (self.apply)(job, given),
        }
    }
}

const fn yes(
    names: &'static [&'static str],
    mapping: &'static str,
    apply: fn(&mut Job, &Given) -> Result<(), Refused>,
) -> Key {
    Key { names, support: Support::Yes, mapping, has_off: false, apply }
}

const fn partly(
    names: &'static [&'static str],
    mapping: &'static str,
    apply: fn(&mut Job, &Given) -> Result<(), Refused>,
) -> Key {
    Key { names, support: Support::Partly, mapping, has_off: false, apply }
}

const fn no_effect(names: &'static [&'static str], mapping: &'static str) -> Key {
    Key { names, support: Support::NoEffect, mapping, has_off: false, apply: |_, _| Ok(()) }
}

/// A setter: evaluates the value and assigns it to a field.
macro_rules! set {
    ($($field:ident).+ = $value:ident) => {
        |job, given| {
            job.$($field).+ = given.$value()?;
            Ok(())
        }
    };
    ($($field:ident).+ = Some($value:ident)) => {
        |job, given| {
            job.$($field).+ = Some(given.$value()?);
            Ok(())
        }
    };
}
use set;

/// All keys in the table, in its order.
pub fn keys() -> impl Iterator<Item = &'static Key> {
    accepted::KEYS.iter().chain(controls::KEYS).chain(refused::KEYS)
}

/// The row of a key.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    keys().find(|key| key.names.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_one_row() {
        for key in keys() {
            for name in key.names {
                assert_eq!(keys().filter(|other| other.names.contains(name)).count(), 1, "{name}");
                assert_eq!(find(name).unwrap().names, key.names);
            }
        }
    }

    #[test]
    fn the_documentation_shows_the_table() {
        let docs = include_str!("../../../../docs/jobfiles.md");
        for key in keys() {
            let names: Vec<String> = key.names.iter().map(|name| format!("`{name}`")).collect();
            let row = format!("| {} | {} | {} |", names.join(", "), key.support.name(), key.mapping);
            assert!(docs.lines().any(|line| line == row), "docs/jobfiles.md lacks this row:\n{row}");
        }
        let rows = docs.lines().filter(|line| line.starts_with("| `") && line.matches(" | ").count() == 2);
        let of_keys = rows.filter(|row| {
            Support::ALL.iter().any(|support| row.contains(&format!("| {} |", support.name())))
        });
        assert_eq!(of_keys.count(), keys().count(), "docs/jobfiles.md has rows without a key");
    }
}
