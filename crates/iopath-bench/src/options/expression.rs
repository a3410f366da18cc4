//! Integer arithmetic in values: `5*1024*$mb_memory/8`, `(64k+4k)*2`. The keywords have been replaced before. Numbers
//! have the suffixes of `value.rs`, which passes its parser of numbers.

/// The maximum depth of parentheses.
const DEPTH_MAX: u32 = 32;

/// The value of an expression; none if it is malformed, divides by zero, or a result is negative or too large.
/// `number` parses a number with its suffix.
pub(super) fn evaluate(text: &str, number: &dyn Fn(&str) -> Option<u64>) -> Option<u64> {
    let mut parser = Parser { rest: text, number, depth: 0 };
    let value = parser.sum()?;
    (parser.peek().is_none() && value >= 0).then_some(value)?.try_into().ok()
}

struct Parser<'a> {
    rest: &'a str,
    number: &'a dyn Fn(&str) -> Option<u64>,
    depth: u32,
}

impl Parser<'_> {
    /// The next character that is no blank.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Skips the operator if it is next.
    fn operator(&mut self, choices: &[char]) -> Option<char> {
        let operator = self.peek().filter(|next| choices.contains(next))?;
        self.rest = &self.rest[operator.len_utf8()..];
        Some(operator)
    }

    fn sum(&mut self) -> Option<i128> {
        let mut value = self.product()?;
        while let Some(operator) = self.operator(&['+', '-']) {
            let other = self.product()?;
            value = if operator == '+' { value.checked_add(other)? } else { value.checked_sub(other)? };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<i128> {
        let mut value = self.power()?;
        while let Some(operator) = self.operator(&['*', '/', '%']) {
            let other = self.power()?;
            value = match operator {
                '*' => value.checked_mul(other)?,
                '/' => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn power(&mut self) -> Option<i128> {
        let base = self.atom()?;
        if self.operator(&['^']).is_none() {
            return Some(base);
        }
        base.checked_pow(u32::try_from(self.atom()?).ok()?)
    }

    fn atom(&mut self) -> Option<i128> {
        if self.operator(&['(']).is_some() {
            self.depth += 1;
            let value = (self.depth <= DEPTH_MAX).then(|| self.sum())??;
            self.depth -= 1;
            return self.operator(&[')']).map(|_| value);
        }
        self.peek()?;
        let end = self.rest.find(|char: char| !char.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (number, rest) = self.rest.split_at(end);
        self.rest = rest;
        (self.number)(number).map(i128::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Option<u64> {
        evaluate(text, &|number| number.parse().ok())
    }

    #[test]
    fn operators_have_their_usual_precedence() {
        for (text, expected) in [
            ("2+3*4", 14),
            ("(2+3)*4", 20),
            ("2*3^2", 18),
            ("7/2", 3),
            ("7%4+1", 4),
            ("10 - 2 - 3", 5),
            (" ( 5 ) ", 5),
        ] {
            assert_eq!(value(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_malformed_expression_has_no_value() {
        let deep = "(".repeat(100_000);
        let texts =
            ["", "1+", "(1", "1)", "1/0", "1%0", "1-2", "2^200", "a", "1 2", "99999999999999999999", &deep];
        for text in texts {
            assert_eq!(value(text), None, "{}", &text[..text.len().min(20)]);
        }
    }
}
