//! The form of every number that a reader sees: digits, durations, sizes, percentages, intervals. Values for programs
//! are not rounded: see `value.rs`.

use crate::result::Spread;
use crate::size::format_size;

/// From this fraction on, a difference is a factor.
const FACTOR_MIN: f64 = 9.0;

/// Three digits, or all digits before the decimal point.
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// A time in nanoseconds, with three digits in the largest suitable unit.
pub fn time(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns} ns"),
        1_000..1_000_000 => format!("{} µs", digits(ns as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} ms", digits(ns as f64 / 1e6)),
        _ => format!("{} s", digits(ns as f64 / 1e9)),
    }
}

/// A mean size in bytes: bytes below 1000, and KiB with three digits above.
pub fn mean_size(bytes: f64) -> String {
    if bytes < 1e3 { format!("{bytes:.0} bytes") } else { format!("{} KiB", digits(bytes / 1024.0)) }
}

/// A fraction as a percentage with one decimal.
pub fn percent(fraction: f64) -> String {
    format!("{:.1}%", fraction * 100.0)
}

/// A fraction as a percentage without decimals.
pub fn whole_percent(fraction: f64) -> String {
    format!("{:.0}%", fraction * 100.0)
}

/// A share as a percentage with three digits below 10%, and without decimals above.
pub fn share(fraction: f64) -> String {
    if fraction < 0.1 { format!("{}%", digits(fraction * 100.0)) } else { whole_percent(fraction) }
}

/// A difference as a percentage with its sign.
pub fn signed_percent(fraction: f64) -> String {
    format!("{:+.1}%", fraction * 100.0)
}

/// A difference as a percentage with its sign; a factor for more than ten times as much.
pub fn change(fraction: f64) -> String {
    match fraction {
        _ if fraction.is_infinite() => "unbounded".to_owned(),
        _ if fraction > FACTOR_MIN => format!("×{}", digits(fraction + 1.0)),
        _ => signed_percent(fraction),
    }
}

/// Half of the 95% confidence interval, relative to the mean; none for a single repetition or a mean of 0.
pub fn half_width(spread: &Spread) -> Option<f64> {
    let [low, high] = spread.ci95.filter(|_| spread.mean > 0.0)?;
    Some((high - low) / 2.0 / spread.mean)
}

/// A count with separators: `1,234,567`.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let (first, others) = digits.split_at((digits.len() - 1) % 3 + 1);
    let others = others.as_bytes().chunks(3).map(|group| format!(",{}", String::from_utf8_lossy(group)));
    std::iter::once(first.to_owned()).chain(others).collect()
}

/// A count of things, in words: `1 extent`, `2 extents`, `3 accesses`.
pub fn counted(number: u64, noun: &str) -> String {
    let ending = match number {
        1 => "",
        _ if noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{} {noun}{ending}", count(number))
}

/// A distance in bytes: bytes below 1 KiB, whole KiB below 1 MiB.
pub fn distance(bytes: f64) -> String {
    let is_in_kib = (1024.0..f64::from(1 << 20)).contains(&bytes);
    format_size(if is_in_kib { ((bytes / 1024.0).round() as u64) << 10 } else { bytes.round() as u64 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_have_bytes_below_a_kib_and_whole_kib_above() {
        let shown: Vec<String> =
            [0.0, 512.0, 1536.0, 10_000.4, 1_048_575.9].into_iter().map(distance).collect();
        assert_eq!(shown, ["0 bytes", "512 bytes", "2 KiB", "10 KiB", "1 MiB"]);
    }

    #[test]
    fn numbers_keep_three_digits() {
        let shown: Vec<String> = [0.0123, 1.234, 12.34, 123.4, 123_456.7].into_iter().map(digits).collect();
        assert_eq!(shown, ["0.012", "1.23", "12.3", "123", "123457"]);
        let shown: Vec<String> = [999, 1_234, 12_345_678, 3_000_000_000].into_iter().map(time).collect();
        assert_eq!(shown, ["999 ns", "1.23 µs", "12.3 ms", "3.00 s"]);
        assert_eq!([mean_size(999.0), mean_size(8192.0)], ["999 bytes", "8.00 KiB"]);
    }

    #[test]
    fn counts_have_separators_and_a_plural() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let counted = [(1, "extent"), (0, "extent"), (2000, "access")].map(|(n, noun)| counted(n, noun));
        assert_eq!(counted, ["1 extent", "0 extents", "2,000 accesses"]);
    }

    #[test]
    fn differences_are_percentages_and_large_ones_are_factors() {
        assert_eq!([change(0.123), change(-0.5), change(57.5)], ["+12.3%", "-50.0%", "×58.5"]);
        assert_eq!([percent(0.123), whole_percent(0.123), share(0.0123)], ["12.3%", "12%", "1.23%"]);
    }

    #[test]
    fn a_single_repetition_and_a_mean_of_zero_have_no_interval() {
        let spread = |mean, ci95| Spread { mean, stddev: None, ci95 };
        assert_eq!(half_width(&spread(100.0, Some([90.0, 110.0]))), Some(0.1));
        assert_eq!(half_width(&spread(100.0, None)), None);
        assert_eq!(half_width(&spread(0.0, Some([0.0, 0.0]))), None);
    }
}
