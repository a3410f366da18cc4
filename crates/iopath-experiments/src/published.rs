//! Reads published figures from the CSV files of `published/`. Computes nothing from them.

/// A file of published figures.
#[derive(Debug)]
pub(super) struct Published {
    header: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

/// A line of a file.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record<'a> {
    header: &'a [&'static str],
    cells: &'a [&'static str],
}

/// The files, by name. `readahead.csv` has lines for the queues `unpatched` and `patched`, `elevator.csv` the
/// throughput with the limits of the elevator, `skew.csv` the end of each worker.
const FILES: [(&str, &str); 6] = [
    ("bonnie", include_str!("../published/bonnie.csv")),
    ("boundary", include_str!("../published/boundary.csv")),
    ("direct", include_str!("../published/direct.csv")),
    ("elevator", include_str!("../published/elevator.csv")),
    ("readahead", include_str!("../published/readahead.csv")),
    ("skew", include_str!("../published/skew.csv")),
];

/// The figures of `published/NAME.csv`.
///
/// # Panics
/// If there is no such file.
pub(super) fn published(name: &str) -> Published {
    let file = FILES.iter().find(|(known, _)| *known == name);
    let (_, text) = file.unwrap_or_else(|| panic!("no file of published figures is called {name}"));
    Published::parse(text)
}

impl Published {
    fn parse(text: &'static str) -> Self {
        let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
        let header = lines.next().unwrap_or_default();
        Self { header, rows: lines.collect() }
    }

    /// All lines.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.rows.iter().map(|cells| Record { header: &self.header, cells })
    }

    /// The first line with these values in these columns.
    pub(super) fn find(&self, wanted: &[(&str, &str)]) -> Option<Record<'_>> {
        self.records().find(|record| wanted.iter().all(|(column, value)| record.text(column) == *value))
    }
}

impl Record<'_> {
    /// A value as text.
    ///
    /// # Panics
    /// If the file has no such column.
    pub(super) fn text(&self, column: &str) -> &'static str {
        let index = self.header.iter().position(|name| *name == column);
        self.cells[index.unwrap_or_else(|| panic!("no column {column} among {:?}", self.header))]
    }

    /// A value as a number.
    ///
    /// # Panics
    /// If the file has no such column, or the value is not a number.
    pub(super) fn number(&self, column: &str) -> f64 {
        let text = self.text(column);
        text.parse().unwrap_or_else(|_| panic!("column {column}: `{text}` is not a number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_a_table_and_holds_the_published_figures() {
        let shapes = [(4, 8), (6, 6), (9, 7), (2, 2), (65, 10), (16, 4)];
        for ((name, _), (lines, columns)) in FILES.iter().zip(shapes) {
            let file = published(name);
            assert_eq!((file.rows.len(), file.header.len()), (lines, columns), "{name}");
            assert!(file.rows.iter().all(|cells| cells.len() == columns), "{name}");
        }
        let row = [("queue", "unpatched"), ("readahead_kib", "512"), ("max_sectors_kib", "64")];
        let (file, first) = (published("readahead"), [("block_bytes", "67108864")]);
        let record = file.find(&[&row[..], &first[..]].concat()).unwrap();
        assert!((record.number("mean_mib_per_s") - 253.774).abs() < 1e-9);
        assert!(file.find(&[("block_bytes", "1")]).is_none());
        assert_eq!(published("direct").records().last().unwrap().text("path"), "raw");
    }
}
