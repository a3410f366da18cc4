//! What a report shows, in the same words for every format: sections of prose and tables. The formats render them
//! (`format/`), and know no report.

use crate::value::Value;

/// A part of a report: a title, lines, a table, and lines below it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Section {
    /// The title; empty for none.
    pub title: String,
    /// Lines above the table.
    pub before: Vec<Line>,
    /// The table; without rows, it is not shown.
    pub table: Table,
    /// Lines below the table.
    pub after: Vec<Line>,
}

impl Section {
    /// A section of a table.
    pub fn of(table: impl Into<Table>) -> Self {
        Self { table: table.into(), ..Self::default() }
    }

    /// A section of prose.
    pub fn prose<L: Into<Line>>(lines: impl IntoIterator<Item = L>) -> Self {
        Self::default().with_after(lines)
    }

    /// Sets the title.
    #[must_use]
    pub fn titled(self, title: impl Into<String>) -> Self {
        Self { title: title.into(), ..self }
    }

    /// Adds lines above the table.
    #[must_use]
    pub fn with_before<L: Into<Line>>(mut self, lines: impl IntoIterator<Item = L>) -> Self {
        self.before.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Adds lines below the table.
    #[must_use]
    pub fn with_after<L: Into<Line>>(mut self, lines: impl IntoIterator<Item = L>) -> Self {
        self.after.extend(lines.into_iter().map(Into::into));
        self
    }

    /// Whether there is nothing to show but a title.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.table.is_empty() && self.after.is_empty()
    }
}

/// A line of prose. A terminal breaks it between words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Begins the first line: an indent and a label.
    pub first: String,
    /// The text.
    pub text: String,
    /// Begins further lines of a terminal.
    pub rest: &'static str,
    /// The largest width; longer lines of a paragraph are hard to read.
    pub width_max: usize,
    /// The emphasis on a terminal with colours.
    pub emphasis: Emphasis,
}

/// The emphasis of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Emphasis {
    /// The line looks as its text does.
    #[default]
    Plain,
    /// Bold.
    Strong,
    /// Dim.
    Weak,
}

impl Line {
    /// The width of paragraphs.
    const PARAGRAPH: usize = 100;

    /// A line as wide as the terminal; further lines are indented.
    pub fn new(text: impl Into<String>) -> Self {
        let (first, emphasis) = (String::new(), Emphasis::Plain);
        Self { first, text: text.into(), rest: "  ", width_max: usize::MAX, emphasis }
    }

    /// A line of a paragraph.
    pub fn paragraph(text: impl Into<String>) -> Self {
        Self { width_max: Self::PARAGRAPH, ..Self::new(text) }
    }

    /// Sets the label before the text, and the beginning of further lines.
    #[must_use]
    pub fn labelled(self, first: impl Into<String>, rest: &'static str) -> Self {
        Self { first: first.into(), rest, ..self }
    }

    /// Sets the emphasis.
    #[must_use]
    pub fn with_emphasis(self, emphasis: Emphasis) -> Self {
        Self { emphasis, ..self }
    }

    /// The label and the text without indent.
    pub fn plain(&self) -> String {
        format!("{}{}", self.first.trim_start(), self.text)
    }
}

impl<T: Into<String>> From<T> for Line {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

/// What a terminal does with a table that is wider than it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Fit {
    /// It stays as it is.
    #[default]
    Keep,
    /// Columns of the highest rank are omitted.
    Omit,
    /// Cells are broken into lines, down to a width of the table.
    Break {
        /// The least width.
        width_min: u16,
        /// The largest width: longer lines of words are hard to read.
        width_max: u16,
    },
    /// Columns continue in further tables below, each with the first columns. If even one column is too wide, each row
    /// is a list.
    Split {
        /// The number of first columns that each table has.
        keys: usize,
    },
    /// Rows become columns. With a corner, the first column becomes the head.
    Turn {
        /// The head of the first column then.
        corner: Option<String>,
    },
}

/// A table: columns of equal length.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Table {
    /// The columns.
    pub columns: Vec<Column>,
    /// What a narrow terminal does.
    pub fit: Fit,
    /// The columns of text before it on a terminal.
    pub indent: usize,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// The head for readers; none for a column of programs.
    pub head: Option<String>,
    /// The name for programs, with the unit of the exact value; none for a column of readers.
    pub name: Option<String>,
    /// Whether the values are numbers, which end at the same place.
    pub is_number: bool,
    /// Whether a terminal does not have it.
    pub is_detail: bool,
    /// The order in which a narrow terminal omits columns; 0 is never omitted.
    pub rank: u8,
    /// Whether its words stay whole, because they are to be copied.
    pub is_whole: bool,
    /// The values.
    pub cells: Vec<Value>,
}

impl Column {
    /// Whether a row has such a quantity.
    fn has_values(&self) -> bool {
        self.cells.iter().any(|cell| *cell != Value::Absent)
    }
}

impl Table {
    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows() == 0
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |column| column.cells.len())
    }

    /// The columns for readers, each with its head. Columns without any value are left out.
    pub fn shown(&self, with_details: bool) -> Vec<(&str, &Column)> {
        let shown = self.columns.iter().filter(|column| column.has_values());
        let shown = shown.filter(|column| with_details || !column.is_detail);
        shown.filter_map(|column| Some((column.head.as_deref()?, column))).collect()
    }

    /// The columns for programs, each with its name.
    #[must_use]
    pub fn recorded(&self) -> Vec<(&str, &Column)> {
        self.columns.iter().filter_map(|column| Some((column.name.as_deref()?, column))).collect()
    }
}

/// Builds a table: each column has a function from a row to a value.
#[derive(Debug)]
pub struct Columns<R> {
    rows: Vec<R>,
    table: Table,
}

impl<R: Copy> Columns<R> {
    /// A table of these rows.
    pub fn of(rows: impl IntoIterator<Item = R>) -> Self {
        Self { rows: rows.into_iter().collect(), table: Table::default() }
    }

    /// A column of words for readers.
    #[must_use]
    pub fn text<V: Into<Value>>(self, head: impl Into<String>, of: impl Fn(R) -> V) -> Self {
        self.column(Some(head.into()), None, false, &|row| of(row).into())
    }

    /// A column of numbers for readers.
    #[must_use]
    pub fn number<V: Into<Value>>(self, head: impl Into<String>, of: impl Fn(R) -> V) -> Self {
        self.column(Some(head.into()), None, true, &|row| of(row).into())
    }

    /// A column for programs.
    #[must_use]
    pub fn record<V: Into<Value>>(self, name: impl Into<String>, of: impl Fn(R) -> V) -> Self {
        self.column(None, Some(name.into()), false, &|row| of(row).into())
    }

    /// The last column is also one for programs, with this name.
    #[must_use]
    pub fn recorded(mut self, name: impl Into<String>) -> Self {
        self.last().name = Some(name.into());
        self
    }

    /// A terminal does not have the last column.
    #[must_use]
    pub fn detail(mut self) -> Self {
        self.last().is_detail = true;
        self
    }

    /// A narrow terminal omits the last column, in this order.
    #[must_use]
    pub fn ranked(mut self, rank: u8) -> Self {
        self.last().rank = rank;
        self
    }

    /// The words of the last column stay whole.
    #[must_use]
    pub fn whole(mut self) -> Self {
        self.last().is_whole = true;
        self
    }

    /// What a narrow terminal does with the table.
    #[must_use]
    pub fn fit(mut self, fit: Fit) -> Self {
        self.table.fit = fit;
        self
    }

    /// The columns of text before the table on a terminal.
    #[must_use]
    pub fn indent(mut self, indent: usize) -> Self {
        self.table.indent = indent;
        self
    }

    fn last(&mut self) -> &mut Column {
        self.table.columns.last_mut().expect("a property is that of a column")
    }

    /// `of` is no parameter of type: the compiler would make a copy of this function for each column of the program.
    fn column(
        mut self,
        head: Option<String>,
        name: Option<String>,
        is_number: bool,
        of: &dyn Fn(R) -> Value,
    ) -> Self {
        let cells = self.rows.iter().copied().map(of).collect();
        let column = Column { head, name, is_number, is_detail: false, rank: 0, is_whole: false, cells };
        self.table.columns.push(column);
        self
    }
}

impl<R> From<Columns<R>> for Table {
    fn from(columns: Columns<R>) -> Self {
        columns.table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readers_and_programs_have_columns_of_their_own() {
        let table = Table::from(
            Columns::of([1_500_000.0, 2.0])
                .number("MB/s", Value::Rate)
                .recorded("bytes_per_second")
                .record("half", |row| row / 2.0)
                .text("path", |_| "a")
                .detail()
                .text("absent", |_| Value::Absent),
        );
        let names = |columns: Vec<(&str, &Column)>| -> Vec<String> {
            columns.into_iter().map(|(name, _)| name.to_owned()).collect()
        };
        assert_eq!(names(table.shown(false)), ["MB/s"]);
        assert_eq!(names(table.shown(true)), ["MB/s", "path"]);
        assert_eq!(names(table.recorded()), ["bytes_per_second", "half"]);
        let cell = &table.columns[0].cells[0];
        assert_eq!([cell.shown("-"), cell.exact()], ["1.50", "1500000"]);
    }
}
