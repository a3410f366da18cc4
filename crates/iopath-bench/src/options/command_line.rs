//! Values in the notation of command lines: sizes, times, numbers. Each error has the value and the valid values.

use std::num::NonZeroU64;
use std::time::Duration;

use iopath_report::size::parse_size;

use super::value::Amount;

/// A size in bytes: a number with k, m, g or t.
///
/// # Errors
/// In words.
pub fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// A size in bytes, or 1% to 100% of an existing target.
///
/// # Errors
/// In words.
pub fn size_or_share(text: &str) -> Result<Amount, String> {
    let Some(percent) = text.strip_suffix('%') else { return size(text).map(Amount::Bytes) };
    let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.map(Amount::Percent).ok_or_else(|| format!("`{text}` is no share; use 1% to 100%"))
}

/// A size in bytes, negative after a minus.
///
/// # Errors
/// In words.
pub fn signed_size(text: &str) -> Result<i64, String> {
    let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let bytes = i64::try_from(size(text)?).map_err(|_| "the size is out of range".to_owned())?;
    Ok(if is_negative { -bytes } else { bytes })
}

/// A size of a page in bytes. The workload checks its range.
///
/// # Errors
/// In words.
pub fn page_bytes(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    u32::try_from(bytes)
        .map_err(|_| format!("{bytes} bytes exceed the maximum size of a page; use 4k to 64k"))
}

/// A whole number.
///
/// # Errors
/// In words.
pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number; write 32, for example"))
}

/// A whole number below 2^32. The workload checks its range.
///
/// # Errors
/// In words.
pub fn count(text: &str) -> Result<u32, String> {
    seed(text)?.try_into().map_err(|_| format!("`{text}` is too large; the maximum is {}", u32::MAX))
}

/// A whole number of 1 or more.
///
/// # Errors
/// In words.
pub fn positive_count(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(seed(text)?).ok_or_else(|| "the number must be 1 or more".to_owned())
}

/// Transfers per second.
///
/// # Errors
/// In words.
pub fn rate_iops(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(seed(text)?).ok_or_else(|| "the rate must be 1 or more".to_owned())
}

/// Bytes per second.
///
/// # Errors
/// In words.
pub fn rate(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size(text)?)
        .ok_or_else(|| "the rate must be 1 byte per second or more; write 10m, for example".to_owned())
}

/// A percentage.
///
/// # Errors
/// In words.
pub fn percent(text: &str) -> Result<u32, String> {
    count(text).ok().filter(|percent| *percent <= 100).ok_or_else(|| "a percentage is 0 to 100".to_owned())
}

/// A time from the start; 0 is valid.
///
/// # Errors
/// In words.
pub fn time_offset(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let parsed = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    parsed.map_err(|_| format!("`{text}` is not a time; write 5s, 500ms, 1m or a number of seconds"))
}

/// A time longer than 0.
///
/// # Errors
/// In words.
pub fn duration(text: &str) -> Result<Duration, String> {
    match time_offset(text) {
        Ok(duration) if duration.is_zero() => {
            Err("the time must be longer than 0; write 1s, for example".to_owned())
        }
        parsed => parsed,
    }
}
