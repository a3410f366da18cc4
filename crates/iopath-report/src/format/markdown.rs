//! Tables of GitHub's Markdown, for issues and documents.

use std::fmt::Write as _;

use super::{Document, Format, Medium, View};
use crate::section::{Section, Table};

/// The row of the table.
pub(super) const ROW: Format =
    Format { name: "markdown", about: "tables of GitHub's Markdown", is_of_runs: false, render };

fn render(document: &dyn Document, _: View) -> String {
    let sections = document.sections(Medium::Markdown);
    let blocks = sections.iter().filter(|section| !section.is_empty()).flat_map(blocks).collect::<Vec<_>>();
    blocks.join("\n")
}

/// The title, lines and table of a section. An empty line separates blocks.
fn blocks(section: &Section) -> Vec<String> {
    let Section { title, before, table, after } = section;
    let mut blocks = Vec::new();
    if !title.is_empty() {
        blocks.push(format!("### {}\n", escaped(title)));
    }
    blocks.extend(before.iter().map(|line| escaped(&line.plain()) + "\n"));
    if !table.is_empty() {
        blocks.push(self::table(table));
    }
    blocks.extend(after.iter().map(|line| escaped(&line.plain()) + "\n"));
    blocks
}

fn table(table: &Table) -> String {
    let columns = table.shown(true);
    let rules = columns.iter().map(|(_, column)| if column.is_number { "---:" } else { "---" }.to_owned());
    let mut text = line(columns.iter().map(|(head, _)| escaped(head))) + &line(rules);
    for row in 0..table.rows() {
        text += &line(columns.iter().map(|(_, column)| escaped(&column.cells[row].shown("-"))));
    }
    text
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
    use crate::section::Columns;

    #[test]
    fn text_of_data_stays_text() {
        assert_eq!(escaped("a|b\n<script>"), "a\\|b &lt;script>");
        let table = Columns::of(["x|y"]).text("a", |text| text).number("b", |_| 1_u32);
        assert_eq!(blocks(&Section::of(table)), ["| a | b |\n| --- | ---: |\n| x\\|y | 1 |\n"]);
    }
}
