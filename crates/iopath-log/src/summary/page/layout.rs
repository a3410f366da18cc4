//! Numbers, bars, tables and wrapped lines for a page of given width. The content is in `page.rs`.

use std::fmt::{self, Formatter};

/// The widest bar.
const BAR_WIDTH_MAX: usize = 30;

/// The space between two columns.
const GAP: usize = 2;

/// A column of a table.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column {
    title: &'static str,
    is_left: bool,
    /// Columns of the highest rank are omitted first on a narrow page; 0 is never omitted.
    rank: u8,
}

impl Column {
    pub(super) const fn left(title: &'static str) -> Self {
        Self { title, is_left: true, rank: 0 }
    }

    pub(super) const fn right(title: &'static str) -> Self {
        Self { title, is_left: false, rank: 0 }
    }

    pub(super) const fn rank(self, rank: u8) -> Self {
        Self { rank, ..self }
    }
}

/// A table as wide as its content. It omits columns that do not fit the page.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    columns: [Column; N],
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(super) const fn new(columns: [Column; N]) -> Self {
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn row(&mut self, cells: [String; N]) {
        self.rows.push(cells);
    }

    pub(super) fn write(&self, f: &mut Formatter<'_>, width: usize) -> fmt::Result {
        let mut shown: Vec<usize> = (0..N).collect();
        while self.width(&shown) > width {
            let rank = shown.iter().map(|column| self.columns[*column].rank).max().unwrap_or(0);
            if rank == 0 {
                break;
            }
            shown.retain(|column| self.columns[*column].rank < rank);
        }
        self.line(f, &shown, |column| self.columns[column].title)?;
        self.rows.iter().try_for_each(|row| self.line(f, &shown, |column| &row[column]))
    }

    fn line<'a>(
        &'a self,
        f: &mut Formatter<'_>,
        shown: &[usize],
        cell: impl Fn(usize) -> &'a str,
    ) -> fmt::Result {
        let mut line = String::new();
        for (index, column) in shown.iter().enumerate() {
            let text = cell(*column);
            let width = self.column_width(*column);
            let pad = " ".repeat(width - text.chars().count());
            let gap = " ".repeat(if index > 0 { GAP } else { 0 });
            let (before, after) =
                if self.columns[*column].is_left { ("", pad.as_str()) } else { (pad.as_str(), "") };
            line.extend([gap.as_str(), before, text, after]);
        }
        writeln!(f, "{}", line.trim_end())
    }

    fn width(&self, shown: &[usize]) -> usize {
        let columns: usize = shown.iter().map(|column| self.column_width(*column) + GAP).sum();
        columns.saturating_sub(GAP)
    }

    fn column_width(&self, column: usize) -> usize {
        let cells = self.rows.iter().map(|row| row[column].chars().count());
        cells.chain([self.columns[column].title.chars().count()]).max().unwrap_or(0)
    }
}

/// Writes a text in lines of at most `width`, broken at spaces; the second and later lines are indented.
pub(super) fn wrap(f: &mut Formatter<'_>, text: &str, width: usize) -> fmt::Result {
    let words = text.trim_start();
    let indent = text.len() - words.len();
    let mut line = " ".repeat(indent);
    let mut len = indent;
    let mut is_first = true;
    for word in words.split(' ') {
        let word_len = word.chars().count();
        if !is_first && len + 1 + word_len > width {
            writeln!(f, "{}", line.trim_end())?;
            (line, len, is_first) = (" ".repeat(indent + 2), indent + 2, true);
        }
        if !is_first {
            line.push(' ');
            len += 1;
        }
        line.push_str(word);
        (len, is_first) = (len + word_len, false);
    }
    writeln!(f, "{}", line.trim_end())
}

/// `1234567` as `1,234,567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let first = (digits.len() - 1) % 3 + 1;
    let mut text = digits[..first].to_owned();
    for group in digits.as_bytes()[first..].chunks(3) {
        text.push(',');
        text.extend(group.iter().map(|digit| char::from(*digit)));
    }
    text
}

/// Three digits and a unit.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    let (size, unit) =
        units.iter().rev().find(|(size, _)| value >= *size).or(units.first()).copied().unwrap_or((1.0, ""));
    let value = value / size;
    let decimals = match value {
        _ if size <= 1.0 || value >= 99.95 => 0,
        _ if value >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$} {unit}")
}

pub(super) fn time(nanos: f64) -> String {
    scaled(nanos, &[(1.0, "ns"), (1e3, "µs"), (1e6, "ms"), (1e9, "s")])
}

pub(super) fn bytes(bytes: f64) -> String {
    const KIB: f64 = 1024.0;
    let units = [(1.0, "B"), (KIB, "KiB"), (KIB.powi(2), "MiB"), (KIB.powi(3), "GiB"), (KIB.powi(4), "TiB")];
    scaled(bytes, &units)
}

/// The width of each bar on a line with `bars` bars and `used` other columns.
pub(super) fn bar_width(width: usize, used: usize, bars: usize) -> usize {
    (width.saturating_sub(used) / bars).min(BAR_WIDTH_MAX)
}

/// A bar for `part`; the bar for `whole` has `width` characters.
pub(super) fn bar(part: u64, whole: u64, width: usize) -> String {
    let filled = (part as f64 / whole.max(1) as f64 * width as f64).ceil() as usize;
    "#".repeat(filled.min(width))
}

/// One character for each value, an eighth to eight eighths of `max`; neighbours are averaged to fit into `width`.
pub(super) fn sparkline(values: &[f64], max: f64, width: usize) -> String {
    let group = values.len().div_ceil(width.max(1)).max(1);
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    values.chunks(group).map(|values| spark(mean(values), max)).collect()
}

fn spark(value: f64, max: f64) -> char {
    const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let level = if max > 0.0 { (value / max * 8.0).ceil() } else { 0.0 };
    LEVELS[(level as usize).min(8)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Display;

    struct Shown<F: Fn(&mut Formatter<'_>) -> fmt::Result>(F);

    impl<F: Fn(&mut Formatter<'_>) -> fmt::Result> Display for Shown<F> {
        fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
            self.0(f)
        }
    }

    #[test]
    fn numbers_have_separators_three_digits_and_units() {
        assert_eq!((count(0), count(999), count(1_234_567)), ("0".into(), "999".into(), "1,234,567".into()));
        assert_eq!(
            (time(0.0), time(999.0), time(1500.0)),
            ("0 ns".into(), "999 ns".into(), "1.50 µs".into())
        );
        assert_eq!((time(12.34e6), time(123.4e9)), ("12.3 ms".into(), "123 s".into()));
        assert_eq!((bytes(512.0), bytes(4096.0)), ("512 B".into(), "4.00 KiB".into()));
    }

    #[test]
    fn bars_show_the_smallest_and_the_largest_part() {
        assert_eq!((bar(0, 100, 30).len(), bar(1, 100, 30).len(), bar(100, 100, 30).len()), (0, 1, 30));
        assert_eq!(
            (spark(0.0, 8.0), spark(0.1, 8.0), spark(8.0, 8.0), spark(1.0, 0.0)),
            (' ', '▁', '█', ' ')
        );
        assert_eq!(sparkline(&[1.0, 1.0, 8.0, 8.0], 8.0, 2), "▁█");
    }

    #[test]
    fn a_narrow_table_omits_columns_by_rank() {
        let mut table =
            Table::new([Column::left("stage"), Column::right("p90").rank(2), Column::right("max").rank(1)]);
        table.row(["D2C".to_owned(), "20 µs".to_owned(), "1 ms".to_owned()]);
        let shown = |width| Shown(|f: &mut Formatter<'_>| table.write(f, width)).to_string();
        assert_eq!(shown(40), "stage    p90   max\nD2C    20 µs  1 ms\n");
        assert_eq!(shown(17), "stage   max\nD2C    1 ms\n");
        assert_eq!(shown(5), "stage\nD2C\n");
    }

    #[test]
    fn long_lines_are_wrapped_at_spaces() {
        let shown = |text: &str, width| Shown(|f: &mut Formatter<'_>| wrap(f, text, width)).to_string();
        assert_eq!(shown("one two three", 20), "one two three\n");
        assert_eq!(shown("one two three", 8), "one two\n  three\n");
        assert_eq!(shown("  one two three", 9), "  one two\n    three\n");
    }
}
