//! The values that fio takes for the keys that have no option here. A key without an effect still refuses other values,
//! because they are mistakes. Does not know the keys.

use std::fmt;

use super::{Given, value};
use crate::thread_settings::numbers;

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

impl Values {
    /// Whether fio takes the value.
    pub fn include(self, given: &Given) -> bool {
        let Some(text) = given.text_of_key() else { return false };
        let number = |text: &str| given.number(text);
        match self {
            Self::Text => given.text().is_ok(),
            Self::Flag => given.flag().is_ok(),
            Self::Number => number(text.strip_prefix('-').unwrap_or(text)).is_some(),
            Self::Range(least, most) => number(text).is_some_and(|number| (least..=most).contains(&number)),
            Self::Names(names) => given.text().is_ok_and(|text| names.contains(&text)),
            Self::Errors => given.text().is_ok_and(|text| text.split([',', ':']).all(is_error)),
            Self::Cpus => given.text().is_ok_and(|text| numbers(text).is_some()),
            Self::Percentiles => given.text().is_ok_and(|text| value::percentiles(text).is_some()),
        }
    }
}

/// The name of an error (`EIO`), or its number; empty for none.
fn is_error(text: &str) -> bool {
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
                "{} numbers from 0 to 100 at most, separated by colons: 50:99:99.9",
                value::PERCENTILES_MAX
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::KbBase;

    #[test]
    fn values_that_fio_does_not_take_are_none() {
        let includes =
            |values: Values, text: &str| values.include(&Given::in_job_file(Some(text), KbBase::Binary));
        for (values, valid, invalid) in [
            (Values::Text, &["x", "0"][..], &[""][..]),
            (Values::Flag, &["0", "1"], &["2", "yes", ""]),
            (Values::Number, &["0", "4k", "-1"], &["many", "", "-"]),
            (Values::Range(1, 10), &["1", "10"], &["0", "11", "-1", "many"]),
            (Values::Names(&["none", "all"]), &["none", "all"], &["some", ""]),
            (Values::Errors, &["EIO", "EIO:ENOSPC,5,EIO"], &["eio", "some"]),
            (Values::Cpus, &["0,2-3"], &["all", ""]),
            (Values::Percentiles, &["50", "99:50:99.99"], &["101", "-1", "50:", "a:b", "NaN", ""]),
        ] {
            for text in valid {
                assert!(includes(values, text), "{values:?} {text}");
            }
            for text in invalid {
                assert!(!includes(values, text), "{values:?} {text}");
            }
        }
        assert!(Values::Flag.include(&Given::in_job_file(None, KbBase::Binary)), "a key alone is 1");
    }
}
