//! The criterion of a steady state: the rates of a window vary and rise little enough, for reads and writes apart. Does
//! not detect it: `steady_detector.rs` does.
//!
//! A run is steady if, in one window, no sample deviates from the mean by more than a limit, and the straight line
//! through the samples (least squares) changes by no more than another limit from the start of the window to its end.
//! The default of 10% for both implies the criterion of the SNIA Solid State Storage Performance Test Specification: a
//! range of at most 20% of the mean, and a slope excursion of at most 10%.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use thiserror::Error;

/// The fewest samples of a window: a line through two samples has no deviation.
pub const SAMPLES_MIN: u64 = 3;

/// The most samples of a window.
pub const SAMPLES_MAX: u64 = 10_000;

/// The default window, and the samples in it.
const WINDOW: Duration = Duration::from_secs(10);
const SAMPLES: u32 = 10;

/// The quantity that becomes steady.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SteadyMetric {
    /// Transfers a second.
    Iops,
    /// Bytes a second.
    Throughput,
    /// The mean latency of the transfers of a sample, in nanoseconds.
    Latency,
}

impl SteadyMetric {
    /// The name in options and results, as fio's.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::Throughput => "bw",
            Self::Latency => "lat",
        }
    }
}

/// The largest permitted value of a criterion.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Limit {
    /// Percent of the mean of the window.
    Percent(f64),
    /// Transfers a second, bytes a second, or nanoseconds.
    Absolute(f64),
}

impl Limit {
    /// Whether a value is within the limit.
    pub(crate) fn permits(self, value: f64, mean: f64) -> bool {
        match self {
            Self::Percent(percent) => mean > 0.0 && value.abs() <= percent / 100.0 * mean,
            Self::Absolute(limit) => mean > 0.0 && value.abs() <= limit,
        }
    }

    /// A multiple of this limit.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        match self {
            Self::Percent(percent) => Self::Percent(percent * factor),
            Self::Absolute(limit) => Self::Absolute(limit * factor),
        }
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Percent(percent) => write!(f, "{percent}%"),
            Self::Absolute(limit) => write!(f, "{limit}"),
        }
    }
}

/// A limit is no number of 0 or more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a limit: use percent of the mean (10%), or a number of 0 or more")]
pub struct BadLimit;

impl FromStr for Limit {
    type Err = BadLimit;

    fn from_str(text: &str) -> Result<Self, BadLimit> {
        let (number, limit): (&str, fn(f64) -> Self) = match text.strip_suffix('%') {
            Some(number) => (number, Self::Percent),
            None => (text, Self::Absolute),
        };
        let number: f64 = number.trim().parse().map_err(|_| BadLimit)?;
        if number.is_finite() && number >= 0.0 { Ok(limit(number)) } else { Err(BadLimit) }
    }
}

/// The criterion that ends a run, and how its samples are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyState {
    /// The quantity.
    pub metric: SteadyMetric,
    /// The time that the criterion covers.
    pub window: Duration,
    /// The time between samples.
    pub interval: Duration,
    /// The time between the start of the measurement and the first sample.
    pub ramp: Duration,
    /// The largest difference between a sample and the mean; unset is no limit.
    pub deviation: Option<Limit>,
    /// The largest change of the straight line over the window; unset is no limit.
    pub slope: Option<Limit>,
}

impl Default for SteadyState {
    /// 10% for both limits, in a window of 10 samples of one second.
    fn default() -> Self {
        Self {
            metric: SteadyMetric::Iops,
            window: WINDOW,
            interval: WINDOW / SAMPLES,
            ramp: Duration::ZERO,
            deviation: Some(Limit::Percent(10.0)),
            slope: Some(Limit::Percent(10.0)),
        }
    }
}

/// A malformed criterion.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a criterion: use METRIC[:DEVIATION[:SLOPE]], as iops, lat, bw:5% or iops:10%:2%")]
pub struct BadSteadyState;

impl FromStr for SteadyState {
    type Err = BadSteadyState;

    /// `METRIC[:DEVIATION[:SLOPE]]`.
    fn from_str(text: &str) -> Result<Self, BadSteadyState> {
        let mut parts = text.split(':');
        let metric = match parts.next() {
            Some("iops") => SteadyMetric::Iops,
            Some("bw") => SteadyMetric::Throughput,
            Some("lat") => SteadyMetric::Latency,
            _ => return Err(BadSteadyState),
        };
        let mut limit = |default| match parts.next() {
            Some(text) => text.parse().map(Some).map_err(|_| BadSteadyState),
            None => Ok(default),
        };
        let default = Self::default();
        let (deviation, slope) = (limit(default.deviation)?, limit(default.slope)?);
        if parts.next().is_some() {
            return Err(BadSteadyState);
        }
        Ok(Self { metric, deviation, slope, ..default })
    }
}

impl fmt::Display for SteadyState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.metric.name())?;
        if let Some(limit) = self.deviation {
            write!(f, ", deviation {limit}")?;
        }
        if let Some(limit) = self.slope {
            write!(f, ", slope {limit}")?;
        }
        write!(f, ", {} s in {} s", self.interval.as_secs_f64(), self.window.as_secs_f64())
    }
}

impl SteadyState {
    /// The same criterion with another window of ten samples.
    #[must_use]
    pub fn in_window(self, window: Duration) -> Self {
        Self { window, interval: window / SAMPLES, ..self }
    }

    /// The samples of a window.
    pub fn samples(&self) -> u64 {
        (self.window.as_nanos() / self.interval.as_nanos().max(1)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn criteria_parse_and_others_are_refused() {
        let parsed: SteadyState = "bw:5%:1.5%".parse().unwrap();
        assert_eq!(parsed.metric, SteadyMetric::Throughput);
        assert_eq!((parsed.deviation, parsed.slope), (Some(Limit::Percent(5.0)), Some(Limit::Percent(1.5))));
        assert_eq!("iops".parse::<SteadyState>().unwrap(), SteadyState::default());
        assert_eq!("iops:300".parse::<SteadyState>().unwrap().deviation, Some(Limit::Absolute(300.0)));
        assert_eq!("lat:5%".parse::<SteadyState>().unwrap().metric, SteadyMetric::Latency);
        for text in ["", "p99", "iops:", "iops:x", "iops:-1%", "iops:nan", "iops:inf%", "iops:1%:1%:1%"] {
            assert_eq!(text.parse::<SteadyState>(), Err(BadSteadyState), "{text}");
        }
    }
}
