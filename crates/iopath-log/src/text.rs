//! Escapes text from a log for a terminal. A log is untrusted input, and control characters would control the terminal.

use std::fmt::{self, Write};

/// Longer texts are truncated.
const CHARS_MAX: usize = 256;

/// Displays a text on one line. Characters that control a terminal or change the writing direction are escaped as
/// `\u{1b}`; a long text is truncated.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for char in chars.by_ref().take(CHARS_MAX) {
            if is_control(char) {
                write!(f, "{}", char.escape_default())?;
            } else {
                f.write_char(char)?;
            }
        }
        if chars.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// Escapes the characters in JSON that control a terminal. They occur only in strings, and there `\u` with four digits
/// is the same character.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        // Line ends occur between strings only.
        if is_control(char) && char != '\n' {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                // Writing to a string cannot fail.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// Whether it is a control character (C0, DEL, C1), a line or paragraph separator, or changes the writing direction.
fn is_control(char: char) -> bool {
    let is_bidirectional = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    char.is_control() || is_bidirectional || matches!(char, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("/dev/vda", "/dev/vda"),
            ("ö 日本", "ö 日本"),
            ("\x1b[31mred", "\\u{1b}[31mred"),
            ("a\r\nb\tc\0", "a\\r\\nb\\tc\\u{0}"),
            ("\u{7f}\u{9b}2J", "\\u{7f}\\u{9b}2J"),
            ("\u{202e}cod.exe\u{2066}\u{2028}", "\\u{202e}cod.exe\\u{2066}\\u{2028}"),
        ] {
            assert_eq!(Plain(text).to_string(), shown);
        }
    }

    #[test]
    fn a_long_text_is_truncated() {
        let shown = Plain(&"\u{9b}".repeat(100_000)).to_string();
        assert!(shown.ends_with("...") && shown.len() < CHARS_MAX * 10, "{} bytes", shown.len());
    }

    #[test]
    fn escaped_json_has_the_same_value() {
        let value = serde_json::json!({ "a\u{9b}": ["\x1b\u{7f}\u{202e}\n", "ö"] });
        let json = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(json.chars().all(|char| char == '\n' || !is_control(char)), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
