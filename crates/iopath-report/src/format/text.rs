//! The default format: sections for a terminal, as wide as it is.

use comfy_table::presets::NOTHING;
use comfy_table::{Cell, CellAlignment, ColumnConstraint, ContentArrangement, TableComponent};

use super::{Format, View};
use crate::section::{Column, Fit, Line, Section, Table};
use crate::terminal::wrap;

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
        let mut parts: Vec<String> = title.map(|title| line(&Line::new(title), width)).into_iter().collect();
        parts.extend(before.iter().map(|one| line(one, width)));
        parts.extend((!table.is_empty()).then(|| self::table(table, width)));
        parts.extend(after.iter().map(|one| line(one, width)));
        parts.join("\n")
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

/// A line, broken between words if it does not fit.
fn line(line: &Line, width: usize) -> String {
    let Line { first, text, rest, width_max } = line;
    let width = width.min(*width_max);
    let fits = |part: &str| first.chars().count() + part.chars().count() <= width;
    let lines = text.split('\n').map(|part| match fits(part) {
        true => format!("{first}{part}"),
        false => wrap(part, first, rest, width).trim_end().to_owned(),
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A table for `width` columns of text, with its indent.
fn table(table: &Table, width: usize) -> String {
    let indent = " ".repeat(table.indent);
    let text = fitted(table, width.saturating_sub(table.indent));
    if indent.is_empty() {
        return text;
    }
    text.lines().map(|line| format!("{indent}{}", line.trim_end())).collect::<Vec<_>>().join("\n")
}

fn fitted(table: &Table, width: usize) -> String {
    let mut columns = table.shown(false);
    let whole = grid(&columns, None);
    let width = match table.fit {
        Fit::Break { width_max, .. } => width.min(width_max.into()),
        _ => width,
    };
    if widest(&whole) <= width {
        return whole;
    }
    match &table.fit {
        Fit::Keep => whole,
        Fit::Omit => {
            let most = columns.iter().map(|(_, column)| column.rank).max().unwrap_or(0);
            for rank in (1..=most).rev() {
                columns.retain(|(_, column)| column.rank < rank);
                let narrow = grid(&columns, None);
                if widest(&narrow) <= width {
                    return narrow;
                }
            }
            grid(&columns, None)
        }
        Fit::Break { width_min, .. } => {
            grid(&columns, Some(u16::try_from(width).unwrap_or(u16::MAX).max(*width_min)))
        }
        Fit::Turn { corner } => turned(&columns, corner.as_deref()),
    }
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

/// A line for each row. Cells are broken to fit `width`, if one is given.
fn grid(columns: &[(&str, &Column)], width: Option<u16>) -> String {
    let mut table = ruled();
    if let Some(width) = width {
        table.set_width(width).set_content_arrangement(ContentArrangement::Dynamic);
    }
    table.set_header(columns.iter().map(|(head, _)| *head));
    let rows = columns.first().map_or(0, |(_, column)| column.cells.len());
    for row in 0..rows {
        table.add_row(columns.iter().map(|(_, column)| column.cells[row].shown("-")));
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

/// A line for each column. With a corner, the cells of the first column are the head.
fn turned(columns: &[(&str, &Column)], corner: Option<&str>) -> String {
    let mut table = ruled();
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
pub fn ruled() -> comfy_table::Table {
    let mut table = comfy_table::Table::new();
    table.load_preset(NOTHING).set_style(TableComponent::HeaderLines, '─');
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Columns;
    use crate::value::Value;

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
        for fit in [Fit::Omit, Fit::Break { width_min: 20, width_max: u16::MAX }, Fit::Turn { corner: None }]
        {
            assert_eq!(text(fit, 80), wide);
        }
    }

    #[test]
    fn each_fit_has_no_wider_lines_than_the_terminal() {
        let turned = |corner: Option<&str>| Fit::Turn { corner: corner.map(str::to_owned) };
        for (fit, part) in [
            (Fit::Omit, "107\n"),
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
    fn a_line_that_fits_keeps_its_spaces_and_others_are_broken_between_words() {
        let lines =
            [Line::new("two  words"), Line::paragraph("three more words").labelled("  Note: ", "    ")];
        let text = render(&[Section::prose(lines)], View::plain(Some(20)));
        assert_eq!(text, "two  words\n  Note: three more\n    words");
    }
}
