//! The keys of job files and command lines of fio: those of the options (of `iopath-bench`), and those without one,
//! which have no effect here or are refused. docs/jobfiles.md shows all of them.

mod ignored;
mod refused;

pub use iopath_bench::options::Key;
use iopath_bench::options::{OptionRow, Support, Values, of_key, options};

/// What a key stands for.
pub(super) enum Found {
    Option(&'static OptionRow),
    Unused(&'static Key),
}

impl Found {
    /// The row of the key.
    pub(super) fn key(&self) -> Option<Key> {
        match self {
            Self::Option(row) => row.key,
            Self::Unused(key) => Some(**key),
        }
    }

    /// The first name of the key.
    pub(super) fn name(&self) -> Option<&'static str> {
        self.key().map(|key| key.names[0])
    }
}

const fn no_effect(names: &'static [&'static str], values: Values, mapping: &'static str) -> Key {
    Key::new(names, Support::NoEffect, mapping).takes(values)
}

fn unused() -> impl Iterator<Item = &'static Key> {
    ignored::KEYS.iter().chain(refused::KEYS)
}

/// All keys: those of options, and those without one.
pub fn keys() -> impl Iterator<Item = Key> {
    options().filter_map(|row| row.key).chain(unused().copied())
}

/// The option or the unused key of a name.
pub(super) fn find(name: &str) -> Option<Found> {
    let unused = || unused().find(|key| key.names.contains(&name)).map(Found::Unused);
    of_key(name).map(Found::Option).or_else(unused)
}

#[cfg(test)]
mod tests;
