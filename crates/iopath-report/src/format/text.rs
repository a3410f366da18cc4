//! The default format: sections for a terminal, as wide as it is.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, Color, ColumnConstraint, ContentArrangement, TableComponent};

use super::{Format, View};
use crate::section::{Column, Emphasis, Fit, Line, Section, Table};
use crate::terminal::wrap;
use crate::value::{Tone, Value};

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "table",
    about: "tables for a terminal",
    is_of_runs: false,
    render: |document, view| document.text(view).trim_end().to_owned() + "\n",
};

/// The sections, with an empty line between them. The end has no newline.
pub fn render(sections: &[Section], view: View) -> String {
    let width = view.width.map_or(usize::MAX, usize::from);
    let sections = sections.iter().filter(|section| !section.is_empty());
    let texts = sections.map(|section| {
        let Section { title, before, table, after } = section;
        let title = Some(title).filter(|title| !title.is_empty());
        let title = title.map(Line::new);
        let above = title.iter().chain(before).map(|one| line(one, width, view.is_fancy));
        let mut parts: Vec<String> = above.collect();
        parts.extend((!table.is_empty()).then(|| self::table(table, width, view.is_fancy)));
        parts.extend(after.iter().map(|one| line(one, width, view.is_fancy)));
        parts.join("\n")
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// A line, broken between words if it does not fit.
fn line(line: &Line, width: usize, is_fancy: bool) -> String {
    let Line { first, text, rest, width_max, emphasis } = line;
    let width = width.min(*width_max);
    let fits = |part: &str| first.chars().count() + part.chars().count() <= width;
    let lines = text.split('\n').map(|part| {
        if fits(part) {
            format!("{first}{part}")
        } else {
            wrap(part, first, rest, width).trim_end().to_owned()
        }
    });
    let text = lines.collect::<Vec<_>>().join("\n");
    match emphasis {
        Emphasis::Strong if is_fancy => format!("\x1b[1m{text}\x1b[0m"),
        Emphasis::Weak if is_fancy => format!("\x1b[2m{text}\x1b[0m"),
        _ => text,
    }
}

/// A table for `width` columns of text, with its indent.
fn table(table: &Table, width: usize, is_fancy: bool) -> String {
    let indent = " ".repeat(table.indent);
    let text = fitted(table, width.saturating_sub(table.indent), is_fancy);
    if indent.is_empty() {
        return text;
    }
    text.lines().map(|line| format!("{indent}{}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

fn fitted(table: &Table, width: usize, is_fancy: bool) -> String {
    let mut columns = table.shown(false);
    let whole = grid(&columns, None, false);
    let width = match table.fit {
        Fit::Break { width_max, .. } => width.min(width_max.into()),
        _ => width,
    };
    if widest(&whole) <= width {
        return if is_fancy { grid(&columns, None, true) } else { whole };
    }
    match &table.fit {
        Fit::Keep => whole,
        Fit::Omit => {
            let most = columns.iter().map(|(_, column)| column.rank).max().unwrap_or(0);
            for rank in (1..=most).rev() {
                columns.retain(|(_, column)| column.rank < rank);
                let narrow = grid(&columns, None, is_fancy);
                if widest(&narrow) <= width {
                    return narrow;
                }
            }
            grid(&columns, None, is_fancy)
        }
        Fit::Break { width_min, .. } => {
            grid(&columns, Some(u16::try_from(width).unwrap_or(u16::MAX).max(*width_min)), is_fancy)
        }
        Fit::Split { keys } => split(&columns, *keys, width, is_fancy),
        Fit::Turn { corner } => turned(&columns, corner.as_deref()),
    }
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A line for each row. Cells are broken to fit `width`, if one is given.
fn grid(columns: &[(&str, &Column)], width: Option<u16>, is_fancy: bool) -> String {
    let mut table = ruled(is_fancy);
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.iter().map(|(head, _)| *head));
    let rows = columns.first().map_or(0, |(_, column)| column.cells.len());
    for row in 0..rows {
        table.add_row(columns.iter().map(|(_, column)| cell(&column.cells[row])));
    }
    for ((_, column), shown) in columns.iter().zip(table.column_iter_mut()) {
        if column.is_number {
            shown.set_cell_alignment(CellAlignment::Right);
        }
        if column.is_whole {
            shown.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    table.trim_fmt()
}

/// A cell with its colour.
fn cell(value: &Value) -> Cell {
    let cell = Cell::new(value.shown("-"));
    match value {
        Value::Toned(_, Tone::Good) => cell.fg(Color::Green),
        Value::Toned(_, Tone::Bad) => cell.fg(Color::Red),
        _ => cell,
    }
}

/// Tables of as many columns as fit, each with the first `keys` columns.
fn split(columns: &[(&str, &Column)], keys: usize, width: usize, is_fancy: bool) -> String {
    // Columns without a value are not among `columns`.
    let keys = keys.min(columns.len().saturating_sub(1));
    let part = |first: usize, end: usize, is_fancy: bool| {
        grid(&[&columns[..keys], &columns[first..end]].concat(), None, is_fancy)
    };
    let fits = |first: usize, end: usize| widest(&part(first, end, false)) <= width;
    if (keys..columns.len()).any(|column| !fits(column, column + 1)) {
        return lists(columns, keys, width);
    }
    let mut parts = Vec::new();
    let mut first = keys;
    while first < columns.len() {
        let end = (first + 1..=columns.len()).rev().find(|end| fits(first, *end)).unwrap_or(first + 1);
        parts.push(part(first, end, is_fancy));
        first = end;
    }
    parts.join("\n\n")
}

/// Each row as a list: its keys, and a line for each column.
fn lists(columns: &[(&str, &Column)], keys: usize, width: usize) -> String {
    let rows = columns.first().map_or(0, |(_, column)| column.cells.len());
    let mut lines = Vec::new();
    for row in 0..rows {
        let shown = |(head, column): &(&str, &Column)| format!("{head} {}", column.cells[row].shown("-"));
        let (first, others) = columns.split_at(keys);
        let mut key = first.iter().map(shown).collect::<Vec<_>>().join(", ");
        // The first key needs no head.
        key.drain(..first.first().map_or(0, |(head, _)| head.len() + 1));
        lines.push(line(&Line::new(key), width, false));
        for (head, column) in
            others.iter().filter(|(_, column)| !column.cells[row].shown("").trim().is_empty())
        {
            lines.push(line(&Line::new(shown(&(head, column))).labelled("  ", "    "), width, false));
        }
    }
    lines.join("\n")
}

/// A line for each column. With a corner, the cells of the first column are the head.
fn turned(columns: &[(&str, &Column)], corner: Option<&str>) -> String {
    let mut table = ruled(false);
    let cells = |column: &Column| column.cells.iter().map(|cell| cell.shown("-")).collect::<Vec<_>>();
    let line = |head: &str, column: &Column| {
        let cells = cells(column).into_iter().map(|cell| Cell::new(cell).set_alignment(CellAlignment::Right));
        std::iter::once(Cell::new(head)).chain(cells).collect::<Vec<_>>()
    };
    let mut rest = columns;
    if let (Some(corner), Some(((_, first), others))) = (corner, columns.split_first()) {
        table.set_header(line(corner, first));
        rest = others;
    }
    for (head, column) in rest {
        table.add_row(line(head, column));
    }
    table.trim_fmt()
}

/// A table with a rule below its head and no other rules.
fn ruled(is_fancy: bool) -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    if is_fancy {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    table.load_preset(NOTHING).set_style(TableComponent::HeaderLines, '─');
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Columns;

    fn section(fit: Fit) -> Section {
        let columns = Columns::of([("kernel-direct", 107.4e6), ("iopath-direct", 9.0e6)])
            .text("path", |(path, _)| path)
            .number("MB/s", |(_, rate)| Value::Rate(rate))
            .text("a long head of words", |_| "words of a cell")
            .ranked(1);
        Section::of(columns.fit(fit)).with_after(["a line below the table"])
    }

    fn text(fit: Fit, width: u16) -> String {
        render(&[section(fit)], View::plain(Some(width)))
    }

    #[test]
    fn a_wide_terminal_has_a_line_for_each_row() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let wide = text(Fit::Keep, 80);
        assert_eq!(lines(&wide)[2], " kernel-direct   107  words of a cell");
        assert_eq!(lines(&wide)[4], "a line below the table");
        for fit in [
            Fit::Omit,
            Fit::Split { keys: 1 },
            Fit::Break { width_min: 20, width_max: u16::MAX },
            Fit::Turn { corner: None },
        ] {
            assert_eq!(text(fit, 80), wide);
        }
    }

    #[test]
    fn each_fit_has_no_wider_lines_than_the_terminal() {
        let turned = |corner: Option<&str>| Fit::Turn { corner: corner.map(str::to_owned) };
        for (fit, part) in [
            (Fit::Omit, "107\n"),
            (Fit::Split { keys: 1 }, "words of a cell"),
            (Fit::Break { width_min: 20, width_max: u16::MAX }, "words of"),
            (turned(None), "MB/s"),
            (turned(Some("unit")), "unit"),
        ] {
            let text = text(fit.clone(), 40);
            let width = if matches!(fit, Fit::Turn { .. }) { 60 } else { 40 };
            assert!(text.contains(part) && widest(&text) <= width, "{fit:?}:\n{text}");
        }
        assert!(!text(Fit::Omit, 40).contains("a long head"));
    }

    #[test]
    fn a_split_table_repeats_its_keys_and_becomes_lists_on_a_very_narrow_terminal() {
        let split = text(Fit::Split { keys: 1 }, 40);
        assert_eq!(split.matches("kernel-direct").count(), 2, "{split}");
        let lists = text(Fit::Split { keys: 1 }, 20);
        assert!(lists.starts_with("kernel-direct\n  MB/s 107\n"), "{lists}");
    }

    #[test]
    fn colours_do_not_change_the_width_of_columns() {
        let cells = [Value::from("a").toned(Some(Tone::Good)), Value::from("b").toned(Some(Tone::Bad))];
        let section = Section::of(Columns::of(&cells).text("head", |cell: &Value| cell.clone()));
        let lines = [Line::new("a line").with_emphasis(Emphasis::Strong)];
        let sections = [section.with_after(lines)];
        let plain = render(&sections, View::plain(None));
        let fancy = render(&sections, View { width: None, is_fancy: true });
        assert!(fancy.contains("\x1b[1ma line\x1b[0m") && fancy.contains("\x1b[38;5;10m"), "{fancy:?}");
        let mut without = String::new();
        let mut is_code = false;
        for char in fancy.chars() {
            is_code |= char == '\x1b';
            if !is_code {
                without.push(char);
            }
            is_code &= char != 'm';
        }
        assert_eq!(without.replace(' ', ""), plain.replace(' ', ""));
    }

    #[test]
    fn a_line_that_fits_keeps_its_spaces_and_others_are_broken_between_words() {
        let lines =
            [Line::new("two  words"), Line::paragraph("three more words").labelled("  Note: ", "    ")];
        let text = render(&[Section::prose(lines)], View::plain(Some(20)));
        assert_eq!(text, "two  words\n  Note: three more\n    words");
    }
}
