//! Text from a log as it goes to a terminal: a log may come from anywhere, and a terminal obeys what it is sent. What the
//! text says is not looked at.

use std::fmt::{self, Write};

/// More of a text than this is not shown.
const CHARS_MAX: usize = 256;

/// Shows a text in one line: characters that a terminal obeys instead of showing, or that change the order of others, as
/// `\u{1b}`; of a long text the beginning.
#[derive(Debug, Clone, Copy)]
pub struct Plain<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut chars = self.0.chars();
        for char in chars.by_ref().take(CHARS_MAX) {
            if is_obeyed(char) {
                write!(f, "{}", char.escape_default())?;
            } else {
                f.write_char(char)?;
            }
        }
        if chars.next().is_some() { f.write_str("...") } else { Ok(()) }
    }
}

/// JSON with the characters escaped that it may hold as they are and that a terminal obeys. JSON has these in strings
/// only, where `\u` and four digits stand for the same.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for char in json.chars() {
        // Line ends are between the strings: in them JSON has none.
        if is_obeyed(char) && char != '\n' {
            let mut units = [0; 2];
            for unit in char.encode_utf16(&mut units) {
                // A string takes whatever is written to it.
                let _ = write!(escaped, "\\u{unit:04x}");
            }
        } else {
            escaped.push(char);
        }
    }
    escaped
}

/// Control characters (C0, DEL, C1), ends of lines and paragraphs, and what changes the direction of writing.
fn is_obeyed(char: char) -> bool {
    let is_bidirectional = matches!(char, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}');
    char.is_control() || is_bidirectional || matches!(char, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_shown_as_what_it_is() {
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
    fn a_long_text_ends() {
        let shown = Plain(&"\u{9b}".repeat(100_000)).to_string();
        assert!(shown.ends_with("...") && shown.len() < CHARS_MAX * 10, "{} bytes", shown.len());
    }

    #[test]
    fn escaped_json_is_the_same_value() {
        let value = serde_json::json!({ "a\u{9b}": ["\x1b\u{7f}\u{202e}\n", "ö"] });
        let json = escape_json(&serde_json::to_string_pretty(&value).unwrap());
        assert!(json.chars().all(|char| char == '\n' || !is_obeyed(char)), "{json}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).unwrap(), value);
    }
}
