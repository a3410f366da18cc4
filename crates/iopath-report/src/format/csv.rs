//! Comma-separated values as in RFC 4180: one table with a head, without units and rounding.

use super::{Document, Format, View};

/// The row of the table.
pub(super) const ROW: Format = Format {
    name: "csv",
    about: "one table of comma-separated values, without rounding",
    is_of_runs: false,
    render,
};

fn render(document: &dyn Document, _: View) -> String {
    let table = document.records();
    let (names, columns): (Vec<_>, Vec<_>) = table.recorded().into_iter().unzip();
    let mut writer = csv::WriterBuilder::new().from_writer(Vec::new());
    let written = writer.write_record(names).and_then(|()| {
        (0..table.rows())
            .try_for_each(|row| writer.write_record(columns.iter().map(|column| column.cells[row].exact())))
    });
    written.expect("a vector accepts every record of equal length");
    let bytes = writer.into_inner().expect("a vector can be flushed");
    String::from_utf8(bytes).expect("the values are UTF-8")
}
