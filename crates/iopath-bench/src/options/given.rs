//! A value as given for an option, in the notation of a command line or of a job file, and the parsers that the rows
//! of the table use. The notation of job files is in `value.rs`, that of command lines in `command_line.rs`.

use std::ffi::OsStr;
use std::fmt;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use super::command_line;
use super::control_keys::LogName;
use super::valid::{Values, is_error};
use super::value::{self, Amount, KbBase, TimeUnit};
use crate::refusal::WorkloadError;
use crate::shape::{BadSizes, Sizes};
use crate::thread_settings;

/// The notation of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// `4k` is 4096, and a time without a unit is in seconds.
    CommandLine,
    /// As in fio: with its units, expressions, and values for reads and writes.
    JobFile(KbBase),
}

/// An option with its value.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    value: Option<&'a OsStr>,
    notation: Notation,
}

/// The reason why a value is not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The value is malformed or out of range. Contains the valid values.
    Expected(&'static str),
    /// fio does not take the value either. Contains the valid values.
    Invalid(Values),
    /// iopath has no equivalent of this value.
    Value(&'static str),
    /// The value is malformed. Contains a whole sentence.
    Malformed(String),
    /// The value is out of the range of a workload.
    Workload(WorkloadError),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expected(expected) => write!(f, "use {expected}"),
            Self::Invalid(values) => write!(f, "use {values}"),
            Self::Value(reason) => f.write_str(reason),
            Self::Malformed(problem) => f.write_str(problem),
            Self::Workload(error) => error.fmt(f),
        }
    }
}

impl From<WorkloadError> for Refused {
    fn from(error: WorkloadError) -> Self {
        Self::Workload(error)
    }
}

impl<'a> Given<'a> {
    /// A value of the command line. A flag has an empty one.
    pub fn on_command_line(value: &'a OsStr) -> Self {
        Self { value: Some(value), notation: Notation::CommandLine }
    }

    /// A value of a job file; none for a key alone.
    pub fn in_job_file(value: Option<&'a str>, base: KbBase) -> Self {
        Self { value: value.map(OsStr::new), notation: Notation::JobFile(base) }
    }

    /// The base of sizes in a job file; none on the command line.
    fn base(&self) -> Option<KbBase> {
        match self.notation {
            Notation::CommandLine => None,
            Notation::JobFile(base) => Some(base),
        }
    }

    /// Whether the value has the notation of a job file.
    pub(super) fn is_in_job_file(&self) -> bool {
        self.base().is_some()
    }

    pub(super) fn text(&self) -> Result<&'a str, Refused> {
        let text = self.value.filter(|text| !text.is_empty() || !self.is_in_job_file());
        let text = text.ok_or(Refused::Expected("a value after `=`"))?;
        text.to_str().ok_or(Refused::Expected("a text in UTF-8"))
    }

    /// The name of a file on the command line.
    pub(super) fn file(&self) -> Result<PathBuf, Refused> {
        self.value.map(PathBuf::from).ok_or(Refused::Expected("the name of a file"))
    }

    /// A value of the command line.
    pub(super) fn typed<T>(&self, parse: fn(&str) -> Result<T, String>) -> Result<T, Refused> {
        parse(self.text()?).map_err(Refused::Malformed)
    }

    /// The last of the values between colons, as in fio.
    pub(super) fn last_of_list(self) -> Result<Self, Refused> {
        let text = self.text()?;
        Ok(Self { value: text.rsplit(':').next().map(OsStr::new), ..self })
    }

    /// The first byte of a range. `0%` is 0.
    pub(super) fn offset(&self) -> Result<Amount, Refused> {
        match self.value.and_then(OsStr::to_str).map(str::trim) {
            Some("0%") if self.is_in_job_file() => Ok(Amount::Bytes(0)),
            _ => self.amount(),
        }
    }

    /// The texts for reads and writes; none for more than three values.
    pub(super) fn per_direction(&self) -> Option<[Option<&'a str>; 2]> {
        value::per_direction(self.text().ok()?)
    }

    /// The bytes of a part of the value.
    pub(super) fn bytes_of(&self, text: &str) -> Option<u64> {
        match self.base() {
            Some(base) => value::bytes(text, base),
            None => command_line::size(text).ok(),
        }
    }

    /// The name of a file with a series; that of the job without a value.
    pub(super) fn log_name(&self) -> LogName {
        match self.text() {
            Ok("") | Err(_) => LogName::OfJob,
            Ok(name) => LogName::Given(name.to_owned()),
        }
    }

    pub(super) fn flag(&self) -> Result<bool, Refused> {
        let text = self.value.and_then(OsStr::to_str);
        if !self.is_in_job_file() {
            return Ok(true);
        }
        value::boolean(text).ok_or(Refused::Expected("0 or 1"))
    }

    /// The value of a key; 1 for a key alone.
    pub(super) fn text_of_key(&self) -> Option<&'a str> {
        self.value.map_or(Some("1"), |value| value.to_str().map(str::trim))
    }

    /// A number of a job file.
    pub(super) fn number(&self, text: &str) -> Option<u64> {
        value::bytes(text, self.base()?)
    }

    pub(super) fn bytes(&self) -> Result<u64, Refused> {
        const EXPECTED: Refused = Refused::Expected("bytes, or a number with k, m, g or t: 4096, 4k, 1m, 2g");
        match self.base() {
            Some(base) => value::bytes(self.text()?, base).ok_or(EXPECTED),
            None => self.typed(command_line::size),
        }
    }

    pub(super) fn amount(&self) -> Result<Amount, Refused> {
        const EXPECTED: Refused =
            Refused::Expected("bytes, a number with k, m, g or t, or 1% to 100%: 4096, 4k, 1m, 20%");
        match self.base() {
            Some(base) => value::amount(self.text()?, base).ok_or(EXPECTED),
            None => self.typed(command_line::size_or_share),
        }
    }

    /// A number of 1 or more in a job file. On the command line any number: the workload checks its range.
    pub(super) fn positive(&self) -> Result<u64, Refused> {
        match self.base() {
            Some(base) => value::bytes(self.text()?, base)
                .filter(|number| *number > 0)
                .ok_or(Refused::Expected("a whole number of 1 or more")),
            None => self.typed(command_line::count).map(u64::from),
        }
    }

    /// A number that 0 switches off in a job file, and that is 1 or more on the command line.
    pub(super) fn every(&self) -> Result<Option<NonZeroU64>, Refused> {
        match self.base() {
            Some(_) => self.bytes().map(NonZeroU64::new),
            None => self.typed(command_line::positive_count).map(Some),
        }
    }

    /// Percent, in a job file also with `%`, and with a fraction, which is cut off as in fio.
    pub(super) fn percent(&self) -> Result<u64, Refused> {
        let text = self.text()?;
        let is_fraction = |rest: &str| !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_digit());
        let text = match text.strip_suffix('%').unwrap_or(text) {
            _ if !self.is_in_job_file() => text,
            text => {
                text.split_once('.').filter(|(_, rest)| is_fraction(rest)).map_or(text, |(whole, _)| whole)
            }
        };
        let number = self.bytes_of(text).filter(|number| *number <= 100);
        number.ok_or(Refused::Expected("0 to 100"))
    }

    /// A time in seconds. 0 is valid in a job file only.
    pub(super) fn seconds(&self) -> Result<Duration, Refused> {
        self.time(TimeUnit::Seconds, "seconds, or a number with d, h, m, s, ms or us: 30, 5m, 500ms")
    }

    /// The time of a part of the value in a job file, in seconds.
    pub(super) fn seconds_of(text: &str) -> Option<Duration> {
        value::time(text, TimeUnit::Seconds)
    }

    /// A time in seconds; none for 0.
    pub(super) fn time_limit(&self) -> Result<Option<Duration>, Refused> {
        Ok(Some(self.seconds()?).filter(|time| !time.is_zero()))
    }

    /// A time, in a job file in microseconds.
    pub(super) fn micros(&self) -> Result<Duration, Refused> {
        self.time(TimeUnit::Microseconds, "microseconds, or a number with s, ms or us: 100, 2ms")
    }

    fn time(&self, unit: TimeUnit, expected: &'static str) -> Result<Duration, Refused> {
        if !self.is_in_job_file() {
            return self.typed(command_line::duration);
        }
        value::time(self.text()?, unit).ok_or(Refused::Expected(expected))
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
            let number = |text: &str| {
                let text = text.strip_suffix('%').unwrap_or(text);
                text.parse().ok().filter(|number| *number <= max)
            };
            text.map(|text| number(text).ok_or(Refused::Expected(expected))).transpose()
        };
        let [reads, writes] = parsed;
        Ok([number(reads)?, number(writes)?])
    }

    pub(super) fn millis(&self) -> Result<Duration, Refused> {
        let number = self.bytes_of(self.text()?).ok_or(Refused::Expected("milliseconds: 500"))?;
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
            let bytes = |text| self.bytes_of(text).filter(|bytes| *bytes > 0).ok_or(EXPECTED);
            text.map(bytes).transpose()
        };
        Ok([size(reads)?, size(writes)?])
    }

    /// Limits for reads and writes; none for 0 and for an empty one.
    pub(super) fn limits(&self) -> Result<[Option<u64>; 2], Refused> {
        const EXPECTED: Refused = Refused::Expected("a number, or READS,WRITES: 1m, 1m,500k, ,10m");
        let parts = value::per_direction(self.text()?).ok_or(EXPECTED)?;
        let limit = |text: Option<&str>| text.map(|text| self.bytes_of(text).ok_or(EXPECTED)).transpose();
        let [reads, writes] = parts;
        Ok([limit(reads)?, limit(writes)?].map(|limit| limit.filter(|limit| *limit > 0)))
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
                let range = self.base().and_then(|base| value::range(text, base));
                range.ok_or(BadSizes).and_then(|[low, high]| Sizes::range(low, high, true))
            } else if self.is_in_job_file() {
                Sizes::parse_any_sum(text, |text| self.bytes_of(text))
            } else {
                Sizes::parse(text, |text| self.bytes_of(text))
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
        let bytes = self.bytes_of(text).and_then(|bytes| i64::try_from(bytes).ok()).ok_or(EXPECTED)?;
        Ok(if is_negative { -bytes } else { bytes })
    }

    /// Whether fio takes the value, of a key with these.
    pub fn is_among(&self, values: Values) -> bool {
        let Some(text) = self.text_of_key() else { return false };
        let number = |text: &str| self.number(text);
        let has = |is_valid: fn(&str) -> bool| self.text().is_ok_and(is_valid);
        match values {
            Values::Text => self.text().is_ok(),
            Values::Flag => self.flag().is_ok(),
            Values::Number => number(text.strip_prefix('-').unwrap_or(text)).is_some(),
            Values::Range(least, most) => number(text).is_some_and(|number| (least..=most).contains(&number)),
            Values::Names(names) => self.text().is_ok_and(|text| names.contains(&text)),
            Values::Errors => has(|text| text.split([',', ':']).all(is_error)),
            Values::Cpus => has(|text| thread_settings::numbers(text).is_some()),
            Values::Percentiles => has(|text| value::percentiles(text).is_some()),
        }
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
