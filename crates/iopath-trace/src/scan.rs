//! Takes fields from the start of a line. Each method returns `None` if the line has something else there.

/// The rest of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scan<'a>(pub(crate) &'a [u8]);

impl<'a> Scan<'a> {
    /// A whole number of decimal digits, below 2^64.
    #[inline]
    pub(crate) fn number(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        let mut digits = 0;
        for &byte in self.0 {
            let digit = byte.wrapping_sub(b'0');
            if digit > 9 {
                break;
            }
            // 19 digits always fit; only longer numbers need a check.
            value = if digits < 19 {
                value * 10 + u64::from(digit)
            } else {
                value.checked_mul(10)?.checked_add(u64::from(digit))?
            };
            digits += 1;
        }
        self.0 = &self.0[digits..];
        (digits > 0).then_some(value)
    }

    /// A decimal fraction as a whole number of units of 10^-`places`; further places are cut off. With its number of
    /// places.
    #[inline]
    pub(crate) fn fraction(&mut self, places: u32) -> Option<(u64, u32)> {
        let whole = self.number()?;
        let unit = 10_u64.checked_pow(places)?;
        let mut value = whole.checked_mul(unit)?;
        let Some(rest) = self.0.strip_prefix(b".") else { return Some((value, 0)) };
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let mut weight = unit;
        for digit in &rest[..digits] {
            weight /= 10;
            value = value.checked_add(u64::from(digit - b'0') * weight)?;
        }
        self.0 = &rest[digits..];
        Some((value, digits as u32))
    }

    /// This byte.
    #[inline]
    pub(crate) fn byte(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == byte).then(|| self.0 = rest)
    }

    /// All bytes before `byte`, and that byte.
    #[inline]
    pub(crate) fn until(&mut self, byte: u8) -> Option<&'a [u8]> {
        let at = self.0.iter().position(|other| *other == byte)?;
        let (found, rest) = self.0.split_at(at);
        self.0 = &rest[1..];
        Some(found)
    }

    /// Spaces and tabs, or none.
    #[inline]
    pub(crate) fn spaces(&mut self) {
        while let [b' ' | b'\t', rest @ ..] = self.0 {
            self.0 = rest;
        }
    }

    /// A word after spaces, up to the next space or the end.
    #[inline]
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        self.spaces();
        let end = self.0.iter().position(|byte| matches!(byte, b' ' | b'\t')).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest;
        (!word.is_empty()).then_some(word)
    }

    /// A word that is a number.
    #[inline]
    pub(crate) fn number_word(&mut self) -> Option<u64> {
        number(self.word()?)
    }

    /// A field up to the next comma or the end of the line, without spaces around it.
    #[inline]
    pub(crate) fn field(&mut self) -> Option<&'a [u8]> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.until(b',').unwrap_or_else(|| std::mem::take(&mut self.0));
        Some(field.trim_ascii())
    }

    /// A field that is a number.
    #[inline]
    pub(crate) fn number_field(&mut self) -> Option<u64> {
        self.spaces();
        let value = self.number()?;
        self.spaces();
        if !self.0.is_empty() {
            self.byte(b',')?;
        }
        Some(value)
    }

    /// Whether nothing but spaces and a carriage return follows.
    pub(crate) fn is_end(self) -> bool {
        self.0.trim_ascii().is_empty()
    }
}

/// The whole text as a number.
#[inline]
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    let mut scan = Scan(text);
    let value = scan.number()?;
    scan.0.is_empty().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_digits_only_and_fit_64_bits() {
        assert_eq!(number(b"18446744073709551615"), Some(u64::MAX));
        for wrong in [&b"18446744073709551616"[..], b"", b"-1", b"1x", b"99999999999999999999999"] {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn fractions_are_cut_off_after_the_places() {
        assert_eq!(Scan(b"1.25").fraction(9), Some((1_250_000_000, 2)));
        assert_eq!(Scan(b"3").fraction(3), Some((3000, 0)));
        assert_eq!(Scan(b"0.123456789123").fraction(6), Some((123_456, 12)));
        assert_eq!(Scan(b"99999999999999999.5").fraction(9), None);
    }

    #[test]
    fn fields_end_at_commas_and_words_at_spaces() {
        let mut scan = Scan(b" 7 , x ,");
        assert_eq!((scan.number_field(), scan.field(), scan.field()), (Some(7), Some(&b"x"[..]), None));
        let mut scan = Scan(b"  a\tbc");
        assert_eq!((scan.word(), scan.word(), scan.word()), (Some(&b"a"[..]), Some(&b"bc"[..]), None));
    }
}
