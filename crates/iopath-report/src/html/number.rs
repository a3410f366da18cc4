//! Formats numbers for axes, and selects the ticks of an axis. Does not draw.

use crate::numbers::{digits, time};
use crate::size::format_size;

/// The kind of a quantity: it determines the format of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// A plain number; the label of the axis has its unit.
    Number,
    /// Bytes, in powers of 1024.
    Bytes,
    /// A duration in nanoseconds.
    Nanoseconds,
}

impl Quantity {
    /// The name in the data for the script.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Number => "number",
            Self::Bytes => "bytes",
            Self::Nanoseconds => "ns",
        }
    }

    /// A value with its unit, to three digits.
    pub(super) fn text(self, value: f64) -> String {
        match self {
            Self::Number => digits(value),
            Self::Bytes => format_size(value.max(0.0).round() as u64),
            Self::Nanoseconds => time(value.max(0.0).round() as u64),
        }
    }

    /// A round value at a tick: no zeros behind the point.
    fn tick(self, value: f64) -> String {
        match self {
            Self::Number => scaled(value, &[("", 1.0), ("k", 1e3), ("M", 1e6), ("G", 1e9)], 10_000.0),
            Self::Bytes if value < 1.0 => "0".to_owned(),
            Self::Bytes => {
                let power = [40, 30, 20, 10, 0].into_iter().find(|power| value >= (1_u64 << power) as f64);
                let power = power.unwrap_or(0);
                let unit = ["B", "KiB", "MiB", "GiB", "TiB"][power as usize / 10];
                format!("{} {unit}", short(value / (1_u64 << power) as f64))
            }
            Self::Nanoseconds if value == 0.0 => "0".to_owned(),
            Self::Nanoseconds => {
                scaled(value, &[(" ns", 1.0), (" µs", 1e3), (" ms", 1e6), (" s", 1e9)], 1000.0)
            }
        }
    }
}

/// The value in the largest unit that is at most the value; the first unit below `keep`.
fn scaled(value: f64, units: &[(&str, f64)], keep: f64) -> String {
    let fits =
        units.iter().rev().find(|(_, scale)| value.abs() >= *scale && (value.abs() >= keep || *scale <= 1.0));
    let (unit, scale) = fits.or(units.first()).copied().unwrap_or(("", 1.0));
    format!("{}{unit}", short(value / scale))
}

/// At most four digits, without trailing zeros.
fn short(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..0.01 => 4,
        0.01..0.1 => 3,
        0.1..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.decimals$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The scale of an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scale {
    /// Equal distances for equal differences.
    Linear,
    /// Equal distances for equal ratios; ticks at powers of this base.
    Log(u32),
}

/// A position on an axis, with its label.
pub(super) type Tick = (f64, String);

impl Scale {
    /// The position of a value between `low` (0) and `high` (1).
    pub(super) fn position(self, value: f64, [low, high]: [f64; 2]) -> f64 {
        let (value, low, high) = match self {
            Self::Linear => (value, low, high),
            Self::Log(_) => (value.ln(), low.ln(), high.ln()),
        };
        if high > low { ((value - low) / (high - low)).clamp(-0.02, 1.02) } else { 0.5 }
    }

    /// A range that contains all values. A linear range begins at 0 if no value is negative; a logarithmic one ends at
    /// ticks.
    pub(super) fn range(self, values: impl Iterator<Item = f64>) -> [f64; 2] {
        let usable = values.filter(|value| value.is_finite() && (self == Self::Linear || *value > 0.0));
        let (low, high) = usable
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return [0.0_f64.max(if self == Self::Linear { 0.0 } else { 1.0 }), 10.0];
        }
        match self {
            Self::Linear => {
                let low = low.min(0.0);
                let high = high.max(if low < 0.0 { 0.0 } else { f64::MIN_POSITIVE });
                let step = nice_step(high - low);
                [(low / step).floor() * step, (high / step - 1e-9).ceil().max(1.0) * step]
            }
            Self::Log(10) => {
                // Ends at 1, 2 or 5 times a power of ten.
                let ends = |value: f64, up: bool| {
                    let decade = 10_f64.powf(value.log10().floor());
                    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
                    let slack = 1e-9;
                    let found = if up {
                        steps.into_iter().find(|step| *step >= value * (1.0 - slack))
                    } else {
                        steps.into_iter().rev().find(|step| *step <= value * (1.0 + slack))
                    };
                    found.unwrap_or(value)
                };
                let (low, high) = (ends(low, false), ends(high, true));
                if low < high { [low, high] } else { [low / 2.0, high * 2.0] }
            }
            Self::Log(base) => {
                let base = f64::from(base);
                let low = base.powf((low.ln() / base.ln() + 1e-9).floor());
                let high = base.powf((high.ln() / base.ln() - 1e-9).ceil());
                if low < high { [low, high] } else { [low / base, high * base] }
            }
        }
    }

    /// Up to eight ticks within a range.
    pub(super) fn ticks(self, [low, high]: [f64; 2], quantity: Quantity) -> Vec<Tick> {
        let values: Vec<f64> = match self {
            Self::Linear if quantity == Quantity::Bytes => {
                // Steps of a power of two of bytes.
                let step = 2_f64.powf(((high - low) / 5.0).max(1.0).log2().ceil());
                steps(low, high, step)
            }
            Self::Linear => steps(low, high, nice_step(high - low)),
            Self::Log(10) => {
                let decades = (low.log10().floor() as i32)..=(high.log10().ceil() as i32);
                let factors: &[f64] = if (high / low).log10() <= 2.1 { &[1.0, 2.0, 5.0] } else { &[1.0] };
                decades
                    .flat_map(|power| factors.iter().map(move |factor| factor * 10_f64.powi(power)))
                    .collect()
            }
            Self::Log(base) => {
                let power = |value: f64| value.ln() / f64::from(base).ln();
                let powers = (power(low).floor() as i32)..=(power(high).ceil() as i32);
                powers.map(|power| f64::from(base).powi(power)).collect()
            }
        };
        let inside =
            values.into_iter().filter(|value| *value >= low * 0.999 && *value <= high * 1.001 + 1e-12);
        thin(inside.collect()).into_iter().map(|value| (value, quantity.tick(value))).collect()
    }
}

/// 1, 2 or 5 times a power of ten: about five steps in the range.
fn nice_step(range: f64) -> f64 {
    let rough = (range / 5.0).max(f64::MIN_POSITIVE * 1e10);
    let decade = 10_f64.powf(rough.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * decade >= rough * 0.999);
    factor.unwrap_or(10.0) * decade
}

fn steps(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low / step - 1e-9).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last.min(first + 20)).map(|index| index as f64 * step).collect()
}

/// Every n-th value, so that at most eight remain.
fn thin(values: Vec<f64>) -> Vec<f64> {
    let every = values.len().div_ceil(8).max(1);
    values.into_iter().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(scale: Scale, range: [f64; 2], quantity: Quantity) -> Vec<String> {
        scale.ticks(range, quantity).into_iter().map(|(_, label)| label).collect()
    }

    #[test]
    fn ticks_are_round_and_lie_within_the_range() {
        assert_eq!(
            labels(Scale::Linear, [0.0, 4000.0], Quantity::Number),
            ["0", "1000", "2000", "3000", "4000"]
        );
        assert_eq!(
            labels(Scale::Linear, [0.0, 100_000.0], Quantity::Number),
            ["0", "20k", "40k", "60k", "80k", "100k"]
        );
        assert_eq!(
            labels(Scale::Log(10), [1e3, 1e6], Quantity::Nanoseconds),
            ["1 µs", "10 µs", "100 µs", "1 ms"]
        );
        assert_eq!(
            labels(Scale::Log(10), [0.002, 0.05], Quantity::Number),
            ["0.002", "0.005", "0.01", "0.02", "0.05"]
        );
        assert_eq!(
            labels(Scale::Log(2), [4096.0, 65536.0], Quantity::Bytes),
            ["4 KiB", "8 KiB", "16 KiB", "32 KiB", "64 KiB"]
        );
        assert_eq!(
            labels(Scale::Log(10), [2e7, 1e9], Quantity::Nanoseconds),
            ["20 ms", "50 ms", "100 ms", "200 ms", "500 ms", "1 s"]
        );
        assert!(labels(Scale::Log(2), [512.0, (1_u64 << 40) as f64], Quantity::Bytes).len() <= 8);
    }

    #[test]
    fn a_range_contains_its_values_and_is_never_empty() {
        for scale in [Scale::Linear, Scale::Log(10), Scale::Log(2)] {
            for values in
                [vec![], vec![0.0], vec![7.0], vec![0.003, 6.2], vec![f64::NAN, 5.0], vec![1e18, 1e-9]]
            {
                let [low, high] = scale.range(values.iter().copied());
                assert!(
                    low < high && low.is_finite() && high.is_finite(),
                    "{scale:?} {values:?}: {low} {high}"
                );
                let usable = values.iter().filter(|value| value.is_finite() && **value > 0.0);
                for value in usable {
                    assert!(
                        *value >= low * 0.999 && *value <= high * 1.001,
                        "{scale:?} {value}: {low} {high}"
                    );
                }
            }
        }
        let [low, high] = Scale::Linear.range([3785.0].into_iter());
        assert!(low.abs() < 1e-9 && (high - 4000.0).abs() < 1e-9, "{low} {high}");
        let [low, high] = Scale::Linear.range([-0.2, 0.3].into_iter());
        assert!((low + 0.2).abs() < 1e-9 && (high - 0.3).abs() < 1e-9, "{low} {high}");
    }
}
