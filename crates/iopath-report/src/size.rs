//! Parses and formats sizes in bytes, with the suffixes of fio. Does not format rates.

use thiserror::Error;

/// A text that is not a size.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("`{0}` is not a size; write bytes, or a number with k, m, g or t (powers of 1024): 4096, 4k, 1m, 2g")]
pub struct BadSize(String);

/// The suffixes, with their powers of two. As in fio with its default `kb_base=1024`, `kb` and `kib` both mean 1024.
const UNITS: [(&str, u32); 17] = [
    ("", 0),
    ("b", 0),
    ("k", 10),
    ("kb", 10),
    ("kib", 10),
    ("m", 20),
    ("mb", 20),
    ("mib", 20),
    ("g", 30),
    ("gb", 30),
    ("gib", 30),
    ("t", 40),
    ("tb", 40),
    ("tib", 40),
    ("p", 50),
    ("pb", 50),
    ("pib", 50),
];

/// Parses a size in bytes: `4096`, `4k`, `1M`, `2 GiB`.
pub fn parse_size(text: &str) -> Result<u64, BadSize> {
    let bad = || BadSize(text.to_owned());
    let trimmed = text.trim();
    let digits = trimmed.find(|c: char| !c.is_ascii_digit()).unwrap_or(trimmed.len());
    let (number, unit) = trimmed.split_at(digits);
    let unit = unit.trim_start().to_ascii_lowercase();
    let (_, power) = UNITS.iter().find(|(name, _)| *name == unit).ok_or_else(bad)?;
    let number: u64 = number.parse().map_err(|_| bad())?;
    number.checked_mul(1 << power).ok_or_else(bad)
}

/// Formats a size: `4 KiB`, `1.5 GiB`, `1000 bytes`. Below 1 MiB the text is exact: a size that needs more than two
/// decimals is given in bytes. Larger sizes are rounded to two decimals.
pub fn format_size(bytes: u64) -> String {
    let (unit, power) = match bytes {
        1 => return "1 byte".to_owned(),
        0..0x400 => return format!("{bytes} bytes"),
        0x400..0x10_0000 => ("KiB", 10),
        0x10_0000..0x4000_0000 => ("MiB", 20),
        0x4000_0000..0x100_0000_0000 => ("GiB", 30),
        _ => ("TiB", 40),
    };
    let scale = 1u64 << power;
    if bytes.is_multiple_of(scale) {
        return format!("{} {unit}", bytes / scale);
    }
    if power == 10 && !(bytes * 100).is_multiple_of(scale) {
        return format!("{bytes} bytes");
    }
    let text = format!("{:.2}", bytes as f64 / scale as f64);
    format!("{} {unit}", text.trim_end_matches('0').trim_end_matches('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_suffixes_of_fio() {
        for (text, bytes) in [
            ("4096", 4096),
            ("4k", 4096),
            ("4K", 4096),
            ("4kb", 4096),
            ("4KiB", 4096),
            ("1m", 1 << 20),
            ("2 GiB", 2 << 30),
            ("3t", 3 << 40),
            ("512b", 512),
            ("0", 0),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn an_error_names_the_value() {
        for text in ["", "k", "4x", "-1", "1.5k", "99999999t", "4 k k", "0x10"] {
            let error = parse_size(text).unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn formats_exactly_below_one_mib() {
        for (bytes, text) in [
            (0, "0 bytes"),
            (1, "1 byte"),
            (512, "512 bytes"),
            (1000, "1000 bytes"),
            (4096, "4 KiB"),
            (4097, "4097 bytes"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
            (3 << 29, "1.5 GiB"),
        ] {
            assert_eq!(format_size(bytes), text);
        }
    }
}
