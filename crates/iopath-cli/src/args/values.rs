//! Values of options: sizes, times, names. Each error has the value and the valid values.

use clap::builder::{PossibleValue, PossibleValuesParser};
use iopath_bench::ELEVATORS;
use iopath_bench::options::Named;
pub(super) use iopath_bench::options::command_line::{count, duration, seed, size, time_offset};
use iopath_core::elevator::ElevatorSpec;
use iopath_core::log::Event;
use iopath_core::{Extent, Sector};
use iopath_lab::fit;
use iopath_lab::survey::TIME_MIN;
use iopath_log::{event_name, event_named};
use iopath_report::shard::Shard;
use std::path::PathBuf;
use std::time::Duration;

/// Names from a table, each with its line in the long help.
pub(super) fn described(rows: impl IntoIterator<Item = Named>) -> PossibleValuesParser {
    let value = |(name, about): Named| match about {
        "" => PossibleValue::new(name),
        about => PossibleValue::new(name).help(about),
    };
    PossibleValuesParser::new(rows.into_iter().map(value))
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

/// The speed of a replay.
pub(super) fn speed(text: &str) -> Result<f64, String> {
    let speed = text.parse::<f64>().ok().filter(|speed| (1e-6..=1e6).contains(speed));
    speed.ok_or_else(|| format!("`{text}` is no speed; write a number from 0.000001 to 1000000, such as 0.1"))
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

/// A share of independent work, or that of the launcher of this process.
pub(super) fn shard(text: &str) -> Result<Shard, String> {
    let shard = if text == "auto" {
        Shard::from_environment(|name| std::env::var(name).ok())
    } else {
        text.parse::<Shard>()
    };
    shard.map_err(|error| error.to_string())
}
