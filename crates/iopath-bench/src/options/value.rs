//! Values of keys: sizes, times, booleans and lists, in the notation of fio. Does not know the keys.

use std::time::Duration;

use super::expression::evaluate;

/// A size in bytes, or a share of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    /// Bytes.
    Bytes(u64),
    /// Percent of the size of the target, 1 to 100.
    Percent(u32),
}

/// The base of `k`, `m`, `g`, `t` and `p`: fio's `kb_base`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KbBase {
    /// `k` and `kb` are 1024, `kib` is 1000. fio's default: for the sake of old files, it swaps the units of the
    /// standard.
    #[default]
    Binary,
    /// `k` and `kb` are 1000, `kib` is 1024: the units of the standard (IEC 80000-13).
    Decimal,
}

impl KbBase {
    const fn bases(self) -> [u64; 2] {
        match self {
            Self::Binary => [1024, 1000],
            Self::Decimal => [1000, 1024],
        }
    }
}

/// A whole number with an optional suffix (`4k`, `1MiB`, `0x1000`), or an expression in parentheses.
pub fn bytes(text: &str, base: KbBase) -> Option<u64> {
    let number = |text: &str| scaled(text, base);
    number(text.trim()).or_else(|| evaluate(text, &number))
}

fn scaled(text: &str, base: KbBase) -> Option<u64> {
    let (value, unit) = leading_number(text)?;
    let unit = unit.trim_start().to_ascii_lowercase();
    let unit = unit.strip_suffix('b').unwrap_or(&unit);
    let [base, other] = base.bases();
    // `kib` and `ki` differ: fio compares `kib` with its table, and `ki` by its first letter only.
    let (letter, base) = match unit.strip_suffix('i') {
        Some(letter) if text.ends_with(['b', 'B']) => (letter, other),
        Some(letter) => (letter, base),
        None => (unit, base),
    };
    let power = ["", "k", "m", "g", "t", "p"].iter().position(|known| *known == letter)?;
    value.checked_mul(base.checked_pow(power as u32)?)
}

/// A decimal or hexadecimal number, and the rest of the text.
fn leading_number(text: &str) -> Option<(u64, &str)> {
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let end = digits.find(|char: char| !char.is_digit(radix)).unwrap_or(digits.len());
    let (number, rest) = digits.split_at(end);
    Some((u64::from_str_radix(number, radix).ok()?, rest))
}

/// A size, or a percentage such as `20%`.
pub fn amount(text: &str, base: KbBase) -> Option<Amount> {
    match text.trim().strip_suffix('%') {
        Some(percent) => {
            percent.parse().ok().filter(|percent| (1..=100).contains(percent)).map(Amount::Percent)
        }
        None => bytes(text, base).map(Amount::Bytes),
    }
}

/// The unit of a time without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeUnit {
    /// Seconds.
    Seconds,
    /// Microseconds.
    Microseconds,
}

/// A time: a whole number with an optional `d`, `h`, `m`, `s`, `ms` or `us`, or an expression of these, in which
/// microseconds are the default unit.
pub fn time(text: &str, default: TimeUnit) -> Option<Duration> {
    let micros = |text: &str, default| {
        let (value, unit) = leading_number(text)?;
        let scale = match (unit.trim().to_ascii_lowercase().as_str(), default) {
            ("", TimeUnit::Seconds) | ("s" | "sec", _) => 1_000_000,
            ("", TimeUnit::Microseconds) | ("us" | "usec", _) => 1,
            ("ms" | "msec", _) => 1_000,
            ("m", _) => 60_000_000,
            ("h", _) => 3_600_000_000,
            ("d", _) => 86_400_000_000,
            _ => return None,
        };
        value.checked_mul(scale)
    };
    let value = micros(text.trim(), default)
        .or_else(|| evaluate(text, &|number| micros(number, TimeUnit::Microseconds)))?;
    Some(Duration::from_micros(value))
}

/// A boolean: 0 or 1, and true for a key without a value.
pub fn boolean(text: Option<&str>) -> Option<bool> {
    match text.map(str::trim) {
        None | Some("1") => Some(true),
        Some("0") => Some(false),
        Some(_) => None,
    }
}

/// The most percentiles of a list, as in fio.
pub const PERCENTILES_MAX: usize = 20;

/// Percentiles from 0 to 100, separated by colons, in rising order.
pub fn percentiles(text: &str) -> Option<Vec<f64>> {
    let percent = |text: &str| text.trim().parse().ok().filter(|percent| (0.0..=100.0).contains(percent));
    let mut all = text.split(':').map(percent).collect::<Option<Vec<f64>>>()?;
    all.sort_by(f64::total_cmp);
    (all.len() <= PERCENTILES_MAX).then_some(all)
}

/// The parts of a list with colons. `\:` is a colon in a part. Empty parts are skipped.
pub fn list(text: &str) -> Vec<String> {
    let (mut parts, mut part) = (Vec::new(), String::new());
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        match char {
            '\\' if chars.peek() == Some(&':') => part.extend(chars.next()),
            ':' => parts.push(std::mem::take(&mut part)),
            other => part.push(other),
        }
    }
    parts.push(part);
    parts.retain(|part| !part.is_empty());
    parts
}

/// The values for reads and writes of `value`, `reads,writes` or `reads,writes,trims`. A value that no comma follows
/// also applies to the rest; an empty value is none. None for more than three values.
pub fn per_direction<'a>(text: &'a str) -> Option<[Option<&'a str>; 2]> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let given = |text: &'a str| (!text.is_empty()).then_some(text);
    match parts[..] {
        [all] => Some([given(all); 2]),
        [reads, writes] | [reads, writes, _] => Some([given(reads), given(writes)]),
        _ => None,
    }
}

/// A range of sizes: `4k-64k` or `4k:64k`, or a single size. The ends are in ascending order.
pub fn range(text: &str, base: KbBase) -> Option<[u64; 2]> {
    let (low, high) = text.split_once(['-', ':']).unwrap_or((text, text));
    let (low, high) = (bytes(low, base)?, bytes(high, base)?);
    Some([low.min(high), low.max(high)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_have_the_meaning_of_fio() {
        for (text, binary, decimal) in [
            ("4096", 4096, 4096),
            ("4k", 4096, 4000),
            ("4K", 4096, 4000),
            ("4kb", 4096, 4000),
            ("4kB", 4096, 4000),
            ("4ki", 4096, 4000),
            ("4KiB", 4000, 4096),
            ("1m", 1 << 20, 1_000_000),
            ("2g", 2 << 30, 2_000_000_000),
            ("1t", 1 << 40, 1_000_000_000_000),
            ("1p", 1 << 50, 1_000_000_000_000_000),
            ("512B", 512, 512),
            ("0x1000", 4096, 4096),
            ("0x10k", 16384, 16000),
            ("(4k*2)", 8192, 8000),
            ("3*4096/2", 6144, 6144),
        ] {
            assert_eq!(bytes(text, KbBase::Binary), Some(binary), "{text}");
            assert_eq!(bytes(text, KbBase::Decimal), Some(decimal), "{text}");
        }
        for text in ["", "k", "4x", "-1", "1.5k", "4kk", "4k k", "99999999999p", "0x", "4 %"] {
            assert_eq!(bytes(text, KbBase::Binary), None, "{text}");
        }
    }

    #[test]
    fn a_percentage_is_1_to_100() {
        assert_eq!(amount("20%", KbBase::Binary), Some(Amount::Percent(20)));
        assert_eq!(amount("1k", KbBase::Binary), Some(Amount::Bytes(1024)));
        for text in ["0%", "101%", "x%", "%"] {
            assert_eq!(amount(text, KbBase::Binary), None, "{text}");
        }
    }

    #[test]
    fn times_have_their_units() {
        for (text, seconds, micros) in [
            ("10", 10_000_000, 10),
            ("10s", 10_000_000, 10_000_000),
            ("5m", 300_000_000, 300_000_000),
            ("2H", 7_200_000_000, 7_200_000_000),
            ("1d", 86_400_000_000, 86_400_000_000),
            ("3ms", 3000, 3000),
            ("7usec", 7, 7),
            ("(2*30s)", 60_000_000, 60_000_000),
            ("(5)", 5, 5),
        ] {
            assert_eq!(time(text, TimeUnit::Seconds), Some(Duration::from_micros(seconds)), "{text}");
            assert_eq!(time(text, TimeUnit::Microseconds), Some(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "x", "1y", "99999999999999d", "-1"] {
            assert_eq!(time(text, TimeUnit::Seconds), None, "{text}");
        }
    }

    #[test]
    fn a_key_without_a_value_is_true() {
        assert_eq!(boolean(None), Some(true));
        assert_eq!(boolean(Some("0")), Some(false));
        assert_eq!(boolean(Some("1")), Some(true));
        assert_eq!(boolean(Some("2")), None);
        assert_eq!(boolean(Some("yes")), None);
    }

    #[test]
    fn an_escaped_colon_does_not_separate() {
        assert_eq!(list("/dev/sda:/dev/sdb"), ["/dev/sda", "/dev/sdb"]);
        assert_eq!(list(r"/dev/a@3,0\:c:b\c"), ["/dev/a@3,0:c", r"b\c"]);
        assert_eq!(list("::a:"), ["a"]);
        assert!(list("").is_empty());
    }

    #[test]
    fn values_are_for_reads_and_writes() {
        assert_eq!(per_direction("4k"), Some([Some("4k"), Some("4k")]));
        assert_eq!(per_direction("4k,8k"), Some([Some("4k"), Some("8k")]));
        assert_eq!(per_direction(",8k,"), Some([None, Some("8k")]));
        assert_eq!(per_direction("4k,"), Some([Some("4k"), None]));
        assert_eq!(per_direction("1,2,3,4"), None);
        assert_eq!(range("64k-4k", KbBase::Binary), Some([4096, 65536]));
        assert_eq!(range("4k", KbBase::Binary), Some([4096, 4096]));
        assert_eq!(range("4k:x", KbBase::Binary), None);
    }
}
