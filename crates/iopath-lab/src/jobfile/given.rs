//! A key as given in a job file, and the parsers that `keys.rs` uses for its value.

use std::time::Duration;

use crate::shape::{BadSizes, Sizes};
use crate::thread_settings;

use super::control_keys::LogName;
use super::value::{self, Amount, KbBase, TimeUnit};

/// A key with its value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given<'a> {
    pub(super) value: Option<&'a str>,
    pub(super) base: KbBase,
}

/// The reason why a value is not applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The value is malformed or out of range. Contains the valid values.
    Expected(&'static str),
    /// iopath has no equivalent of the key.
    Key(&'static str),
    /// iopath has no equivalent of this value.
    Value(&'static str),
}

impl<'a> Given<'a> {
    pub(super) fn text(&self) -> Result<&'a str, Refused> {
        self.value.filter(|text| !text.is_empty()).ok_or(Refused::Expected("a value after `=`"))
    }

    /// The texts for reads and writes; none for more than three values.
    pub(super) fn per_direction(&self) -> Option<[Option<&'a str>; 2]> {
        value::per_direction(self.value?)
    }

    /// The bytes of a part of the value.
    pub(super) fn bytes_of(&self, text: &str) -> Option<u64> {
        value::bytes(text, self.base)
    }

    /// The name of a file with a series; that of the job without a value.
    pub(super) fn log_name(&self) -> LogName {
        match self.value {
            None | Some("") => LogName::OfJob,
            Some(name) => LogName::Given(name.to_owned()),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Refused> {
        value::boolean(self.value).ok_or(Refused::Expected("0 or 1"))
    }

    pub(super) fn bytes(&self) -> Result<u64, Refused> {
        const EXPECTED: Refused = Refused::Expected("bytes, or a number with k, m, g or t: 4096, 4k, 1m, 2g");
        value::bytes(self.text()?, self.base).ok_or(EXPECTED)
    }

    pub(super) fn amount(&self) -> Result<Amount, Refused> {
        const EXPECTED: Refused =
            Refused::Expected("bytes, a number with k, m, g or t, or 1% to 100%: 4096, 4k, 1m, 20%");
        value::amount(self.text()?, self.base).ok_or(EXPECTED)
    }

    /// A number of 1 or more.
    pub(super) fn positive(&self) -> Result<u64, Refused> {
        let number = value::bytes(self.text()?, self.base).filter(|number| *number > 0);
        number.ok_or(Refused::Expected("a whole number of 1 or more"))
    }

    pub(super) fn percent(&self) -> Result<u64, Refused> {
        let number = value::bytes(self.text()?, self.base).filter(|number| *number <= 100);
        number.ok_or(Refused::Expected("0 to 100"))
    }

    pub(super) fn seconds(&self) -> Result<Duration, Refused> {
        value::time(self.text()?, TimeUnit::Seconds)
            .ok_or(Refused::Expected("seconds, or a number with d, h, m, s, ms or us: 30, 5m, 500ms"))
    }

    pub(super) fn micros(&self) -> Result<Duration, Refused> {
        value::time(self.text()?, TimeUnit::Microseconds)
            .ok_or(Refused::Expected("microseconds, or a number with s, ms or us: 100, 2ms"))
    }

    /// Numbers and ranges, separated by commas.
    pub(super) fn numbers(&self) -> Result<Vec<usize>, Refused> {
        thread_settings::numbers(self.text()?)
            .ok_or(Refused::Expected("numbers and ranges, separated by commas: 0,5,8-15"))
    }

    /// Numbers from 0 to `max`, for reads and writes.
    pub(super) fn pair(&self, max: u64, expected: &'static str) -> Result<[Option<u64>; 2], Refused> {
        let parsed = value::per_direction(self.text()?).ok_or(Refused::Expected(expected))?;
        let number = |text: Option<&str>| {
            let number = |text: &str| text.parse().ok().filter(|number| *number <= max);
            text.map(|text| number(text).ok_or(Refused::Expected(expected))).transpose()
        };
        let [reads, writes] = parsed;
        Ok([number(reads)?, number(writes)?])
    }

    pub(super) fn millis(&self) -> Result<Duration, Refused> {
        let number = value::bytes(self.text()?, self.base).ok_or(Refused::Expected("milliseconds: 500"))?;
        Ok(Duration::from_millis(number))
    }

    pub(super) fn list(&self) -> Result<Vec<String>, Refused> {
        let list = value::list(self.text()?);
        if list.is_empty() { Err(Refused::Expected("names, separated by colons")) } else { Ok(list) }
    }

    /// Sizes for reads and writes, each 1 or more; none for an empty one.
    pub(super) fn sizes(&self) -> Result<[Option<u64>; 2], Refused> {
        const EXPECTED: Refused = Refused::Expected("a size of 1 or more, or READS,WRITES: 4k, 8k,16k");
        let [reads, writes] = value::per_direction(self.text()?).ok_or(EXPECTED)?;
        let size = |text: Option<&str>| {
            let bytes = |text| value::bytes(text, self.base).filter(|bytes| *bytes > 0).ok_or(EXPECTED);
            text.map(bytes).transpose()
        };
        Ok([size(reads)?, size(writes)?])
    }

    /// Sets shares or ranges of sizes for reads and writes, as `sizes`.
    pub(super) fn set_sizes(
        &self,
        all: &mut [Sizes; 2],
        expected: &'static str,
        is_range: bool,
    ) -> Result<(), Refused> {
        let given = value::per_direction(self.text()?).ok_or(Refused::Expected(expected))?;
        for (sizes, text) in all.iter_mut().zip(given) {
            let Some(text) = text else { continue };
            let parsed = if is_range {
                let range = value::range(text, self.base);
                range.ok_or(BadSizes).and_then(|[low, high]| Sizes::range(low, high, true))
            } else {
                Sizes::parse(text, |text| value::bytes(text, self.base))
            };
            *sizes = parsed.map_err(|_| Refused::Expected(expected))?;
        }
        Ok(())
    }

    /// Bytes, negative after a minus.
    pub(super) fn signed(&self, text: &str) -> Result<i64, Refused> {
        const EXPECTED: Refused =
            Refused::Expected("a size after the colon, negative to go backwards: 8k, -8k");
        let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
        let bytes =
            value::bytes(text, self.base).and_then(|bytes| i64::try_from(bytes).ok()).ok_or(EXPECTED)?;
        Ok(if is_negative { -bytes } else { bytes })
    }

    /// Accepts true only.
    pub(super) fn only_on(&self, reason: &'static str) -> Result<(), Refused> {
        if self.flag()? { Ok(()) } else { Err(Refused::Value(reason)) }
    }

    /// Accepts these values only.
    pub(super) fn only(&self, values: &[&str], reason: &'static str) -> Result<(), Refused> {
        if values.contains(&self.text()?) { Ok(()) } else { Err(Refused::Value(reason)) }
    }
}

/// Sizes, or the values that are valid.
pub(super) fn sizes_of(sizes: Result<Sizes, BadSizes>) -> Result<Sizes, Refused> {
    sizes.map_err(|_| Refused::Expected("sizes of 1 byte to 1 GiB"))
}
