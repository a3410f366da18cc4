//! Tables of GitHub's Markdown, for issues and documents.

use std::fmt::Write as _;

use super::{Document, Format, Section, View};

/// The row of the table.
pub(super) const ROW: Format =
    Format { name: "markdown", about: "tables of GitHub's Markdown", is_of_runs: false, render };

fn render(document: &dyn Document, _: View) -> String {
    let sections: Vec<String> = document.sections().iter().map(section).collect();
    sections.join("\n")
}

fn section(section: &Section) -> String {
    let Section { title, head, rows, texts, paragraphs } = section;
    let mut blocks = Vec::new();
    if !title.is_empty() {
        blocks.push(format!("### {}\n", escaped(title)));
    }
    if !head.is_empty() {
        let rules = (0..head.len()).map(|column| if column < *texts { "---" } else { "---:" }.to_owned());
        let rules: Vec<String> = rules.collect();
        let mut table = line(head.iter().map(|cell| escaped(cell))) + &line(rules.into_iter());
        table.extend(rows.iter().map(|row| line(row.iter().map(|cell| escaped(cell)))));
        blocks.push(table);
    }
    blocks.extend(paragraphs.iter().map(|paragraph| escaped(paragraph) + "\n"));
    blocks.join("\n")
}

fn line(cells: impl Iterator<Item = String>) -> String {
    let mut line = String::from("|");
    for cell in cells {
        let _ = write!(line, " {cell} |");
    }
    line + "\n"
}

/// Escapes the characters that begin a cell, a link, HTML or emphasis: a file name may contain them.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '|' | '\\' | '`' | '*' | '_' | '[' | ']' | '#' => escaped.extend(['\\', char]),
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            control if control.is_control() => escaped.push(' '),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_data_stays_text() {
        assert_eq!(escaped("a|b\n<script>"), "a\\|b &lt;script>");
        let section = Section {
            head: vec!["a".to_owned(), "b".to_owned()],
            rows: vec![vec!["x|y".to_owned(), "1".to_owned()]],
            texts: 1,
            ..Section::default()
        };
        assert_eq!(super::section(&section), "| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n");
    }
}
