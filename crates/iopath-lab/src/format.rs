//! The formats in which the program shows results, one file each: [`FORMATS`]. Does not measure and does not write
//! files.

mod comparison;
mod csv;
mod elevators;
mod experiments;
mod fio_json;
mod fit;
mod json;
mod log;
mod map;
mod markdown;
mod perftest;
mod result;
mod survey;
mod sweep;
mod text;
mod tune;
mod whatif;

/// Results that a format can show.
pub trait Document {
    /// The text for a reader.
    fn text(&self, view: View) -> String;

    /// The document of the schema.
    fn json(&self) -> String;

    /// The figures as one table without units and rounding.
    fn records(&self) -> Records;

    /// The figures as tables for a reader.
    fn sections(&self) -> Vec<Section>;

    /// The measurements, for the formats of other benchmarks; none if the document has others as well.
    fn report(&self) -> Option<&Report> {
        None
    }
}

/// The output device of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct View {
    /// The number of columns; none without a limit.
    pub width: Option<u16>,
    /// Whether it shows colours.
    pub is_fancy: bool,
}

/// A table for programs: the same columns in each row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Records {
    /// The names of the columns.
    pub head: Vec<String>,
    /// The values; an unknown value is empty.
    pub rows: Vec<Vec<String>>,
}

impl Records {
    /// A table with these columns.
    fn new(head: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> Self {
        Self { head: names(head), rows: rows.into_iter().collect() }
    }
}

/// A part of a text: a table, and paragraphs below it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Section {
    /// The title; empty for none.
    pub title: String,
    /// The names of the columns; empty without a table.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// The number of columns of text before those of numbers.
    pub texts: usize,
    /// Paragraphs below the table.
    pub paragraphs: Vec<String>,
}

/// A format.
#[derive(Debug)]
pub struct Format {
    /// The name on command lines.
    pub name: &'static str,
    /// A description of one line.
    pub about: &'static str,
    /// Whether it shows results of `iopath run` only.
    pub is_of_runs: bool,
    /// Formats a document. A format of runs needs one with a [`Document::report`].
    pub render: fn(&dyn Document, View) -> String,
}

/// The formats.
pub static FORMATS: &[Format] =
    &[text::ROW, json::ROW, csv::ROW, markdown::ROW, fio_json::ROW, perftest::ROW];

impl Format {
    /// The format with this name.
    pub fn find(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Whether it is the default: text for a terminal.
    pub fn is_text(&self) -> bool {
        self.name == text::ROW.name
    }

    /// Whether it is the JSON of iopath, to which the program adds its origin.
    pub fn is_json(&self) -> bool {
        self.name == json::ROW.name
    }
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A number without rounding; empty if it is unknown.
fn number<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

#[cfg(test)]
mod tests;

use iopath_report::result::Report;
