//! The terminal: its width, whether it shows colours, and lines that fit it. Knows no tables: see `format/text.rs`.

use std::env;
use std::io::IsTerminal;

/// The width of text without a terminal, in characters.
pub const WIDTH: u16 = 80;

/// Whether a stream may have colours and progress bars: a terminal, unless `NO_COLOR` is set and not empty
/// (no-color.org) or the terminal is `dumb`. All output uses this function.
pub fn is_fancy(stream: &impl IsTerminal) -> bool {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    stream.is_terminal() && set("NO_COLOR").is_none() && set("TERM").is_none_or(|term| term != "dumb")
}

/// The width of the output in characters: the environment variable `COLUMNS` if set, else the width of the terminal on
/// stdout, else [`WIDTH`].
pub fn terminal_width() -> u16 {
    let columns = env::var("COLUMNS").ok().and_then(|columns| columns.trim().parse().ok());
    let of_terminal = || comfy_table::Table::new().width();
    // The pseudo-terminal of a launcher such as `mpirun` has no size.
    columns
        .filter(|columns| *columns > 0)
        .or_else(|| of_terminal().filter(|columns| *columns > 0))
        .unwrap_or(WIDTH)
}

/// Breaks a text between words into lines of at most `width` columns. The first line begins with `first`, the others
/// with `rest`.
pub fn wrap(text: &str, first: &str, rest: &str, width: usize) -> String {
    let (mut lines, mut line, mut is_begun) = (String::new(), first.to_owned(), false);
    for word in text.split_whitespace() {
        if is_begun && line.chars().count() + 1 + word.chars().count() > width {
            lines.push_str(&line);
            lines.push('\n');
            rest.clone_into(&mut line);
            is_begun = false;
        }
        if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines + &line + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_not_fancy() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(!is_fancy(&std::fs::File::from(std::os::fd::OwnedFd::from(reader))));
    }
}
