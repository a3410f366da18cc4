//! The formats in which the program shows results, one file each: [`FORMATS`]. Does not measure and does not write
//! files. A [`Document`] describes what it shows as sections; the renderers (`text.rs`, `markdown.rs`, `csv.rs`,
//! `page.rs`) know no document.

mod csv;
mod elevators;
mod ends;
pub mod fio;
mod fio_entries;
mod fio_json;
mod hosts;
mod json;
pub mod log;
mod markdown;
pub mod page;
pub mod perftest;
pub mod runs;
pub mod text;

use crate::result::Report;
use crate::section::{Section, Table};

/// Results that a format can show.
pub trait Document {
    /// What a reader sees.
    fn sections(&self, medium: Medium) -> Vec<Section>;

    /// What a program reads: the named columns are one table without units and rounding.
    fn records(&self) -> Table;

    /// The document of the schema.
    fn json(&self) -> String;

    /// The text for a terminal.
    fn text(&self, view: View) -> String {
        text::render(&self.sections(Medium::Text), view)
    }

    /// The measurements, for the formats of other benchmarks; none if the document has others as well.
    fn report(&self) -> Option<&Report> {
        None
    }
}

/// The place where a reader sees sections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// A terminal. The program prints warnings on stderr.
    Text,
    /// Markdown.
    Markdown,
    /// The page of `iopath report`, which begins with findings and warnings.
    Page,
}

impl Medium {
    /// A section with a title, which a terminal does not have.
    fn titled(self, title: &str, table: impl Into<Table>) -> Section {
        Section::of(table).titled(if self == Self::Text { "" } else { title })
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

impl View {
    /// A text without colours.
    pub fn plain(width: Option<u16>) -> Self {
        Self { width, is_fancy: false }
    }
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
