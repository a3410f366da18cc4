//! Escapes text for a terminal: text from a log, and names of files. Both are untrusted input, and control characters
//! would control the terminal.

use std::borrow::Cow;
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

/// The text with each character for which `is_refused` is true as an escape such as `\u{1b}`.
fn escape_if(text: &str, is_refused: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_refused) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 16);
    for char in text.chars() {
        if is_refused(char) {
            escaped.extend(char.escape_default());
        } else {
            escaped.push(char);
        }
    }
    Cow::Owned(escaped)
}

/// The text without characters that control a terminal or change the writing direction, except ends of lines, tabs and,
/// if `has_colors`, sequences that select a colour or an attribute (`ESC [ … m`). The other characters are escaped as
/// `\u{1b}`.
pub fn for_terminal(text: &str, has_colors: bool) -> Cow<'_, str> {
    let is_refused = |char| is_control(char) && !matches!(char, '\n' | '\t');
    if !has_colors || !text.contains('\x1b') {
        return escape_if(text, is_refused);
    }
    let mut parts = text.split('\x1b');
    let mut escaped = escape_if(parts.next().unwrap_or_default(), is_refused).into_owned();
    for part in parts {
        escaped.push_str(if selects_color(part) { "\x1b" } else { "\\u{1b}" });
        escaped.push_str(&escape_if(part, is_refused));
    }
    Cow::Owned(escaped)
}

/// Whether this text after an escape character selects a colour or an attribute.
fn selects_color(text: &str) -> bool {
    let parameters = text.strip_prefix('[');
    let end = parameters.and_then(|text| {
        text.trim_start_matches(|char: char| char.is_ascii_digit() || char == ';').chars().next()
    });
    end == Some('m')
}

/// Escapes the characters in JSON that control a terminal. They occur only in strings, and there `\u` with four digits
/// is the same character.
pub fn escape_json(json: &str) -> String {
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
    fn lines_tabs_and_colors_remain_and_other_controls_are_escaped() {
        let text = "a\tb\n\x1b[1;32mgreen\x1b[0m \x1b[2J \x1b]0;title\x07 \u{202e}exe \x1b";
        let end = "\\u{1b}[2J \\u{1b}]0;title\\u{7} \\u{202e}exe \\u{1b}";
        assert_eq!(for_terminal(text, true), format!("a\tb\n\x1b[1;32mgreen\x1b[0m {end}"));
        let colors = "\\u{1b}[1;32mgreen\\u{1b}[0m";
        assert_eq!(for_terminal(text, false), format!("a\tb\n{colors} {end}"));
        assert!(matches!(for_terminal("plain ö", true), Cow::Borrowed(_)));
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
