//! Values of options: sizes, times, names. Each error has the value and the valid values.

use clap::builder::{PossibleValue, PossibleValuesParser};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_core::{Extent, Sector};
use iopath_lab::fit;
use iopath_lab::jobfile::Amount;
use iopath_lab::survey::TIME_MIN;
use iopath_lab::{ELEVATORS, RateProcess};
use iopath_log::{event_name, event_named};
use iopath_report::size::parse_size;
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

/// Names from a table, each with its line in the long help.
pub(super) fn described(rows: impl Iterator<Item = (&'static str, &'static str)>) -> PossibleValuesParser {
    PossibleValuesParser::new(rows.map(|(name, about)| PossibleValue::new(name).help(about)))
}

/// An elevator with its settings.
pub(super) fn elevator(text: &str) -> Result<ElevatorSpec, String> {
    text.parse::<ElevatorSpec>().map_err(|error| error.to_string())
}

pub(super) fn elevators_help() -> String {
    let rows = ELEVATORS.iter().map(|row| format!("\n- {}: {}", row.name, row.about));
    format!(
        "The I/O scheduler (elevator) of iopath's own paths, with settings: deadline:read_expire_ms=100\n{}",
        rows.collect::<String>()
    )
}

pub(super) fn size(text: &str) -> Result<u64, String> {
    parse_size(text).map_err(|error| error.to_string())
}

/// A size in bytes, or 1% to 100% of an existing target.
pub(super) fn size_or_share(text: &str) -> Result<Amount, String> {
    let Some(percent) = text.strip_suffix('%') else { return size(text).map(Amount::Bytes) };
    let percent = percent.parse().ok().filter(|percent| (1..=100).contains(percent));
    percent.map(Amount::Percent).ok_or_else(|| format!("`{text}` is no share; use 1% to 100%"))
}

/// A whole number below 2^32. The workload checks its range.
pub(super) fn count(text: &str) -> Result<u32, String> {
    seed(text)?.try_into().map_err(|_| format!("`{text}` is too large; the maximum is {}", u32::MAX))
}

pub(super) fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("`{text}` is not a whole number; write 32, for example"))
}

pub(super) fn positive(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(seed(text)?).ok_or_else(|| "the rate must be 1 or more".to_owned())
}

/// A process of starts.
pub(super) fn rate_process(text: &str) -> Result<RateProcess, String> {
    match text {
        "linear" => Ok(RateProcess::Linear),
        "poisson" => Ok(RateProcess::Poisson),
        _ => Err("use linear or poisson".to_owned()),
    }
}

/// A percentage.
pub(super) fn percent(text: &str) -> Result<u32, String> {
    count(text).ok().filter(|percent| *percent <= 100).ok_or_else(|| "a percentage is 0 to 100".to_owned())
}

/// A size, negative after a minus.
pub(super) fn signed_size(text: &str) -> Result<i64, String> {
    let (text, is_negative) = text.strip_prefix('-').map_or((text, false), |text| (text, true));
    let bytes = i64::try_from(size(text)?).map_err(|_| "the size is out of range".to_owned())?;
    Ok(if is_negative { -bytes } else { bytes })
}

/// A whole number of 1 or more.
pub(super) fn positive_count(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(seed(text)?).ok_or_else(|| "the number must be 1 or more".to_owned())
}

/// Bytes per second.
pub(super) fn rate(text: &str) -> Result<NonZeroU64, String> {
    NonZeroU64::new(size(text)?)
        .ok_or_else(|| "the rate must be 1 byte per second or more; write 10m, for example".to_owned())
}

pub(super) fn page_bytes(text: &str) -> Result<u32, String> {
    let bytes = size(text)?;
    u32::try_from(bytes)
        .map_err(|_| format!("{bytes} bytes exceed the maximum size of a page; use 4k to 64k"))
}

pub(super) fn survey_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if time >= TIME_MIN {
        return Ok(time);
    }
    Err(format!(
        "{} s is too short for a survey; the minimum is {} s",
        time.as_secs_f64(),
        TIME_MIN.as_secs()
    ))
}

pub(super) fn fit_time(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    if (fit::TIME_MIN..=fit::TIME_MAX).contains(&time) {
        return Ok(time);
    }
    let [min, max] = [fit::TIME_MIN, fit::TIME_MAX].map(|time| time.as_secs());
    let seconds = time.as_secs_f64();
    Err(if time < fit::TIME_MIN {
        format!("{seconds} s is too short for a fit; the minimum is {min} s")
    } else {
        format!("{seconds} s is too long for a fit; the maximum is {max} s")
    })
}

/// A percentage, as a fraction.
pub(super) fn percentage(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    let valid = number.filter(|number| *number > 0.0 && *number <= 1000.0);
    valid
        .map(|number| number / 100.0)
        .ok_or_else(|| format!("`{text}` is not a percentage above 0; write 3%, for example"))
}

/// A model is written to a file only: stdout is for results.
pub(super) fn model_output(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("the model is not written to stdout; name a file".to_owned()),
        file => Ok(PathBuf::from(file)),
    }
}

/// A time from the start; 0 is valid.
pub(super) fn time_offset(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let parsed = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    parsed.map_err(|_| format!("`{text}` is not a time; write 5s, 500ms, 1m or a number of seconds"))
}

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    match time_offset(text) {
        Ok(duration) if duration.is_zero() => {
            Err("the time must be longer than 0; write 1s, for example".to_owned())
        }
        parsed => parsed,
    }
}

pub(super) fn stream(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a stream; write its number, from 0"))
}

pub(super) fn sectors(text: &str) -> Result<Extent, String> {
    let parts =
        text.split_once('+').and_then(|(first, count)| Some((first.parse().ok()?, count.parse().ok()?)));
    let extent = parts.and_then(|(first, count)| Extent::new(Sector(first), count));
    extent.filter(|extent| !extent.is_empty()).ok_or_else(|| {
        format!("`{text}` is not a range of sectors; write the first sector and a count of 1 or more: 2048+8")
    })
}

pub(super) fn event(text: &str) -> Result<Event, String> {
    let known = || Event::ALL.map(event_name).join(", ");
    event_named(text).ok_or_else(|| format!("`{text}` is not an event; choose one of: {}", known()))
}

pub(super) fn repeat(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a repetition; write its number, from 1"))
}

pub(super) fn read_size(text: &str) -> Result<u64, String> {
    match size(text)? {
        0 => Err("a read has at least 1 byte; write 4k, for example".to_owned()),
        bytes => Ok(bytes),
    }
}

/// A log is written to a file only: stdout is for results.
pub(super) fn log_file(text: &str) -> Result<PathBuf, String> {
    match text {
        "-" => Err("the log is not written to stdout; name a file".to_owned()),
        file => Ok(PathBuf::from(file)),
    }
}
