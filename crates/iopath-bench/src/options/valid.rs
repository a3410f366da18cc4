//! The values that fio takes for the keys that have no option here. A key without an effect still refuses other values,
//! because they are mistakes. Does not know the keys.

use std::fmt;

use super::value;

/// The values that fio takes for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Values {
    /// Any text, of one character at least.
    Text,
    /// 0 or 1.
    Flag,
    /// A whole number, with a unit or a minus if needed.
    Number,
    /// A whole number from the first to the second.
    Range(u64, u64),
    /// One of these names.
    Names(&'static [&'static str]),
    /// The names and numbers of errors, for reads, writes and verification.
    Errors,
    /// Numbers of CPUs.
    Cpus,
    /// Percentiles, separated by colons.
    Percentiles,
}

/// The name of an error (`EIO`), or its number; empty for none.
pub(super) fn is_error(text: &str) -> bool {
    text.parse::<u32>().is_ok()
        || text.is_empty()
        || (text.starts_with('E')
            && text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit()))
}

impl fmt::Display for Values {
    /// The values, after the word "use".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text => f.write_str("a text after `=`"),
            Self::Flag => f.write_str("0 or 1"),
            Self::Number => f.write_str("a whole number"),
            Self::Range(least, most) => write!(f, "a whole number from {least} to {most}"),
            Self::Names([]) => f.write_str("no value"),
            Self::Names([one]) => f.write_str(one),
            Self::Names([first @ .., last]) => write!(f, "{} or {last}", first.join(", ")),
            Self::Errors => f.write_str("names of errors, separated by colons: EIO:ENOSPC,EIO"),
            Self::Cpus => f.write_str("numbers and ranges, separated by commas: 0,5,8-15"),
            Self::Percentiles => write!(
                f,
                "at most {} numbers from 0 to 100, separated by colons: 50:99:99.9",
                value::PERCENTILES_MAX
            ),
        }
    }
}
