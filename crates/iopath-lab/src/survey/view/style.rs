//! The form of the output of a survey: breaks paragraphs and tables at the width of the terminal. Does not select the
//! contents.

use std::fmt::Write as _;

use comfy_table::{Cell, CellAlignment, Color, Table};
use iopath_report::format::text::ruled;
use iopath_report::result::Finding;
use iopath_report::terminal;

/// The range of the width of paragraphs: longer lines are hard to read.
const WIDTH_MIN: usize = 20;
const WIDTH_MAX: usize = 100;

/// The form of the output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Style {
    is_fancy: bool,
    /// In columns of text.
    width: usize,
}

impl Style {
    pub(super) fn new(is_fancy: bool, width: Option<u16>) -> Self {
        Self { is_fancy, width: usize::from(width.unwrap_or(terminal::WIDTH)).max(WIDTH_MIN) }
    }

    /// A finding: its first sentence with its confidence, or all that is known about it.
    pub(super) fn finding(self, number: usize, finding: &Finding, explains: bool) -> String {
        if !explains {
            let sentence = first_sentence(&finding.text);
            let level = finding.confidence.filter(|_| !finding.is_doubt());
            let confidence =
                level.map_or_else(String::new, |level| format!(" ({} confidence)", level.name()));
            return self.wrap(&format!("{sentence}{confidence}"), &format!("{number:>2}. "), "    ");
        }
        let (dim, bold, plain) = if self.is_fancy { ("\x1b[2m", "\x1b[1m", "\x1b[0m") } else { ("", "", "") };
        let mut text = String::new();
        let (first, rest) = (format!("{number:>2}. "), "    ");
        let head = finding.confidence.map(|confidence| {
            let name = confidence.name();
            let doubts = finding.doubts.join("; ");
            let doubts = if doubts.is_empty() { doubts } else { format!(": {doubts}") };
            format!("{}{} confidence{doubts}", name[..1].to_uppercase(), &name[1..])
        });
        match head {
            Some(head) => {
                let _ = write!(text, "{bold}{}{plain}", self.wrap(&head, &first, rest));
                text.push_str(&self.wrap(&finding.text, rest, rest));
            }
            None => text.push_str(&self.wrap(&finding.text, &first, rest)),
        }
        let _ = write!(text, "{dim}{}{plain}", self.wrap(&finding.evidence, rest, rest));
        text
    }

    /// A table. If it is wider than the output, its columns continue in further parts below; each part has the first
    /// `keys` columns. If even one column is too wide, each row is a list.
    pub(super) fn table(self, header: &[Cell], rows: &[Vec<Cell>], keys: usize) -> String {
        let widest = |table: &str| table.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        let part = |first: usize, end: usize, is_fancy: bool| {
            let columns: Vec<usize> = (0..keys).chain(first..end).collect();
            let pick =
                |cells: &[Cell]| columns.iter().map(|&column| cells[column].clone()).collect::<Vec<_>>();
            let mut table = plain_table(is_fancy);
            table.set_header(pick(header)).add_rows(rows.iter().map(|row| pick(row)));
            table.trim_fmt()
        };
        if (keys..header.len()).any(|column| widest(&part(column, column + 1, false)) > self.width) {
            return self.lists(header, rows, keys);
        }
        let mut text = String::new();
        let mut first = keys;
        while first < header.len() {
            let fits = |end: &usize| widest(&part(first, *end, false)) <= self.width;
            let end = (first + 1..=header.len()).rev().find(fits).unwrap_or(first + 1);
            if !text.is_empty() {
                text.push('\n');
            }
            text.push_str(&part(first, end, self.is_fancy));
            text.push('\n');
            first = end;
        }
        text
    }

    /// Each row as a list: its keys, and a line for each column.
    fn lists(self, header: &[Cell], rows: &[Vec<Cell>], keys: usize) -> String {
        let mut text = String::new();
        for row in rows {
            let mut key = row[0].content();
            for (head, cell) in header.iter().zip(row).take(keys).skip(1) {
                let _ = write!(key, ", {} {}", head.content(), cell.content());
            }
            text.push_str(&self.wrap(&key, "", "  "));
            for (head, cell) in header.iter().zip(row).skip(keys) {
                let content = format!("{} {}", head.content(), cell.content());
                if !cell.content().trim().is_empty() {
                    text.push_str(&self.wrap(&content, "  ", "    "));
                }
            }
        }
        text
    }

    /// Breaks text between words. The first line begins with one indent, the others with another.
    pub(super) fn wrap(self, text: &str, first: &str, rest: &str) -> String {
        terminal::wrap(text, first, rest, self.width.min(WIDTH_MAX))
    }
}

/// The text up to the period that ends its first sentence, without it.
fn first_sentence(text: &str) -> &str {
    let begins = |at: usize| text[at..].chars().next().is_some_and(char::is_uppercase);
    let end = text.match_indices(". ").map(|(at, _)| at).find(|at| begins(at + 2));
    end.map_or(text, |at| &text[..at]).trim_end_matches('.')
}

fn plain_table(is_fancy: bool) -> Table {
    let mut table = ruled();
    if is_fancy {
        table.enforce_styling()
    } else {
        table.force_no_tty()
    };
    table
}

pub(super) fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub(super) fn colored(cell: Cell, color: Option<Color>) -> Cell {
    match color {
        Some(color) => cell.fg(color),
        None => cell,
    }
}
