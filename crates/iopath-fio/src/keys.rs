//! The keys of job files of fio: those of the options (of `iopath-bench`), and those without one, which have no effect
//! here or are refused. docs/jobfiles.md shows all of them.

mod ignored;
mod refused;

pub use iopath_bench::options::Key;
use iopath_bench::options::{Given, OptionRow, Support, of_key, options};

/// A key without an option.
#[derive(Debug, Clone, Copy)]
pub(super) struct UnusedKey {
    key: Key,
    /// Whether iopath accepts the value 0 of a key that it refuses: it switches the function off.
    has_off: bool,
}

impl UnusedKey {
    /// The reason to refuse the value; none if the key has no effect.
    pub(super) fn refusal(&self, given: &Given) -> Option<&'static str> {
        let is_accepted = self.key.support == Support::NoEffect || (self.has_off && given.is_off());
        (!is_accepted).then_some(self.key.mapping)
    }
}

const fn no_effect(names: &'static [&'static str], mapping: &'static str) -> UnusedKey {
    UnusedKey { key: Key { names, support: Support::NoEffect, mapping }, has_off: false }
}

/// What a key stands for.
pub(super) enum Found {
    Option(&'static OptionRow),
    Unused(&'static UnusedKey),
}

impl Found {
    /// The first name of the key.
    pub(super) fn name(&self) -> Option<&'static str> {
        let key = match self {
            Self::Option(row) => row.key,
            Self::Unused(unused) => Some(unused.key),
        };
        key.map(|key| key.names[0])
    }
}

fn unused() -> impl Iterator<Item = &'static UnusedKey> {
    ignored::KEYS.iter().chain(refused::KEYS)
}

/// All keys: those of options, and those without one.
pub fn keys() -> impl Iterator<Item = Key> {
    options().filter_map(|row| row.key).chain(unused().map(|unused| unused.key))
}

/// The option or the unused key of a name.
pub(super) fn find(name: &str) -> Option<Found> {
    let unused = || unused().find(|unused| unused.key.names.contains(&name)).map(Found::Unused);
    of_key(name).map(Found::Option).or_else(unused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::docs_table;

    #[test]
    fn each_name_has_one_row() {
        for key in keys() {
            for name in key.names {
                assert_eq!(keys().filter(|other| other.names.contains(name)).count(), 1, "{name}");
                assert_eq!(find(name).unwrap().name(), Some(key.names[0]));
            }
        }
    }

    #[test]
    fn the_documentation_has_the_table_of_keys() {
        let row = |Key { names, support, mapping }: Key| {
            let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
            format!("| {} | {} | {mapping} |", names.join(", "), support.name())
        };
        let rows: Vec<String> = keys().map(row).collect();
        docs_table::check("docs/jobfiles.md", "## Keys", &rows);
    }
}
